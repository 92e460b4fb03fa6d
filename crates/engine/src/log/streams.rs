//! Write streams: the flash device learns which writes are of one kind, so it can put pages together that die together
//! (flexible data placement).
//!
//! The kind of a page is the reason for writing it. Consecutive pages of one kind in a segment are one write: the
//! header, pages of clients, admitted pages, and pages that are copied forward.

use flashwise_core::step::Cause;

/// The reason for writing a page, which is also the number of its stream. On a device with fewer streams, the last one
/// takes the rest. Superblocks have no stream, so devices use the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// It is a header or a footer of the log.
    Metadata = 1,
    /// A client wrote it, to be written back.
    Client,
    /// It was admitted; the backend holds it too.
    Admission,
    /// Its unit is about to be reset, and the block is still wanted.
    CopyForward,
}

impl Stream {
    /// That of data that is written for this reason.
    pub(super) fn of(cause: Cause) -> Stream {
        match cause {
            Cause::Client => Stream::Client,
            Cause::Admission => Stream::Admission,
            Cause::CopyForward => Stream::CopyForward,
        }
    }

    /// Returns the number of the stream on a device with this many streams; 0 for none.
    pub(super) fn number(self, streams: u8) -> u8 {
        (self as u8).min(streams)
    }
}
