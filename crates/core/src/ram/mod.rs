//! The RAM tier in front of the flash: a read buffer of clean blocks and a write buffer of dirty ones.
//!
//! Source: NCache, a two-level DRAM-SSD cache, section 3. Reads and writes enter RAM first. The write buffer keeps the
//! rewrites of hot blocks off the flash, and merges small writes into larger ones.
//!
//! Both buffers make decisions, but hold no bytes. With each block they keep a frame, by which their owner finds the
//! block's bytes. A block is either dirty or clean, so an owner keeps it in at most one of the two.

pub mod read_buffer;
pub mod write_buffer;
