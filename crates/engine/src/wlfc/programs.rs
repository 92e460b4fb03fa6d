//! The programs of the flash: their order, and how much of them is durable.

use std::collections::BTreeSet;

use flashwise_core::format::{Digest, RunEnd, Witness};
use flashwise_core::wlfc::header::Header;
use flashwise_core::wlfc::{Oob, Step};

use super::started::{OnFlash, run};
use super::{Settings, StepState};

/// The durable end of a run, with the digest of all buckets if everything is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketsEnd {
    /// The end of the run.
    pub run: RunEnd,
    /// The digest of the buckets.
    pub digest: Option<Digest>,
}

/// The programs and resets of a run.
pub(super) struct Programs {
    pub on_flash: Vec<OnFlash>,
    /// The number of the last program or reset, and the number below which everything is durable.
    sequence: u64,
    durable: u64,
    /// The last planned program.
    last: Option<Witness>,
    /// The value of `sequence` at the last pause, and that of `durable` at the last end that was noted.
    seen: u64,
    noted: u64,
}

impl Programs {
    /// Creates a run without programs.
    pub fn new(on_flash: Vec<OnFlash>) -> Programs {
        Programs { on_flash, sequence: 0, durable: 0, last: None, seen: 0, noted: 0 }
    }

    /// Records the effect of a planned step on later ones, and what it needs to know of earlier ones.
    pub fn plan(&mut self, step: &Step, state: &mut StepState) {
        match *step {
            Step::Append { bucket, page, oob, .. } => {
                self.sequence += 1;
                state.before = self.last.replace(Witness { bucket, epoch: oob.epoch, page });
                if page == 0 {
                    self.on_flash[bucket as usize].state = oob.state;
                }
            }
            Step::ReadFlash { bucket, .. } => state.holds = self.on_flash[bucket as usize].state,
            // A mark contains the time of the reset.
            Step::Reset { .. } => self.sequence += 1,
            _ => {}
        }
        state.sequence = self.sequence;
    }

    /// Returns the first header of a program that begins now.
    pub fn begin(
        &mut self,
        settings: &Settings,
        (bucket, page, oob): (u32, u32, Oob),
        &StepState { sequence, before, .. }: &StepState,
    ) -> Header {
        let on_flash = &mut self.on_flash[bucket as usize];
        if page == 0 {
            (on_flash.last, on_flash.durable_end, on_flash.end, on_flash.epoch) = (0, 0, 0, oob.epoch);
            on_flash.volatile.clear();
        }
        while let Some(&(number, end)) = on_flash.volatile.front()
            && number < self.durable
        {
            on_flash.durable_end = end;
            on_flash.volatile.pop_front();
        }
        let header = Header {
            cache: settings.cache,
            oob,
            run: run(settings.start, settings.found_again),
            sequence,
            durable: self.durable,
            page,
            durable_end: on_flash.durable_end,
            previous: on_flash.last,
            part: 0,
            before,
        };
        on_flash.volatile.push_back((sequence, header.end()));
        header
    }

    /// Notes the success of a step that has this number.
    pub fn done(&mut self, step: &Step, sequence: u64) {
        match *step {
            Step::FlushFlash => self.durable = self.durable.max(sequence + 1),
            Step::Reset { bucket } => {
                let of = &mut self.on_flash[bucket as usize];
                (of.last, of.end) = (0, 0);
            }
            Step::Append { bucket, page, pages, .. } => self.on_flash[bucket as usize].end = page + pages,
            _ => {}
        }
    }

    /// Called at each pause. True if nothing was programmed since the last one.
    pub fn pause(&mut self) -> bool {
        std::mem::replace(&mut self.seen, self.sequence) == self.sequence
    }

    /// True if the durable end is new. Notes it.
    pub fn note(&mut self) -> bool {
        std::mem::replace(&mut self.noted, self.durable) < self.durable
    }

    /// True if all programs and resets of this run are durable.
    pub fn is_durable(&self) -> bool {
        self.sequence == 0 || self.durable > self.sequence
    }

    /// Returns the durable end of this run. There is no digest if the flash `has_failed`.
    pub fn end(&self, settings: &Settings, worn: &BTreeSet<u32>, has_failed: bool) -> BucketsEnd {
        let run = run(settings.start, settings.found_again);
        let is_durable = self.is_durable();
        let last = self.last.filter(|_| is_durable);
        let buckets = (0..).zip(&self.on_flash);
        let values = buckets.map(|(bucket, of)| if worn.contains(&bucket) { 0 } else { of.last });
        let digest = (is_durable && !has_failed).then(|| Digest::new(run, self.sequence + 1, values));
        BucketsEnd { run: RunEnd { run, sequence: self.durable, last }, digest }
    }
}
