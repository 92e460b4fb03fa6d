//! Lifetime and latency of an array: fast cache devices in front of slower storage devices.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section IV, equations 2 to 6, and Figure 3 for rejected misses.
//!
//! Departures from the paper:
//! - Equations 2 and 3 are for LRU, which admits every miss. Here only a portion `p` of the misses is admitted, as in
//!   Figure 3 and section IV.B; with `p` = 1 they are the paper's.
//! - The paper gives average latencies without their derivation. Here an access takes the latency of the device that
//!   answers it. This is the cache for hits and admitted writes, and the storage for read misses and rejected writes.
//!   The average is over bytes, which gives the paper's 0.136 ms for its first workload. Work after the answer (filling
//!   the cache, writing back) takes no time.

/// Days of a year, as in the paper's lifetimes and in the vendors' conversion of drive writes per day into bytes.
pub const YEAR_DAYS: f64 = 365.0;
/// Seconds of such a year.
pub const YEAR_SECONDS: f64 = YEAR_DAYS * 86_400.0;

/// One device, with figures from its data sheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// `c_c` or `c_s`: its capacity.
    pub capacity_bytes: f64,
    /// `l_c` or `l_s`: write cycles of each cell; infinite if writes cause no wear.
    pub endurance_cycles: f64,
    /// `t_c,r` or `t_s,r`.
    pub read_latency_us: f64,
    /// `t_c,w` or `t_s,w`.
    pub write_latency_us: f64,
}

/// Equal devices that share their work evenly: the cache or the storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tier {
    /// The properties of each device.
    pub device: Device,
    /// `N_c` or `N_s`.
    pub devices: f64,
    /// `beta_c` or `beta_s`: bytes that a device programs per byte written to it.
    pub write_amplification: f64,
}

impl Tier {
    /// Returns the capacity of all devices together.
    pub fn capacity_bytes(&self) -> f64 {
        self.devices * self.device.capacity_bytes
    }

    /// Returns the writes of each cell for `written_bytes` to the tier.
    pub fn writes_per_cell(&self, written_bytes: f64) -> f64 {
        self.write_amplification * written_bytes / self.capacity_bytes()
    }
}

/// The traffic of an array: bytes in some time, or bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Reads answered by the cache.
    pub read_hits: f64,
    /// Reads answered by the storage.
    pub read_misses: f64,
    /// Writes answered by the cache: write hits and admitted write misses.
    pub cached_writes: f64,
    /// Writes answered by the storage.
    pub bypassed_writes: f64,
    /// All writes to the cache: `cached_writes` and admitted read misses.
    pub cache_written: f64,
    /// All writes to the storage: `bypassed_writes` and write-backs.
    pub storage_written: f64,
}

impl Traffic {
    /// Returns all reads and writes of clients.
    pub fn client(&self) -> f64 {
        self.read_hits + self.read_misses + self.cached_writes + self.bypassed_writes
    }

    /// Returns the traffic multiplied by `factor`.
    pub fn scaled(&self, factor: f64) -> Traffic {
        Traffic {
            read_hits: factor * self.read_hits,
            read_misses: factor * self.read_misses,
            cached_writes: factor * self.cached_writes,
            bypassed_writes: factor * self.bypassed_writes,
            cache_written: factor * self.cache_written,
            storage_written: factor * self.storage_written,
        }
    }

    /// Returns the sum of this traffic and `other`.
    pub fn plus(&self, other: &Traffic) -> Traffic {
        Traffic {
            read_hits: self.read_hits + other.read_hits,
            read_misses: self.read_misses + other.read_misses,
            cached_writes: self.cached_writes + other.cached_writes,
            bypassed_writes: self.bypassed_writes + other.bypassed_writes,
            cache_written: self.cache_written + other.cache_written,
            storage_written: self.storage_written + other.storage_written,
        }
    }
}

