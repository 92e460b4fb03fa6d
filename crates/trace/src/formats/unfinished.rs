//! Text whose writer was killed: the last line can be truncated anywhere, even within a number.

use flashwise_core::filter::Filter;

use super::plausible::Layout;
use super::{Batch, Framing, Malformed, Parse, Parser, Reading, Sample};

/// A parser of lines that drops a last line without a newline, and reports the trace as truncated.
#[derive(Debug)]
pub struct Unfinished(pub Parser);

impl Parse for Unfinished {
    fn framing(&self) -> Framing {
        Framing::Lines
    }

    fn parse(&self, records: &[u8], batch: &mut Batch) {
        let whole = memchr::memrchr(b'\n', records).map_or(0, |newline| newline + 1);
        self.0.parse(&records[..whole], batch);
    }

    fn layout(&self) -> Option<Layout> {
        self.0.layout()
    }

    fn reading(&self, sample: &Sample) -> Result<Option<Reading>, Malformed> {
        self.0.reading(sample)
    }

    fn filtered(self: Box<Self>, filter: Filter) -> Option<Parser> {
        self.0.filtered(filter).map(|filtered| Box::new(Unfinished(filtered)) as Parser)
    }

    fn may_be_cut(&self) -> bool {
        true
    }
}
