//! A cache to buy, its settings, and its job.

use flashwise_core::cache::WriteBackOrder;
use flashwise_core::cache::settings::{Setting, Value};
use flashwise_core::format::{BLOCK_BYTES, Geometry};
use flashwise_core::options::Given;
use flashwise_core::policy::Spec;
use flashwise_core::quantity::{ByteSize, Share};
use flashwise_device::offers::Offer;

use super::AdviseError;
use super::words::after;
use crate::cache_settings::Ram;
use crate::columns::figures;
use crate::job::{Admission, Job, JobError, LayoutName, Written};
use crate::size::Size;

/// The write modes of a cache.
pub const MODES: [&str; 3] = ["write-back", "write-through", "write-around"];
/// Erase units of the simulated and the advised cache; the server's default.
const UNIT_BYTES: u64 = 2 << 20;

figures! {
    /// A cache to buy, its settings, and its results on the trace. A lifetime without wear is infinite, `null` in JSON.
    pub struct AdvisedCache {
        /// The device, as the catalogue calls it.
        device: String, "";
        /// Number of devices in the cache.
        devices: u64, "devices";
        /// Size of all devices together.
        size_bytes: u64, "bytes";
        /// RAM for the buffers.
        ram_bytes: u64, "bytes";
        /// The replacement policy.
        policy: String, "";
        /// The admission rule, or none.
        admission: String, "";
        /// When written data reaches the backend: `write-back`, `write-through` or `write-around`.
        write_mode: String, "";
        /// The order of write-back: `none`, `barriers` or `journal`.
        write_back_order: String, "";
        /// The share of the flash that is kept free.
        over_provision: f64, "share";
        /// Price of devices and RAM.
        price: f64, "currency";
        /// Cost of the waits of all requests, over the years asked for.
        waiting_cost: f64, "currency";
        /// Price and cost of waiting together.
        cost: f64, "currency";
        /// Mean wait of a request: at the times of the trace, or one after the other if it has none.
        latency_mean_us: f64, "us";
        /// Mean wait in the worst interval.
        latency_worst_us: Option<f64>, "us";
        /// Start of that interval, after the first counted request.
        latency_worst_after_s: Option<f64>, "s";
        /// Length of that interval.
        latency_worst_seconds: Option<f64>, "s";
        /// Work of the busiest storage device, per time. Above 1 it cannot keep up. None for a trace without times.
        storage_utilisation: Option<f64>, "share";
        /// Work of the busiest flash device, per time. Above 1 it cannot keep up. None for a trace without times.
        cache_utilisation: Option<f64>, "share";
        /// Lifetime of the flash, from the endurance in the catalogue and the rate of writes in the trace. None for a
        /// trace without times.
        cache_lifetime_years: Option<f64>, "years";
        /// Hits per access.
        hit_ratio: f64, "share";
        /// Read hits per read.
        read_hit_ratio: f64, "share";
        /// Bytes written to flash per day, for every cause.
        flash_bytes_per_day: Option<f64>, "bytes a day";
        /// 1 if it meets the targets.
        meets: u64, "";
        /// The run as `flashwise simulate --job` reads it.
        job: String, "";
    }
}

impl AdvisedCache {
    /// Returns the write mode, with the order of write-back if there is one.
    pub fn writes(&self) -> String {
        match &self.write_back_order[..] {
            "none" | "" => self.write_mode.clone(),
            order => format!("{} ({order})", self.write_mode),
        }
    }

    /// Describes the worst interval: its length, and its start relative to that of the trace.
    pub fn worst_interval(&self) -> Option<String> {
        Some(after(self.latency_worst_seconds?, self.latency_worst_after_s?))
    }
}

/// The hardware of a cache.
#[derive(Clone, Debug)]
pub(super) struct Purchase<'a> {
    pub offer: &'a Offer,
    pub ram_bytes: u64,
    pub price: f64,
}

/// The settings of a cache.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub policy: Spec,
    pub admission: Admission,
    pub mode: &'static str,
    pub order: WriteBackOrder,
    pub over_provision: Share,
}

impl Purchase<'_> {
    /// Returns the size of the simulated flash: that of the purchase, or less if the trace touches far less. Beyond
    /// twice the touched bytes nothing is evicted, so the behaviour is the same.
    fn simulated_bytes(&self, over_provision: Share, touched_bytes: u64) -> u64 {
        let enough = 2.0 * touched_bytes as f64 / (1.0 - over_provision.of_one()) + 64.0 * UNIT_BYTES as f64;
        let bytes = self.offer.capacity_bytes().min(enough as u64);
        bytes - bytes % UNIT_BYTES
    }

    /// Refuses flash that is too small for a cache.
    pub fn check(&self) -> Result<(), AdviseError> {
        let least = UNIT_BYTES * u64::from(Geometry::UNITS_MIN);
        let found = self.offer.capacity_bytes();
        if found >= least {
            return Ok(());
        }
        let [found, least] = [found, least].map(|bytes| ByteSize::new(bytes).to_string());
        Err(AdviseError::TooSmall { offer: self.offer.name.clone(), found, least })
    }

    /// Returns the job that runs it as a server does.
    pub fn job(&self, way: &Way, base: &Job, touched_bytes: u64) -> Result<Job, JobError> {
        let size: Size = ByteSize::new(self.simulated_bytes(way.over_provision, touched_bytes)).to_string().parse()?;
        let text = self.offer.model.to_string();
        let mut job = Job {
            policy: Some(way.policy.clone().into()),
            size: Some(size),
            layout: Some(LayoutName::Log),
            ram: Some(Ram::Bytes(self.ram_bytes)),
            admission: Some(way.admission.clone()),
            cache_device: Some(Written { text, value: self.offer.model }),
            ..base.clone()
        };
        let ordered = (way.order != WriteBackOrder::None).then_some(("write-back-order", way.order.name().to_owned()));
        for (name, value) in std::iter::once(("write-mode", way.mode.to_owned())).chain(ordered) {
            let setting = Setting::named(name);
            let value = setting.read(&Given::from(&value[..])).map_err(JobError::Setting)?;
            job.settings.set(setting, value);
        }
        job.settings.set(Setting::named("over-provision"), Value::Share(way.over_provision.of_one()));
        job.plain()
    }

    /// Returns the job that estimates its contents. Only the policy and the rule run, behind RAM, over a cache of the
    /// blocks that the log can hold.
    pub fn estimating_job(&self, way: &Way, base: &Job, touched_bytes: u64) -> Result<Job, JobError> {
        let held = self.simulated_bytes(way.over_provision, touched_bytes) as f64 * (1.0 - way.over_provision.of_one());
        let held = (held as u64).min(touched_bytes) / BLOCK_BYTES as u64;
        let size: Size = ByteSize::new(held.max(1) * BLOCK_BYTES as u64).to_string().parse()?;
        let job = Job {
            policy: Some(way.policy.clone().into()),
            size: Some(size),
            // The other half buffers writes.
            ram: Some(Ram::Bytes(self.ram_bytes / 2)),
            admission: way.admission.rule().is_some().then(|| way.admission.clone()),
            warmup: base.warmup,
            sample: base.sample,
            sample_by: base.sample_by,
            ..Job::default()
        };
        // Only adaptive rules need devices.
        let adapts = way.admission.rule().is_some_and(|rule| rule.spec().info().decides.is_some());
        match adapts {
            true => Job {
                cache_device: Some(Written { text: self.offer.model.to_string(), value: self.offer.model }),
                storage_device: base.storage_device.clone(),
                ..job
            },
            false => job,
        }
        .plain()
    }
}
