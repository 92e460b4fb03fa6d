//! Units as options of a format whose lines `csv` cannot read: `--format fiu:time-unit=us,length-unit=1`.

use flashwise_core::options::{Kind, Options, Parameter};

use super::REQUEST_BYTES_MAX;
use super::fields::TimeUnit;

/// The option for the unit of time.
pub const TIME_UNIT: Parameter = Parameter::of("time-unit", Kind::Choice(&["s", "ms", "us", "ns", "filetime"]), "")
    .means("unit of time (filetime: 100 ns), if it is not that of the format");

/// The option for the unit of offset.
pub const OFFSET_UNIT: Parameter = unit("offset-unit", "bytes in a unit of offset, if it is not that of the format");

/// The option for the unit of length.
pub const LENGTH_UNIT: Parameter = unit("length-unit", "bytes in a unit of length, if it is not that of the format");

const fn unit(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, kind: Kind::Count(1, REQUEST_BYTES_MAX), default: "", meaning }
}

/// Units for the original numbers: microseconds and bytes, in which none overflows.
pub const PLAIN: UnitOptions = UnitOptions::new(TimeUnit::Microseconds, 1, 1);

/// The units of a format; the user may have given some of them.
#[derive(Clone, Copy, Debug)]
pub struct UnitOptions {
    /// The unit of time.
    pub time: TimeUnit,
    /// The unit of offset in bytes.
    pub offset_bytes: u64,
    /// The unit of length in bytes.
    pub length_bytes: u64,
    /// True for each of the units of time, offset and length that the user gave.
    pub are_given: [bool; 3],
}

impl UnitOptions {
    /// Returns the units of a format: that of time, and those of offset and length in bytes.
    pub const fn new(time: TimeUnit, offset_bytes: u64, length_bytes: u64) -> UnitOptions {
        UnitOptions { time, offset_bytes, length_bytes, are_given: [false; 3] }
    }

    /// Returns the units with those that the user gave.
    pub fn given(mut self, options: &Options) -> UnitOptions {
        if let Some(unit) = TimeUnit::of_word(options.text(TIME_UNIT.name)) {
            (self.time, self.are_given[0]) = (unit, true);
        }
        if let Ok(bytes) = options.text(OFFSET_UNIT.name).parse() {
            (self.offset_bytes, self.are_given[1]) = (bytes, true);
        }
        if let Ok(bytes) = options.text(LENGTH_UNIT.name).parse() {
            (self.length_bytes, self.are_given[2]) = (bytes, true);
        }
        self
    }
}
