//! The options of `flashwise simulate` that ask for more than a policy alone: the whole cache, named as in the server's configuration, or
//! what a cache wears.

use std::str::FromStr;

use clap::Args;
use flashwise_core::cache::settings::{Live, Setting, SettingError, Settings, Value};
use flashwise_core::filter::Filter;
use flashwise_core::quantity::{ByteSize, Share};
use flashwise_sim::cache_settings::{Ram, simulated};
use flashwise_sim::device::profile::Profile;
use flashwise_sim::endurance;
use flashwise_sim::results::WearLimits;

use crate::endurance::EnduranceOptions;
use crate::failure::Misuse;
use crate::settings::SimulateSettings;

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
    #[arg(long, value_name = "SIZE", help = ram_help())]
    ram: Option<Written<Ram>>,
    #[arg(long, value_name = "SIZE", help = erase_unit_help())]
    erase_unit: Option<Written<ByteSize>>,
    #[arg(long, value_name = "SHARE", help = over_provision_help(), value_delimiter = ',')]
    over_provision: Vec<Written<Share>>,
    #[command(flatten)]
    settings: SimulateSettings,
    #[command(flatten)]
    endurance: EnduranceOptions,
}

/// A value with the text that it was read from.
#[derive(Clone, Debug)]
struct Written<T> {
    text: String,
    value: T,
}

impl<T: FromStr> FromStr for Written<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Written<T>, T::Err> {
        Ok(Written { text: text.to_owned(), value: text.parse()? })
    }
}

fn meaning(name: &str) -> &'static str {
    Setting::named(name).parameter.meaning
}

fn default(name: &str) -> &'static str {
    Setting::named(name).parameter.default
}

fn ram_help() -> String {
    let (meaning, serve) = (meaning("ram"), default("ram"));
    let wear = Value::from(endurance::Settings::default().ram);
    format!(
        "{meaning}: a size, or a share of the flash such as 5% [default: 0, and {wear} where wear is simulated; flashwise serve has {serve}]"
    )
}

fn erase_unit_help() -> String {
    let (meaning, default) = (meaning("erase-unit"), default("erase-unit"));
    format!(
        "{meaning}; where wear is simulated, any multiple of the trace's blocks [default: {default}, and --device's]"
    )
}

fn over_provision_help() -> String {
    let (meaning, default) = (meaning("over-provision"), default("over-provision"));
    let wear = Value::Share(endurance::Settings::default().over_provision);
    format!(
        "{meaning} [default: {default}]; where wear is simulated, flash beyond the cache's size instead, as a share of it, and lists \
         (5%,10%) are possible [default: {wear}]"
    )
}

/// What is simulated besides the policy.
#[derive(Clone, Debug)]
pub enum Model {
    /// Nothing.
    Policy,
    /// The whole cache that flashwise serve runs.
    Server(Settings),
    /// What the cache wears, once for each over-provisioning, and what that is compared with.
    Endurance(Vec<endurance::Settings>, WearLimits),
}

impl CacheOptions {
    /// What the options ask for. `asks` names what makes sense only where wear is simulated, if something does.
    pub fn model(&self, asks: Option<&str>) -> anyhow::Result<Model> {
        let layout = self.layout.as_deref();
        let containers = (layout == Some("containers")).then(|| "--layout containers".to_owned());
        let server = containers.or_else(|| self.settings.0.names().next().map(|name| format!("--{name}")));
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
        self.settings.0.changes(Live::Clients).then(|| self.settings.0.filter())
    }

    fn server(&self) -> Result<Settings, Misuse> {
        let over_provision = match &self.over_provision[..] {
            [] => None,
            [one] => Some(one.text.as_str()),
            _ => {
                return Err(Misuse(
                    "--over-provision: found a list, expected one share for the whole cache".to_owned(),
                ));
            }
        };
        let refuse = |error: SettingError| Misuse(format!("--{error}"));
        let mut settings = self.settings.0.clone();
        let erase_unit = self.erase_unit.as_ref().map(|written| written.text.as_str());
        for (name, text) in [("erase-unit", erase_unit), ("over-provision", over_provision)] {
            text.map_or(Ok(()), |text| settings.read(name, text)).map_err(refuse)?;
        }
        match &self.ram {
            Some(Written { value: ram @ Ram::Share(_), .. }) => settings.set(Setting::named("ram"), (*ram).into()),
            Some(Written { text, .. }) => settings.read("ram", text).map_err(refuse)?,
            None => {}
        }
        let settings = simulated(&settings);
        settings.check().map_err(refuse)?;
        Ok(settings)
    }

    fn worn(&self, device: Option<&Profile>) -> Vec<endurance::Settings> {
        let default = self.endurance.settings();
        let settings = endurance::Settings {
            ram: self.ram.as_ref().map_or(default.ram, |written| written.value),
            erase_unit_bytes: match (&self.erase_unit, device) {
                (Some(given), _) => given.value.bytes(),
                (None, Some(device)) => device.block_bytes(),
                (None, None) => default.erase_unit_bytes,
            },
            over_provision: device.and_then(|device| device.over_provision).unwrap_or(default.over_provision),
            ..default
        };
        if self.over_provision.is_empty() {
            return vec![settings];
        }
        let with = |written: &Written<Share>| endurance::Settings {
            over_provision: written.value.of_one(),
            ..settings.clone()
        };
        self.over_provision.iter().map(with).collect()
    }
}
