//! What is wrong with a device that is asked for, and with a step that a device refuses.

use flashwise_core::quantity::ByteSize;

/// Why there can be no such device.
#[derive(Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum DeviceError {
    #[error("{what}: found {found}, expected at least {least}")]
    TooSmall { what: &'static str, found: u64, least: u64 },
    #[error("{what}: found {found}, at most {most} are possible")]
    TooLarge { what: &'static str, found: u64, most: u64 },
    #[error("over-provisioning: found {found}, expected a share of the logical capacity from 0 to 100 (10,000 %)")]
    OverProvision { found: f64 },
    #[error(
        "over-provisioning of {over_provision_percent} % of {logical_pages} pages leaves {found} spare erase units of \
         {unit_pages} pages, expected at least {least}: {reserve_units} in reserve and one that is being written; raise it to \
         {least_percent} %, or make the device larger or its units smaller"
    )]
    Reserve {
        over_provision_percent: f64,
        logical_pages: u32,
        unit_pages: u32,
        found: u32,
        least: u32,
        reserve_units: u32,
        least_percent: f64,
    },
}

/// Why a profile of flash cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ProfileError {
    #[error(
        "unknown flash profile '{found}'{}; expected the path of a TOML file or one of: {}",
        near.map(|name| format!(" (did you mean '{name}'?)")).unwrap_or_default(),
        expected.join(", ")
    )]
    UnknownName { found: String, near: Option<&'static str>, expected: Vec<&'static str> },
    #[error("{path}")]
    Io { path: String, source: std::io::Error },
    #[error("{path}: found more than {bytes_max} bytes, expected a profile of flash")]
    TooLong { path: String, bytes_max: u64 },
    #[error("{path}: byte {byte} is not UTF-8, expected TOML")]
    NotText { path: String, byte: usize },
    #[error("{path}, line {line}: {message}")]
    Syntax { path: String, line: usize, message: String },
    #[error(
        "{path}, line {line}: unknown key '{key}'{}; expected one of: {}",
        near.map(|name| format!(" (did you mean '{name}'?)")).unwrap_or_default(),
        expected.join(", ")
    )]
    UnknownKey { path: String, line: usize, key: String, near: Option<&'static str>, expected: Vec<&'static str> },
    #[error("{path}: key '{key}' is missing, expected {expected}")]
    MissingKey { path: String, key: &'static str, expected: String },
    #[error("{path}, line {line}: {key}: found {found}, expected {expected}")]
    Value { path: String, line: usize, key: &'static str, found: String, expected: String },
    #[error(
        "erase units of {unit}: expected a multiple of {block}, the erase blocks of flash profile '{profile}'; choose another unit \
         or profile"
    )]
    UnitOfBlocks { profile: String, unit: ByteSize, block: ByteSize },
}

/// Why a device does not do a step.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum StepError {
    #[error("page {page}: expected one of the {pages} pages of the device, from 0")]
    Page { page: u32, pages: u32 },
    #[error("erase unit {unit}: expected one of the {units} erase units of the device, from 0")]
    Unit { unit: u32, units: u32 },
    #[error("write to page {page}: erase unit {unit} is written up to page {expected}, where the next write must go")]
    NotAtWritePointer { page: u32, unit: u32, expected: u32 },
    #[error("write to page {page}: erase unit {unit} is full and must be reset first")]
    Full { page: u32, unit: u32 },
    #[error("write to page {page}: it would open erase unit {unit}, and {most} are open already, as many as can be")]
    OpenUnits { page: u32, unit: u32, most: u32 },
    #[error("read of page {page}: nothing was written there since erase unit {unit} was reset")]
    Unwritten { page: u32, unit: u32 },
}
