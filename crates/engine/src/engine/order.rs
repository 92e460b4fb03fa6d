//! Which steps wait for which, and what becomes of those that wait for one that fails: the rules of [`Step`], by what each step uses.

use flashwise_core::cache::Cache;
use flashwise_core::step::Step;

use super::hazard::StepId;
use super::{Bug, Engine, Running};

/// What becomes of a step that waits for another one, if that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bond {
    /// Nothing.
    Follows,
    /// It fails too.
    Needs,
    /// It calls nothing clean.
    Trusts,
    /// The backend cannot stand in for the flash.
    Strands,
    /// Its client does not see the content, and reads anew.
    Sees,
}

impl<C: Cache<Step = Step>> Engine<C> {
    /// Returns the unfinished write of a client that goes only to the backend, if it is the last writer of a block. Until it succeeds, no
    /// client may see its content: a later read could return the old content.
    pub(super) fn undecided(&self, block: u32) -> Option<StepId> {
        let writer = self.backend.writer(block)?;
        let step = &self.steps[writer as usize].as_ref().expect("an unfinished step is in the table").step;
        let is_undecided =
            matches!(step, Step::WriteBackend { acknowledged: false, replaces: false, logged: false, batch: None, .. });
        (is_undecided && self.settings.planted != Some(Bug::ShowsRefusedWrites)).then_some(writer)
    }

    /// Records what the step uses; adds the steps that it waits for.
    pub(super) fn register(&mut self, id: StepId, waits: &mut Vec<(StepId, Bond)>) {
        let Running { step, source, .. } = self.steps[id as usize].as_ref().expect("the step was just made");
        let undecided = match step {
            Step::Send { block, .. } => self.undecided(*block),
            _ => None,
        };
        let mut after = |step: StepId| waits.push((step, Bond::Follows));
        let mut follows_flash = false;
        let frames = &mut self.frames;
        match step {
            Step::Receive { frame, .. } | Step::Zero { frame, .. } => {
                frames[frame.number as usize].hazard.write(id, &mut after);
            }
            Step::Send { frame, .. } => {
                frames[frame.number as usize].hazard.read(id, &mut after);
                waits.extend(undecided.map(|write| (write, Bond::Sees)));
            }
            Step::Copy { from, to, .. } => {
                frames[from.number as usize].hazard.read(id, &mut after);
                frames[to.number as usize].hazard.write(id, &mut after);
            }
            Step::ReadFlash { block, slot, frame, dirty } => {
                frames[frame.number as usize].hazard.write(id, &mut after);
                if !dirty {
                    // Where it may fall back to the backend.
                    self.backend.entry(*block).read(id, |write| waits.push((write, Bond::Strands)));
                }
                if let Some(place) = source {
                    frames[*place as usize].hazard.read(id, |writer| waits.push((writer, Bond::Needs)));
                } else {
                    // What is on the page if the append fails belongs to another block.
                    let is_of = |(first, last, _): &&(u32, u32, StepId)| (*first..=*last).contains(slot);
                    waits.extend(self.appends.iter().filter(is_of).map(|&(.., append)| (append, Bond::Needs)));
                }
            }
            Step::ReadBackend { block, frame } => {
                frames[frame.number as usize].hazard.write(id, &mut after);
                // After a write that failed, the backend may hold less than what was acknowledged.
                self.backend.entry(*block).read(id, |write| waits.push((write, Bond::Needs)));
            }
            Step::WriteBackend { block, frame, batch, .. } => {
                frames[frame.number as usize].hazard.read(id, &mut after);
                self.backend.entry(*block).write(id, &mut after);
                match batch {
                    Some(batch) => self.batch_writes.entry(*batch).or_default().insert(id),
                    None => self.backend_writes.insert(id),
                };
                follows_flash = true;
            }
            Step::ZeroBackend { block, count, .. } => {
                self.backend.zero(id, *block..*block + *count, &mut after);
                self.backend_writes.insert(id);
                follows_flash = true;
            }
            Step::Append(segment) => {
                for record in segment.records.iter().filter(|record| record.kind.has_data()) {
                    frames[record.frame.number as usize].hazard.read(id, &mut after);
                }
                self.last_log.replace(id).into_iter().for_each(&mut after);
                let first = self.cache.geometry().slot(segment.unit, segment.page);
                self.appends.push((first, first + segment.data_pages, id));
                let flush = self.last_backend_flush.filter(|_| segment.needs_backend_flush);
                waits.extend(flush.map(|flush| (flush, Bond::Trusts)));
                follows_flash = true;
            }
            Step::Witness(_) => {
                self.last_log.replace(id).into_iter().for_each(&mut after);
                follows_flash = true;
            }
            Step::ResetUnit { unit } => {
                self.last_log.replace(id).into_iter().for_each(&mut after);
                // Units are reset so seldom that to look at all steps then costs less than to know the readers of each.
                let unit_pages = self.cache.geometry().unit_pages;
                let reads = |running: &Running| matches!(running.step, Step::ReadFlash { slot, .. } if slot / unit_pages == *unit);
                let steps = self.steps.iter().zip(0..);
                let readers =
                    steps.filter(|(running, _)| running.as_ref().is_some_and(reads)).map(|(_, reader)| reader);
                readers.for_each(&mut after);
                follows_flash = true;
            }
            Step::FlushFlash { .. } => {
                self.last_log.into_iter().for_each(&mut after);
                waits.extend(self.last_flash_flush.replace(id).map(|flush| (flush, Bond::Needs)));
            }
            Step::FlushBackend { batch: None } => {
                self.backend_writes.iter().copied().for_each(&mut after);
                self.last_backend_flush.replace(id).into_iter().for_each(after);
            }
            Step::FlushBackend { batch: Some(batch) } => {
                self.batch_writes.get(batch).into_iter().flatten().copied().for_each(&mut after);
                self.batch_flushes.insert(*batch, id);
            }
            Step::Destaged { batch } => {
                waits.extend(self.last_flash_flush.map(|flush| (flush, Bond::Needs)));
                waits.extend(self.batch_flushes.get(batch).map(|&flush| (flush, Bond::Needs)));
            }
            Step::AwaitFlushes => {
                waits.extend(self.last_flash_flush.map(|flush| (flush, Bond::Needs)));
                waits.extend(self.last_backend_flush.map(|flush| (flush, Bond::Needs)));
            }
            Step::Fail | Step::Pause { .. } | Step::Reply => {}
        }
        if follows_flash {
            waits.extend(self.last_flash_flush.map(|flush| (flush, Bond::Needs)));
        }
    }

