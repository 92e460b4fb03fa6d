//! Plans of requests.

use flashwise_core::cache::{self, Cache, Event};
use flashwise_core::wlfc::Step;

use super::Engine;
use crate::engine::kind;
use crate::request::Request;

impl<C: Cache<Step = Step>> Engine<C> {
    /// Starts the reads whose changes are answered now.
    pub(super) fn admit_delayed(&mut self) {
        for (request, done, asked, now_us) in std::mem::take(&mut self.layout.delayed) {
            self.admit(request, done, asked, now_us);
        }
    }

    /// Plans a whole request.
    pub(super) fn plan_whole(&mut self, number: u32, now_us: u64) {
        let request = &self.clients.get(number).request;
        let durable = request.makes_durable();
        let &Request { operation, offset, length, force_unit_access, caching, .. } = request;
        let whole =
            cache::Request { caching, ..cache::Request::whole(kind(operation), offset, length, force_unit_access) };
        let mut steps = std::mem::take(&mut self.planned);
        self.cache.on(Event::Request { request: &whole, now_us }, &mut steps);
        self.enqueue_plan(&mut steps, Some(number), durable);
        self.planned = steps;
    }
}
