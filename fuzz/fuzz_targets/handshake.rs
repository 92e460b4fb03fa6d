//! A client negotiates with any bytes, or with options of any data.
//!
//! Each message is accepted or refused, and the input's length limits the reply's length. The division into packets
//! makes no difference.
#![no_main]

use std::sync::{Arc, LazyLock};

use flashwise_fuzz::memory_export::MemoryExport;
use flashwise_server::front::nbd::handshake::{Encryption, Handshake, OPTION_BYTES_MAX, Step};
use flashwise_server::front::nbd::protocol::NBD_OPTS_MAGIC;
use flashwise_storage::export::Exports;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// Returns client flags and options; the program determines numbers, data and lengths.
fn options(program: &mut Unstructured) -> Result<Vec<u8>> {
    let mut said = u32::from(program.arbitrary::<u8>()? % 4).to_be_bytes().to_vec();
    while !program.is_empty() {
        let [option, parts, lie] = program.arbitrary::<[u8; 3]>()?;
        let mut data = Vec::new();
        for _ in 0..parts % 4 {
            match program.arbitrary::<u8>()? {
                // Plain names and queries, numbers, and any bytes.
                kind @ 0..=127 => {
                    let texts = ["disk", "", "base:allocation", "base:", "sectors", "read-only", "\0", "é"];
                    let text = texts[usize::from(kind) % texts.len()];
                    data.extend((text.len() as u32).to_be_bytes());
                    data.extend(text.as_bytes());
                }
                count @ 128..=191 => data.extend(u16::from(count % 8).to_be_bytes()),
                count @ 192..=223 => data.extend(u32::from(count % 8).to_be_bytes()),
                count => data.extend(program.bytes(usize::from(count % 32).min(program.len()))?),
            }
        }
        let length = match lie {
            255 => program.arbitrary()?,
            254 => OPTION_BYTES_MAX as u32 + 1,
            _ => data.len() as u32,
        };
        said.extend(NBD_OPTS_MAGIC.to_be_bytes());
        said.extend(u32::from(option % 12).to_be_bytes());
        said.extend(length.to_be_bytes());
        said.extend(data);
    }
    Ok(said)
}

/// Returns the reply to `said`, which arrives in pieces of `at_once` bytes, and true if an export was opened.
fn answers(said: &[u8], encryption: Encryption, at_once: usize) -> (Vec<u8>, bool) {
    static EXPORTS: LazyLock<Exports> = LazyLock::new(|| {
        let exports = Exports::default();
        for (name, read_only, block_bytes) in [("disk", false, 1), ("read-only", true, 1), ("sectors", false, 4096)] {
            assert!(exports.add(name, Arc::new(MemoryExport::new(read_only, block_bytes))));
        }
        exports
    });
    let mut handshake = Handshake::new(EXPORTS.clone().into(), encryption);
    let (mut start, mut arrived, mut answers) = (0, 0, Vec::new());
    let mut encrypted = encryption == Encryption::Off;
    loop {
        let (taken, step) = handshake.advance(&said[start..arrived], &mut answers);
        start += taken;
        match step {
            Step::Continue if taken > 0 => {}
            Step::Continue if arrived < said.len() => arrived = (arrived + at_once).min(said.len()),
            Step::StartTls => {
                assert!(!encrypted, "TLS is started once, and where it is on");
                encrypted = true;
                handshake.encrypted();
            }
            Step::Transmit(_) => {
                assert!(encryption != Encryption::Required || encrypted, "nothing is opened before TLS");
                return (answers, true);
            }
            Step::Continue | Step::End => return (answers, false),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let said = match bytes.split_first() {
        Some((first, rest)) if first % 4 == 0 => rest.to_vec(),
        Some((_, rest)) => options(&mut Unstructured::new(rest)).unwrap_or_default(),
        None => return,
    };
    for encryption in [Encryption::Off, Encryption::Allowed, Encryption::Required] {
        let whole = answers(&said, encryption, said.len().max(1));
        // An option has at least 16 bytes. The longest reply is the list of all exports with a description of each.
        assert!(whole.0.len() <= 4096 + 64 * said.len(), "{} bytes for {}", whole.0.len(), said.len());
        assert!(answers(&said, encryption, 7) == whole);
    }
});
