//! Write streams: a flash device is told which writes are of one kind, so that what dies together lies together (flexible data placement).
//!
//! Pages are told apart by why they are written. What a segment holds of one kind in a row is a write of its own: its header, the pages of
//! clients, those that were admitted, and those that were copied forward.

use flashwise_core::step::Cause;

/// Why a page is written; the number of its stream, where the device has so many. The last that it has takes what is left. Superblocks
/// are written without one, which devices take for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// It is a header or a footer of the log.
    Metadata = 1,
    /// A client wrote it, to be written back.
    Client,
    /// It was admitted; the backend holds it too.
    Admission,
    /// Its unit is about to be reset and it is still wanted.
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

    /// The number of it on a device with so many streams; 0, which is none, where it has none.
    pub(super) fn number(self, streams: u8) -> u8 {
        (self as u8).min(streams)
    }
}
