//! The algorithms whose wear is simulated, as users name them.
//!
//! Source: Cheng et al., USENIX ATC 2016, Tables 1 and 2.

use std::fmt;

use flashwise_core::admission;
use flashwise_core::container_policy::{self, CONTAINER_POLICIES};
use flashwise_core::options::{Kind, OptionError, Options, Parameter, named, nearest};
use flashwise_core::policy::{Info, POLICIES, Spec};

use crate::layout_name::LayoutName;
use crate::wlfc::System;

const SOURCE: &str = "Cheng, Douglis, Shilane, Trachtman, Wallace, Desnoyers, Li: Erasing Belady's limitations: in \
    search of flash cache \
     offline optimality. USENIX ATC 2016";

const fn least_hits(default: &'static str) -> Parameter {
    Parameter {
        name: "r",
        kind: Kind::Count(0, u32::MAX as u64),
        default,
        meaning: "insertions with fewer read hits are left out: R_N of Table 1; 0 leaves none out, 1 those that are \
            evicted unread",
    }
}
const MINIMUM: Parameter = Parameter::of("n", Kind::Count(1, u32::MAX as u64), "2")
    .means("insertions with fewer read hits are left out; 1 is the algorithm without a threshold");
const EPBPD: Parameter =
    Parameter::of("epbpd", Kind::Number(0.0, f64::MAX), "").means("the budget, in erasures per erase unit and day");
const SHARE: Parameter = Parameter::of("share", Kind::Number(0.0, f64::MAX), "").means(
    "the budget, as a share of the erasures that the algorithm has without one: m+ for m_t, c for c_t, h \
         for h_t",
);
const OF: Parameter = Parameter::of("of", Kind::Choice(&["c", "m+"]), "c")
    .means("the algorithm whose erasures share refers to: c, as in the paper, or m+ at the same size");
const fn trim(default: &'static str) -> Parameter {
    Parameter {
        name: "trim",
        kind: Kind::Choice(&["on", "off"]),
        default,
        meaning: "trim unneeded blocks on the device: TRIM of Table 1",
    }
}
const CFR: Parameter = Parameter::of("cfr", Kind::Text, "exact").means(
    "CFR of Table 1, which does not copy forward blocks without later reads. exact finds them by their \
         last hit, a number by that many earlier rounds; 0 copies every cached block",
);
const ORDER: Parameter = Parameter::of("order", Kind::Choice(&["evict", "arrival"]), "evict").means(
    "order in which the write buffer is cut into erase units: by the time when blocks leave, E of Table \
         1, or by arrival",
);
const BUFFERS: Parameter = Parameter::of("buffers", Kind::Count(1, 1024), "")
    .means("erase units of the write buffer; by default that of all algorithms");

/// The offline algorithms, in listing order.
static OFFLINE: [Info; 10] = [
    row("m", "MIN, which inserts no block that is not read again or is read last", &[least_hits("0"), trim("off")]),
    row("m+", "MIN without insertions that are evicted unread", &[least_hits("1"), trim("on")]),
    row("m_n", "M+ without insertions that are read too seldom", &[MINIMUM, trim("on")]),
    row("m_t", "M+ under a budget of erasures", &[EPBPD, SHARE, trim("on")]),
    row("c", "Container-optimised M+", &[least_hits("1"), CFR, ORDER, BUFFERS]),
    row("c_n", "C without insertions that are read too seldom", &[MINIMUM, CFR, ORDER, BUFFERS]),
    row("c_t", "C under a budget of erasures", &[EPBPD, SHARE, OF, CFR, ORDER, BUFFERS]),
    row("h", "Unit caching: M+ where an erase unit is one block", &[least_hits("1")]),
    row("h_n", "H without insertions that are read too seldom", &[MINIMUM]),
    row("h_t", "H under a budget of erasures", &[EPBPD, SHARE]),
];

const fn row(name: &'static str, title: &'static str, parameters: &'static [Parameter]) -> Info {
    Info { name, title, source: SOURCE, parameters, offline: true }
}

/// Returns every algorithm in listing order: offline ones, replacement policies, container policies.
pub fn algorithms() -> impl Iterator<Item = &'static Info> + Clone {
    // FIF is M with forced fetches; M is in the list already.
    let policies = POLICIES.iter().copied().filter(|info| !info.offline);
    OFFLINE.iter().chain(policies).chain(CONTAINER_POLICIES.iter().copied())
}

