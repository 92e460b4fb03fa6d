//! The settings for reading a trace.

use flashwise_core::filter::Filter;

use crate::formats::FormatSpec;

/// The default length of a block, in bytes.
pub const DEFAULT_BLOCK_SIZE_BYTES: u64 = 4096;

/// The settings for reading a trace. By default the format is recognised, blocks have 4 KiB, and malformed records are
/// errors.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The trace's format; recognised from its contents if absent.
    pub format: Option<FormatSpec>,
    /// The length of a block; if absent, [`DEFAULT_BLOCK_SIZE_BYTES`] or that of a normalised trace.
    pub block_size_bytes: Option<u64>,
    /// True if malformed records are skipped and counted instead of being errors.
    pub lenient: bool,
    /// Selects the processes whose requests are cached. A trace whose format has no processes is then rejected.
    pub filter: Option<Filter>,
}
