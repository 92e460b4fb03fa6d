//! CRC-32C, the checksum of blocks and of pages of metadata.
//!
//! Source: Castagnoli, Braeuer and Herrmann: Optimization of cyclic redundancy-check codes with 24 and 32 parity bits.
//! IEEE Transactions on Communications, 1993; parameters as in RFC 3720 (iSCSI), section 12.1.

use crc_fast::{CrcAlgorithm, Digest};

// Inlined, the library's code would be compiled in each crate that calls these, for up to 2 % of its compilation.

/// Returns the CRC-32C of bytes.
#[inline(never)]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Returns the CRC-32C of some bytes followed by `bytes`, given the CRC-32C `before` of the first ones.
#[inline(never)]
pub fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    // A checksum is the state after its bytes, inverted.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4: 32 bytes of zeroes, of ones, ascending and descending; and the check value of all catalogues.
    #[test]
    fn published_checksums_are_found() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(&descending), 0x113f_db5c);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!((crc32c(b""), crc32c_append(0, b"123456789")), (0, 0xe306_9283));
    }

    /// Lengths and alignments take different paths through the library: each agrees with another one.
    #[test]
    fn every_length_and_alignment_agrees_with_another_library() {
        let bytes: Vec<u8> = (0..6000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for start in 0..67 {
            for length in (0..600).chain([1023, 1024, 1025, 4084, 4088, 4095, 4096, 4097, 5900]) {
                let part = &bytes[start..start + length];
                assert_eq!(crc32c(part), ::crc32c::crc32c(part), "{length} bytes from {start}");
                let (head, tail) = part.split_at(length * start / 67);
                assert_eq!(
                    crc32c_append(crc32c(head), tail),
                    crc32c(part),
                    "{length} bytes from {start}, in two parts"
                );
            }
        }
    }
}
