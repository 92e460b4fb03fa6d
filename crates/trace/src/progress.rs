//! How long work reports how far it is.

/// Receives how much has been done since the last call: bytes of input, or block accesses, as the work's documentation says.
pub trait Progress: Sync {
    /// `amount` more is done; 0 where work begins. Who does not want the work any more may unwind here.
    fn advance(&self, amount: u64);

    /// Something that who uses the trace at `path` should know: how it is read, or what looks wrong with it.
    fn note(&self, _path: &str, _what: &str) {}

    /// The end of the recording at `path` is missing, as where its server was killed; its `rows` before that were read.
    fn ends_early(&self, _path: &str, _rows: u64) {}
}

/// Reports to nobody.
#[derive(Debug)]
pub struct Silent;

impl Progress for Silent {
    fn advance(&self, _amount: u64) {}
}
