//! Any bytes of a client that haggles: each message is taken or refused, and what is answered is bounded by what was said.
#![no_main]

use std::sync::Arc;

use flashwise_server::export::{Done, Error, Export, Exports, Extent, Request};
use flashwise_server::nbd::handshake::{Encryption, Handshake, Step};
use libfuzzer_sys::fuzz_target;

struct Empty;

impl Export for Empty {
    fn size(&self) -> u64 {
        1 << 20
    }

    fn submit(&self, _request: Request, done: Done) {
        done(Err(Error::NotSupported));
    }

    fn extents(&self, _offset: u64, length: u64, _extents_max: usize) -> Result<Vec<Extent>, Error> {
        Ok(vec![Extent { length, hole: false, zero: false }])
    }
}

fuzz_target!(|bytes: &[u8]| {
    for encryption in [Encryption::Off, Encryption::Allowed, Encryption::Required] {
        let exports = Exports::default();
        assert!(exports.add("disk", Arc::new(Empty)));
        let mut handshake = Handshake::new(exports, encryption);
        let mut rest = bytes;
        let mut answers = Vec::new();
        loop {
            let (taken, step) = handshake.advance(rest, &mut answers);
            rest = &rest[taken..];
            match step {
                Step::Continue if taken == 0 => break,
                Step::Continue => {}
                _ => break,
            }
        }
        // An option of 16 bytes is answered with no more than the list of all exports and words about each.
        assert!(answers.len() <= 4096 + 64 * bytes.len(), "{} bytes for {}", answers.len(), bytes.len());
    }
});
