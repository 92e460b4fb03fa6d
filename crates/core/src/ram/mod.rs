//! The RAM tier in front of the flash: a read buffer of clean blocks and a write buffer of dirty ones.
//!
//! Source: NCache, a two-level DRAM-SSD cache, section 3. What is read or written enters RAM first; the write buffer takes the
//! rewrites of hot blocks off the flash and merges small writes into larger ones.
//!
//! Both buffers decide and remember, and hold no bytes: with each block they keep a frame, which is whatever their owner finds
//! the block's bytes by. A block is dirty or clean, so an owner keeps it in one of the two at most.

pub mod read_buffer;
pub mod write_buffer;
