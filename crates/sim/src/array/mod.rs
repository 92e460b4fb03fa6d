//! An array of cache devices in front of storage devices, under workloads given in numbers: wear, lifetime and latency.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, section IV and Table II. The equations are those of [`flashwise_core::tiers`].

mod arrivals;
mod channels;
mod clients;
mod epoch;
mod figures;
mod in_time;
mod latency;
mod queue;
mod rules;

use flashwise_core::admission::Setting;
use flashwise_core::options::Kind;
use flashwise_core::tiers::{Array, Tier, Workload, latency_over_lifetime};
use flashwise_device::{ArrayError, Document, Keys};
use serde::Serialize;

use flashwise_trace::Trace;

pub use arrivals::Arrivals;
pub use clients::Waits;
pub use epoch::ArrayEpoch;
pub use figures::ArrayFigures;
pub use in_time::{InTime, Timed};
pub use latency::Latencies;
pub(crate) use queue::{Queues, Served};
pub use rules::TraceRule;

const WORKLOAD_KEYS: [&str; 9] = [
    "name",
    "read-mb-per-s",
    "write-mb-per-s",
    "read-hit-ratio",
    "write-hit-ratio",
    "read-length-kb",
    "write-length-kb",
    "dirty",
    "admitted",
];

/// A named workload with the lengths of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedWorkload {
    /// The user's name for it; may be empty.
    pub name: String,
    /// Its rates.
    pub workload: Workload,
    /// Lengths of a read and of a write request, if known.
    pub request_bytes: Option<(f64, f64)>,
}

impl NamedWorkload {
    /// Parses a workload from an option: `read-mb-per-s=160,write-mb-per-s=200,...`.
    pub fn of_option(option: &str, text: &str) -> Result<NamedWorkload, ArrayError> {
        NamedWorkload::read(&Keys::from_option(option, text)?)
    }

    fn read(keys: &Keys) -> Result<NamedWorkload, ArrayError> {
        keys.check(&WORKLOAD_KEYS)?;
        let rate = |key| Ok(keys.needed(key, Kind::NOT_NEGATIVE)? * 1e6);
        let share = |key| keys.needed(key, Kind::Share(1.0));
        let workload = Workload {
            read: rate("read-mb-per-s")?,
            write: rate("write-mb-per-s")?,
            read_hit_ratio: share("read-hit-ratio")?,
            write_hit_ratio: share("write-hit-ratio")?,
            dirty: share("dirty")?,
            admitted: keys.number("admitted", Kind::Share(1.0))?.unwrap_or(1.0),
        };
        if workload.read + workload.write == 0.0 {
            return Err(keys.missing("a read or write rate", "read-mb-per-s or write-mb-per-s greater than 0"));
        }
        let length = |key| Ok(keys.number(key, Kind::POSITIVE)?.map(|length_kb| length_kb * 1e3));
        let request_bytes = match (length("read-length-kb")?, length("write-length-kb")?) {
            (Some(read), Some(write)) => Some((read, write)),
            (None, None) => None,
            (Some(_), None) => return Err(keys.missing("write-length-kb", "both lengths of requests, or none")),
            (None, Some(_)) => return Err(keys.missing("read-length-kb", "both lengths of requests, or none")),
        };
        Ok(NamedWorkload { name: keys.text("name")?.unwrap_or_default().to_owned(), workload, request_bytes })
    }
}

/// The contents of a file; each part is optional.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// The table `[cache]`.
    pub cache: Option<Tier>,
    /// The table `[storage]`.
    pub storage: Option<Tier>,
    /// The tables `[[workload]]`.
    pub workloads: Vec<NamedWorkload>,
}

impl Description {
    /// Reads the file at `path`.
    pub fn read(path: &str) -> Result<Description, ArrayError> {
        let text = std::fs::read_to_string(path).map_err(|source| ArrayError::Io { path: path.to_owned(), source })?;
        Description::parse(path, &text)
    }

    /// Parses `text` from `path`.
    pub fn parse(path: &str, text: &str) -> Result<Description, ArrayError> {
        let document = Document::parse(path, text)?;
        document.keys().check(&["cache", "storage", "workload"])?;
        let tier = |name| document.table(name)?.as_ref().map(flashwise_device::tier).transpose();
        Ok(Description {
            cache: tier("cache")?,
            storage: tier("storage")?,
            workloads: document.tables("workload")?.iter().map(NamedWorkload::read).collect::<Result<_, _>>()?,
        })
    }
}