/// A workload in the form of the paper's Table II.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// `r`, bytes per second.
    pub read: f64,
    /// `w`, bytes per second.
    pub write: f64,
    /// `1 - m_r`.
    pub read_hit_ratio: f64,
    /// `1 - m_w`.
    pub write_hit_ratio: f64,
    /// `d`: the share of dirty blocks in the cache, and so among the evicted ones.
    pub dirty: f64,
    /// `p`: the share of admitted misses.
    pub admitted: f64,
}

impl Workload {
    /// Returns the array's traffic per second: arrows 2 to 5 of Figures 2 and 3, the numerators of equations 2 and 3.
    pub fn traffic(&self) -> Traffic {
        let Workload { read: r, write: w, dirty: d, admitted: p, .. } = *self;
        let (m_r, m_w) = (1.0 - self.read_hit_ratio, 1.0 - self.write_hit_ratio);
        let cached_writes = w * (1.0 - m_w) + p * m_w * w;
        let bypassed_writes = (1.0 - p) * m_w * w;
        Traffic {
            read_hits: (1.0 - m_r) * r,
            read_misses: m_r * r,
            cached_writes,
            bypassed_writes,
            cache_written: p * m_r * r + cached_writes,
            storage_written: p * (m_r * r + m_w * w) * d + bypassed_writes,
        }
    }
}

/// Cache devices in front of storage devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array {
    /// The cache devices.
    pub cache: Tier,
    /// The storage devices.
    pub storage: Tier,
}

/// The rate at which an array wears under some traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wear {
    /// `w_c`: writes per cell of the cache and second (equations 3 and 6).
    pub cache_writes: f64,
    /// `w_s`: writes per cell of the storage and second (equations 2 and 6).
    pub storage_writes: f64,
    /// `f_c`: the share of the cache's endurance used per second (equation 4).
    pub cache_rate: f64,
    /// `f_s`: the share of the storage's endurance used per second.
    pub storage_rate: f64,
}

impl Wear {
    /// Returns the lifetime of the cache; infinite without wear.
    pub fn cache_lifetime_years(&self) -> f64 {
        1.0 / self.cache_rate / YEAR_SECONDS
    }

    /// Returns the lifetime of the storage; infinite without wear.
    pub fn storage_lifetime_years(&self) -> f64 {
        1.0 / self.storage_rate / YEAR_SECONDS
    }

    /// Returns `T` = 1 / max(`f_c`, `f_s`): the lifetime of the array (equation 5).
    pub fn lifetime_years(&self) -> f64 {
        1.0 / self.cache_rate.max(self.storage_rate) / YEAR_SECONDS
    }
}

impl Array {
    /// Returns the wear of the array under `traffic` within `seconds`.
    pub fn wear(&self, traffic: &Traffic, seconds: f64) -> Wear {
        let cache_writes = self.cache.writes_per_cell(traffic.cache_written) / seconds;
        let storage_writes = self.storage.writes_per_cell(traffic.storage_written) / seconds;
        Wear {
            cache_writes,
            storage_writes,
            cache_rate: cache_writes / self.cache.device.endurance_cycles,
            storage_rate: storage_writes / self.storage.device.endurance_cycles,
        }
    }

    /// Returns the mean latency of a byte of `traffic`; 0 without traffic.
    pub fn latency_mean_us(&self, traffic: &Traffic) -> f64 {
        let (cache, storage) = (&self.cache.device, &self.storage.device);
        let reads = traffic.read_hits * cache.read_latency_us + traffic.read_misses * storage.read_latency_us;
        let writes =
            traffic.cached_writes * cache.write_latency_us + traffic.bypassed_writes * storage.write_latency_us;
        if traffic.client() == 0.0 { 0.0 } else { (reads + writes) / traffic.client() }
    }
}

