//! Permissions by the reservations of RESERVE (SPC-2) and PERSISTENT RESERVE (SPC-4, section 5.13). No commands, no
//! bytes.

use serde::{Deserialize, Serialize};

use super::nexus::InitiatorPort;
use super::status::code;

/// Maximum number of registered initiators.
pub const REGISTRATIONS_MAX: usize = 256;

/// The effect of a command, as reservations see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Allowed by all reservations.
    Free,
    /// Allowed by persistent reservations; RESERVE forbids it.
    Informs,
    /// It reads.
    Reads,
    /// It writes, or changes the behaviour of the unit.
    Writes,
    /// It is RESERVE or RELEASE.
    Reserves,
    /// It is PERSISTENT RESERVE OUT, which has its own rules.
    Persistent,
}

/// The types of persistent reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrantsOnly = 5,
    ExclusiveAccessRegistrantsOnly = 6,
    WriteExclusiveAllRegistrants = 7,
    ExclusiveAccessAllRegistrants = 8,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] = [
        Kind::WriteExclusive,
        Kind::ExclusiveAccess,
        Kind::WriteExclusiveRegistrantsOnly,
        Kind::ExclusiveAccessRegistrantsOnly,
        Kind::WriteExclusiveAllRegistrants,
        Kind::ExclusiveAccessAllRegistrants,
    ];

    /// Returns the type with this number.
    pub fn of_number(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    fn lets_all_read(self) -> bool {
        use Kind::*;
        matches!(self, WriteExclusive | WriteExclusiveRegistrantsOnly | WriteExclusiveAllRegistrants)
    }

    fn is_of_registrants(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    fn has_all_for_holders(self) -> bool {
        matches!(self, Kind::WriteExclusiveAllRegistrants | Kind::ExclusiveAccessAllRegistrants)
    }
}

/// A registered initiator and its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Its transport ID.
    pub transport_id: Vec<u8>,
    /// Its key, which is not 0.
    pub key: u64,
}

/// A persistent reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Holding {
    kind: Kind,
    /// The transport ID of its creator.
    holder: Vec<u8>,
}

/// All reservations of a unit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reservations {
    /// The initiator that has reserved the unit by RESERVE; lost at a restart.
    #[serde(skip)]
    simple: Option<InitiatorPort>,
    /// Number of changes of the registrations since the start.
    #[serde(skip)]
    generation: u32,
    registrations: Vec<Registration>,
    holding: Option<Holding>,
    /// True if they survive restarts.
    lasts: bool,
}

/// The transport ID of an initiator to inform, and the code.
pub type Notice = (Vec<u8>, u16);

/// The reason why a change is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It conflicts with other initiators.
    Conflict,
    /// A parameter is invalid.
    InvalidParameter,
    /// The reservation has another type.
    InvalidRelease,
    /// There are too many registrations.
    Full,
}

impl Reservations {
    /// True if no reservation forbids anything.
    pub fn is_empty(&self) -> bool {
        self.simple.is_none() && self.registrations.is_empty()
    }

    /// True if they survive restarts.
    pub fn lasts(&self) -> bool {
        self.lasts
    }

    /// Returns the number of changes of the registrations since the start.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the registrations.
    pub fn registrations(&self) -> &[Registration] {
        &self.registrations
    }

    /// Returns the type of the persistent reservation and the key of its holder, which is 0 if all registrants hold it.
    pub fn holding(&self) -> Option<(Kind, u64)> {
        let holding = self.holding.as_ref()?;
        let key = if holding.kind.has_all_for_holders() { 0 } else { self.key_of(&holding.holder).unwrap_or(0) };
        Some((holding.kind, key))
    }

    /// True if a registered initiator holds the persistent reservation.
    pub fn holds(&self, transport_id: &[u8]) -> bool {
        self.holding.as_ref().is_some_and(|holding| {
            holding.holder == transport_id || holding.kind.has_all_for_holders() && self.key_of(transport_id).is_some()
        })
    }

    fn key_of(&self, transport_id: &[u8]) -> Option<u64> {
        self.registrations.iter().find(|one| one.transport_id == transport_id).map(|one| one.key)
    }

