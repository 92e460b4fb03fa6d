//! SCSI block devices: command descriptor blocks in, requests to an export, data, status and sense out. Knows no transport.
//!
//! Source: SPC-4 (T10/BSR INCITS 513), SBC-3 (INCITS 514) and SAM-5 (INCITS 515).
//!
//! | file | holds | knows nothing of |
//! | --- | --- | --- |
//! | `opcodes.rs` | the table of commands, and what all of them have in common | what each does |
//! | `opcodes/supported.rs` | REPORT SUPPORTED OPERATION CODES, from the table | |
//! | `cdb.rs` | fields of command descriptor blocks | which command has which |
//! | `status.rs` | status, sense data and answers | why they are given |
//! | `unit.rs` | a logical unit: an export, and what initiators share of it | commands |
//! | `call.rs` | a command as its handler sees it | which there are |
//! | `nexus.rs` | an initiator as a logical unit knows it | commands |
//! | `reservations.rs` | who may do what, by RESERVE and PERSISTENT RESERVE | how that is asked for |
//! | `reserve.rs` | the commands that reserve | |
//! | `inquiry.rs` | INQUIRY and the vital product data | |
//! | `paths.rs` | REPORT TARGET PORT GROUPS | |
//! | `mode.rs` | MODE SENSE and MODE SELECT | |
//! | `capacity.rs` | READ CAPACITY, GET LBA STATUS and other reports | |
//! | `medium.rs` | commands that read and write blocks | |
//! | `copy.rs` | EXTENDED COPY within the unit | |
//! | `plan.rs` | the requests that a command comes to, one after the other | commands |

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
/// Size of a physical block in bytes: that of the cache's blocks.
pub const PHYSICAL_BLOCK_BYTES: u64 = 4096;
/// Longest transfer that initiators are told of, in bytes: with it, every command has memory enough.
pub const TRANSFER_BYTES_MAX: u64 = 16 << 20;
/// Most memory that the data of one command takes, in bytes: a write that is read back takes it twice.
pub const DATA_BYTES_MAX: u64 = 32 << 20;
/// Most memory that one command takes, in bytes.
pub const COMMAND_BYTES_MAX: usize = DATA_BYTES_MAX as usize + (64 << 10);
/// Longest COMPARE AND WRITE in blocks.
pub const COMPARE_BLOCKS_MAX: u64 = 128;
/// Longest list of parameters in bytes.
pub const PARAMETERS_BYTES_MAX: u64 = 64 << 10;
