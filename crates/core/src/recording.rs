//! A row of a recording. The server's writer and the trace reader share this definition of the header, the order of
//! fields and their keywords.

use std::fmt;

use crate::filter::Caching;

/// The first line of a recording: the names of the fields, in their order.
pub const HEADER: &str = "time_us,volume,op,offset,length,flags";

crate::words! {
    /// A recorded operation.
    pub enum Operation {
        /// Read bytes.
        Read "read",
        /// Wrote bytes.
        Write "write",
        /// Made earlier writes durable. Offset and length are 0.
        Flush "flush",
        /// Discarded bytes.
        Trim "trim",
        /// Zeroed bytes.
        WriteZeroes "write-zeroes",
        /// Read bytes into the cache.
        Cache "cache",
    }
}

impl Operation {
    /// The names of all operations, for error messages.
    pub const EXPECTED: &'static str = "read, write, flush, trim, write-zeroes or cache";

    /// Returns the operation with this name.
    #[inline]
    pub fn of_name(name: &[u8]) -> Option<Operation> {
        Operation::ALL.into_iter().find(|operation| operation.name().as_bytes() == name)
    }
}

/// Options of a recorded request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Its changes had to be durable before the reply.
    pub force_unit_access: bool,
    /// Zeroed bytes had to stay allocated.
    pub no_hole: bool,
    /// Zeroing had to fail if not faster than writing.
    pub only_if_fast: bool,
    /// The treatment of the client by the server's I/O filter.
    pub caching: Caching,
}

/// The keywords of flags, in order of writing.
const WORDS: [&str; 5] = ["fua", "no-hole", "fast-zero", "cache-always", "cache-never"];

impl Flags {
    /// The keywords of all flags, for error messages.
    pub const EXPECTED: &'static str =
        "nothing, or some of fua, no-hole, fast-zero, cache-always and cache-never, joined by +";

    /// Returns which keywords to write.
    fn are_set(&self) -> [bool; WORDS.len()] {
        let caching = self.caching;
        let (always, never) = (caching == Caching::Always, caching == Caching::Never);
        [self.force_unit_access, self.no_hole, self.only_if_fast, always, never]
    }

    /// Parses the flags in a field of a recording; `None` for an unknown keyword.
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
    /// The operation.
    pub operation: Operation,
    /// First byte.
    pub offset_bytes: u64,
    /// Number of bytes; may be 0.
    pub length_bytes: u64,
    /// Its options.
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
