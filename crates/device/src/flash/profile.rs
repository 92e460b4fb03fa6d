//! Properties of a device's flash: geometry, times and endurance.

use crate::catalogue::{Entry, names_with};
use crate::keys::{ArrayError, Keys};
use flashwise_core::options::Kind;

/// Properties of flash, as published by `source`.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The built-in name, or the path of the file.
    pub name: String,
    /// The source of the figures.
    pub source: String,
    /// Bytes of a flash page; a multiple of 4,096, the size of a block.
    pub page_bytes: u32,
    /// Flash pages of an erase block.
    pub pages_per_block: u32,
    /// Buses; 1 if not given.
    pub channels: u32,
    /// Dies on each bus; 1 if not given.
    pub dies_per_channel: u32,
    /// Planes of each die; 1 if not given. Each plane reads, programs and erases independently.
    pub planes_per_die: u32,
    /// Time to read a page into its plane's register, t_R.
    pub read_us: f64,
    /// Time to program a page from its plane's register, t_PROG.
    pub program_us: f64,
    /// Time to erase a block, t_BERS.
    pub erase_us: f64,
    /// Speed of each bus, in millions of bytes per second; if not given, transfers take no time.
    pub bus_mb_per_s: Option<f64>,
    /// Program/erase cycles that a block endures; if not given, the lifetime is unknown.
    pub pe_cycles: Option<u32>,
    /// Spare share of the logical capacity, if the source gives it.
    pub spare: Option<f64>,
}

/// From a nanosecond to ten seconds.
const TIMES_US: Kind = Kind::Number(0.001, 1e7);

impl Profile {
    /// Returns the names of the built-in devices whose flash is known.
    pub fn names() -> Vec<&'static str> {
        names_with(is_known)
    }

    /// Finds the flash of the device `text`, given at `place`: a built-in name, or the path of a TOML file.
    pub fn find(text: &str, place: &str) -> Result<Profile, ArrayError> {
        Profile::of(&Entry::find(text, place, is_known)?)
    }

    /// Parses a TOML document; messages call it `name`.
    pub fn parse(name: &str, text: &str) -> Result<Profile, ArrayError> {
        Profile::of(&Entry::parse(name, text)?)
    }

    pub(crate) fn of(entry: &Entry) -> Result<Profile, ArrayError> {
        let Some(keys) = &entry.flash else {
            let expected = format!("the properties of its flash, as in the devices {}", Profile::names().join(", "));
            return Err(entry.top.missing("[flash]", &expected));
        };
        let source = entry.top.text("source")?;
        let page_bytes = keys.needed("page-bytes", Kind::Count(4096, 1 << 20))? as u32;
        if !page_bytes.is_multiple_of(4096) {
            return Err(keys.refused("page-bytes", "a multiple of 4096, since blocks of 4 KiB are written"));
        }
        Ok(Profile {
            name: entry.name.clone(),
            source: source
                .ok_or_else(|| entry.top.missing("source", "text that says where the figures come from"))?
                .to_owned(),
            page_bytes,
            pages_per_block: keys.needed("pages-per-block", Kind::Count(1, 1 << 16))? as u32,
            channels: keys.whole("channels", 1, 256)?.unwrap_or(1),
            dies_per_channel: keys.whole("dies-per-channel", 1, 256)?.unwrap_or(1),
            planes_per_die: keys.whole("planes-per-die", 1, 16)?.unwrap_or(1),
            read_us: keys.needed("read-us", TIMES_US)?,
            program_us: keys.needed("program-us", TIMES_US)?,
            erase_us: keys.needed("erase-us", TIMES_US)?,
            bus_mb_per_s: keys.number("bus-mb-per-s", Kind::Number(0.001, 1e6))?,
            pe_cycles: cycles(&entry.top)?,
            spare: keys.number("spare", Kind::Share(1.0))?,
        })
    }

    /// Returns the bytes of an erase block.
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.page_bytes) * u64::from(self.pages_per_block)
    }
}

/// Returns the program/erase cycles that a block endures, if limited.
fn cycles(keys: &Keys) -> Result<Option<u32>, ArrayError> {
    let key = if keys.has("pe-cycles") { "pe-cycles" } else { "endurance-cycles" };
    match keys.limit(key)? {
        None | Some(f64::INFINITY) => Ok(None),
        Some(cycles) if cycles.fract() == 0.0 && cycles <= 1e9 => Ok(Some(cycles as u32)),
        Some(_) => Err(keys.refused(key, "a whole number from 1 to 1000000000, or 'unlimited'")),
    }
}

