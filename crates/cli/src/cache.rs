//! The options of `flashwise simulate` that ask for more than a policy alone: the whole cache, named as in the server's configuration, or
//! what a cache wears.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use flashwise_core::cache::settings::{Live, Setting, SettingError, Settings, Value};
use flashwise_core::filter::Filter;
use flashwise_core::quantity::{ByteSize, Share};
use flashwise_device::TierModel;
use flashwise_device::flash::profile::Profile;
use flashwise_sim::cache_settings::{Ram, simulated};
use flashwise_sim::endurance;
use flashwise_sim::experiment::check_buckets;
use flashwise_sim::results::WearLimits;
use flashwise_sim::wlfc::{BucketSettings, System};

use crate::buckets::BucketOptions;
use crate::endurance::EnduranceOptions;
use crate::failure::Misuse;
use crate::given::given;
use crate::help;
use crate::settings::SimulateSettings;

/// Where cached blocks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// Nowhere.
    None,
    /// Each at a place of its own.
    #[value(alias = "slots")]
    InPlace,
    /// In the log of a server's cache.
    Log,
    /// In erase units that are written and reset whole.
    Containers,
    /// In buckets of host-managed flash.
    Wlfc,
    /// The same, behind RAM.
    #[value(name = "wlfc_c", alias = "wlfc-c")]
    WlfcC,
    /// In buckets of a conventional SSD.
    BLike,
}

/// What the whole cache is made of; `None` is the default.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = help::LAYOUT)]
pub struct CacheOptions {
    /// Where cached blocks lie. none: nowhere, what policies decide; in-place: each at a place of its own on a modelled SSD; log: the whole
    /// cache that flashwise serve runs; containers: erase units that are written and reset whole, for ripq+, pannier, bcache and c; wlfc, wlfc_c, b-like:
    /// caches of their own that evict whole buckets, with no policy beside them. An option of one
    /// layout names it, and so does an algorithm. Of the log --size is the size of the flash, at least 11 erase units; its blocks are 4KiB and keep
    /// their addresses if the trace is of one volume below 16TiB; of a larger one, or of several volumes, which share the cache, the 256MiB
    /// regions that are accessed are placed one after the other. With --device or an option of one it lies on a modelled SSD. Of a recording flushes, trims, zeroes and the flag fua count too [default: none]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<Layout>,
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
    #[command(flatten)]
    buckets: BucketOptions,
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
        "{meaning}: a size, or a share of the flash such as 5% [default: 0; {wear} in place and in containers; flashwise serve has {serve}]"
    )
}

fn erase_unit_help() -> String {
    let (meaning, default) = (meaning("erase-unit"), default("erase-unit"));
    format!(
        "{meaning}; in place and in containers any multiple of the trace's blocks [default: {default}, and --device's]"
    )
}

fn over_provision_help() -> String {
    let (meaning, default) = (meaning("over-provision"), default("over-provision"));
    let wear = Value::Share(endurance::Settings::default().over_provision);
    format!(
        "{meaning} [default: {default}]; in place and in containers flash beyond the cache's size instead, as a share of it, and lists \
         (5%,10%) are possible [default: {wear}]"
    )
}

/// What is simulated besides the policy.
#[derive(Clone, Debug)]
pub enum Model {
    /// What policies decide, behind a read cache in RAM.
    Policy(Ram),
    /// The whole cache that flashwise serve runs: the log, on an SSD if one is named.
    Log(Settings, Option<endurance::Settings>, WearLimits),
    /// Modelled flash, once for each over-provisioning, and what its wear is compared with.
    Endurance(Vec<endurance::Settings>, WearLimits),
    /// A cache that evicts whole buckets.
    Buckets(System),
}

