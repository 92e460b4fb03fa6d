//! Admission rules: which missed blocks a cache takes in. One file each, and one row each in [`RULES`].
//!
//! Source: Moon, Reddy: Adaptive policies for balancing performance and lifetime of mixed SSD arrays through workload
//! sampling. MSST 2016, sections III and IV.B, Figure 3.
//!
//! A rule stands in front of any replacement policy: [`Admitted`] is both, and a policy itself. A block in the cache is the
//! policy's alone: reads and writes of it are hits, and a write that hits stays in the cache, whatever the rule would say.
//! A missed block that the rule refuses goes straight to storage, and the policy is not told: its ghosts, clocks and
//! sketches are as they were, so that it sees just the accesses of a workload without the refused ones. (If it were told,
//! its ghosts would admit by themselves what the rule keeps out, and 2Q or LARC would count each miss twice.) A missed
//! block that the rule lets through the policy may still bypass, as LARC does.
//!
//! Departures from the paper: with `writes=admit` a rule judges read misses alone, and admits all writes. A read miss takes as
//! long whether it is admitted or not; a write that is refused takes as long as the storage does, and wears it.

pub mod adaptive;
pub mod auto;
pub mod controller;
pub mod history;
pub mod hotness;
pub mod probability;
pub mod shadow;
pub mod size;

use std::fmt;

use crate::access::{Access, Op};
use crate::array::{Array, Device, Tier};
use crate::index::Index;
use crate::options::{Kind, OptionError, Options, Parameter, named};
use crate::policy::{self, Outcome, Policy, Visitor, pass_on};

use adaptive::Adaptive;
use auto::Auto;
use hotness::Hotness;
use probability::Probability;
use size::Size;

/// What a rule is called, where it comes from and what can be set.
#[derive(Debug)]
pub struct Info {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does.
    pub title: &'static str,
    /// The paper that introduced it.
    pub source: &'static str,
    /// What can be set.
    pub parameters: &'static [Parameter],
}

/// Every rule, in the order in which they are listed.
pub static RULES: &[&Info] = &[&size::INFO, &hotness::INFO, &probability::INFO, &adaptive::INFO, &auto::INFO];

/// `writes`: whether a rule with a threshold judges writes.
const WRITES: Parameter = Parameter {
    name: "writes",
    kind: Kind::Choice(&["filter", "admit"]),
    default: "filter",
    meaning: "whether write misses are judged like reads, as in the paper, or always admitted",
};

fn admits_writes(options: &Options) -> bool {
    options.text(WRITES.name) == "admit"
}

/// What rules have to know of the cache that they stand before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Length of a block.
    pub block_bytes: u64,
    /// The devices, the cache as large as it is.
    pub array: Array,
}

impl Setting {
    /// A cache of so many bytes in front of so much storage, on devices as those of `array`. How many of them share it makes no
    /// difference.
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

/// A rule, and what it knows of the cache behind it.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The rule.
    pub rule: Spec,
    /// What it knows.
    pub setting: Setting,
}

/// A rule and its options as a user wrote them: `size:max=64KiB`, `probability:p=0.3`.
#[derive(Clone, Debug)]
pub struct Spec {
    text: String,
    info: &'static Info,
    options: Options,
}

impl Spec {
    /// Reads a rule's name and options.
    pub fn parse(text: &str) -> Result<Spec, OptionError> {
        let (info, options) = named("admission rule", text, RULES.iter().copied(), |info| info.name)?;
        let options = Options::parse(info.name, info.parameters, options)?;
        if info.name == auto::INFO.name {
            auto::candidates(&options)?;
        }
        Ok(Spec { text: text.to_owned(), info, options })
    }

    /// The same rule, called `text`.
    pub fn called(self, text: &str) -> Spec {
        Spec { text: text.to_owned(), ..self }
    }

    /// The policies that may replace by this rule, if it chooses among some.
    pub fn candidates(&self) -> Vec<policy::Spec> {
        if self.info.name != auto::INFO.name {
            return Vec::new();
        }
        auto::candidates(&self.options).expect("the policies of a parsed rule are in order")
    }

    /// The rule that is meant.
    pub fn info(&self) -> &'static Info {
        self.info
    }

    /// What the rule holds to after `decision` in front of `policy`, in words; none if it does not adapt.
    pub fn choice(
        &self,
        policy: &policy::Spec,
        decision: Option<&adaptive::Decision>,
        block_bytes: u64,
    ) -> Option<String> {
        match self.info.name {
            "adaptive" => Some(adaptive::choice(&self.options, decision, block_bytes)),
            "auto" => Some(auto::choice(&self.options, policy, decision)),
            _ => None,
        }
    }

    /// The threshold that holds after `decision`, if the rule has one that adapts and that does not admit everything by size.
    pub fn threshold(&self, decision: &adaptive::Decision) -> Option<f64> {
        let adapts = self.info.name == adaptive::INFO.name;
        Some(decision.threshold).filter(|threshold| adapts && *threshold < u64::MAX as f64)
    }

    /// Builds `policy` with this rule in front of it for a cache of `capacity` blocks, and hands both to `visitor` as one
    /// policy. `index` is empty.
    pub fn build<I, V>(
        &self,
        policy: &policy::Spec,
        index: I,
        capacity: usize,
        setting: &Setting,
        visitor: V,
    ) -> V::Output
    where
        I: Index + Clone + Send + 'static,
        V: Visitor<I::Key>,
    {
        if self.info.name == auto::INFO.name {
            return visitor.visit(Auto::new(&self.options, policy, index, capacity, setting));
        }
        policy.build(index.clone(), capacity, Put { rule: self, policy, index, capacity, setting, visitor })
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Spec {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Spec, OptionError> {
        Spec::parse(text)
    }
}

/// Puts a rule in front of the policy that it visits.
struct Put<'a, I, V> {
    rule: &'a Spec,
    policy: &'a policy::Spec,
    index: I,
    capacity: usize,
    setting: &'a Setting,
    visitor: V,
}

