//! Admission rules: they decide which missed blocks a cache admits. One file each, and one row each in the table at the
//! end of this file.
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, sections III and IV.B, Figure 3.
//!
//! A rule stands in front of any replacement policy: [`Admitted`] combines both, and is a policy itself. Cached blocks
//! are the policy's: reads and writes of them are hits. A write that hits stays in the cache without asking the rule,
//! unless a budget is used up. A missed block that the rule rejects goes directly to storage, and the policy does not
//! see the access. Its ghosts, clocks and sketches stay unchanged, so it sees the workload without the rejected
//! accesses. (Otherwise its ghosts would admit the rejected blocks, and 2Q or LARC would count each miss twice.) The
//! policy may still bypass a missed block that the rule accepts, as LARC does.
//!
//! A rule with a write [budget] enforces it. When the budget is used up, misses are rejected. A write of a cached block
//! is rejected too: it goes to storage and evicts the block. Reads still hit.
//!
//! ```
//! use flashwise_core::access::Access;
//! use flashwise_core::admission::{Setting, Spec};
//! use flashwise_core::tiers::{Array, Device, Tier};
//! use flashwise_core::index::Hashed;
//! use flashwise_core::policy::{self, Outcome, Policy};
//!
//! // Device figures for rules that weigh wear and latency; hotness ignores them.
//! let tier = |capacity_bytes, endurance_cycles, latency_us| Tier {
//!     device: Device { capacity_bytes, endurance_cycles, read_latency_us: latency_us, write_latency_us: latency_us },
//!     devices: 1.0,
//!     write_amplification: 1.0,
//! };
//! let array = Array { cache: tier(1e9, 1e5, 40.0), storage: tier(1e12, 1e4, 200.0) };
//! let setting = Setting { block_bytes: 4096, array };
//!
//! // Admits a block when it is referenced for the second time, in front of an LRU cache of 100 blocks.
//! let (rule, lru) = (Spec::parse("hotness:min=2")?, policy::Spec::parse("lru")?);
//! let mut cache = rule.build(&lru, Hashed::<u64>::new(), 100, &setting);
//! assert_eq!(cache.access(Access::read(1)), Outcome::Bypass);
//! assert_eq!(cache.access(Access::read(1)), Outcome::Admit { evicted: None });
//! assert_eq!(cache.access(Access::read(1)), Outcome::Hit);
//! # Ok::<(), flashwise_core::options::OptionError>(())
//! ```
//!
//! Departures from the paper: with `writes=admit` a rule judges only read misses, and admits all writes. A read miss
//! takes equally long whether admitted or not; a rejected write takes as long as the storage needs, and wears it.

pub mod adaptive;
pub mod admitted;
pub mod auto;
pub mod baleen;
pub mod budget;
pub mod controller;
pub mod history;
pub mod hotness;
pub mod misses;
pub mod nhit;
#[cfg(any(test, feature = "planted"))]
pub mod planted;
pub mod probability;
pub mod reject_x;
pub mod shadow;
pub mod size;
pub mod tinylfu;
pub mod write_budget;

use crate::access::Access;
use crate::decision::Decision;
use crate::index::{Dense, Index};
use crate::named::{Named, Row, Table};
use crate::options::{Kind, OptionError, Options, Parameter};
use crate::policy::{self, AnyPolicy, Boxed};
use crate::tiers::{Array, Device, Tier};

pub use admitted::{Admitted, Judge};

/// Name, source and parameters of a rule.
#[derive(Debug)]
pub struct Info {
    /// Its name on the command line.
    pub name: &'static str,
    /// A summary of the rule.
    pub title: &'static str,
    /// The paper that introduced it.
    pub source: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// The thresholds from which [`adaptive`] chooses, if it can adapt this rule.
    pub thresholds: Option<Thresholds>,
    /// The report of its decisions, if it makes any.
    pub decides: Option<Decides>,
}