    /// True if a command of `port` is allowed. Source: SPC-2, table 9; SPC-4, tables 65 and 66.
    pub fn allow(&self, port: &InitiatorPort, access: Access) -> bool {
        if access == Access::Free {
            return true;
        }
        if self.simple.as_ref().is_some_and(|holder| holder != port) {
            // RELEASE by another initiator has no effect; its handler ensures that.
            return false;
        }
        if matches!(access, Access::Persistent | Access::Informs) {
            return true;
        }
        if access == Access::Reserves {
            return self.registrations.is_empty();
        }
        let Some(holding) = &self.holding else { return true };
        self.holds(&port.transport_id)
            || (holding.kind.is_of_registrants() && self.key_of(&port.transport_id).is_some())
            || (access == Access::Reads && holding.kind.lets_all_read())
    }

    /// RESERVE.
    pub fn reserve_simple(&mut self, port: &InitiatorPort) {
        self.simple = Some(port.clone());
    }

    /// RELEASE, only of the initiator's own reservation.
    pub fn nexus_lost(&mut self, port: &InitiatorPort) {
        if self.simple.as_ref() == Some(port) {
            self.simple = None;
        }
    }

    /// Releases any reservation by RESERVE.
    pub fn release_all_simple(&mut self) {
        self.simple = None;
    }

