//! The clients of a volume, and the I/O filter for their requests.

use std::sync::{Arc, Weak};

use crate::time::{Mutex, MutexGuard};
use flashwise_core::filter::{Client, Filter, Rule};

use crate::export::Guest;
use crate::status::ClientStatus;

/// The clients that have a volume open, and the I/O filter.
#[derive(Debug, Default)]
pub struct Guests(Mutex<GuestState>);

#[derive(Debug, Default)]
struct GuestState {
    filter: Filter,
    present: Vec<Weak<Guest>>,
}

impl Guests {
    /// Creates an empty list.
    pub fn new(filter: Filter) -> Guests {
        Guests(Mutex::new(GuestState { filter, present: Vec::new() }))
    }

    fn inner(&self) -> MutexGuard<'_, GuestState> {
        let mut inner = self.0.lock();
        inner.present.retain(|guest| guest.strong_count() > 0);
        inner
    }

    /// Adds a client. Dropping the returned guest removes it.
    pub fn enter(&self, client: Client) -> Arc<Guest> {
        let mut inner = self.inner();
        let caching = inner.filter.caching(&client);
        let guest = Arc::new(Guest::new(client, caching));
        guest.tell("a client came");
        inner.present.push(Arc::downgrade(&guest));
        guest
    }

    /// Returns the I/O filter.
    pub fn filter(&self) -> Filter {
        self.inner().filter.clone()
    }

    /// Replaces the filter, also for present clients.
    pub fn set_filter(&self, filter: Filter) {
        let mut inner = self.inner();
        for guest in inner.present.iter().filter_map(Weak::upgrade) {
            guest.set_caching(filter.caching(guest.client()));
        }
        inner.filter = filter;
    }

    /// Returns the present clients, in the order of their arrival.
    pub fn status(&self) -> Vec<ClientStatus> {
        let guests: Vec<_> = self.inner().present.iter().filter_map(Weak::upgrade).collect();
        guests.iter().map(|guest| ClientStatus::of(guest)).collect()
    }
}

/// Refuses a rule for an export that is not among the `names` of the volume, because it would never match.
pub fn check_exports<'a>(rules: impl IntoIterator<Item = &'a Rule>, names: &[String]) -> Result<(), String> {
    let names_nobody = |rule: &&Rule| matches!(rule, Rule::Export(name) if !names.contains(name));
    match rules.into_iter().find(names_nobody) {
        None => Ok(()),
        Some(rule) => Err(format!("found '{rule}', expected the name of the volume or an alias: {}", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use flashwise_core::filter::Caching;

    use super::*;

    fn user(uid: u32) -> Client {
        Client { uid: Some(uid), ..Client::default() }
    }

    fn denying(rules: &str) -> Filter {
        Filter { deny: Rule::parse_list(rules).unwrap(), ..Filter::default() }
    }

    #[test]
    fn a_changed_filter_applies_to_present_and_future_clients() {
        let guests = Guests::new(denying("uid:1"));
        let (one, two) = (guests.enter(user(1)), guests.enter(user(2)));
        assert_eq!((one.caching(), two.caching()), (Caching::Never, Caching::Usual));
        guests.set_filter(denying("uid:2"));
        assert_eq!((one.caching(), two.caching()), (Caching::Usual, Caching::Never));
        assert_eq!(guests.enter(user(2)).caching(), Caching::Never);
        assert_eq!(guests.filter(), denying("uid:2"));
        drop(one);
        let left: Vec<_> = guests.status().into_iter().map(|client| client.uid).collect();
        assert_eq!(left, [Some(2)], "those who went are not shown");
    }

    #[test]
    fn a_rule_about_an_export_of_another_volume_is_refused() {
        let names = ["v".to_owned(), "v-raw".to_owned()];
        let rules = |text: &str| Rule::parse_list(text).unwrap();
        assert_eq!(check_exports(&rules("export:v-raw,export:v,uid:1"), &names), Ok(()));
        let expected = "found 'export:w', expected the name of the volume or an alias: v, v-raw";
        assert_eq!(check_exports(&rules("export:v,export:w"), &names), Err(expected.to_owned()));
    }
}
