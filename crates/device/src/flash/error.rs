//! Errors: impossible devices, and steps that a device rejects.

use flashwise_core::quantity::ByteSize;

/// An impossible configuration of a device.
#[derive(Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum DeviceError {
    #[error("{what}: found {found}, expected at least {least}")]
    TooSmall { what: &'static str, found: u64, least: u64 },
    #[error("{what}: found {found}, expected at most {most}")]
    TooLarge { what: &'static str, found: u64, most: u64 },
    #[error("spare flash: found {found}, expected a share of the logical capacity from 0 to 100 (10,000 %)")]
    Spare { found: f64 },
    #[error(
        "spare flash of {spare_percent} % of {logical_pages} pages is {found} erase units of {unit_pages} pages, expected at least {least}: {reserve_units} in reserve and an open one. To fit, {}make the \
         device larger or its units smaller",
        raise(*least_percent)
    )]
    Reserve {
        spare_percent: f64,
        logical_pages: u32,
        unit_pages: u32,
        found: u32,
        least: u32,
        reserve_units: u32,
        least_percent: f64,
    },
}

/// Advises to raise the spare flash to `percent`, unless that exceeds the option's range.
fn raise(percent: f64) -> String {
    if percent > 100.0 { String::new() } else { format!("raise it to {percent} %, or ") }
}

/// An erase unit size that does not fit the flash.
#[derive(Debug, thiserror::Error)]
#[error(
    "erase units of {unit}: expected a multiple of {part}, the {parts} of device '{device}'; choose another unit or \
     device"
)]
pub struct UnitError {
    /// The requested erase unit.
    pub unit: ByteSize,
    /// The device.
    pub device: String,
    /// The name of the parts that a unit consists of: the device's erase blocks, or its pages.
    pub parts: &'static str,
    /// The size of a part.
    pub part: ByteSize,
}

/// A step that a device rejects.
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
    #[error("write to page {page}: it would open erase unit {unit}, but {most} are open already, the maximum")]
    OpenUnits { page: u32, unit: u32, most: u32 },
    #[error("read of page {page}: it was not written since the reset of erase unit {unit}")]
    Unwritten { page: u32, unit: u32 },
}
