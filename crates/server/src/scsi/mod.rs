//! SCSI block devices: command descriptor blocks in, requests to an export, data, status and sense out. Independent of
//! the transport.
//!
//! Source: SPC-4 (T10/BSR INCITS 513), SBC-3 (INCITS 514) and SAM-5 (INCITS 515).
//!
//! | file | holds | independent of |
//! | --- | --- | --- |
//! | `opcodes.rs` | the table of commands, and their common handling | the handlers |
//! | `opcodes/supported.rs` | REPORT SUPPORTED OPERATION CODES, from the table | |
//! | `cdb.rs` | fields of command descriptor blocks | the list of commands |
//! | `status.rs` | status, sense data and replies | commands |
//! | `unit.rs` | a logical unit: an export and the shared state of its initiators | commands |
//! | `call.rs` | a command as its handler sees it | the list of commands |
//! | `nexus.rs` | an initiator as a logical unit sees it | commands |
//! | `reservations.rs` | permissions by RESERVE and PERSISTENT RESERVE | the bytes of commands |
//! | `reserve.rs` | the commands that reserve | |
//! | `inquiry.rs` | INQUIRY and the vital product data | |
//! | `paths.rs` | REPORT TARGET PORT GROUPS | |
//! | `mode.rs` | MODE SENSE and MODE SELECT | |
//! | `capacity.rs` | READ CAPACITY, GET LBA STATUS and other reports | |
//! | `medium.rs` | commands that read and write blocks | |
//! | `copy.rs` | EXTENDED COPY within the unit | |
//! | `plan.rs` | the sequence of requests of a command | commands |

pub mod call;
mod capacity;
pub mod cdb;
mod copy;
mod inquiry;
mod medium;
mod mode;
pub mod nexus;
pub mod opcodes;
mod paths;
pub mod plan;
pub mod reservations;
mod reserve;
pub mod status;
pub mod unit;

/// Size of a logical block in bytes.
pub const BLOCK_BYTES: u64 = 512;
/// Size of a physical block in bytes; equals the cache's blocks.
pub const PHYSICAL_BLOCK_BYTES: u64 = 4096;
/// Longest transfer that initiators are informed of, in bytes: within it, every command gets enough memory.
pub const TRANSFER_BYTES_MAX: u64 = 16 << 20;
/// Maximum memory for the data of one command, in bytes: a write that is verified takes it twice.
pub const DATA_BYTES_MAX: u64 = 32 << 20;
/// Maximum memory of one command, in bytes.
pub const COMMAND_BYTES_MAX: usize = DATA_BYTES_MAX as usize + (64 << 10);
/// Longest COMPARE AND WRITE in blocks.
pub const COMPARE_BLOCKS_MAX: u64 = 128;
/// Longest list of parameters in bytes.
pub const PARAMETERS_BYTES_MAX: u64 = 64 << 10;