/// Effect of a workload on an array. Lifetimes without wear are infinite, `null` in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lifetime {
    /// The workload's name.
    pub workload: String,
    /// `w_c`: writes per cell of the cache and second.
    pub cache_write_rate: f64,
    /// `w_s`: writes per cell of the storage and second.
    pub storage_write_rate: f64,
    /// `f_c`: share of the cache's endurance used per second.
    pub cache_wear_rate: f64,
    /// `f_s`: share of the storage's endurance used per second.
    pub storage_wear_rate: f64,
    /// Lifetime of the cache.
    pub cache_lifetime_years: f64,
    /// Lifetime of the storage.
    pub storage_lifetime_years: f64,
    /// Lifetime of the array: the lesser of both.
    pub lifetime_years: f64,
    /// Mean latency of a byte.
    pub latency_mean_us: f64,
    /// Mean latency of a request, if the lengths of requests are known.
    pub latency_request_mean_us: Option<f64>,
    /// Microseconds of `latency_mean_us` per year of `lifetime_years`.
    pub latency_over_lifetime: f64,
}

impl Lifetime {
    /// Computes the effect of `workload` on `array`.
    pub fn of(array: &Array, workload: &NamedWorkload) -> Lifetime {
        let traffic = workload.workload.traffic();
        let wear = array.wear(&traffic, 1.0);
        let latency_mean_us = array.latency_mean_us(&traffic);
        // The same mean over requests: traffic counted in requests per second.
        let by_request = |(read_bytes, write_bytes): (f64, f64)| {
            let Workload { read, write, .. } = workload.workload;
            let requests = Workload { read: read / read_bytes, write: write / write_bytes, ..workload.workload };
            array.latency_mean_us(&requests.traffic())
        };
        Lifetime {
            workload: workload.name.clone(),
            cache_write_rate: wear.cache_writes,
            storage_write_rate: wear.storage_writes,
            cache_wear_rate: wear.cache_rate,
            storage_wear_rate: wear.storage_rate,
            cache_lifetime_years: wear.cache_lifetime_years(),
            storage_lifetime_years: wear.storage_lifetime_years(),
            lifetime_years: wear.lifetime_years(),
            latency_mean_us,
            latency_request_mean_us: workload.request_bytes.map(by_request),
            latency_over_lifetime: latency_over_lifetime(latency_mean_us, wear.lifetime_years()),
        }
    }
}

/// Default size of the storage behind a cache over `trace`: twice the trace's blocks (section VI.B).
pub fn storage_bytes(trace: &Trace) -> u64 {
    2 * trace.whole_unique_blocks() * trace.block_size_bytes()
}

