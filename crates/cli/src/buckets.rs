//! The options of `flashwise simulate` for caches that evict whole buckets.

use clap::Args;
use flashwise_core::quantity::{ByteSize, Share};
use flashwise_core::wlfc::Refresh;
use flashwise_device::TierModel;
use flashwise_device::flash::Profile;
use flashwise_sim::wlfc::BucketSettings;

use crate::given::given;
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
    /// When wlfc brings read copies up to date: at each read, or when logs are evicted, which costs less [default: read]
    #[arg(long, value_name = "WHEN", value_parser = ["read", "evict"])]
    refresh: Option<String>,
    /// Logs of b-like for each page of its journal [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    journal_logs: Option<u32>,
}

impl BucketOptions {
    /// The options that are given, as they are written.
    pub fn given(&self) -> impl Iterator<Item = &'static str> {
        given([
            ("--bucket", self.bucket.is_some()),
            ("--write-queue", self.write_queue.is_some()),
            ("--halving", self.halving.is_some()),
            ("--refresh", self.refresh.is_some()),
            ("--journal-logs", self.journal_logs.is_some()),
        ])
    }

    /// The settings, with flash, backend and over-provisioning where they were named.
    pub fn settings(
        &self,
        device: Option<Profile>,
        backend: Option<TierModel>,
        over_provision: Option<Share>,
    ) -> BucketSettings {
        let default = BucketSettings::paper();
        BucketSettings {
            device: device.unwrap_or(default.device),
            backend: backend.unwrap_or(default.backend),
            bucket_bytes: self.bucket.map(ByteSize::bytes),
            write_queue: self.write_queue.map_or(default.write_queue, Share::of_one),
            halving: self.halving,
            refresh: if self.refresh.as_deref() == Some("evict") { Refresh::Evict } else { Refresh::Read },
            over_provision: over_provision.map_or(default.over_provision, Share::of_one),
            journal_logs: self.journal_logs.unwrap_or(default.journal_logs),
        }
    }
}
