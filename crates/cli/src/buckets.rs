//! Options of `flashwise simulate` for caches that evict whole buckets.

use clap::Args;
use flashwise_core::quantity::{ByteSize, Share};
use flashwise_core::wlfc::Refresh;
use flashwise_sim::job::Job;

use crate::help;

/// Options for caches of buckets; `None` is the default.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = help::BUCKETS)]
pub struct BucketOptions {
    /// Bucket size: a multiple of --device's erase block, or a part of it [default: an erase block; wlfc: 4MiB]
    ///
    /// If it is smaller than the erase block, it replaces the erase block.
    #[arg(long, value_name = "SIZE")]
    bucket: Option<ByteSize>,
    /// Share of wlfc's buckets for writes [default: 50%]
    #[arg(long, value_name = "SHARE")]
    write_queue: Option<Share>,
    /// Write buckets that wlfc allocates between two halvings of all priorities [default: the write queue's length]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    halving: Option<u32>,
    /// Send larger writes to the backend, past wlfc and b-like [default: --bucket]
    #[arg(long, value_name = "SIZE")]
    large_write: Option<ByteSize>,
    /// When wlfc updates read copies: read (at each read) or evict (when logs are evicted; cheaper) [default: read]
    #[arg(long, value_name = "WHEN")]
    refresh: Option<Refresh>,
    /// Logs of b-like per page of its journal [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    journal_logs: Option<u32>,
}

impl BucketOptions {
    /// Puts the given options into `job`.
    pub fn put(&self, job: &mut Job) {
        *job = Job {
            bucket: self.bucket,
            write_queue: self.write_queue,
            halving: self.halving,
            large_write: self.large_write,
            refresh: self.refresh,
            journal_logs: self.journal_logs,
            ..std::mem::take(job)
        };
    }
}