impl CacheOptions {
    /// What the options name. `algorithm` is one that was named and has a layout of its own, if there is one.
    ///
    /// A layout is named by `--layout`, by an option of only one layout, or by an algorithm; what several layouts have names none.
    pub fn model(&self, algorithm: Option<&str>) -> anyhow::Result<Model> {
        let given = self.settings.0.names().next().map(|name| format!("--{name}"));
        let given = given.as_deref();
        let device = self.endurance.device_given();
        // What is not of the log, which may lie on a device too.
        let other = algorithm.or_else(|| self.endurance.compared_given());
        let shared =
            [("--erase-unit", self.erase_unit.is_some()), ("--over-provision", !self.over_provision.is_empty())];
        let shared = shared.into_iter().find(|(_, given)| *given).map(|(name, _)| name);
        let misuse = |what: String| Err(anyhow::Error::new(Misuse(what)));
        let log = || {
            let (settings, limits) = (self.server()?, self.endurance.limits()?);
            let ssd = device.is_some().then(|| self.ssd(&settings, limits.device.as_ref()));
            Ok(Model::Log(settings, ssd, limits))
        };
        let in_place = || {
            let limits = self.endurance.limits()?;
            Ok(Model::Endurance(self.worn(limits.device.as_ref()), limits))
        };
        match (self.layout, given, other, device) {
            (Some(Layout::Wlfc), ..) => Ok(Model::Buckets(System::Wlfc)),
            (Some(Layout::WlfcC), ..) => Ok(Model::Buckets(System::WlfcC)),
            (Some(Layout::BLike), ..) => Ok(Model::Buckets(System::BLike)),
            _ if let Some(option) = self.buckets.given().next() => {
                misuse(format!("{option} is of --layout wlfc, wlfc_c or b-like; expected one of them with it"))
            }
            (Some(Layout::None) | None, None, None, None) => match shared {
                None => Ok(Model::Policy(self.ram.as_ref().map_or(Ram::Bytes(0), |written| written.value))),
                Some(option) => misuse(format!(
                    "{option} is of a layout, and none is named; expected --layout in-place or --layout log with it"
                )),
            },
            (Some(Layout::None), ..) => {
                let option = given.or(other).or(device).expect("one of them is given");
                misuse(format!("found --layout none with {option}, which has a layout; expected one of them"))
            }
            (_, Some(option), Some(other), _) => misuse(format!(
                "{option} is of --layout log, the cache that flashwise serve runs, and {other} of another layout; expected one of them"
            )),
            (Some(Layout::InPlace), Some(option), None, _) => {
                misuse(format!("{option} is of --layout log, found --layout in-place; expected one of them"))
            }
            (Some(Layout::Log), None, Some(other), _) => {
                misuse(format!("{other} is of another layout, found --layout log; expected one of them"))
            }
            // Replacement policies in a log were called containers before.
            (Some(Layout::Log), _, None, _)
            | (Some(Layout::Containers) | None, Some(_), None, _)
            | (Some(Layout::Containers), None, None, None) => log(),
            (Some(Layout::InPlace | Layout::Containers) | None, None, ..) => in_place(),
        }
    }

    /// Which processes are cached, if that was said.
    pub fn filter(&self) -> Option<Filter> {
        self.settings.0.changes(Live::Clients).then(|| self.settings.0.filter())
    }

    /// What a cache of buckets is made of, behind which `backend` stands if one was named. `others` are options of other groups that were
    /// given.
    pub fn buckets(
        &self,
        system: System,
        backend: Option<TierModel>,
        others: impl IntoIterator<Item = &'static str>,
    ) -> anyhow::Result<BucketSettings> {
        let settings = self.settings.0.names().map(|name| format!("--{name}"));
        let own = [("--ram", self.ram.is_some()), ("--erase-unit", self.erase_unit.is_some())];
        let over_provision = (!self.over_provision.is_empty()).then_some("--over-provision");
        let given = given(own)
            .chain(over_provision)
            .chain(self.endurance.all_given())
            .chain(self.buckets.given())
            .chain(others);
        let given: Vec<String> = given.map(str::to_owned).chain(settings).collect();
        check_buckets(system, &given).map_err(|error| Misuse(error.to_string()))?;
        let device = self.endurance.limits()?.device;
        match &self.over_provision[..] {
            [] => Ok(self.buckets.settings(device, backend, None)),
            [one] => Ok(self.buckets.settings(device, backend, Some(one.value))),
            _ => Err(Misuse("--over-provision: found a list, expected one share for b-like".to_owned()).into()),
        }
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

    /// The SSD that the log of `settings` lies on. Its erase units are those of the device, or of the log where no device is named; its spare
    /// space is its own.
    fn ssd(&self, settings: &Settings, device: Option<&Profile>) -> endurance::Settings {
        let default = self.endurance.settings();
        endurance::Settings {
            erase_unit_bytes: device.map_or(settings.erase_unit_bytes(), Profile::block_bytes),
            over_provision: device.and_then(|device| device.over_provision).unwrap_or(default.over_provision),
            ..default
        }
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