/// Returns `L / T` (equation 1) in microseconds per year, which a cache should minimise; 0 without wear.
pub fn latency_over_lifetime(latency_mean_us: f64, lifetime_years: f64) -> f64 {
    latency_mean_us / lifetime_years
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLC: Device =
        Device { capacity_bytes: 100e9, endurance_cycles: 100e3, read_latency_us: 40.0, write_latency_us: 200.0 };
    const MLC: Device =
        Device { capacity_bytes: 200e9, endurance_cycles: 10e3, read_latency_us: 200.0, write_latency_us: 1000.0 };
    const ARRAY: Array = Array {
        cache: Tier { device: SLC, devices: 1.0, write_amplification: 1.0 },
        storage: Tier { device: MLC, devices: 3.0, write_amplification: 1.0 },
    };
    const WORKLOAD_I: Workload =
        Workload { read: 160e6, write: 200e6, read_hit_ratio: 0.9, write_hit_ratio: 0.85, dirty: 0.65, admitted: 1.0 };

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-12 * expected.abs(), "found {found}, expected {expected}");
    }

    /// Section IV.D: w_c = (160 MB/s * 0.1 + 200 MB/s) / 100 GB, w_s = (160 MB/s * 0.1 + 0.15 * 200 MB/s) * 0.65 / 600
    /// GB. Reads take 0.9 * 40 + 0.1 * 200 = 56 us, writes 200 us: (160 * 56 + 200 * 200) / 360 = 136 us.
    #[test]
    fn workload_i_is_the_papers() {
        let traffic = WORKLOAD_I.traffic();
        let wear = ARRAY.wear(&traffic, 1.0);
        near(wear.cache_writes, 216e6 / 100e9);
        near(wear.storage_writes, 29.9e6 / 600e9);
        near(wear.cache_rate, 2.16e-8);
        near(wear.lifetime_years(), wear.cache_lifetime_years());
        near(ARRAY.latency_mean_us(&traffic), 136.0);
    }

    /// p = 1/4 of the misses, 16 MB/s of reads and 30 MB/s of writes, is admitted. The cache is written 4 + 170 + 7.5
    /// MB/s, the storage 0.65 * (4 + 7.5) + 22.5 MB/s. Clients wait for 22.5 MB/s of the latter.
    #[test]
    fn rejected_blocks_go_directly_to_storage() {
        let traffic = Workload { admitted: 0.25, ..WORKLOAD_I }.traffic();
        near(traffic.cache_written, 181.5e6);
        near(traffic.storage_written, 29.975e6);
        near(traffic.client(), 360e6);
        near(ARRAY.latency_mean_us(&traffic), (160.0 * 56.0 + 177.5 * 200.0 + 22.5 * 1000.0) / 360.0);
        let nothing = Workload { admitted: 0.0, read_hit_ratio: 0.0, write_hit_ratio: 0.0, ..WORKLOAD_I }.traffic();
        assert_eq!(nothing.cache_written, 0.0);
        near(nothing.storage_written, 200e6);
    }

    #[test]
    fn write_amplification_and_time_scale_the_wear() {
        let traffic = WORKLOAD_I.traffic();
        let mut array = ARRAY;
        array.storage.write_amplification = 20.0;
        let wear = array.wear(&traffic, 2.0);
        near(wear.cache_writes, 1.08e-3);
        near(wear.storage_writes, 10.0 * 29.9e6 / 600e9);
        near(wear.lifetime_years(), wear.storage_lifetime_years());
    }

    #[test]
    fn devices_that_do_not_wear_last_for_ever() {
        let mut array = ARRAY;
        array.cache.device.endurance_cycles = f64::INFINITY;
        array.storage.device.endurance_cycles = f64::INFINITY;
        let lifetime_years = array.wear(&WORKLOAD_I.traffic(), 1.0).lifetime_years();
        assert_eq!((lifetime_years, latency_over_lifetime(136.0, lifetime_years)), (f64::INFINITY, 0.0));
        let idle = ARRAY.wear(&Traffic::default(), 1.0);
        assert_eq!((idle.lifetime_years(), ARRAY.latency_mean_us(&Traffic::default())), (f64::INFINITY, 0.0));
    }
}
