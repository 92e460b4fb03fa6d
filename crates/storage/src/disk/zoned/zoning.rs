//! The layout of a regular file with zones, as users specify it.

use flashwise_core::options::{Kind, OptionError, Options as Given, Parameter};
use serde::{Deserialize, Serialize};

use crate::disk::ALIGNMENT;

const PAGE: u64 = ALIGNMENT as u64;
const ZONE_BYTES_MIN: u64 = 64 << 10;
const ZONE_BYTES_MAX: u64 = 2 << 30;

/// The layout of a file with zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Zoning {
    /// Distance between the starts of two zones, in bytes.
    pub size: u64,
    /// Capacity of a zone in bytes, at most its size.
    pub capacity: u64,
    /// Maximum number of open and closed zones; 0 for no limit.
    pub max_active: u32,
    /// Maximum number of open zones; 0 for no limit.
    pub max_open: u32,
}

/// The parameters of a layout.
pub static PARAMETERS: [Parameter; 4] = [
    Parameter::of("size", Kind::Size(ZONE_BYTES_MIN, ZONE_BYTES_MAX), "4MiB")
        .means("distance between the starts of two zones"),
    Parameter::of("capacity", Kind::Size(ZONE_BYTES_MIN, ZONE_BYTES_MAX), "")
        .means("capacity of a zone, if less than its size"),
    Parameter::of("max-active", Kind::Count(0, 1 << 20), "14")
        .means("maximum number of open and closed zones, 0 for no limit"),
    Parameter::of("max-open", Kind::Count(0, 1 << 20), "14").means("maximum number of open zones, 0 for no limit"),
];

impl Zoning {
    /// Parses `size=4MiB,capacity=3MiB,max-active=14,max-open=14`. Each part is optional.
    pub fn parse(owner: &str, text: &str) -> Result<Zoning, OptionError> {
        let given = Given::parse(owner, &PARAMETERS, text)?;
        let size = given.size_bytes("size");
        let capacity = if given.has("capacity") { given.size_bytes("capacity") } else { size };
        let refuse =
            |name, found: u64, expected: String| OptionError::bad_value(owner, name, found.to_string(), expected);
        for (name, found) in [("size", size), ("capacity", capacity)] {
            if !found.is_multiple_of(PAGE) {
                return Err(refuse(name, found, format!("a multiple of {PAGE} bytes")));
            }
        }
        if capacity > size {
            return Err(refuse("capacity", capacity, format!("at most the size of a zone, {size} bytes")));
        }
        let count = |name| given.count(name) as u32;
        Ok(Zoning { size, capacity, max_active: count("max-active"), max_open: count("max-open") })
    }
}
