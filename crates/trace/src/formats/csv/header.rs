//! The roles and units of columns, from the words of a CSV's header.

use flashwise_core::options::OptionError;

use super::super::dates::DateOrder;
use super::super::fields::TimeUnit;
use super::{Delimiter, bad};

/// The role of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Time,
    Op,
    Offset,
    Length,
    Volume,
    Hash,
}

/// Each role with the option that names its column, and its words in headers, without units.
pub const ROLES: [(Role, &str, &[&str]); 6] = [
    (Role::Time, "time", &["time", "timestamp", "ts", "arrival", "arrival_time", "datetime", "date_time"]),
    (Role::Op, "op", &["op", "opcode", "operation", "type", "op_type", "optype", "io_type", "iotype", "rw", "r_w"]),
    (
        Role::Offset,
        "offset",
        &[
            "offset",
            "lba",
            "lbn",
            "sector",
            "start_sector",
            "address",
            "addr",
            "byte_offset",
            "slba",
            "block",
            "blkno",
            "block_number",
        ],
    ),
    (
        Role::Length,
        "length",
        &["length", "len", "size", "bytes", "sectors", "nsectors", "request_size", "nlb", "blocks", "nblocks"],
    ),
    (
        Role::Volume,
        "volume",
        &[
            "volume",
            "vol",
            "volume_id",
            "volumeid",
            "device",
            "dev",
            "device_id",
            "deviceid",
            "disk",
            "disk_id",
            "lun",
            "asu",
        ],
    ),
    (Role::Hash, "hash", &[]),
];

/// Units of time and their words in headers; the first word of a unit is also that of the option.
pub const TIME_UNITS: [(&str, TimeUnit); 13] = [
    ("s", TimeUnit::Seconds),
    ("ms", TimeUnit::Milliseconds),
    ("us", TimeUnit::Microseconds),
    ("ns", TimeUnit::Nanoseconds),
    ("filetime", TimeUnit::Filetime),
    ("date", TimeUnit::Date(DateOrder::Year)),
    ("date-dmy", TimeUnit::Date(DateOrder::Day)),
    ("date-mdy", TimeUnit::Date(DateOrder::Month)),
    ("sec", TimeUnit::Seconds),
    ("seconds", TimeUnit::Seconds),
    ("msec", TimeUnit::Milliseconds),
    ("usec", TimeUnit::Microseconds),
    ("nsec", TimeUnit::Nanoseconds),
];

/// Words in headers that count sectors, as a name or the last part of one.
const SECTOR_WORDS: [&str; 7] = ["sectors", "sector", "lba", "lbn", "nsectors", "start_sector", "blk512"];

/// Words in headers that count bytes.
const BYTE_WORDS: [&str; 3] = ["bytes", "byte", "b"];

/// Normalises the name of a column: lower case, a unit in brackets moved to the end, other brackets removed.
pub fn plain(name: &str) -> String {
    let (name, brackets) = name.split_once(['(', '[']).unwrap_or((name, ""));
    let lower = |text: &str| text.trim().trim_matches('"').trim().to_lowercase().replace([' ', '-', '.'], "_");
    let (name, unit) = (lower(name), lower(brackets.split([')', ']']).next().unwrap_or_default()));
    let with_unit = format!("{name}_{unit}");
    let is_unit = TIME_UNITS.iter().any(|(word, _)| *word == unit) || BYTE_WORDS.contains(&unit.as_str());
    if is_unit || SECTOR_WORDS.contains(&unit.as_str()) { with_unit } else { name }
}

/// Removes a prefix that stands for requests.
fn without_prefix(name: &str) -> &str {
    const PREFIXES: [&str; 6] = ["io", "req", "bio", "nvme", "scsi", "cmd"];
    name.split_once('_').filter(|(prefix, _)| PREFIXES.contains(prefix)).map_or(name, |(_, rest)| rest)
}

/// Returns the unit of time at the end of a column's name.
pub fn time_unit_of(name: &str) -> Option<TimeUnit> {
    let (_, unit) = name.rsplit_once('_')?;
    TIME_UNITS.iter().find(|(word, _)| *word == unit).map(|(_, unit)| *unit)
}

/// Returns the unit, in bytes, from the name of an offset or length column.
pub fn byte_unit_of(name: &str) -> Option<u64> {
    let last = name.rsplit_once('_').map_or(name, |(_, last)| last);
    let is_sectors = SECTOR_WORDS.contains(&last) || SECTOR_WORDS.contains(&name);
    if is_sectors { Some(512) } else { (name != last && BYTE_WORDS.contains(&last) || name == "bytes").then_some(1) }
}

/// True if a column named `name` has a role with one of the `known` words, with or without a unit.
pub fn plays(name: &str, known: &[&str]) -> bool {
    let without_unit = match name.rsplit_once('_') {
        Some((base, unit)) if BYTE_WORDS.contains(&unit) || SECTOR_WORDS.contains(&unit) => base,
        Some((base, _)) if time_unit_of(name).is_some() => base,
        _ => name,
    };
    [name, without_unit].iter().any(|name| known.contains(name) || known.contains(&without_prefix(name)))
}

/// Returns the names of the columns in the line `header`.
pub fn names(header: &[u8], delimiter: Delimiter) -> Vec<String> {
    let header = String::from_utf8_lossy(header.strip_prefix(b"#").unwrap_or(header)).into_owned();
    let trimmed = |name: &str| name.trim().trim_matches('"').to_owned();
    match delimiter {
        Delimiter::Byte(byte) => header.split(char::from(byte)).map(trimmed).collect(),
        Delimiter::Blanks => header.split_ascii_whitespace().map(trimmed).collect(),
    }
}

/// Finds the selected column among those of the header.
pub fn find(option: &str, column: &str, names: &[String]) -> Result<usize, OptionError> {
    const COLUMNS_MAX: usize = 1000;
    if let Ok(number) = column.parse::<usize>() {
        let expected = || bad(option, column, format!("a column number below {COLUMNS_MAX}"));
        return if number < COLUMNS_MAX { Ok(number) } else { Err(expected()) };
    }
    let same = |name: &String| name == column || plain(name) == plain(column);
    names.iter().position(same).ok_or_else(|| bad(option, column, column_expected(names)))
}

/// Returns the expected value of an option whose column does not exist.
pub fn column_expected(names: &[String]) -> String {
    if names.is_empty() {
        "a column number, from 0 (the trace has no header)".to_owned()
    } else {
        format!("a column number, from 0, or a name of the header: {}", names.join(", "))
    }
}