impl Row for Info {
    fn name(&self) -> &'static str {
        self.name
    }

    fn parameters(&self) -> &'static [Parameter] {
        self.parameters
    }
}

/// The thresholds of a rule, from the one that admits the least to the one that admits everything.
#[derive(Debug)]
pub struct Thresholds {
    /// Returns the threshold at a position, from 0 to the last, the second argument. The last one admits everything.
    pub at: fn(f64, f64) -> f64,
    /// Formats a threshold. The second argument is the length of a block in bytes.
    pub shown: fn(f64, u64) -> String,
}

/// The report of the decisions of a rule that adapts while it runs.
#[derive(Debug)]
pub struct Decides {
    /// Describes the rule's choice after a decision in front of a policy. The last argument is the length of a block in
    /// bytes.
    pub choice: fn(&Options, &policy::Spec, Option<&Decision>, u64) -> String,
    /// Returns the threshold after a decision, if the rule has one and it does not admit everything.
    pub threshold: fn(&Decision) -> Option<f64>,
    /// Returns the policies from which the rule with these options chooses.
    pub candidates: fn(&Options) -> Result<Vec<policy::Spec>, OptionError>,
}

/// The description before the first decision, and of a threshold that admits everything.
const EVERYTHING: &str = "everything";

/// `writes`: selects between judging and admitting writes.
const WRITES: Parameter = Parameter::of("writes", Kind::Choice(&["filter", "admit"]), "filter")
    .means("judge write misses like reads, as in the paper, or always admit them");

/// `seed`: the seed of random numbers.
const SEED: Parameter = Parameter::of("seed", Kind::Count(0, u64::MAX), "1").means("seed of the random numbers");

fn admits_writes(options: &Options) -> bool {
    options.text(WRITES.name) == "admit"
}

/// Properties of the cache behind a rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Length of a block in bytes.
    pub block_bytes: u64,
    /// The devices; the cache device has the cache's size.
    pub array: Array,
}

impl Setting {
    /// Returns the setting for a cache of `cache_bytes` in front of storage of `storage_bytes`, on devices like those
    /// of `array`. The number of devices that share the bytes makes no difference.
    pub fn of(array: &Array, block_bytes: u64, cache_bytes: f64, storage_bytes: f64) -> Setting {
        let sized = |tier: &Tier, capacity_bytes: f64| Tier {
            device: Device { capacity_bytes, ..tier.device },
            devices: 1.0,
            write_amplification: tier.write_amplification,
        };
        let array = Array { cache: sized(&array.cache, cache_bytes), storage: sized(&array.storage, storage_bytes) };
        Setting { block_bytes, array }
    }
}

/// A rule with the properties of the cache behind it.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The rule.
    pub rule: Spec,
    /// The properties of the cache.
    pub setting: Setting,
}

/// The table of admission rules.
pub enum AdmissionRules {}

impl Table for AdmissionRules {
    type Row = Info;

    const WHAT: &'static str = "admission rule";

    fn rows() -> &'static [&'static Info] {
        RULES
    }

    fn check(row: &Info, options: &Options) -> Result<(), OptionError> {
        budget::check(row.name, row.parameters, options)?;
        row.decides.as_ref().map_or(Ok(()), |decides| (decides.candidates)(options).map(drop))
    }
}

/// A rule and its options as a user wrote them: `size:max=64KiB`, `probability:p=0.3`.
pub type Spec = Named<AdmissionRules>;

impl Spec {
    /// Builds `policy` behind this rule, as one policy, for a cache of `capacity` blocks of a trace with
    /// `unique_blocks`.
    // See [`policy::Spec::boxed`].
    pub fn boxed(
        &self,
        policy: &policy::Spec,
        unique_blocks: usize,
        capacity: usize,
        setting: &Setting,
    ) -> AnyPolicy<u32> {
        self.build(policy, Dense::new(unique_blocks), capacity, setting)
    }

