//! Whole devices, built-in or the user's own, and the tiers of an array that consist of them.

use flashwise_core::options::Kind;
use flashwise_core::tiers::{Array, Device, Tier};

use crate::catalogue::{DRIVE_KEYS, Entry, names_with};
use crate::keys::{ArrayError, Keys};
use crate::{CACHE_DEVICE, STORAGE_DEVICE};

/// A device with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The source of its figures.
    pub source: String,
    /// The figures.
    pub device: Device,
    /// Its parallelism and transfer speed.
    pub service: Service,
}

/// Parallelism of a device, for accesses that queue for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Service {
    /// Accesses that it serves in parallel.
    pub channels: u32,
    /// Transfer speed of the further blocks of a request after the first. If not given, each block takes the full
    /// latency.
    pub transfer_mb_per_s: Option<f64>,
}

/// A tier, and how its devices serve queued accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierModel {
    /// The devices.
    pub tier: Tier,
    /// The parallelism of each device.
    pub service: Service,
}

/// An array, and how its devices serve queued accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrayModel {
    /// The cache devices.
    pub cache: TierModel,
    /// The storage devices.
    pub storage: TierModel,
}

pub(crate) const TIER_KEYS: [&str; 3] = ["device", "devices", "write-amplification"];

/// The most devices of a tier with queues; as many as a device may have channels.
const DEVICES_MAX: u32 = 1024;

impl Profile {
    /// Returns the built-in devices with figures of the whole device.
    pub fn all() -> Vec<Profile> {
        let named = |name: &str| Profile::named(name, name).expect("the devices of flashwise are in order");
        names_with(is_known).into_iter().map(named).collect()
    }

    /// Finds the device `name`, given at `place`: a built-in one, or a file.
    fn named(name: &str, place: &str) -> Result<Profile, ArrayError> {
        Profile::of(&Entry::find(name, place, is_known)?)
    }

    fn of(entry: &Entry) -> Result<Profile, ArrayError> {
        let keys = &entry.top;
        let text = |key| Ok(keys.text(key)?.unwrap_or_default().to_owned());
        Ok(Profile {
            name: entry.name.clone(),
            title: text("title")?,
            source: text("source")?,
            device: device(keys, None)?,
            service: service(keys, None)?,
        })
    }
}

fn is_known(entry: &Entry) -> bool {
    entry.top.has("capacity-gb")
}

impl TierModel {
    /// Returns the tier that `keys` describe.
    pub(crate) fn read(keys: &Keys) -> Result<TierModel, ArrayError> {
        keys.check(&[&TIER_KEYS[..], &DRIVE_KEYS].concat())?;
        let profile = keys.text("device")?.map(|name| Profile::named(name, keys.place())).transpose()?;
        let tier = Tier {
            device: device(keys, profile.as_ref().map(|profile| profile.device))?,
            devices: keys.number("devices", Kind::POSITIVE)?.unwrap_or(1.0),
            write_amplification: keys.number("write-amplification", Kind::POSITIVE)?.unwrap_or(1.0),
        };
        Ok(TierModel { tier, service: service(keys, profile.map(|profile| profile.service))? })
    }
}

impl std::fmt::Display for TierModel {
    /// Formats the keys as an option or a configuration accepts them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tier { device, devices, write_amplification } = self.tier;
        write!(f, "capacity-gb={},endurance-cycles=", device.capacity_bytes / 1e9)?;
        match device.endurance_cycles.is_finite() {
            true => write!(f, "{}", device.endurance_cycles)?,
            false => f.write_str("unlimited")?,
        }
        let (read, write) = (device.read_latency_us / 1e3, device.write_latency_us / 1e3);
        write!(f, ",read-latency-ms={read},write-latency-ms={write},channels={}", self.service.channels)?;
        if let Some(speed) = self.service.transfer_mb_per_s {
            write!(f, ",transfer-mb-per-s={speed}")?;
        }
        if devices != 1.0 {
            write!(f, ",devices={devices}")?;
        }
        if write_amplification != 1.0 {
            write!(f, ",write-amplification={write_amplification}")?;
        }
        Ok(())
    }
}

impl ArrayModel {
    /// Returns the devices of the paper: a cache of SLC, storage of MLC.
    pub fn paper() -> ArrayModel {
        let tier = |name| tier_model_of_option(name, name).expect("the profiles of flashwise are in order");
        ArrayModel { cache: tier(CACHE_DEVICE), storage: tier(STORAGE_DEVICE) }
    }