/// Placement of blocks on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each block has its own slot, behind the translation layer of a conventional SSD.
    InPlace {
        /// True if unneeded blocks are trimmed.
        trim: bool,
    },
    /// Blocks gather in a write buffer and go into whole erase units of host-managed flash.
    Containers {
        /// Rule for blocks that are not copied forward.
        reduction: CopyForwardReduction,
        /// Order in which the write buffer is cut.
        order: Order,
        /// Erase units of the write buffer, if they differ from the settings.
        buffers: Option<u32>,
    },
    /// Each block has its own erase unit.
    UnitCaching,
}

/// Cached blocks that are not copied forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyForwardReduction {
    /// Blocks whose copy was useless in one of this many earlier rounds.
    Rounds(u32),
    /// All blocks that are not read again before they leave.
    Exact,
}

/// Order in which blocks of a write buffer go into erase units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By the time when they leave the cache.
    Evict,
    /// By arrival in the write buffer.
    Arrival,
}

/// Insertions that are left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Insertions with fewer read hits.
    Hits(u32),
    /// As many insertions, those with the fewest read hits first, as a budget of erasures requires.
    Budget(Budget),
}

/// A budget of erasures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// Erasures per erase unit and day.
    Epbpd(f64),
    /// A share of the erasures that the algorithm has without a budget.
    Share(f64),
    /// A share of the erasures of M+ at the same size.
    ShareOfMPlus(f64),
}

/// An offline algorithm, which knows the future.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offline {
    /// Placement of blocks.
    pub placement: Placement,
    /// Insertions that are left out.
    pub limit: Limit,
}

/// Kind of an algorithm.
#[derive(Clone, Debug)]
pub enum Method {
    /// An offline algorithm.
    Offline(Offline),
    /// A replacement policy, each block in its own slot behind the translation layer of a conventional SSD.
    Policy(Spec),
    /// A policy that manages whole erase units of host-managed flash.
    ContainerPolicy(container_policy::Spec),
    /// A cache that evicts whole buckets.
    Buckets(System),
}

/// An algorithm and its options as a user wrote them: `m+`, `c:cfr=2,order=arrival`, `lru`.
#[derive(Clone, Debug)]
pub struct Algorithm {
    text: String,
    info: &'static Info,
    options: Options,
    method: Method,
}

impl Algorithm {
    /// Parses the name and options of an algorithm on flash.
    pub fn parse(text: &str) -> Result<Algorithm, OptionError> {
        let (info, options) = named("algorithm", text, algorithms(), |info| info.name)?;
        let parsed = Options::parse(info.name, info.parameters, options)?;
        let method = if info.offline {
            Method::Offline(offline(info.name, &parsed)?)
        } else if CONTAINER_POLICIES.iter().any(|other| other.name == info.name) {
            Method::ContainerPolicy(container_policy::Spec::parse(text)?)
        } else {
            Method::Policy(Spec::parse(text)?)
        };
        let rest = text.find(':').map_or("", |at| &text[at..]);
        Ok(Algorithm { text: format!("{}{rest}", info.name), info, options: parsed, method })
    }

    /// Its row in the list of algorithms.
    pub fn info(&self) -> &'static Info {
        self.info
    }

    /// Its options, with defaults for the omitted ones.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// True if it knows the future.
    pub fn offline(&self) -> bool {
        self.info.offline
    }

    /// Layout of blocks on flash: `in-place`, `containers`, `unit` for one erase unit per block, or that of a cache of
    /// buckets.
    pub fn layout(&self) -> &'static str {
        match &self.method {
            Method::Offline(Offline { placement: Placement::InPlace { .. }, .. }) | Method::Policy(_) => "in-place",
            Method::Offline(Offline { placement: Placement::Containers { .. }, .. }) | Method::ContainerPolicy(_) => {
                "containers"
            }
            Method::Offline(Offline { placement: Placement::UnitCaching, .. }) => "unit",
            Method::Buckets(system) => system.name(),
        }
    }

    /// True if it is a policy that knows the future: a bound of hits, without a layout.
    pub fn is_bound(&self) -> bool {
        self.offline() && self.policy().is_some()
    }

    /// True if it evicts whole erase units instead of single blocks.
    pub fn evicts_units(&self) -> bool {
        matches!(self.method, Method::ContainerPolicy(_))
    }

    /// The replacement policy, for any layout; `None` if it has a layout of its own. Only a policy counts the blocks
    /// that leave when others come. Offline algorithms on flash drop blocks before, and other caches evict whole units
    /// or buckets.
    pub fn policy(&self) -> Option<&Spec> {
        match &self.method {
            Method::Policy(policy) => Some(policy),
            Method::Offline(_) | Method::ContainerPolicy(_) | Method::Buckets(_) => None,
        }
    }

    /// Kind of the algorithm.
    pub fn method(&self) -> &Method {
        &self.method
    }
}

