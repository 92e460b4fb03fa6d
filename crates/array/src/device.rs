//! Devices by name: the profiles that come with flashwise, each a TOML file with its source, and files of the user's own.

use flashwise_core::array::{Device, Tier};

use crate::keys::{ArrayError, Document, Keys, Range};

/// A device that can be named.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it is.
    pub title: String,
    /// Where its figures are from.
    pub source: String,
    /// The figures.
    pub device: Device,
}

/// The profiles that come with flashwise: a name, and a file below `profiles/`.
const PROFILES: [(&str, &str); 4] = [
    ("slc", include_str!("profiles/slc.toml")),
    ("mlc", include_str!("profiles/mlc.toml")),
    ("hdd", include_str!("profiles/hdd.toml")),
    ("cloud", include_str!("profiles/cloud.toml")),
];

const DEVICE_KEYS: [&str; 7] =
    ["title", "source", "capacity-gb", "endurance-cycles", "total-writes-tb", "read-latency-ms", "write-latency-ms"];
const TIER_KEYS: [&str; 8] = [
    "device",
    "devices",
    "write-amplification",
    "capacity-gb",
    "endurance-cycles",
    "total-writes-tb",
    "read-latency-ms",
    "write-latency-ms",
];

impl Profile {
    /// All that come with flashwise.
    pub fn all() -> Vec<Profile> {
        let parse = |(name, text)| Profile::parse(name, text).expect("the profiles of flashwise are in order");
        PROFILES.map(parse).to_vec()
    }

    /// The profile that `name`, found at `place`, stands for: one of flashwise, or a file.
    fn named(name: &str, place: &str) -> Result<Profile, ArrayError> {
        if let Some((name, text)) = PROFILES.iter().find(|(known, _)| *known == name) {
            return Profile::parse(name, text);
        }
        if !name.ends_with(".toml") {
            let expected = PROFILES.map(|(name, _)| name).to_vec();
            return Err(ArrayError::NoSuchDevice { place: place.to_owned(), found: name.to_owned(), expected });
        }
        let text = std::fs::read_to_string(name).map_err(|source| ArrayError::Io { path: name.to_owned(), source })?;
        Profile::parse(name, &text)
    }

    fn parse(name: &str, text: &str) -> Result<Profile, ArrayError> {
        let keys = Document::parse(name, text)?.keys();
        keys.check(&DEVICE_KEYS)?;
        let text = |key| Ok(keys.text(key)?.unwrap_or_default().to_owned());
        Ok(Profile {
            name: name.to_owned(),
            title: text("title")?,
            source: text("source")?,
            device: device(&keys, None)?,
        })
    }
}

/// The device that `keys` describe, as far as they do not leave it to `profile`.
fn device(keys: &Keys, profile: Option<Device>) -> Result<Device, ArrayError> {
    let number = |key, of_profile: fn(Device) -> f64, unit: f64| match (keys.number(key, Range::Positive)?, profile) {
        (Some(number), _) => Ok(number * unit),
        (None, Some(profile)) => Ok(of_profile(profile)),
        (None, None) => Ok(keys.needed(key, Range::Positive)? * unit),
    };
    let capacity_bytes = number("capacity-gb", |device| device.capacity_bytes, 1e9)?;
    let cycles = keys.number("endurance-cycles", Range::PositiveOrUnlimited)?;
    let endurance_cycles = match (cycles, keys.number("total-writes-tb", Range::Positive)?, profile) {
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

/// The tier that `keys` describe: `device`, and changes to it, or all of a device.
pub fn tier(keys: &Keys) -> Result<Tier, ArrayError> {
    keys.check(&TIER_KEYS)?;
    let profile = keys.text("device")?.map(|name| Profile::named(name, keys.place())).transpose()?;
    Ok(Tier {
        device: device(keys, profile.map(|profile| profile.device))?,
        devices: keys.number("devices", Range::Positive)?.unwrap_or(1.0),
        write_amplification: keys.number("write-amplification", Range::Positive)?.unwrap_or(1.0),
    })
}

/// Reads a tier as an option gives it: `slc`, `slc:devices=2`, `devices=3,capacity-gb=200,...`.
pub fn tier_of_option(option: &str, text: &str) -> Result<Tier, ArrayError> {
    let text = match text.split_once(':') {
        Some((name, keys)) => format!("device={name},{keys}"),
        None if text.contains('=') => text.to_owned(),
        None => format!("device={text}"),
    };
    tier(&Keys::from_option(option, &text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_names_its_source_and_is_read() {
        let profiles = Profile::all();
        assert_eq!(profiles.len(), PROFILES.len());
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
    fn what_is_no_device_is_refused() {
        let refused = |text| tier_of_option("--cache", text).unwrap_err().to_string();
        let rows = [
            (
                "slcc",
                "--cache: found no device 'slcc' (did you mean 'slc'?); expected one of: slc, mlc, hdd, cloud, or the path of a file that ends in .toml",
            ),
            ("slc:devices=0", "--cache: devices: found '0', expected a number greater than 0"),
            ("slc:capacity-gb=-1", "--cache: capacity-gb: found '-1', expected a number greater than 0"),
            ("slc:capacity-gb=nan", "--cache: capacity-gb: found 'nan', expected a number greater than 0"),
            ("slc:capacity-gb=1e300", "--cache: capacity-gb: found '1e300', expected a number greater than 0"),
            (
                "slc:endurance-cycles=many",
                "--cache: endurance-cycles: found 'many', expected a number greater than 0, or 'unlimited'",
            ),
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
            ("endurance-cycles=1", "--cache: capacity-gb is missing, expected a number greater than 0"),
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
