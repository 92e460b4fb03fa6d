//! The options of `flashwise simulate` for caches that evict whole buckets.

use clap::Args;
use flashwise_core::quantity::{ByteSize, Share};
use flashwise_core::wlfc::Refresh;
use flashwise_sim::job::Job;

use crate::help;

/// What a cache of buckets is made of; `None` is the default.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = help::BUCKETS)]
pub struct BucketOptions {
    /// Length of a bucket, a multiple of --device's erase blocks, or a part of one, which then is the erase block
    /// [default: an erase block, 4MiB of wlfc]
    #[arg(long, value_name = "SIZE")]
    bucket: Option<ByteSize>,
    /// Share of wlfc's buckets that is for writing [default: 50%]
    #[arg(long, value_name = "SHARE")]
    write_queue: Option<Share>,
    /// Write buckets that wlfc allocates between two halvings of all priorities [default: as many as the write queue has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    halving: Option<u32>,
    /// Writes of more than this go past wlfc and b-like, to the backend [default: --bucket]
    #[arg(long, value_name = "SIZE")]
    large_write: Option<ByteSize>,
    /// When wlfc brings read copies up to date: at each read, or when logs are evicted, which costs less [default: read]
    #[arg(long, value_name = "WHEN")]
    refresh: Option<Refresh>,
    /// Logs of b-like for each page of its journal [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    journal_logs: Option<u32>,
}

impl BucketOptions {
    /// Says in `job` what is given.
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
