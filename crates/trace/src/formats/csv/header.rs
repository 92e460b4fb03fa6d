//! What the first line of a CSV calls its columns, and what these words say of roles and units.

use flashwise_core::options::OptionError;

use super::super::dates::DateOrder;
use super::super::fields::TimeUnit;
use super::{Delimiter, bad};

/// What a column is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Time,
    Op,
    Offset,
    Length,
    Volume,
    Hash,
}

/// Each role with the option that names its column, and the words for it in headers, without their units.
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

/// Units of time, by the words for them; the first of a unit is that of the option.
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

/// Words of headers that count sectors, alone or as the last part of a name.
const SECTOR_WORDS: [&str; 7] = ["sectors", "sector", "lba", "lbn", "nsectors", "start_sector", "blk512"];

/// Words of headers that count bytes.
const BYTE_WORDS: [&str; 3] = ["bytes", "byte", "b"];

/// The name of a column in lower case, with a unit in brackets at its end and without anything else in brackets.
pub fn plain(name: &str) -> String {
    let (name, brackets) = name.split_once(['(', '[']).unwrap_or((name, ""));
    let lower = |text: &str| text.trim().trim_matches('"').trim().to_lowercase().replace([' ', '-', '.'], "_");
    let (name, unit) = (lower(name), lower(brackets.split([')', ']']).next().unwrap_or_default()));
    let with_unit = format!("{name}_{unit}");
    let is_unit = TIME_UNITS.iter().any(|(word, _)| *word == unit) || BYTE_WORDS.contains(&unit.as_str());
    if is_unit || SECTOR_WORDS.contains(&unit.as_str()) { with_unit } else { name }
}

/// The same without a word for requests in front.
fn without_prefix(name: &str) -> &str {
    const PREFIXES: [&str; 6] = ["io", "req", "bio", "nvme", "scsi", "cmd"];
    name.split_once('_').filter(|(prefix, _)| PREFIXES.contains(prefix)).map_or(name, |(_, rest)| rest)
}

/// The unit of time that the name of a column ends with.
pub fn time_unit_of(name: &str) -> Option<TimeUnit> {
    let (_, unit) = name.rsplit_once('_')?;
    TIME_UNITS.iter().find(|(word, _)| *word == unit).map(|(_, unit)| *unit)
}

/// Bytes in the unit that the name of an offset or length says.
pub fn byte_unit_of(name: &str) -> Option<u64> {
    let last = name.rsplit_once('_').map_or(name, |(_, last)| last);
    let is_sectors = SECTOR_WORDS.contains(&last) || SECTOR_WORDS.contains(&name);
    if is_sectors { Some(512) } else { (name != last && BYTE_WORDS.contains(&last) || name == "bytes").then_some(1) }
}

/// Whether a column called `name` plays a role, going by one of the `known` words with or without a unit.
pub fn plays(name: &str, known: &[&str]) -> bool {
    let without_unit = match name.rsplit_once('_') {
        Some((base, unit)) if BYTE_WORDS.contains(&unit) || SECTOR_WORDS.contains(&unit) => base,
        Some((base, _)) if time_unit_of(name).is_some() => base,
        _ => name,
    };
    [name, without_unit].iter().any(|name| known.contains(name) || known.contains(&without_prefix(name)))
}

/// The names of the columns that the line `header` lists.
pub fn names(header: &[u8], delimiter: Delimiter) -> Vec<String> {
    let header = String::from_utf8_lossy(header.strip_prefix(b"#").unwrap_or(header)).into_owned();
    let trimmed = |name: &str| name.trim().trim_matches('"').to_owned();
    match delimiter {
        Delimiter::Byte(byte) => header.split(char::from(byte)).map(trimmed).collect(),
        Delimiter::Blanks => header.split_ascii_whitespace().map(trimmed).collect(),
    }
}

/// The column that is meant, among those that the header names.
pub fn find(option: &str, column: &str, names: &[String]) -> Result<usize, OptionError> {
    const COLUMNS_MAX: usize = 1000;
    if let Ok(number) = column.parse::<usize>() {
        let expected = || bad(option, column, format!("a column number below {COLUMNS_MAX}"));
        return if number < COLUMNS_MAX { Ok(number) } else { Err(expected()) };
    }
    let same = |name: &String| name == column || plain(name) == plain(column);
    names.iter().position(same).ok_or_else(|| bad(option, column, column_expected(names)))
}

/// What should stand where no column is named that there is.
pub fn column_expected(names: &[String]) -> String {
    if names.is_empty() {
        "a column number, from 0 (the trace has no header)".to_owned()
    } else {
        format!("a column number, from 0, or a name of the header: {}", names.join(", "))
    }
}