    /// Returns the tiers for lifetime and latency without queueing.
    pub fn array(&self) -> Array {
        Array { cache: self.cache.tier, storage: self.storage.tier }
    }

    /// Rejects numbers of devices that cannot have queues.
    pub fn check(&self) -> Result<(), ArrayError> {
        for (place, tier) in [("cache-device", &self.cache.tier), ("storage-device", &self.storage.tier)] {
            if tier.devices.fract() != 0.0 || tier.devices > f64::from(DEVICES_MAX) {
                return Err(ArrayError::Value {
                    place: place.to_owned(),
                    key: "devices".to_owned(),
                    problem: format!(
                        "found {}, expected a whole number from 1 to {DEVICES_MAX} where requests wait",
                        tier.devices
                    ),
                });
            }
        }
        Ok(())
    }
}

/// Returns the device that `keys` describe; `profile` provides the defaults.
fn device(keys: &Keys, profile: Option<Device>) -> Result<Device, ArrayError> {
    let number = |key, of_profile: fn(Device) -> f64, unit: f64| match (keys.number(key, Kind::POSITIVE)?, profile) {
        (Some(number), _) => Ok(number * unit),
        (None, Some(profile)) => Ok(of_profile(profile)),
        (None, None) => Ok(keys.needed(key, Kind::POSITIVE)? * unit),
    };
    let capacity_bytes = number("capacity-gb", |device| device.capacity_bytes, 1e9)?;
    let cycles = keys.limit("endurance-cycles")?;
    let endurance_cycles = match (cycles, keys.number("total-writes-tb", Kind::POSITIVE)?, profile) {
        (Some(_), Some(_), _) => {
            let place = keys.place().to_owned();
            return Err(ArrayError::Both { place, keys: "endurance-cycles and total-writes-tb" });
        }
        (Some(cycles), None, _) => cycles,
        (None, Some(total_writes_tb), _) => total_writes_tb * 1e12 / capacity_bytes,
        (None, None, Some(profile)) => profile.endurance_cycles,
        (None, None, None) => {
            let expected = "writes per cell, or total-writes-tb, or 'unlimited'";
            return Err(keys.missing("endurance-cycles", expected));
        }
    };
    Ok(Device {
        capacity_bytes,
        endurance_cycles,
        read_latency_us: number("read-latency-ms", |device| device.read_latency_us, 1e3)?,
        write_latency_us: number("write-latency-ms", |device| device.write_latency_us, 1e3)?,
    })
}

/// Returns the parallelism that `keys` describe; `profile` provides the defaults. Otherwise a device serves one access
/// at once.
fn service(keys: &Keys, profile: Option<Service>) -> Result<Service, ArrayError> {
    let profile = profile.unwrap_or(Service { channels: 1, transfer_mb_per_s: None });
    Ok(Service {
        channels: keys.whole("channels", 1, DEVICES_MAX)?.unwrap_or(profile.channels),
        transfer_mb_per_s: keys.number("transfer-mb-per-s", Kind::POSITIVE)?.or(profile.transfer_mb_per_s),
    })
}

/// Returns the tier that `keys` describe: a `device` with changes, or all figures of a device.
pub fn tier(keys: &Keys) -> Result<Tier, ArrayError> {
    TierModel::read(keys).map(|model| model.tier)
}

/// Parses a tier from an option: `slc`, `slc:devices=2`, `devices=3,capacity-gb=200,...`.
pub fn tier_of_option(option: &str, text: &str) -> Result<Tier, ArrayError> {
    tier_model_of_option(option, text).map(|model| model.tier)
}

