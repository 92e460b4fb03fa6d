//! Recent events.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most events that are kept; the oldest leave.
pub const EVENTS_MAX: usize = 1000;

/// Something that happened, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Rises by one from event to event, over restarts as well where events are kept.
    pub number: u64,
    /// When, in seconds since 1970.
    pub time_seconds: u64,
    /// The volume that it happened to; absent for the server as a whole.
    pub volume: Option<String>,
    /// The event, as a sentence.
    pub text: String,
    /// The user or token, and the address, that caused it; absent without a request.
    #[serde(default)]
    pub by: Option<String>,
    /// How severe it is.
    #[serde(default)]
    pub severity: Severity,
}

impl Event {
    /// The volume or pool that it concerns, or the server.
    pub fn about(&self) -> &str {
        self.volume.as_deref().unwrap_or("server")
    }
}

flashwise_core::words! {
    /// How severe an event is. All but `info` are alerts.
    #[derive(Default, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Severity {
        /// Information.
        #[default]
        Info "info",
        /// It needs attention, and nothing fails.
        Warning "warning",
        /// Something fails.
        Fault "fault",
    }
}

/// The last events, oldest first.
#[derive(Debug, Default)]
pub struct Events {
    last: VecDeque<Event>,
    /// How many of them, from the end, are not in the file yet.
    new: usize,
}

impl Events {
    /// Adds an event, with the next number.
    pub fn add(&mut self, event: Event) -> Event {
        let number = self.last.back().map_or(1, |event| event.number + 1);
        let event = Event { number, ..event };
        self.push(event.clone());
        self.new = (self.new + 1).min(EVENTS_MAX);
        event
    }

    /// Takes over one that is in the file.
    pub fn push(&mut self, event: Event) {
        if self.last.len() == EVENTS_MAX {
            self.last.pop_front();
        }
        self.last.push_back(event);
    }

    /// Returns the events after the event with this number, oldest first.
    pub fn after(&self, number: u64) -> Vec<Event> {
        self.last.iter().filter(|event| event.number > number).cloned().collect()
    }

    /// True if some events are not in the file yet.
    pub fn has_new(&self) -> bool {
        self.new > 0
    }

    /// Returns the events that are not in the file yet, and marks them as written.
    pub fn take_new(&mut self) -> Vec<Event> {
        let known = self.last.len() - std::mem::take(&mut self.new);
        self.last.range(known..).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(time_seconds: u64, volume: Option<&str>, text: String) -> Event {
        let volume = volume.map(str::to_owned);
        Event { number: 0, time_seconds, volume, text, by: None, severity: Severity::Info }
    }

    #[test]
    fn events_are_numbered_and_the_oldest_leave() {
        let mut events = Events::default();
        for number in 0..EVENTS_MAX + 2 {
            events.add(event(7, Some("one"), format!("event {number}")));
        }
        let all = events.after(0);
        assert_eq!((all.len(), all[0].number, all[0].text.as_str()), (EVENTS_MAX, 3, "event 2"));
        let last = events.after(EVENTS_MAX as u64 + 1);
        assert_eq!((last.len(), last[0].number), (1, EVENTS_MAX as u64 + 2));
    }

    #[test]
    fn new_events_are_returned_once() {
        let mut events = Events::default();
        events.push(Event { number: 41, ..event(1, None, "before".to_owned()) });
        assert!(!events.has_new() && events.take_new().is_empty());
        events.add(event(2, None, "now".to_owned()));
        assert!(events.has_new());
        let new: Vec<_> = events.take_new().into_iter().map(|event| event.number).collect();
        assert_eq!((new, events.has_new()), (vec![42], false));
    }
}