impl From<Spec> for Algorithm {
    /// Any policy, also one that knows the future and so has no layout.
    fn from(policy: Spec) -> Algorithm {
        let (text, options) = (policy.to_string(), policy.options().clone());
        Algorithm { text, info: policy.info(), options, method: Method::Policy(policy) }
    }
}

impl From<System> for Algorithm {
    fn from(system: System) -> Algorithm {
        let (text, options) = (system.name().to_owned(), Options::default());
        Algorithm { text, info: system.info(), options, method: Method::Buckets(system) }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Algorithm {
    type Err = OptionError;

    /// Parses any policy, or an algorithm with a layout of its own.
    fn from_str(text: &str) -> Result<Algorithm, OptionError> {
        match Spec::parse(text) {
            Err(OptionError::UnknownName { .. }) => {}
            parsed => return parsed.map(Algorithm::from),
        }
        Algorithm::parse(text).map_err(|error| match error {
            OptionError::UnknownName { name, mut expected, .. } => {
                if let Some((is, option)) = other_option(&name) {
                    return OptionError::OtherOption { name, is, given: "policy", option };
                }
                let policies = POLICIES.iter().map(|info| info.name);
                expected.extend(policies.filter(|name| !expected.contains(name)).collect::<Vec<_>>());
                OptionError::UnknownName { what: "policy", near: nearest(&name, &expected), name, expected }
            }
            error => error,
        })
    }
}

/// Returns the option whose value `name` is, and what it is there.
fn other_option(name: &str) -> Option<(&'static str, &'static str)> {
    let is_rule = name == "none" || admission::Spec::parse(name).is_ok();
    let is_layout = name.parse::<LayoutName>().is_ok();
    let options = [(is_rule, ("an admission rule", "admission")), (is_layout, ("a layout", "layout"))];
    options.into_iter().find_map(|(is, option)| is.then_some(option))
}

fn offline(name: &str, options: &Options) -> Result<Offline, OptionError> {
    let (family, suffix) = name.split_at(1);
    let placement = match family {
        "m" => Placement::InPlace { trim: options.text("trim") == "on" },
        "c" => Placement::Containers {
            reduction: reduction(name, options.text("cfr"))?,
            order: if options.text("order") == "evict" { Order::Evict } else { Order::Arrival },
            buffers: (!options.text("buffers").is_empty()).then(|| options.count("buffers") as u32),
        },
        _ => Placement::UnitCaching,
    };
    let limit = match suffix {
        "_n" => Limit::Hits(options.count("n") as u32),
        "_t" => Limit::Budget(budget(name, options)?),
        _ => Limit::Hits(options.count("r") as u32),
    };
    Ok(Offline { placement, limit })
}

fn reduction(owner: &str, text: &str) -> Result<CopyForwardReduction, OptionError> {
    match text.parse::<u32>() {
        _ if text == "exact" => Ok(CopyForwardReduction::Exact),
        Ok(rounds) if rounds <= ROUNDS_MAX => Ok(CopyForwardReduction::Rounds(rounds)),
        _ => {
            let expected = format!("exact or a number of rounds from 0 to {ROUNDS_MAX}");
            Err(OptionError::bad_value(owner, "cfr", text, expected))
        }
    }
}

/// Each round is a separate run.
const ROUNDS_MAX: u32 = 1000;

fn budget(owner: &str, options: &Options) -> Result<Budget, OptionError> {
    let refuse = |name, found: &str, expected: &str| Err(OptionError::bad_value(owner, name, found, expected));
    let given = |name: &'static str| Some(options.text(name)).filter(|text| !text.is_empty()).map(|text| (name, text));
    let (name, text) = match (given("epbpd"), given("share")) {
        (Some(budget), None) | (None, Some(budget)) => budget,
        (None, None) => return refuse("share", "", "a budget such as share=50% or epbpd=5"),
        (Some(_), Some((_, text))) => return refuse("share", text, "one budget, share or epbpd"),
    };
    let of = options.is_given("of").then(|| options.text("of"));
    if let Some(of) = of.filter(|_| name == "epbpd") {
        return refuse("of", of, "a share that it refers to, such as share=50%");
    }
    match options.number(name) {
        number if number <= 0.0 => refuse(name, text, "a budget above 0"),
        number if name == "epbpd" => Ok(Budget::Epbpd(number)),
        number if of == Some("m+") => Ok(Budget::ShareOfMPlus(number)),
        number => Ok(Budget::Share(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Offline {
        match Algorithm::parse(text).unwrap().method {
            Method::Offline(offline) => offline,
            online => panic!("{online:?} is online"),
        }
    }

    #[test]
    fn algorithms_are_the_techniques_that_the_paper_lists() {
        let containers = |reduction, order, buffers| Placement::Containers { reduction, order, buffers };
        let exact = containers(CopyForwardReduction::Exact, Order::Evict, None);
        let expected = [
            ("m", Placement::InPlace { trim: false }, Limit::Hits(0)),
            ("m:r=1", Placement::InPlace { trim: false }, Limit::Hits(1)),
            ("m:r=1,trim=on", Placement::InPlace { trim: true }, Limit::Hits(1)),
            ("m+", Placement::InPlace { trim: true }, Limit::Hits(1)),
            ("m_n:n=3", Placement::InPlace { trim: true }, Limit::Hits(3)),
            ("m_t:share=50%", Placement::InPlace { trim: true }, Limit::Budget(Budget::Share(0.5))),
            ("c", exact, Limit::Hits(1)),
            ("c_t:epbpd=5", exact, Limit::Budget(Budget::Epbpd(5.0))),
            ("c_t:share=50%", exact, Limit::Budget(Budget::Share(0.5))),
            ("c_t:share=50%,of=c", exact, Limit::Budget(Budget::Share(0.5))),
            ("c_t:share=50%,of=m+", exact, Limit::Budget(Budget::ShareOfMPlus(0.5))),
            (
                "c:cfr=0,order=arrival,buffers=8",
                containers(CopyForwardReduction::Rounds(0), Order::Arrival, Some(8)),
                Limit::Hits(1),
            ),
            ("h_n", Placement::UnitCaching, Limit::Hits(2)),
        ];
        for (text, placement, limit) in expected {
            assert_eq!(parsed(text), Offline { placement, limit }, "{text}");
        }
        assert!(matches!(Algorithm::parse("larc:fill=ghost").unwrap().method(), Method::Policy(_)));
    }

    #[test]
    fn every_listed_algorithm_can_be_named() {
        for info in algorithms() {
            let text = if info.name.ends_with("_t") { format!("{}:share=1", info.name) } else { info.name.to_owned() };
            let algorithm: Algorithm = text.parse().unwrap();
            assert_eq!((algorithm.to_string(), algorithm.info().name), (text, info.name));
            assert_eq!(algorithm.offline(), matches!(algorithm.method(), Method::Offline(_)));
        }
    }

    #[test]
    fn invalid_algorithms_are_refused() {
        let cases = [
            ("m*", "unknown algorithm 'm*' (did you mean 'm'?); expected one of: m, m+, m_n"),
            ("fif", "unknown algorithm 'fif'"),
            ("m_t", "m_t: share: found '', expected a budget such as share=50% or epbpd=5"),
            ("m_t:share=0", "m_t: share: found '0', expected a budget above 0"),
            ("m_t:epbpd=-1", "m_t: epbpd: found '-1', expected a number of at least 0"),
            ("c_t:epbpd=1,share=2", "c_t: share: found '2', expected one budget, share or epbpd"),
            ("c_t:epbpd=1,of=c", "c_t: of: found 'c', expected a share that it refers to, such as share=50%"),
            ("m_t:share=1,of=m+", "m_t has no option 'of'"),
            ("c:cfr=always", "c: cfr: found 'always', expected exact or a number of rounds from 0 to 1000"),
            ("c:trim=on", "c has no option 'trim'"),
        ];
        for (text, expected) in cases {
            let error = Algorithm::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