/// Parses a tier and its parallelism from an option: `slc:channels=8`.
pub fn tier_model_of_option(option: &str, text: &str) -> Result<TierModel, ArrayError> {
    let text = match text.split_once(':') {
        Some((name, keys)) => format!("device={name},{keys}"),
        None if text.contains('=') => text.to_owned(),
        None => format!("device={text}"),
    };
    TierModel::read(&Keys::from_option(option, &text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_names_its_source_and_is_read() {
        let profiles = Profile::all();
        assert_eq!(profiles.len(), 7);
        for profile in profiles {
            assert!(!profile.title.is_empty() && !profile.source.is_empty(), "{profile:?}");
        }
    }

    #[test]
    fn a_device_is_a_profile_changed_by_keys_or_keys_alone() {
        let slc = tier_of_option("--cache", "slc:devices=2,endurance-cycles=3000").unwrap();
        assert_eq!((slc.devices, slc.device.endurance_cycles, slc.device.read_latency_us), (2.0, 3000.0, 40.0));
        let own =
            "capacity-gb=960,total-writes-tb=1750,read-latency-ms=0.1,write-latency-ms=0.03,write-amplification=2.5";
        let own = tier_of_option("--cache", own).unwrap();
        // 1,750 TB / 0.96 TB.
        assert_eq!((own.device.endurance_cycles, own.write_amplification), (1750e12 / 960e9, 2.5));
        assert_eq!(tier_of_option("--storage", "hdd").unwrap().device.endurance_cycles, f64::INFINITY);
    }

    #[test]
    fn a_device_without_further_figures_serves_accesses_one_by_one() {
        let service = |text| tier_model_of_option("--cache", text).unwrap().service;
        let own = "capacity-gb=960,endurance-cycles=3000,read-latency-ms=0.1,write-latency-ms=0.03";
        assert_eq!(service(own), Service { channels: 1, transfer_mb_per_s: None });
        assert_eq!(service("slc"), Service { channels: 10, transfer_mb_per_s: None });
        assert_eq!(service("hdd"), Service { channels: 1, transfer_mb_per_s: Some(200.0) });
        let changed = Service { channels: 2, transfer_mb_per_s: Some(250.0) };
        assert_eq!(service("hdd:channels=2,transfer-mb-per-s=250"), changed);
    }

    #[test]
    fn queues_are_before_whole_devices() {
        let model = |devices: &str| {
            let storage = tier_model_of_option("--storage", &format!("mlc:devices={devices}")).unwrap();
            ArrayModel { storage, ..ArrayModel::paper() }
        };
        assert!(model("1").check().is_ok() && model("1024").check().is_ok());
        for devices in ["0.5", "2.5", "1025"] {
            let expected = "expected a whole number from 1 to 1024 where requests wait";
            let error = model(devices).check().unwrap_err().to_string();
            assert_eq!(error, format!("storage-device: devices: found {devices}, {expected}"));
        }
    }

    #[test]
    fn invalid_devices_are_refused() {
        let refused = |text| tier_of_option("--cache", text).unwrap_err().to_string();
        let rows = [
            (
                "slcc",
                "--cache: found no device 'slcc' (did you mean 'slc'?); expected one of: slc, mlc, hdd, cloud, p4500, \
                 9200-max, p4800x, or the path of a file that ends in .toml",
            ),
            ("slc:devices=0", "--cache: devices: found '0', expected a number above 0"),
            ("slc:capacity-gb=-1", "--cache: capacity-gb: found '-1', expected a number above 0"),
            ("slc:capacity-gb=nan", "--cache: capacity-gb: found 'nan', expected a number above 0"),
            ("slc:capacity-gb=1e300", "--cache: capacity-gb: found '1e300', expected a number above 0"),
            (
                "slc:endurance-cycles=many",
                "--cache: endurance-cycles: found 'many', expected a number above 0, or 'unlimited'",
            ),
            ("slc:channels=1.5", "--cache: channels: found '1.5', expected a whole number from 1 to 1024"),
            ("slc:transfer-mb-per-s=0", "--cache: transfer-mb-per-s: found '0', expected a number above 0"),
            ("slc:devices=1,devices=2", "--cache: devices is given twice"),
            ("slc:devices", "--cache: options: found 'devices', expected key=value"),
            (
                "slc:endurance-cycles=1,total-writes-tb=1",
                "--cache: endurance-cycles and total-writes-tb are both given, expected one of them",
            ),
            (
                "capacity-gb=1",
                "--cache: endurance-cycles is missing, expected writes per cell, or total-writes-tb, or 'unlimited'",
            ),
            ("endurance-cycles=1", "--cache: capacity-gb is missing, expected a number above 0"),
        ];
        for (text, expected) in rows {
            assert_eq!(refused(text), expected);
        }
        assert!(refused("slc:device=mlc").contains("device is given twice"));
        assert!(
            refused("slc:devcies=2").starts_with(
                "--cache: unknown key 'devcies' (did you mean 'devices'?); expected one of: device, devices"
            )
        );
    }
}