impl<I: Index + Send + 'static, V: Visitor<I::Key>> Visitor<I::Key> for Put<'_, I, V> {
    type Output = V::Output;

    fn visit<P: Policy<Key = I::Key> + Send + 'static>(self, policy: P) -> V::Output {
        let Put { rule, index, capacity, setting, visitor, .. } = self;
        if rule.info.name == adaptive::INFO.name {
            return visitor.visit(Adaptive::new(&rule.options, policy, self.policy, index, capacity, setting));
        }
        let cache = Admitted::new(Rule::new(rule, index, capacity, setting.block_bytes), policy);
        visitor.visit(cache.admitting_writes(admits_writes(&rule.options)))
    }
}

/// A rule with a threshold, and what it remembers.
#[derive(Debug)]
pub enum Rule<I: Index> {
    /// By the length of the request.
    Size(Size),
    /// By the references to the block.
    Hotness(Hotness<I>),
    /// By chance.
    Probability(Probability),
}

impl<I: Index> Rule<I> {
    /// The rule with a threshold that `spec` names, for a cache of `capacity` blocks of `block_bytes`. `index` is empty.
    pub fn new(spec: &Spec, index: I, capacity: usize, block_bytes: u64) -> Self {
        match spec.info.name {
            "size" => Rule::Size(Size::new(block_bytes, &spec.options)),
            "hotness" => Rule::Hotness(Hotness::new(index, capacity, &spec.options)),
            "probability" => Rule::Probability(Probability::new(&spec.options)),
            _ => unreachable!("a parsed rule with a threshold is one of the table"),
        }
    }

    /// Whether it remembers anything of `block`.
    pub fn remembers(&self, block: I::Key) -> bool {
        matches!(self, Rule::Hotness(hotness) if hotness.remembers(block))
    }

    /// Notes that `block` is referenced and admitted without being judged.
    #[inline]
    fn note_admitted(&mut self, block: I::Key) {
        match self {
            Rule::Hotness(hotness) if hotness.counts_hits() => {
                hotness.admits(block);
            }
            Rule::Hotness(hotness) => hotness.forget(block),
            Rule::Size(_) | Rule::Probability(_) => {}
        }
    }

    /// The longest requests of which blocks are admitted: 0 if nothing is, `u64::MAX` if their length does not matter.
    pub fn request_blocks_max(&self) -> u64 {
        match self {
            Rule::Size(size) => size.blocks_max(),
            Rule::Probability(probability) if probability.admits_nothing() => 0,
            Rule::Hotness(_) | Rule::Probability(_) => u64::MAX,
        }
    }
}

/// A replacement policy behind an admission rule; see the module.
#[derive(Debug)]
pub struct Admitted<P, I: Index> {
    rule: Rule<I>,
    admits_writes: bool,
    policy: P,
}

impl<P: Policy<Key = I::Key>, I: Index> Admitted<P, I> {
    /// `rule` in front of `policy`, both for a cache of the same size. It judges reads and writes.
    pub fn new(rule: Rule<I>, policy: P) -> Self {
        Admitted { rule, admits_writes: false, policy }
    }

    /// The same, which admits all writes if `admits_writes`.
    pub fn admitting_writes(self, admits_writes: bool) -> Self {
        Admitted { admits_writes, ..self }
    }

    /// The rule, to change its threshold.
    pub fn rule_mut(&mut self) -> &mut Rule<I> {
        &mut self.rule
    }
}

impl<P: Policy<Key = I::Key>, I: Index> Policy for Admitted<P, I> {
    type Key = I::Key;

    pass_on!(self => self.policy);

    #[inline(always)]
    fn access(&mut self, access: Access<I::Key>) -> Outcome<I::Key> {
        let admitted = match &mut self.rule {
            rule if self.admits_writes && access.op == Op::Write => {
                rule.note_admitted(access.block);
                true
            }
            // Asked about hits as well, whose answer does not matter: what is admitted is looked up once and not twice.
            Rule::Size(size) => size.admits(&access) || self.policy.contains(access.block),
            Rule::Probability(probability) => probability.admits() || self.policy.contains(access.block),
            Rule::Hotness(hotness) if hotness.counts_hits() => {
                hotness.admits(access.block) | self.policy.contains(access.block)
            }
            Rule::Hotness(hotness) => {
                hotness.is_idle() || self.policy.contains(access.block) || hotness.admits(access.block)
            }
        };
        if admitted { self.policy.access(access) } else { Outcome::Bypass }
    }

    fn remove(&mut self, block: I::Key) -> bool {
        if let Rule::Hotness(hotness) = &mut self.rule {
            hotness.forget(block);
        }
        self.policy.remove(block)
    }

    #[inline]
    fn tick(&mut self, time_us: u64) {
        self.policy.tick(time_us);
    }

    fn warm(&mut self, block: I::Key) -> Outcome<I::Key> {
        self.policy.warm(block)
    }

    #[inline]
    fn prefetch(&self, soon: I::Key, later: I::Key) {
        self.policy.prefetch(soon, later);
        if let Rule::Hotness(hotness) = &self.rule {
            hotness.prefetch(soon, later);
        }
    }

    fn check(&self) {
        self.policy.check();
        if let Rule::Hotness(hotness) = &self.rule {
            hotness.check();
        }
    }
}
