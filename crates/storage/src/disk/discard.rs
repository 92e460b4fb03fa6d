//! Discarding on block devices: the `BLKDISCARD` request of ioctl(2), linux/fs.h.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, opcode};

/// `_IO(0x12, 119)`. The argument is the first byte and the number of bytes.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// Discards bytes of a device. Succeeds without effect if the device does not support it.
pub(super) fn discard(device: &File, offset: u64, length: u64) -> io::Result<()> {
    // SAFETY: the kernel reads two 64-bit numbers from the argument and writes nothing to it.
    let result = unsafe { rustix::ioctl::ioctl(device, Setter::<BLKDISCARD, [u64; 2]>::new([offset, length])) };
    match result {
        Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
