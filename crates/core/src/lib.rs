//! The decisions and the memory of flashwise.
//!
//! `core` has no I/O, clock, thread, lock or random seed of its own: time and seeds are arguments. The simulator
//! charges its decisions to a model, the server executes them on real devices; both run this code.
//!
//! A [`Policy`](policy::Policy) answers each [`Access`](access::Access) with an [`Outcome`](policy::Outcome). Policies
//! are listed in [`policy::POLICIES`], and [`policy::Spec`] selects one by name. An [admission rule](admission) may
//! stand in front of it. The whole [`cache`] answers each [`Request`](cache::Request) with [`Step`](step::Step)s.

pub mod access;
pub mod account;
pub mod admission;
pub mod block_cache;
pub mod blocks;
pub mod cache;
pub mod checksum;
pub mod container_policy;
pub mod counters;
pub mod counts;
pub mod decision;
pub mod directory;
pub mod epochs;
pub mod filter;
pub mod format;
pub mod frames;
pub mod human;
pub mod index;
pub mod journal;
pub mod layout;
pub mod lists;
pub mod named;
pub mod options;
pub mod order;
pub mod policy;
pub mod positions;
pub mod prefetch;
pub mod quantity;
pub mod ram;
pub mod random;
pub mod recording;
pub mod recovery;
pub mod salvage;
pub mod sketch;
pub mod step;
pub mod streams;
pub mod table;
pub mod tiers;
pub mod uses;
pub mod wlfc;
