//! A row of a recording, as the server writes it and the reader of traces reads it: the header, the order of the fields and the words
//! in them stand here alone.
//!
//! Source: this project. The time is in microseconds on the server's clock; offset and length are in bytes.

use std::fmt;

use crate::filter::Caching;

/// The first line of a recording: the names of the fields, in their order.
pub const HEADER: &str = "time_us,volume,op,offset,length,flags";

/// What a recorded request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read bytes.
    Read,
    /// Wrote bytes.
    Write,
    /// Made what was written durable. Offset and length are 0.
    Flush,
    /// Gave bytes up.
    Trim,
    /// Made bytes read as zeroes.
    WriteZeroes,
    /// Brought bytes into the cache.
    Cache,
}

impl Operation {
    /// All operations, in the order in which they are listed; the position of one is `operation as usize`.
    pub const ALL: [Operation; 6] = [
        Operation::Read,
        Operation::Write,
        Operation::Flush,
        Operation::Trim,
        Operation::WriteZeroes,
        Operation::Cache,
    ];
    /// The names of all operations, as a message says what was expected.
    pub const EXPECTED: &'static str = "read, write, flush, trim, write-zeroes or cache";

    /// Its name in a recording.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Trim => "trim",
            Operation::WriteZeroes => "write-zeroes",
            Operation::Cache => "cache",
        }
    }

    /// The operation of a name.
    #[inline]
    pub fn of_name(name: &[u8]) -> Option<Operation> {
        Operation::ALL.into_iter().find(|operation| operation.name().as_bytes() == name)
    }
}

/// How a recorded request was to be performed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// What it changed had to be durable before it was answered.
    pub force_unit_access: bool,
    /// Zeroes had to keep their space.
    pub no_hole: bool,
    /// Zeroes were to be refused where they are not faster than writing.
    pub only_if_fast: bool,
    /// What the server's I/O filter said of the client.
    pub caching: Caching,
}

/// The words for flags, in the order in which they are written.
const WORDS: [&str; 5] = ["fua", "no-hole", "fast-zero", "cache-always", "cache-never"];

impl Flags {
    /// The words for all flags, as a message says what was expected.
    pub const EXPECTED: &'static str =
        "nothing, or some of fua, no-hole, fast-zero, cache-always and cache-never, joined by +";

    /// Which of the words are written.
    fn are_set(&self) -> [bool; WORDS.len()] {
        let caching = self.caching;
        let (always, never) = (caching == Caching::Always, caching == Caching::Never);
        [self.force_unit_access, self.no_hole, self.only_if_fast, always, never]
    }

    /// The flags that a field of a recording names; `None` where a word is not known.
    #[inline]
    pub fn parse(field: &[u8]) -> Option<Flags> {
        let mut flags = Flags::default();
        if field.is_empty() {
            return Some(flags);
        }
        for word in field.split(|&byte| byte == b'+') {
            match WORDS.iter().position(|known| known.as_bytes() == word)? {
                0 => flags.force_unit_access = true,
                1 => flags.no_hole = true,
                2 => flags.only_if_fast = true,
                3 => flags.caching = Caching::Always,
                _ => flags.caching = Caching::Never,
            }
        }
        Some(flags)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut joint = "";
        for (word, is_set) in WORDS.into_iter().zip(self.are_set()) {
            if is_set {
                formatter.write_str(joint)?;
                formatter.write_str(word)?;
                joint = "+";
            }
        }
        Ok(())
    }
}

/// One request of a recording. It is displayed as its line, without the line's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Microseconds on the server's clock.
    pub time_us: u64,
    /// Name of the volume, without commas and line ends.
    pub volume: &'a str,
    /// What the request did.
    pub operation: Operation,
    /// First byte.
    pub offset_bytes: u64,
    /// Number of bytes; may be 0.
    pub length_bytes: u64,
    /// How it was to be performed.
    pub flags: Flags,
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { time_us, volume, operation, offset_bytes, length_bytes, flags } = self;
        write!(formatter, "{time_us},{volume},{},{offset_bytes},{length_bytes},{flags}", operation.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_found_by_their_names_which_the_message_lists() {
        for (position, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, position);
            assert_eq!(Operation::of_name(operation.name().as_bytes()), Some(operation));
        }
        assert_eq!(Operation::of_name(b"erase"), None);
        let names = Operation::ALL.map(Operation::name);
        assert_eq!(format!("{} or {}", names[..5].join(", "), names[5]), Operation::EXPECTED);
    }

    #[test]
    fn flags_are_read_as_they_are_written_and_the_message_lists_them() {
        for bits in 0..8 {
            for caching in [Caching::Usual, Caching::Always, Caching::Never] {
                let [force_unit_access, no_hole, only_if_fast] = [1, 2, 4].map(|bit| bits & bit != 0);
                let flags = Flags { force_unit_access, no_hole, only_if_fast, caching };
                assert_eq!(Flags::parse(flags.to_string().as_bytes()), Some(flags));
            }
        }
        assert_eq!(Flags::parse(b"fua+"), None);
        assert!(WORDS.iter().all(|word| Flags::EXPECTED.contains(word)));
    }

    #[test]
    fn a_row_has_the_fields_of_the_header_in_their_order() {
        let flags = Flags { force_unit_access: true, caching: Caching::Never, ..Flags::default() };
        let operation = Operation::Write;
        let row = Row { time_us: 1, volume: "volume", operation, offset_bytes: 2, length_bytes: 3, flags };
        assert_eq!(row.to_string(), "1,volume,write,2,3,fua+cache-never");
        assert_eq!(HEADER, "time_us,volume,op,offset,length,flags");
    }
}
