//! Errors of endurance simulation.

use flashwise_core::quantity::ByteSize;

use flashwise_device::flash::DeviceError;
use flashwise_trace::error::TraceError;

/// The reason why endurance cannot be simulated.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum EnduranceError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("erase unit: found {found}, expected a multiple of the trace's blocks of {block}, below 2^24 of them")]
    EraseUnit { found: ByteSize, block: ByteSize },
    #[error(
        "size '{size}' is {flash} of flash, less than one erase unit of {unit}; make the cache larger or erase units \
         smaller"
    )]
    UnitLargerThanCache { unit: ByteSize, size: String, flash: ByteSize },
    #[error("size '{size}': {why}")]
    Device { size: String, why: DeviceError },
    #[error(
        "size '{size}': DRAM of {ram} has no room for a write buffer of one erase unit of {unit}. Use more DRAM, \
         none, or smaller erase units"
    )]
    RamBelowWriteBuffer { size: String, ram: ByteSize, unit: ByteSize },
    #[error("write buffers: found 0, expected at least 1")]
    NoWriteBuffer,
    #[error(
        "size '{size}': found {found} write buffers of {unit}, expected at most {most}: they are a part of the DRAM of \
         {ram}"
    )]
    WriteBuffersAndRam { size: String, found: u32, unit: ByteSize, ram: ByteSize, most: u32 },
    #[error("size '{size}': found {found} write buffers, expected at most {most}: the flash has {units} erase units")]
    WriteBuffersAndFlash { size: String, found: u32, units: u32, most: u32 },
    #[error(
        "{algorithm}, size '{size}': found {flash} of flash, expected at least {least}. That is {units} erase units: \
         one on flash, and \
         those that fill up in RAM, which count for the size"
    )]
    OpenUnits { algorithm: String, size: String, flash: ByteSize, least: ByteSize, units: u32 },
    #[error(
        "{algorithm}: {trace} has no times, so there are no erasures per day; give the budget as a share, such as \
         share=50%"
    )]
    NoTimes { algorithm: String, trace: String },
    #[error(
        "{algorithm}, size '{size}', {trace}: the budget is {erasures:.3} erasures over the trace, expected at least \
         1, which is {least}"
    )]
    BudgetBelowOneErasure { algorithm: String, size: String, trace: String, erasures: f64, least: String },
}