    /// Returns the policies from which the rule chooses, if it does.
    pub fn candidates(&self) -> Vec<policy::Spec> {
        let candidates = self.info().decides.as_ref().map(|decides| (decides.candidates)(self.options()));
        candidates.map_or_else(Vec::new, |candidates| candidates.expect("the policies of a parsed rule are in order"))
    }

    /// Returns the budget of the rule in full writes of the cache per day, if it has one.
    pub fn writes_per_day(&self) -> Option<f64> {
        let has = self.info().parameters.iter().any(|parameter| parameter.name == budget::WRITES_PER_DAY.name);
        (has && self.options().has(budget::WRITES_PER_DAY.name))
            .then(|| self.options().number(budget::WRITES_PER_DAY.name))
    }

    /// Returns the budget of the rule for a cache of `capacity` blocks, if it has one.
    fn budget(&self, capacity: usize) -> Option<budget::Budget> {
        budget::Budget::of(self.info().parameters, self.options(), capacity)
    }

    /// Describes the rule's choice after `decision` in front of `policy`; `None` if it does not adapt.
    pub fn choice(&self, policy: &policy::Spec, decision: Option<&Decision>, block_bytes: u64) -> Option<String> {
        let decides = self.info().decides.as_ref()?;
        Some((decides.choice)(self.options(), policy, decision, block_bytes))
    }

    /// Returns the threshold after `decision`, if the rule adapts one and it does not admit everything by size.
    pub fn threshold(&self, decision: &Decision) -> Option<f64> {
        self.info().decides.as_ref().and_then(|decides| (decides.threshold)(decision))
    }
}

/// The policy behind a rule, in a cache of `capacity` blocks.
struct Behind<'a, I> {
    policy: &'a policy::Spec,
    /// An empty index.
    index: I,
    capacity: usize,
    setting: &'a Setting,
}

impl<I: Index + Clone + Send + 'static> Behind<'_, I> {
    fn policy(&self) -> AnyPolicy<I::Key> {
        self.policy.build(self.index.clone(), self.capacity, Boxed)
    }
}

