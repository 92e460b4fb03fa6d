//! A third layout, in this folder only: a write-through cache in place. It shows what a layout has to state.
//!
//! It runs in all worlds: power failures, devices that fail (`crate::failing`), a server on real files, modelled
//! devices in virtual time (`crate::times`), and the simulator.
//!
//! | file | holds |
//! | --- | --- |
//! | `cache.rs` | the plans |
//! | `slots.rs` | the resources and transfers of steps, and the bytes on flash |
//! | `row.rs` | the row: contents, recovery, and the engine of a volume |
//! | `crash.rs`, `time.rs` | its worlds of power failures, of real files, and of the simulator |

mod cache;
mod crash;
mod row;
mod slots;
mod time;

pub use row::IN_PLACE;
