//! The options of `flashwise simulate` that ask for more than a policy alone: the whole cache, named as in the server's configuration, or
//! what a cache wears.

use clap::Args;
use flashwise_core::cache::{CopyForward, Mode};
use flashwise_core::filter::{Clients, Filter, Rule};
use flashwise_core::quantity::{ByteSize, Duration};
use flashwise_sim::cache_settings::{CacheSettings, Ram, parse_share};
use flashwise_sim::device::profile::Profile;
use flashwise_sim::endurance;
use flashwise_sim::results::WearLimits;

use crate::endurance::EnduranceOptions;
use crate::failure::Misuse;

/// What the whole cache is made of; `None` is the default.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "The whole cache, as flashwise serve runs it, with --write-mode or --layout containers")]
pub struct CacheOptions {
    /// How blocks lie on flash: containers, a log of erase units as flashwise serve writes it; or slots, each block at a place of its own
    /// on a conventional SSD. Of the whole cache --size is the size of the flash, at least 11 erase units. Blocks are 4KiB and keep their
    /// addresses if the trace is of one volume below 16TiB; of a larger one, or of several volumes, which share the cache, the 256MiB
    /// regions that are accessed are placed one after the other. Of a recording flushes, trims, zeroes and the flag fua count too
    #[arg(long, value_name = "LAYOUT", value_parser = ["containers", "slots"])]
    layout: Option<String>,
    /// When written data reaches the backend: write-back, write-through or write-around [default: write-back]
    #[arg(long, value_name = "MODE")]
    write_mode: Option<Mode>,
    /// RAM in front of the flash: a size (128MiB) or a share of the flash (5%) [default: 0, and 5% where wear is simulated]
    #[arg(long, value_name = "SIZE")]
    ram: Option<Ram>,
    /// Share of the RAM that buffers writes; the rest buffers reads [default: 50%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    write_buffer_share: Option<f64>,
    /// Size of an erase unit [default: 2MiB]
    #[arg(long, value_name = "SIZE")]
    erase_unit: Option<ByteSize>,
    /// Share of the flash that is kept free of wanted blocks [default: 10%]; where wear is simulated, flash beyond the cache's size, as a
    /// share of it, and lists (5%,10%) are possible [default: 7%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share, value_delimiter = ',')]
    over_provision: Vec<f64>,
    /// What is kept of an erase unit that is reset, besides dirty blocks: used, what was asked for again since it came there, and
    /// of a unit with much of that what was twice; young:50%, what is in that part of the policy's queues that was used last; all that the
    /// policy wants; or none [default: used]
    #[arg(long, value_name = "WHICH")]
    copy_forward: Option<CopyForward>,
    /// Start to write back above this share of dirty blocks [default: 50%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    dirty_high: Option<f64>,
    /// Stop to write back at this share of dirty blocks [default: 40%, at most --dirty-high]
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    dirty_low: Option<f64>,
    /// Write back what has been dirty for longer, in the trace's time [default: 15min]
    #[arg(long, value_name = "DURATION")]
    dirty_age: Option<Duration>,
    /// Move written data out of RAM within this time [default: 5s]
    #[arg(long, value_name = "DURATION")]
    commit_age: Option<Duration>,
    /// Let sequential streams longer than this bypass the flash; 0 for never [default: 4MiB]
    #[arg(long, value_name = "SIZE")]
    sequential_bypass: Option<ByteSize>,
    /// Which processes are cached that no rule names: all or none, as in the server's I/O filter. For traces that say which process
    /// asked: fiu and blkparse [default: all]
    #[arg(long, value_name = "CLIENTS")]
    cache_clients: Option<Clients>,
    /// Processes that are cached, with commas between them: pid:N or program:NAME [default: none]
    #[arg(long, value_name = "RULES", value_parser = parse_processes)]
    allow_clients: Option<Rules>,
    /// Processes that are not cached [default: none]
    #[arg(long, value_name = "RULES", value_parser = parse_processes)]
    deny_clients: Option<Rules>,
    #[command(flatten)]
    endurance: EnduranceOptions,
}

/// The rules of one option.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

/// Reads rules about processes: a trace says nothing else of who asked.
fn parse_processes(text: &str) -> Result<Rules, String> {
    let rules = Rule::parse_list(text)?;
    match rules.iter().find(|rule| !matches!(rule, Rule::Pid(_) | Rule::Program(_))) {
        None => Ok(Rules(rules)),
        Some(rule) => Err(format!("found '{rule}', expected pid:N or program:NAME: traces know no more of who asked")),
    }
}