/// Builds the table from two lists. The first has rules that judge each missed block; their type is a [`Judge`]. The
/// second has rules that control those or the policy while they run; their module has a `build` function.
macro_rules! rules {
    (
        judge { $($(#[$attribute:meta])* $module:ident::$rule:ident $(<$index:ident>)?,)* }
        decide { $($deciding:ident,)* }
    ) => {
        /// Every rule, in the order of the table.
        pub static RULES: &[&Info] = &[$($(#[$attribute])* &$module::INFO,)* $(&$deciding::INFO,)*];

        /// Every rule that judges.
        static JUDGES: &[&Info] = &[$($(#[$attribute])* &$module::INFO,)*];

        /// A rule that judges, with its state.
        #[derive(Debug)]
        pub enum Rule<I: Index> {
            $(
                #[doc = concat!("The rule of [`", stringify!($module), "`].")]
                $(#[$attribute])*
                $rule($module::$rule $(<$index>)?),
            )*
        }

        impl<I: Index> Rule<I> {
            /// Creates the rule of `info` with `options`, for a cache of `capacity` blocks of `block_bytes`. `index`
            /// must be empty. Panics if the rule does not judge.
            fn new(info: &'static Info, options: &Options, index: I, capacity: usize, block_bytes: u64) -> Self {
                $($(#[$attribute])* if std::ptr::eq(info, &$module::INFO) {
                    return Rule::$rule(Judge::<I>::build(options, index, capacity, block_bytes));
                })*
                unreachable!("{} judges no blocks", info.name)
            }

            fn set_threshold(&mut self, threshold: f64) {
                match self { $($(#[$attribute])* Rule::$rule(rule) => Judge::<I>::set_threshold(rule, threshold),)* }
            }

            #[inline(always)]
            fn judge(&mut self, access: &Access<I::Key>, is_cached: impl Fn() -> bool) -> bool {
                match self { $($(#[$attribute])* Rule::$rule(rule) => Judge::<I>::judge(rule, access, is_cached),)* }
            }

            #[inline]
            fn note_admitted(&mut self, block: I::Key) {
                match self { $($(#[$attribute])* Rule::$rule(rule) => Judge::<I>::note_admitted(rule, block),)* }
            }

            fn end_interval(&mut self, pace: budget::Pace) {
                match self { $($(#[$attribute])* Rule::$rule(rule) => Judge::<I>::end_interval(rule, pace),)* }
            }

            #[inline]
            fn note_evicted(&mut self, block: I::Key) {
                match self { $($(#[$attribute])* Rule::$rule(rule) => Judge::<I>::note_evicted(rule, block),)* }
            }

            #[inline]
            fn note_len(&mut self, len: usize, admitted: Option<I::Key>) {
                match self { $($(#[$attribute])* Rule::$rule(rule) => Judge::<I>::note_len(rule, len, admitted),)* }
            }

            /// True if it remembers `block`.
            pub fn remembers(&self, block: I::Key) -> bool {
                match self { $($(#[$attribute])* Rule::$rule(rule) => Judge::<I>::remembers(rule, block),)* }
            }

            fn forget(&mut self, block: I::Key) {
                match self { $($(#[$attribute])* Rule::$rule(rule) => Judge::<I>::forget(rule, block),)* }
            }

            /// Returns the longest requests whose blocks are admitted, in blocks: 0 for none, `u64::MAX` if the length
            /// does not matter.
            pub fn request_blocks_max(&self) -> u64 {
                match self { $($(#[$attribute])* Rule::$rule(rule) => Judge::<I>::request_blocks_max(rule),)* }
            }

            #[inline]
            fn prefetch(&self, soon: I::Key, later: I::Key) {
                match self { $($(#[$attribute])* Rule::$rule(rule) => Judge::<I>::prefetch(rule, soon, later),)* }
            }

            fn check(&self) {
                match self { $($(#[$attribute])* Rule::$rule(rule) => Judge::<I>::check(rule),)* }
            }
        }

        impl Spec {
            /// Builds `policy` behind this rule for a cache of `capacity` blocks, as one policy. `index` must be empty.
            pub fn build<I>(
                &self,
                policy: &policy::Spec,
                index: I,
                capacity: usize,
                setting: &Setting,
            ) -> AnyPolicy<I::Key>
            where
                I: Index + Clone + Send + 'static,
            {
                let behind = Behind { policy, index: index.clone(), capacity, setting };
                $(if self.is(&$deciding::INFO) {
                    return $deciding::build(self.options(), behind);
                })*
                let rule = Rule::new(self.info(), self.options(), index, capacity, setting.block_bytes);
                let admitted = Admitted::new(rule, behind.policy()).admitting_writes(admits_writes(self.options()));
                Box::new(admitted.within(self.budget(capacity)))
            }
        }
    };
}

rules! {
    judge {
        size::Size,
        hotness::Hotness<I>,
        probability::Probability,
        reject_x::RejectX<I>,
        nhit::Nhit<I>,
        tinylfu::TinyLfu,
        write_budget::WriteBudget,
        baleen::Baleen<I>,
        #[cfg(any(test, feature = "planted"))]
        planted::Planted,
    }
    decide {
        adaptive,
        auto,
    }
}

/// The names of the rules that can be adapted.
static ADAPTABLE: [&str; adaptable_count(JUDGES)] = adaptable(JUDGES);

const fn adaptable_count(rules: &[&Info]) -> usize {
    let (mut at, mut count) = (0, 0);
    while at < rules.len() {
        count += rules[at].thresholds.is_some() as usize;
        at += 1;
    }
    count
}

const fn adaptable<const COUNT: usize>(rules: &[&Info]) -> [&'static str; COUNT] {
    let mut names = [""; COUNT];
    let (mut at, mut count) = (0, 0);
    while at < rules.len() {
        if rules[at].thresholds.is_some() {
            names[count] = rules[at].name;
            count += 1;
        }
        at += 1;
    }
    names
}
