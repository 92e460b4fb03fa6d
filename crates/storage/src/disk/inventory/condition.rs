//! The state of a disk.

/// The state of a disk, as far as it reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Condition {
    /// How much of its rated endurance is used, in percent; may exceed 100.
    pub wear_percent: Option<u16>,
    /// In degrees Celsius.
    pub temperature_celsius: Option<f64>,
    /// Errors that the disk could not correct.
    pub media_errors: Option<u64>,
    /// Sectors that it replaced by spare ones.
    pub reallocated: Option<u64>,
    /// Hours that it was on.
    pub power_on_hours: Option<u64>,
    /// Spare capacity that is left, in percent of that of a new disk.
    pub spare_percent: Option<u16>,
    /// True if it warns of its own failure.
    pub is_failing: Option<bool>,
}