    /// REGISTER; without `known`, REGISTER AND IGNORE EXISTING KEY. A `key` of 0 removes the registration.
    pub fn register(
        &mut self,
        transport_id: &[u8],
        known: Option<u64>,
        key: u64,
        lasts: bool,
    ) -> Result<Vec<Notice>, Refusal> {
        let registered = self.key_of(transport_id);
        if known.is_some_and(|known| known != registered.unwrap_or(0)) {
            return Err(Refusal::Conflict);
        }
        if registered.is_none() && key == 0 {
            // There was no registration to remove.
            return Ok(Vec::new());
        }
        let mut notices = Vec::new();
        if key == 0 {
            notices = self.unregister(transport_id);
        } else if let Some(one) = self.registrations.iter_mut().find(|one| one.transport_id == transport_id) {
            one.key = key;
        } else if self.registrations.len() == REGISTRATIONS_MAX {
            return Err(Refusal::Full);
        } else {
            self.registrations.push(Registration { transport_id: transport_id.to_owned(), key });
        }
        self.lasts = lasts && !self.registrations.is_empty();
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    /// Removes a registration, and the reservation of its initiator.
    fn unregister(&mut self, transport_id: &[u8]) -> Vec<Notice> {
        self.registrations.retain(|one| one.transport_id != transport_id);
        let Some(holding) = &self.holding else { return Vec::new() };
        let all = holding.kind.has_all_for_holders();
        let released = if all { self.registrations.is_empty() } else { holding.holder == transport_id };
        if !released {
            return Vec::new();
        }
        let told = holding.kind.is_of_registrants();
        self.holding = None;
        if told { self.notices(code::RESERVATIONS_RELEASED, transport_id) } else { Vec::new() }
    }

    /// Returns notices for all registered initiators except one.
    fn notices(&self, code: u16, but: &[u8]) -> Vec<Notice> {
        let others = self.registrations.iter().filter(|one| one.transport_id != but);
        others.map(|one| (one.transport_id.clone(), code)).collect()
    }

    fn check_key(&self, transport_id: &[u8], key: u64) -> Result<(), Refusal> {
        if self.key_of(transport_id) == Some(key) { Ok(()) } else { Err(Refusal::Conflict) }
    }

    /// RESERVE of PERSISTENT RESERVE OUT.
    pub fn reserve(&mut self, transport_id: &[u8], key: u64, kind: Kind) -> Result<(), Refusal> {
        self.check_key(transport_id, key)?;
        match &self.holding {
            Some(holding) if holding.kind != kind || !self.holds(transport_id) => Err(Refusal::Conflict),
            Some(_) => Ok(()),
            None => {
                self.holding = Some(Holding { kind, holder: transport_id.to_owned() });
                Ok(())
            }
        }
    }

    /// RELEASE of PERSISTENT RESERVE OUT.
    pub fn release(&mut self, transport_id: &[u8], key: u64, kind: Kind) -> Result<Vec<Notice>, Refusal> {
        self.check_key(transport_id, key)?;
        if !self.holds(transport_id) {
            return Ok(Vec::new());
        }
        let held = self.holding.as_ref().map(|holding| holding.kind);
        if held != Some(kind) {
            return Err(Refusal::InvalidRelease);
        }
        self.holding = None;
        Ok(if kind.is_of_registrants() { self.notices(code::RESERVATIONS_RELEASED, transport_id) } else { Vec::new() })
    }

    /// CLEAR: all registrations and the reservation.
    pub fn clear(&mut self, transport_id: &[u8], key: u64) -> Result<Vec<Notice>, Refusal> {
        self.check_key(transport_id, key)?;
        let notices = self.notices(code::RESERVATIONS_PREEMPTED, transport_id);
        self.registrations.clear();
        self.holding = None;
        self.lasts = false;
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }

    /// PREEMPT, and PREEMPT AND ABORT: removes the registrations with the key `victim`, and the reservation of one of
    /// them.
    pub fn preempt(
        &mut self,
        transport_id: &[u8],
        key: u64,
        victim: u64,
        kind: Option<Kind>,
    ) -> Result<Vec<Notice>, Refusal> {
        self.check_key(transport_id, key)?;
        let holding = self.holding.clone();
        let from_all = holding.as_ref().is_some_and(|holding| holding.kind.has_all_for_holders()) && victim == 0;
        let from_holder = self.holding().is_some_and(|(kind, key)| !kind.has_all_for_holders() && key == victim);
        if victim == 0 && !from_all {
            return Err(Refusal::InvalidParameter);
        }
        let is_victim = |one: &Registration| one.transport_id != transport_id && (from_all || one.key == victim);
        let own = victim == key && from_holder;
        if !self.registrations.iter().any(is_victim) && !own && !from_all {
            return Err(Refusal::Conflict);
        }
        let mut notices = Vec::new();
        for one in self.registrations.iter().filter(|one| is_victim(one)) {
            notices.push((one.transport_id.clone(), code::REGISTRATIONS_PREEMPTED));
        }
        self.registrations.retain(|one| !is_victim(one));
        if from_all || from_holder {
            let kind = kind.ok_or(Refusal::InvalidParameter)?;
            let changed = holding.is_some_and(|holding| holding.kind != kind);
            self.holding = Some(Holding { kind, holder: transport_id.to_owned() });
            if changed {
                notices.extend(self.notices(code::RESERVATIONS_RELEASED, transport_id));
            }
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(notices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str) -> InitiatorPort {
        InitiatorPort { transport_id: name.into() }
    }

    /// Registers `a` with key 1 and `b` with key 2; `a` reserves.
    fn reserved(kind: Kind) -> Reservations {
        let mut reservations = Reservations::default();
        reservations.register(b"a", None, 1, false).unwrap();
        reservations.register(b"b", Some(0), 2, false).unwrap();
        reservations.reserve(b"a", 1, kind).unwrap();
        reservations
    }

    #[test]
    fn each_reservation_type_follows_the_standard() {
        // SPC-4, table 65: registered reads, registered writes, others read, others write.
        let rows = [
            (Kind::WriteExclusive, [true, false, true, false]),
            (Kind::ExclusiveAccess, [false, false, false, false]),
            (Kind::WriteExclusiveRegistrantsOnly, [true, true, true, false]),
            (Kind::ExclusiveAccessRegistrantsOnly, [true, true, false, false]),
            (Kind::WriteExclusiveAllRegistrants, [true, true, true, false]),
            (Kind::ExclusiveAccessAllRegistrants, [true, true, false, false]),
        ];
        for (kind, expected) in rows {
            let reservations = reserved(kind);
            let allowed = |name, access| reservations.allow(&port(name), access);
            let found = [("b", Access::Reads), ("b", Access::Writes), ("c", Access::Reads), ("c", Access::Writes)];
            assert_eq!(found.map(|(name, access)| allowed(name, access)), expected, "{kind:?}");
            assert!(allowed("a", Access::Writes) && allowed("c", Access::Informs) && allowed("c", Access::Free));
            assert!(!allowed("a", Access::Reserves), "registrations and RESERVE do not go together");
        }
    }

    #[test]
    fn reserve_keeps_all_others_out_until_its_session_ends() {
        let mut reservations = Reservations::default();
        reservations.reserve_simple(&port("a"));
        for access in [Access::Informs, Access::Reads, Access::Writes, Access::Reserves, Access::Persistent] {
            assert!(reservations.allow(&port("a"), access) && !reservations.allow(&port("b"), access), "{access:?}");
        }
        reservations.nexus_lost(&port("b"));
        assert!(!reservations.allow(&port("b"), Access::Reads));
        reservations.nexus_lost(&port("a"));
        assert!(reservations.allow(&port("b"), Access::Reads) && reservations.is_empty());
    }

    #[test]
    fn keys_are_checked_and_generations_count_changes_of_registrations() {
        let mut reservations = reserved(Kind::WriteExclusive);
        assert_eq!(reservations.generation(), 2);
        assert_eq!(reservations.register(b"a", Some(7), 9, false), Err(Refusal::Conflict));
        assert_eq!(reservations.register(b"c", Some(7), 9, false), Err(Refusal::Conflict));
        assert_eq!(reservations.reserve(b"b", 2, Kind::WriteExclusive), Err(Refusal::Conflict));
        assert_eq!(reservations.reserve(b"a", 1, Kind::WriteExclusive), Ok(()));
        assert_eq!(reservations.reserve(b"a", 1, Kind::ExclusiveAccess), Err(Refusal::Conflict));
        assert_eq!(reservations.release(b"a", 1, Kind::ExclusiveAccess), Err(Refusal::InvalidRelease));
        assert_eq!(reservations.release(b"b", 2, Kind::WriteExclusive), Ok(Vec::new()));
        assert_eq!(reservations.holding(), Some((Kind::WriteExclusive, 1)));
        assert_eq!(reservations.clear(b"c", 0), Err(Refusal::Conflict));
        let told = reservations.clear(b"b", 2).unwrap();
        assert_eq!(told, [(b"a".to_vec(), code::RESERVATIONS_PREEMPTED)]);
        assert!(reservations.is_empty() && reservations.generation() == 3);
    }

    #[test]
    fn preempting_takes_registrations_and_the_reservation() {
        let mut reservations = reserved(Kind::ExclusiveAccess);
        assert_eq!(reservations.preempt(b"b", 2, 5, Some(Kind::WriteExclusive)), Err(Refusal::Conflict));
        assert_eq!(reservations.preempt(b"b", 2, 0, Some(Kind::WriteExclusive)), Err(Refusal::InvalidParameter));
        let told = reservations.preempt(b"b", 2, 1, Some(Kind::WriteExclusive)).unwrap();
        assert_eq!(told, [(b"a".to_vec(), code::REGISTRATIONS_PREEMPTED)]);
        assert_eq!(reservations.holding(), Some((Kind::WriteExclusive, 2)));
        assert_eq!(reservations.registrations().len(), 1);
    }

    #[test]
    fn the_last_registrant_to_leave_releases() {
        let mut reservations = reserved(Kind::WriteExclusiveAllRegistrants);
        reservations.register(b"a", Some(1), 0, false).unwrap();
        assert_eq!(reservations.holding(), Some((Kind::WriteExclusiveAllRegistrants, 0)));
        reservations.register(b"b", Some(2), 0, false).unwrap();
        assert!(reservations.holding().is_none() && reservations.is_empty());
        let mut reservations = reserved(Kind::WriteExclusiveRegistrantsOnly);
        let told = reservations.register(b"a", None, 0, false).unwrap();
        assert_eq!(told, [(b"b".to_vec(), code::RESERVATIONS_RELEASED)]);
        assert!(reservations.holding().is_none());
    }

    #[test]
    fn persistent_reservations_are_restored() {
        let mut reservations = reserved(Kind::WriteExclusive);
        assert!(!reservations.lasts());
        reservations.register(b"a", Some(1), 3, true).unwrap();
        assert!(reservations.lasts());
        let text = serde_json::to_string(&reservations).unwrap();
        let read: Reservations = serde_json::from_str(&text).unwrap();
        assert_eq!(read.holding(), Some((Kind::WriteExclusive, 3)));
        assert_eq!((read.registrations(), read.generation()), (reservations.registrations(), 0));
    }
}