/// Returns cache and storage for a cache of `capacity_blocks`: the devices of `array`, with the cache's capacity, and
/// storage of `storage_bytes`.
pub fn setting(array: &Array, block_bytes: u64, capacity_blocks: usize, storage_bytes: u64) -> Setting {
    Setting::of(array, block_bytes, capacity_blocks as f64 * block_bytes as f64, storage_bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashwise_core::tiers::YEAR_SECONDS;

    fn case_study() -> [Lifetime; 2] {
        let description = Description::parse("lifetime.toml", include_str!("../../../../docs/lifetime.toml")).unwrap();
        let array = Array { cache: description.cache.unwrap(), storage: description.storage.unwrap() };
        let [one, two] = &description.workloads[..] else { panic!("two workloads") };
        [Lifetime::of(&array, one), Lifetime::of(&array, two)]
    }

    /// Formats a number with as many digits as the paper.
    fn printed(number: f64) -> String {
        format!("{number:.2e}")
    }

    #[test]
    fn the_case_study_has_the_papers_rates() {
        let [one, two] = case_study();
        // Equations 7 to 10.
        let rates = [one.cache_write_rate, one.storage_write_rate, two.cache_write_rate, two.storage_write_rate];
        assert_eq!(rates.map(printed), ["2.16e-3", "4.98e-5", "3.00e-3", "3.54e-4"]);
        let rates = [one.cache_wear_rate, one.storage_wear_rate, two.cache_wear_rate, two.storage_wear_rate];
        assert_eq!(rates.map(printed), ["2.16e-8", "4.98e-9", "3.00e-8", "3.54e-8"]);
    }

    /// The paper divides by rates as it prints them, with three digits: 1 / 4.98e-9 s are 6.37 years, 1 / 3.54e-8 s are
    /// 0.90. The exact rates, 4.9833e-9 and 3.54375e-8, give 6.36 and 0.89.
    #[test]
    fn the_case_study_has_the_papers_lifetimes() {
        let [one, two] = case_study();
        let rates = [one.cache_wear_rate, one.storage_wear_rate, two.cache_wear_rate, two.storage_wear_rate];
        let of_printed = |rate| format!("{:.2}", 1.0 / printed(rate).parse::<f64>().unwrap() / YEAR_SECONDS);
        assert_eq!(rates.map(of_printed), ["1.47", "6.37", "1.06", "0.90"]);
        let lifetimes = [
            one.cache_lifetime_years,
            one.storage_lifetime_years,
            two.cache_lifetime_years,
            two.storage_lifetime_years,
        ];
        assert_eq!(lifetimes.map(|years| format!("{years:.2}")), ["1.47", "6.36", "1.06", "0.89"]);
        assert_eq!((one.lifetime_years, two.lifetime_years), (lifetimes[0], lifetimes[3]));
    }

    /// Workload I: 0.136 ms as in the paper. Workload II: the paper prints 0.173 ms, which neither mean gives.
    #[test]
    fn the_case_study_has_the_papers_latency_for_workload_i_only() {
        let shown = |us: f64| format!("{:.3}", us / 1e3);
        let [one, two] = case_study();
        assert_eq!(
            (shown(one.latency_mean_us), shown(one.latency_request_mean_us.unwrap())),
            ("0.136".into(), "0.136".into())
        );
        assert_eq!(
            (shown(two.latency_mean_us), shown(two.latency_request_mean_us.unwrap())),
            ("0.177".into(), "0.131".into())
        );
        assert_eq!(one.latency_over_lifetime, one.latency_mean_us / one.lifetime_years);
    }

    #[test]
    fn a_refusal_names_file_line_key_found_and_expected() {
        let tier = "[cache]\ndevice = \"slc\"\n";
        let workload =
            |keys: &str| format!("[[workload]]\nread-mb-per-s = 1\nwrite-mb-per-s = 1\nread-hit-ratio = 0.5\n{keys}\n");
        let rows = [
            (
                "[cahce]\n".to_owned(),
                "a.toml, line 1: unknown key 'cahce' (did you mean 'cache'?); expected one of: cache, storage, \
                 workload",
            ),
            (format!("{tier}devices = 0"), "a.toml [cache], line 3: devices: found 0, expected a number above 0"),
            (format!("{tier}devices = [1]"), "a.toml [cache], line 3: devices: found [1], expected a number above 0"),
            (
                format!("{tier}devices = "),
                "a.toml, line 3: is not TOML: string values must be quoted, expected literal string",
            ),
            (
                "cache = 3".to_owned(),
                "a.toml, line 1: cache is not a table; expected a line [cache] with its keys below",
            ),
            (
                "[workload]".to_owned(),
                "a.toml, line 1: workload is not an array of tables; expected a line [[workload]] for each workload, \
                 with its keys below",
            ),
            ("[cache]\ndevice = \"ssd.toml\"".to_owned(), "ssd.toml"),
            (
                "[cache]\ndevice = \"\"".to_owned(),
                "a.toml [cache], line 2: device: found '', expected text that is not empty",
            ),
            (
                workload(""),
                "a.toml [[workload]] 1: write-hit-ratio is missing, \
                 expected a share from 0% to 100%, such as 30% or 0.3",
            ),
            (
                workload("write-hit-ratio = \"101%\""),
                "a.toml [[workload]] 1, line 5: write-hit-ratio: found '101%', \
                 expected a share from 0% to 100%, such as 30% or 0.3",
            ),
            (
                workload("write-hit-ratio = 1\ndirty = \"5%\"\nread-length-kb = 4"),
                "a.toml [[workload]] 1: write-length-kb is missing, expected both lengths of requests, or none",
            ),
            (
                workload("write-hit-ratio = 1\ndirty = -0.1"),
                "a.toml [[workload]] 1, line 6: dirty: found -0.1, \
                 expected a share from 0% to 100%, such as 30% or 0.3",
            ),
        ];
        for (text, expected) in rows {
            assert_eq!(Description::parse("a.toml", &text).unwrap_err().to_string(), expected, "{text}");
        }
        let idle = "read-mb-per-s=0,write-mb-per-s=0,read-hit-ratio=0,write-hit-ratio=0,dirty=0";
        let error = NamedWorkload::of_option("--workload", idle).unwrap_err().to_string();
        assert_eq!(
            error,
            "--workload: a read or write rate is missing, expected read-mb-per-s or write-mb-per-s greater than 0"
        );
    }
}
