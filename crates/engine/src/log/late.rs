//! Segments that wait for a hanging backend: they are written without its blocks, so that flushes and later segments
//! need not wait.

use flashwise_core::cache::Cache;
use flashwise_core::order::{Order, StepId};
use flashwise_core::step::Step;

use super::Log;
use crate::engine::Steps;

/// A step that takes longer is late.
const LATE_US: u64 = 500_000;
/// The interval between searches.
pub(super) const LOOK_US: u64 = 50_000;

/// Makes segments no longer wait for late steps of the backend. Returns each with the place of the block that it goes
/// without; `None` if it goes without a write or a flush.
pub(super) fn go_without<C: Cache<Step = Step>>(
    steps: &mut Steps<Log<C>>,
    order: &Order,
    now_us: u64,
) -> Vec<(StepId, Option<u32>)> {
    let mut found = Vec::new();
    let before_us = now_us.saturating_sub(LATE_US);
    for running in steps.iter_mut() {
        if running.state.planned_us > before_us {
            continue;
        }
        let read = match running.step {
            Step::ReadBackend { frame, .. } => Some(frame.number),
            Step::FlushBackend { batch: None } | Step::WriteBackend { batch: None, .. } => None,
            _ => continue,
        };
        running.dependents.retain(|&mut (id, _)| {
            let leaves = order.writes_pages(id);
            if leaves {
                found.push((id, read));
            }
            !leaves
        });
    }
    found
}
