//! Warm-up and epochs: the accesses of a run that are counted.

use flashwise_core::access::NEVER;
use flashwise_core::policy::Policy;
use flashwise_core::quantity::Share;

/// The accesses that are run but not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmup {
    /// This many at the start of the trace.
    Accesses(u64),
    /// A share of the trace, 0 to 1, rounded down.
    Share(f64),
}

impl std::str::FromStr for Warmup {
    type Err = String;

    /// Reads a number of accesses, or a share such as `10%`.
    fn from_str(text: &str) -> Result<Warmup, String> {
        let wrong = || format!("warm-up '{text}': expected a number of accesses or a share from 0% to 100%");
        match text.ends_with('%') {
            true => text.parse().map(|share: Share| Warmup::Share(share.of_one())).map_err(|_| wrong()),
            false => text.parse().map(Warmup::Accesses).map_err(|_| wrong()),
        }
    }
}

impl Warmup {
    /// Number of a trace's `len` accesses that are not counted; may exceed `len`.
    pub fn accesses(self, len: usize) -> u64 {
        match self {
            Warmup::Accesses(accesses) => accesses,
            Warmup::Share(share) => (len as f64 * share) as u64,
        }
    }
}

impl Warmup {
    /// Length of each of `parts` equal parts of the counted accesses of a trace of `len`, at least 1.
    pub fn part_of(self, len: usize, parts: u64) -> u64 {
        (len as u64).saturating_sub(self.accesses(len)).div_ceil(parts).max(1)
    }
}

/// Counting of accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counting {
    /// Accesses that are not counted.
    pub warmup: Warmup,
    /// Length in accesses of an epoch, for figures over time. The first begins after the warm-up.
    pub epoch: Option<u64>,
}

/// Gives an offline policy the next use of each access. Uses during the first `warmup` accesses are hidden, so the
/// policy maximises the counted hits.
pub(crate) fn foresee<P: Policy>(policy: &mut P, next_uses: Option<&[u32]>, warmup: u64) {
    match next_uses {
        None => {}
        Some(next_uses) if warmup == 0 => policy.foresee(next_uses),
        Some(next_uses) => {
            let counted = |&next_use: &u32| if u64::from(next_use) < warmup { NEVER } else { next_use };
            policy.foresee(&next_uses.iter().map(counted).collect::<Vec<_>>());
        }
    }
}
