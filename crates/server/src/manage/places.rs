//! Limits the connections of the management API, separately for those with and without a credential.
//!
//! A new connection has no credential. If too many of these are open, the oldest is closed, unless its health check is
//! being answered. So every health check gets its answer, and silent clients do not block others. A connection whose
//! request has a credential moves to the other limit. If that is reached, the connection with the longest idle time is
//! closed.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::limits::{Limit, Limits};

/// Connections without a credential.
pub const UNKNOWN_MAX: usize = 32;
/// Connections with a credential.
pub const KNOWN_MAX: usize = 64;
/// Requests with a credential that are performed together; others wait.
pub const PERFORMED_MAX: usize = 6;

struct Held {
    is_known: bool,
    /// The time of its last use, as a growing number.
    used: u64,
    /// Requests that are being answered, streams included.
    answering: usize,
    closing: Arc<Notify>,
}

#[derive(Default)]
struct PlaceTable {
    held: HashMap<u64, Held>,
    clock: u64,
}

impl PlaceTable {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn is_full(&self, is_known: bool) -> bool {
        let most = if is_known { KNOWN_MAX } else { UNKNOWN_MAX };
        self.held.values().filter(|held| held.is_known == is_known).count() >= most
    }

    /// Closes the connection of a kind that is unused for longest; `false` if none can be closed.
    fn close_one(&mut self, is_known: bool) -> bool {
        let of_kind = self.held.iter().filter(|(_, held)| held.is_known == is_known);
        let oldest = of_kind.min_by_key(|(_, held)| (held.answering > 0, held.used));
        let Some((&number, held)) = oldest.filter(|(_, held)| !is_known || held.answering == 0) else { return false };
        held.closing.notify_one();
        self.held.remove(&number);
        true
    }
}

/// The places of one API.
pub struct Places {
    table: Mutex<PlaceTable>,
    performed: Arc<Semaphore>,
    limits: Arc<Limits>,
}

impl Places {
    /// Creates free places; `limits` counts how often all are in use.
    pub fn new(limits: Arc<Limits>) -> Arc<Places> {
        Arc::new(Places { table: Mutex::default(), performed: Arc::new(Semaphore::new(PERFORMED_MAX)), limits })
    }

    /// A place for a new connection, which has no credential; the oldest such connection is closed if they are too
    /// many.
    pub fn enter(self: &Arc<Places>) -> ConnectionPlace {
        let mut table = self.table.lock();
        if table.is_full(false) {
            self.limits.reached(Limit::ApiUnknown);
            table.close_one(false);
        }
        let (number, closing) = (table.tick(), Arc::new(Notify::new()));
        let held = Held { is_known: false, used: number, answering: 0, closing: Arc::clone(&closing) };
        table.held.insert(number, held);
        ConnectionPlace(Arc::new(Taken { places: Arc::clone(self), number, closing }))
    }

    /// Closes a connection since the system has no more file descriptors, the oldest without a credential first.
    pub fn make_room(&self) {
        self.limits.reached(Limit::Files);
        let mut table = self.table.lock();
        let _ = table.close_one(false) || table.close_one(true);
    }
}

struct Taken {
    places: Arc<Places>,
    number: u64,
    closing: Arc<Notify>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.places.table.lock().held.remove(&self.number);
    }
}

/// The place of a connection, which is free when all copies of this are dropped.
#[derive(Clone)]
pub struct ConnectionPlace(Arc<Taken>);

impl ConnectionPlace {
    /// Returns when the connection has to be closed.
    pub async fn closed(&self) {
        self.0.closing.notified().await;
    }

    /// Moves a connection to those with a credential and starts a request; `None` if all of those are busy.
    pub fn admit(&self) -> Option<Answering> {
        let places = &self.0.places;
        let mut table = places.table.lock();
        if table.held.get(&self.0.number).is_some_and(|held| !held.is_known) && table.is_full(true) {
            places.limits.reached(Limit::ApiKnown);
            if !table.close_one(true) {
                return None;
            }
        }
        let used = table.tick();
        if let Some(held) = table.held.get_mut(&self.0.number) {
            (held.is_known, held.used) = (true, used);
        }
        drop(table);
        Some(self.answer())
    }

    /// Begins to answer a request; until that is dropped, other connections are closed first.
    pub fn answer(&self) -> Answering {
        if let Some(held) = self.0.places.table.lock().held.get_mut(&self.0.number) {
            held.answering += 1;
        }
        Answering(self.clone())
    }

    /// Waits until a request with a credential may be performed.
    pub async fn turn(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.0.places.performed).acquire_owned().await.expect("the semaphore is never closed")
    }
}

/// A request that is being answered.
pub struct Answering(ConnectionPlace);

impl Drop for Answering {
    fn drop(&mut self) {
        let taken = &self.0.0;
        if let Some(held) = taken.places.table.lock().held.get_mut(&taken.number) {
            held.answering -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_there(place: &ConnectionPlace) -> bool {
        place.0.places.table.lock().held.contains_key(&place.0.number)
    }

    #[test]
    fn the_oldest_unknown_connection_goes_but_for_one_that_is_answered() {
        let places = Places::new(Arc::default());
        let (health, oldest) = (places.enter(), places.enter());
        let answering = health.answer();
        let others: Vec<ConnectionPlace> = (2..UNKNOWN_MAX).map(|_| places.enter()).collect();
        assert!(is_there(&oldest));
        let next = places.enter();
        assert!(!is_there(&oldest) && is_there(&health) && others.iter().all(is_there));
        drop(answering);
        let last = places.enter();
        assert!(!is_there(&health) && is_there(&next) && is_there(&last));
        assert_eq!(places.limits.times(Limit::ApiUnknown), 2);
        drop(others);
        assert_eq!(places.table.lock().held.len(), 2);
    }

    #[test]
    fn a_known_connection_goes_for_another_one_only_while_it_is_unused() {
        let places = Places::new(Arc::default());
        let admitted = (0..KNOWN_MAX).map(|_| {
            let place = places.enter();
            let answering = place.admit().unwrap();
            (place, answering)
        });
        let (known, mut answering): (Vec<ConnectionPlace>, Vec<Answering>) = admitted.unzip();
        let next = places.enter();
        assert!(next.admit().is_none(), "all are in use");
        let _strangers: Vec<ConnectionPlace> = (0..2 * UNKNOWN_MAX).map(|_| places.enter()).collect();
        assert!(known.iter().all(is_there), "strangers take no place of known connections");
        answering.remove(7);
        drop(answering.remove(3));
        assert!(known[3].admit().is_some(), "it has its place");
        let next = places.enter();
        assert!(next.admit().is_some());
        assert!(!is_there(&known[7]) && is_there(&known[3]) && is_there(&next));
    }
}
