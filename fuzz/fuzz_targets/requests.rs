//! Any header of a request: requests passed to an export lie within it.
#![no_main]

use flashwise_server::front::nbd::transmission::{Command, Terms, Verdict, judge};
use flashwise_storage::export::Operation;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: ([u8; 24], u32, bool, bool, bool, u8)| {
    let (fields, size, read_only, structured, allocation, block_bits) = input;
    let terms = Terms {
        size: u64::from(size),
        read_only,
        block_bytes_min: 1 << (block_bits % 13),
        payload_bytes_max: 32 << 20,
        structured,
        allocation,
    };
    let mut header = [0; 28];
    header[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
    header[4..].copy_from_slice(&fields);
    let command = Command::decode(&header).expect("the magic number is right");
    match judge(&command, &terms) {
        Verdict::Perform(operation) => {
            assert!(command.offset.checked_add(u64::from(command.length)).is_some_and(|end| end <= terms.size));
            assert!(!read_only || matches!(operation, Operation::Read | Operation::Flush | Operation::Cache));
        }
        Verdict::Extents(extents_max) => assert!(allocation && extents_max > 0),
        Verdict::Refuse(error, reason) => assert!(error > 0 && !reason.is_empty()),
        Verdict::Disconnect | Verdict::End => {}
    }
});
