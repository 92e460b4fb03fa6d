//! A volume of buckets goes on where something failed that its cache relies on.

use super::Volume;
use super::driver::Driver;
use crate::engine::BACKEND;
use crate::wlfc::again::find_again;

impl Volume {
    /// Where the engine has stopped, makes another of what is on flash, and lets the requests that were not answered begin anew.
    pub(super) fn mend(&self) {
        let has_stopped = |engine: &Driver| matches!(engine, Driver::Wlfc(engine) if engine.stopped().is_some() && !engine.is_given_up());
        if !has_stopped(&self.lock().engine) {
            return;
        }
        let mut inner = self.freeze();
        let volume = &self.config.name;
        if !inner.closed && has_stopped(&inner.engine) {
            let backend_fails = inner.health[BACKEND].last_failure().is_some();
            let mut attachment = self.attachment.lock().expect("no thread panics with the attachment");
            if let (Driver::Wlfc(engine), Some(attachment)) = (&mut inner.engine, attachment.as_mut()) {
                match find_again(engine, &*self.flash, attachment, backend_fails) {
                    Ok(found) => **engine = found,
                    Err(error) => {
                        tracing::error!(volume, %error, "the cache is not found again: every request fails until the server is started again");
                        engine.give_up();
                    }
                }
            }
        }
        let held = std::mem::take(&mut inner.held);
        held.into_iter().rev().for_each(|held| inner.waiting.push_front(held));
        self.thaw(inner);
    }
}
