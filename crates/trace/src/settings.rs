//! How a trace is to be read.

use flashwise_core::filter::Filter;

use crate::formats::FormatSpec;

/// Length of a block where nothing else is said.
pub const DEFAULT_BLOCK_SIZE_BYTES: u64 = 4096;

/// How to read a trace. The default: recognised format, blocks of 4 KiB, malformed records are errors.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The trace's format; recognised from its contents if absent.
    pub format: Option<FormatSpec>,
    /// Length of a block; if absent [`DEFAULT_BLOCK_SIZE_BYTES`], or that of a normalised trace.
    pub block_size_bytes: Option<u64>,
    /// Whether malformed records are passed over and counted, rather than being errors.
    pub lenient: bool,
    /// Which processes are cached, for a cache that is asked the requests; a trace whose format has no processes is then refused.
    pub filter: Option<Filter>,
}