    /// Takes the step out of what it used.
    pub(super) fn unregister(&mut self, id: StepId, step: &Step) {
        match step {
            Step::Receive { frame, .. } | Step::Zero { frame, .. } | Step::Send { frame, .. } => {
                self.end_frame(id, *frame);
            }
            Step::Copy { from, to, .. } => {
                self.end_frame(id, *from);
                self.end_frame(id, *to);
            }
            Step::ReadFlash { frame, block, dirty, .. } => {
                self.end_frame(id, *frame);
                if !dirty {
                    self.backend.end(*block, id);
                }
            }
            Step::ReadBackend { block, frame } => {
                self.end_frame(id, *frame);
                self.backend.end(*block, id);
            }
            Step::WriteBackend { block, frame, batch, .. } => {
                self.end_frame(id, *frame);
                self.backend.end(*block, id);
                self.backend_writes.remove(&id);
                if let Some(batch) = batch
                    && let Some(writes) = self.batch_writes.get_mut(batch)
                {
                    writes.remove(&id);
                    if writes.is_empty() {
                        self.batch_writes.remove(batch);
                    }
                }
            }
            Step::ZeroBackend { .. } => {
                self.backend.end_zeroing(id);
                self.backend_writes.remove(&id);
            }
            Step::Append(segment) => {
                for record in segment.records.iter().filter(|record| record.kind.has_data()) {
                    self.end_frame(id, record.frame);
                }
                self.appends.retain(|&(.., append)| append != id);
                self.last_log.take_if(|last| *last == id);
            }
            Step::ResetUnit { .. } | Step::Witness(_) => {
                self.last_log.take_if(|last| *last == id);
            }
            Step::FlushFlash { .. } => {
                self.last_flash_flush.take_if(|last| *last == id);
            }
            Step::FlushBackend { batch: None } => {
                self.last_backend_flush.take_if(|last| *last == id);
            }
            Step::FlushBackend { batch: Some(batch) } => {
                self.batch_flushes.remove(batch);
            }
            Step::Destaged { .. } | Step::AwaitFlushes | Step::Fail | Step::Pause { .. } | Step::Reply => {}
        }
    }
}