fn is_known(entry: &Entry) -> bool {
    entry.flash.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUSTOM: &str = "source = 'measured'\npage-bytes = 8_192\npages-per-block = 256\nread-us = 75\nprogram-us = \
        7.5e2\nerase-us = 3_800\n";

    fn refused(text: &str) -> String {
        Profile::parse("mine.toml", text).unwrap_err().to_string()
    }

    fn with(line: &str) -> String {
        let key = line.split([' ', '=']).next().unwrap();
        let others = CUSTOM.lines().filter(|line| !line.starts_with(key));
        others.chain([line]).map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn every_known_profile_is_read_and_names_its_source() {
        let figures = |profile: &Profile| {
            let Profile { page_bytes, pages_per_block, read_us, program_us, erase_us, pe_cycles, .. } = *profile;
            (page_bytes, pages_per_block, read_us, program_us, erase_us, pe_cycles)
        };
        let read = |name| Profile::find(name, "device").unwrap();
        assert_eq!(figures(&read("samsung-slc")), (4096, 64, 25.0, 200.0, 1500.0, Some(100_000)));
        assert_eq!(figures(&read("femu")), (4096, 256, 40.0, 200.0, 2000.0, None));
        assert_eq!(figures(&read("wlfc")), (16_384, 256, 50.0, 500.0, 5000.0, Some(10_000)));
        assert_eq!(figures(&read("slc")), (4096, 64, 40.0, 200.0, 1500.0, Some(100_000)));
        assert_eq!(figures(&read("mlc")), (4096, 128, 200.0, 1000.0, 3500.0, Some(10_000)));
        assert_eq!(Profile::names().len(), 5, "each is looked at above");
        for name in Profile::names() {
            assert!(read(name).source.len() > 20, "{name} says where it comes from");
        }
        assert_eq!(read("mixed-slc"), read("slc"), "by the name that it had before");
        assert_eq!(read("samsung-slc").block_bytes(), 256 << 10);
    }

    #[test]
    fn a_custom_profile_is_read_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mine.toml");
        std::fs::write(&path, CUSTOM).unwrap();
        let name = path.to_str().unwrap();
        let profile = Profile::find(name, "device").unwrap();
        let expected = Profile {
            name: name.to_owned(),
            source: "measured".to_owned(),
            page_bytes: 8192,
            pages_per_block: 256,
            channels: 1,
            dies_per_channel: 1,
            planes_per_die: 1,
            read_us: 75.0,
            program_us: 750.0,
            erase_us: 3800.0,
            bus_mb_per_s: None,
            pe_cycles: None,
            spare: None,
        };
        assert_eq!(profile, expected);
        let full = Profile::parse(
            "x",
            &format!(
                "{CUSTOM}channels = 8\ndies-per-channel = 4\nplanes-per-die = \
            2\nbus-mb-per-s = 333\nendurance-cycles = 3_000\nspare = '7%'"
            ),
        )
        .unwrap();
        let expected = Profile {
            name: "x".to_owned(),
            channels: 8,
            dies_per_channel: 4,
            planes_per_die: 2,
            bus_mb_per_s: Some(333.0),
            pe_cycles: Some(3000),
            spare: Some(0.07),
            ..expected
        };
        assert_eq!(full, expected);
    }

    #[test]
    fn a_file_can_describe_device_and_flash_and_old_files_are_read() {
        let whole = CUSTOM.replacen("page-bytes", "capacity-gb = 100\nendurance-cycles = 3e3\n[flash]\npage-bytes", 1);
        let profile = Profile::parse("x", &whole).unwrap();
        assert_eq!((profile.page_bytes, profile.pe_cycles), (8192, Some(3000)));
        let old = Profile::parse("x", &format!("{}pe_cycles = 3_000", CUSTOM.replace('-', "_"))).unwrap();
        assert_eq!(old, profile);
        assert_eq!(Profile::parse("x", &format!("{CUSTOM}endurance-cycles = 'unlimited'")).unwrap().pe_cycles, None);
        assert_eq!(
            refused("capacity-gb = 1"),
            "mine.toml: [flash] is missing, expected the properties of its flash, as in the devices slc, mlc, \
             samsung-slc, femu, wlfc"
        );
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let refused = |text: &str| Profile::find(text, "device").unwrap_err();
        assert_eq!(
            refused("samsung-scl").to_string(),
            "device: found no device 'samsung-scl' (did you mean 'samsung-slc'?); expected one of: slc, mlc, \
             samsung-slc, femu, wlfc, or \
             the path of a file that ends in .toml"
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("none.toml");
        let text = path.to_str().unwrap();
        let missing = refused(text);
        assert_eq!(missing.to_string(), text);
        assert!(matches!(missing, ArrayError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound));
        std::fs::write(&path, vec![b'#'; 65_537]).unwrap();
        assert_eq!(refused(text).to_string(), format!("{text}: found more than 65536 bytes, expected a device"));
        std::fs::write(&path, b"source = '\xff'").unwrap();
        assert_eq!(refused(text).to_string(), format!("{text}: byte 10 is not UTF-8, expected TOML"));
    }

    #[test]
    fn a_key_that_is_unknown_missing_or_twice_is_refused() {
        let expected = "expected one of: title, source, page-bytes, pages-per-block, channels, dies-per-channel, \
            planes-per-die, read-us, \
                        program-us, erase-us, bus-mb-per-s, spare, endurance-cycles, pe-cycles";
        assert_eq!(
            refused(&format!("{CUSTOM}plane-per-die = 2")),
            format!("mine.toml, line 7: unknown key 'plane-per-die' (did you mean 'planes-per-die'?); {expected}")
        );
        assert!(
            refused(&format!("{CUSTOM}[times]\nread-us = 2")).starts_with("mine.toml, line 7: unknown key 'times'")
        );
        assert!(refused(&format!("[flash]\n{CUSTOM}")).starts_with("mine.toml [flash], line 2: unknown key 'source'"));
        assert_eq!(
            refused(&CUSTOM.replace("erase-us", "#")),
            "mine.toml: erase-us is missing, expected a number from 0.001 to 10000000"
        );
        assert_eq!(
            refused(&CUSTOM.replace("source", "#")),
            "mine.toml: source is missing, expected text that says where the figures come from"
        );
        assert_eq!(refused(&format!("{CUSTOM}read-us = 1")), "mine.toml, line 7: is not TOML: duplicate key");
        assert_eq!(refused(&format!("{CUSTOM}read_us = 1")), "mine.toml: read-us is given twice");
    }

    #[test]
    fn a_value_of_the_wrong_kind_or_size_is_refused() {
        for (line, message) in [
            ("page-bytes = '8KiB'", "page-bytes: found '8KiB', expected a whole number from 4096 to 1048576"),
            ("page-bytes = 2048", "page-bytes: found 2048, expected a whole number from 4096 to 1048576"),
            (
                "page-bytes = 6000",
                "page-bytes: found 6000, expected a multiple of 4096, since blocks of 4 KiB are written",
            ),
            ("pages-per-block = 0", "pages-per-block: found 0, expected a whole number from 1 to 65536"),
            ("pages-per-block = 2.5", "pages-per-block: found 2.5, expected a whole number from 1 to 65536"),
            ("channels = -1", "channels: found -1, expected a whole number from 1 to 256"),
            (
                "channels = 99999999999999999999",
                "channels: found 99999999999999999999, expected a whole number from 1 to 256",
            ),
            ("read-us = 0", "read-us: found 0, expected a number from 0.001 to 10000000"),
            ("read-us = nan", "read-us: found nan, expected a number from 0.001 to 10000000"),
            ("read-us = [1]", "read-us: found [1], expected a number from 0.001 to 10000000"),
            ("source = ''", "source: found '', expected text that is not empty"),
            ("source = [7]", "source: found [7], expected text that is not empty"),
            ("pe-cycles = 0x0", "pe-cycles: found 0, expected a number above 0, or 'unlimited'"),
            ("pe-cycles = 1.5", "pe-cycles: found 1.5, expected a whole number from 1 to 1000000000, or 'unlimited'"),
            ("spare = '700%'", "spare: found '700%', expected a share from 0% to 100%, such as 30% or 0.3"),
            ("bus-mb-per-s = true", "bus-mb-per-s: found true, expected a number from 0.001 to 1000000"),
        ] {
            let text = with(line);
            assert_eq!(refused(&text), format!("mine.toml, line {}: {message}", text.lines().count()));
        }
    }
}