/// What is simulated besides the policy.
#[derive(Clone, Debug)]
pub enum Model {
    /// Nothing.
    Policy,
    /// The whole cache that flashwise serve runs.
    Server(CacheSettings),
    /// What the cache wears, once for each over-provisioning, and what that is compared with.
    Endurance(Vec<endurance::Settings>, WearLimits),
}

impl CacheOptions {
    /// What the options ask for. `asks` names what makes sense only where wear is simulated, if something does.
    pub fn model(&self, asks: Option<&str>) -> anyhow::Result<Model> {
        let layout = self.layout.as_deref();
        let server = [
            ("--layout containers", layout == Some("containers")),
            ("--write-mode", self.write_mode.is_some()),
            ("--write-buffer-share", self.write_buffer_share.is_some()),
            ("--copy-forward", self.copy_forward.is_some()),
            ("--dirty-high", self.dirty_high.is_some()),
            ("--dirty-low", self.dirty_low.is_some()),
            ("--dirty-age", self.dirty_age.is_some()),
            ("--commit-age", self.commit_age.is_some()),
            ("--sequential-bypass", self.sequential_bypass.is_some()),
            ("--cache-clients", self.cache_clients.is_some()),
            ("--allow-clients", self.allow_clients.is_some()),
            ("--deny-clients", self.deny_clients.is_some()),
        ];
        let server = server.into_iter().find(|(_, given)| *given).map(|(name, _)| name);
        let slots = (layout == Some("slots")).then_some("--layout slots").or_else(|| self.endurance.given());
        let wear = asks.or(slots);
        let shared = self.ram.is_some() || self.erase_unit.is_some() || !self.over_provision.is_empty();
        match (server, wear) {
            (Some(server), Some(wear)) => Err(anyhow::Error::new(Misuse(format!(
                "{server} is of the whole cache that flashwise serve runs, {wear} of what a cache wears; expected one of them"
            )))),
            (Some(_), None) => Ok(Model::Server(self.server()?)),
            (None, None) if !shared => Ok(Model::Policy),
            (None, _) => {
                let limits = self.endurance.limits()?;
                Ok(Model::Endurance(self.worn(limits.device.as_ref()), limits))
            }
        }
    }

    /// Which processes are cached, if that was said.
    pub fn filter(&self) -> Option<Filter> {
        let given = self.cache_clients.is_some() || self.allow_clients.is_some() || self.deny_clients.is_some();
        let rules = |rules: &Option<Rules>| rules.clone().unwrap_or_default().0;
        given.then(|| Filter {
            clients: self.cache_clients.unwrap_or_default(),
            allow: rules(&self.allow_clients),
            deny: rules(&self.deny_clients),
        })
    }

    fn server(&self) -> Result<CacheSettings, Misuse> {
        let default = CacheSettings::default();
        let dirty_high = self.dirty_high.unwrap_or(default.dirty_high);
        let over_provision = match self.over_provision[..] {
            [] => default.over_provision,
            [one] => one,
            _ => {
                return Err(Misuse(
                    "--over-provision: found a list, expected one share for the whole cache".to_owned(),
                ));
            }
        };
        Ok(CacheSettings {
            mode: self.write_mode.unwrap_or(default.mode),
            ram: self.ram.unwrap_or(default.ram),
            write_buffer_share: self.write_buffer_share.unwrap_or(default.write_buffer_share),
            erase_unit_bytes: self.erase_unit.map_or(default.erase_unit_bytes, ByteSize::bytes),
            over_provision,
            copy_forward: self.copy_forward.unwrap_or(default.copy_forward),
            dirty_high,
            dirty_low: self.dirty_low.unwrap_or(default.dirty_low.min(dirty_high)),
            dirty_age_us: self.dirty_age.map_or(default.dirty_age_us, Duration::us),
            commit_age_us: self.commit_age.map_or(default.commit_age_us, Duration::us),
            sequential_bytes: self.sequential_bypass.map_or(default.sequential_bytes, ByteSize::bytes),
        })
    }

    fn worn(&self, device: Option<&Profile>) -> Vec<endurance::Settings> {
        let default = self.endurance.settings();
        let settings = endurance::Settings {
            ram: self.ram.unwrap_or(default.ram),
            erase_unit_bytes: match (self.erase_unit, device) {
                (Some(given), _) => given.bytes(),
                (None, Some(device)) => device.block_bytes(),
                (None, None) => default.erase_unit_bytes,
            },
            over_provision: device.and_then(|device| device.over_provision).unwrap_or(default.over_provision),
            ..default
        };
        if self.over_provision.is_empty() {
            return vec![settings];
        }
        let with = |&over_provision: &f64| endurance::Settings { over_provision, ..settings.clone() };
        self.over_provision.iter().map(with).collect()
    }
}
