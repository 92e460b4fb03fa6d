//! Options that do not go together, and the reasons: one table for all caches.

use crate::endurance::Algorithm;
use crate::wlfc::System;

/// The cache that runs.
#[derive(Clone, Copy, Debug)]
pub enum Cache<'a> {
    /// A policy or an algorithm.
    Algorithm(&'a Algorithm),
    /// An offline policy, which knows the future of hits but nothing about flash.
    Bound(&'a Algorithm),
    /// A cache that evicts whole buckets.
    Buckets(System),
    /// Any run over a sample of a trace.
    Sample,
}

/// An option without meaning for a cache.
#[derive(Debug, thiserror::Error)]
#[error("{cache} and {with}: {reason}")]
pub struct Meaningless {
    /// The cache, as the user named it.
    pub cache: String,
    /// The option.
    pub with: String,
    /// The reason.
    pub reason: &'static str,
}

impl Cache<'_> {
    fn name(self) -> String {
        match self {
            Cache::Algorithm(algorithm) | Cache::Bound(algorithm) => algorithm.to_string(),
            Cache::Buckets(system) => format!("--layout {}", system.name()),
            Cache::Sample => "--sample".to_owned(),
        }
    }

    fn knows_the_future(self) -> bool {
        self.is_bound() || matches!(self, Cache::Algorithm(algorithm) if algorithm.offline())
    }

    fn is_bound(self) -> bool {
        matches!(self, Cache::Bound(_))
    }

    fn evicts_units(self) -> bool {
        matches!(self, Cache::Algorithm(algorithm) if algorithm.evicts_units())
    }

    fn has_layout(self) -> bool {
        matches!(self, Cache::Algorithm(algorithm) if algorithm.policy().is_none())
    }

    fn evicts_buckets(self) -> bool {
        matches!(self, Cache::Buckets(_))
    }

    fn is_sample(self) -> bool {
        matches!(self, Cache::Sample)
    }
}

/// Options, the caches for which they have no meaning, and the reason.
type Row = (&'static [&'static str], fn(Cache<'_>) -> bool, &'static str);

const MEANINGLESS: [Row; 17] = [
    (
        &["--admission"],
        |cache| cache.knows_the_future(),
        "an algorithm that knows the future decides itself what to admit; a rule can only make it worse",
    ),
    (&["--admission"], |cache| cache.evicts_units(), "a container policy decides itself what to admit"),
    (
        &["--arrivals"],
        |cache| cache.evicts_units(),
        "a container policy evicts erase units, whose blocks the model of waiting does not know",
    ),
    (&["--layout in-place"], |cache| cache.is_bound(), "it maximises hits only; with simulated flash, m is the best"),
    (&["--layout log"], |cache| cache.is_bound(), "the whole cache cannot look ahead"),
    (
        &["--ram"],
        |cache| cache.is_bound(),
        "it knows the next uses before the RAM but sees only some of them; use m, which has RAM before it",
    ),
    (
        &["--arrivals", "--cache-device", "--storage-device", "--storage-size"],
        |cache| cache.is_bound(),
        "it bounds the hits and knows nothing about devices; use m, which runs on them",
    ),
    (&["--layout none"], |cache| cache.has_layout(), "its blocks are on flash"),
    (&["--layout log"], |cache| cache.has_layout(), "it has a layout of its own"),
    (&["--layout log"], |cache| cache.is_sample(), "a sample has parts of requests, but the log needs whole ones"),
    (&["--arrivals"], |cache| cache.is_sample(), "a sample leaves devices idle that the whole trace keeps busy"),
    (
        &["--epoch"],
        |cache| cache.is_sample(),
        "a sample has figures over time only for policies without rules, devices and flash",
    ),
    (
        &["--sample", "--sample-by", "--sample-seed"],
        |cache| cache.evicts_buckets(),
        "a sample has parts of requests, but it needs whole ones",
    ),
    (&["--policy"], |cache| cache.evicts_buckets(), "it decides itself what it keeps"),
    (&["--admission"], |cache| cache.evicts_buckets(), "it decides itself what to admit"),
    (
        &["--arrivals"],
        |cache| matches!(cache, Cache::Buckets(System::BLike)),
        "its requests come one after another, each when the previous one is answered",
    ),
    (&["--html"], |cache| cache.evicts_buckets(), "reports compare policies"),
];

/// Refuses a given option without meaning for a cache.
///
/// # Errors
/// The first such option, with the reason.
pub fn check<'a>(cache: Cache<'_>, given: impl IntoIterator<Item = &'a str>) -> Result<(), Meaningless> {
    for option in given {
        let row = MEANINGLESS.iter().find(|(options, is_meant, _)| options.contains(&option) && is_meant(cache));
        if let Some((.., reason)) = row {
            return Err(Meaningless { cache: cache.name(), with: option.to_owned(), reason });
        }
    }
    Ok(())
}
