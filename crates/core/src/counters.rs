//! Counters per block access; the only definition of these figures.

use crate::access::Op;
use crate::policy::Outcome;

crate::counts! {
    /// Outcomes of the accesses of one op.
    pub struct OpCounters {
        /// Hits.
        pub hits: u64,
        /// Misses admitted to free cache space.
        pub fills: u64,
        /// Misses admitted in place of an evicted block: LARC's R, section IV.C.
        pub replacements: u64,
        /// Bypassed misses.
        pub bypasses: u64,
    }
}

impl OpCounters {
    /// Returns the number of accesses.
    pub fn accesses(&self) -> u64 {
        self.hits + self.admissions() + self.bypasses
    }

    /// Returns the number of admitted misses.
    pub fn admissions(&self) -> u64 {
        self.fills + self.replacements
    }
}

crate::counts! {
    /// Counters of one run of a policy, separate for reads and writes.
    pub struct Counters {
        /// `[read, write]`, by [`Op`].
        by_op: [OpCounters; 2],
    }
}

impl Counters {
    /// Creates counters from those of reads and writes.
    pub fn of_ops(by_op: [OpCounters; 2]) -> Counters {
        Counters { by_op }
    }

    /// Counts one access.
    #[inline]
    pub fn record<K>(&mut self, op: Op, outcome: &Outcome<K>) {
        let counters = &mut self.by_op[op as usize];
        match outcome {
            Outcome::Hit => counters.hits += 1,
            Outcome::Admit { evicted: None } => counters.fills += 1,
            Outcome::Admit { evicted: Some(_) } => counters.replacements += 1,
            Outcome::Bypass => counters.bypasses += 1,
        }
    }

    /// Returns the counters of one op.
    pub fn of(&self, op: Op) -> &OpCounters {
        &self.by_op[op as usize]
    }

    fn sum(&self, figure: impl Fn(&OpCounters) -> u64) -> u64 {
        self.by_op.iter().map(figure).sum()
    }

    /// Returns the number of block accesses.
    pub fn accesses(&self) -> u64 {
        self.sum(OpCounters::accesses)
    }

    /// Returns the number of hits.
    pub fn hits(&self) -> u64 {
        self.sum(|op| op.hits)
    }

    /// Returns the number of admitted misses.
    pub fn admissions(&self) -> u64 {
        self.sum(OpCounters::admissions)
    }

    /// Returns the admissions that evicted a block: LARC's R, section IV.C.
    pub fn replacements(&self) -> u64 {
        self.sum(|op| op.replacements)
    }

    /// Returns the evicted blocks. Every policy here evicts one block at once, and only to admit another, so this
    /// equals [`replacements`](Self::replacements).
    pub fn evictions(&self) -> u64 {
        self.replacements()
    }

    /// Returns the number of bypassed misses.
    pub fn bypasses(&self) -> u64 {
        self.sum(|op| op.bypasses)
    }

    /// Returns LARC's write traffic W = H_w + R (section IV.C): write hits and replacements.
    pub fn write_traffic_blocks(&self) -> u64 {
        self.of(Op::Write).hits + self.replacements()
    }

    /// Returns the blocks written to flash: write hits and admissions. LARC's W = H_w + R (section IV.C) excludes the
    /// admissions that fill an empty cache.
    pub fn flash_writes_blocks(&self) -> u64 {
        self.of(Op::Write).hits + self.admissions()
    }

    /// Returns hits per access, 0 to 1; 0 without accesses.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hits(), self.accesses())
    }

    /// Returns read hits per read, 0 to 1; 0 without reads.
    pub fn read_hit_ratio(&self) -> f64 {
        ratio(self.of(Op::Read).hits, self.of(Op::Read).accesses())
    }

    /// Returns replacements per access, 0 to 1; 0 without accesses (Figure 8 of the LARC paper).
    pub fn replacement_rate(&self) -> f64 {
        ratio(self.replacements(), self.accesses())
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_their_definitions_on_six_accesses() {
        let mut counters = Counters::default();
        counters.record::<u32>(Op::Read, &Outcome::Admit { evicted: None });
        counters.record::<u32>(Op::Read, &Outcome::Hit);
        counters.record::<u32>(Op::Write, &Outcome::Hit);
        counters.record::<u32>(Op::Write, &Outcome::Admit { evicted: Some(1) });
        counters.record::<u32>(Op::Write, &Outcome::Bypass);
        counters.record::<u32>(Op::Read, &Outcome::Bypass);
        assert_eq!((counters.accesses(), counters.hits(), counters.bypasses()), (6, 2, 2));
        assert_eq!((counters.admissions(), counters.replacements(), counters.evictions()), (2, 1, 1));
        // One write hit and two admissions; one of these replaced a block.
        assert_eq!((counters.flash_writes_blocks(), counters.write_traffic_blocks()), (3, 2));
        assert_eq!((counters.hit_ratio(), counters.read_hit_ratio()), (2.0 / 6.0, 1.0 / 3.0));
    }
}
