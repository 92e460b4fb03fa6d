//! State shared by all sessions of a server: logical units and the list of sessions.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use flashwise_storage::export::{Claimable, Exports};
use parking_lot::{Condvar, Mutex};

use super::login::{Agreed, Purpose, status};
use super::names;
use crate::front::connection::Control;
use crate::front::options::Iscsi;
use crate::scsi::unit::Unit;

/// The identity of a session: the initiator, its part of the session's identifier, and the export.
type Name = (String, [u8; 6], String);

#[derive(Default)]
struct Sessions {
    by_name: HashMap<Name, (u16, Arc<Control>)>,
    last: u16,
}

/// The targets of a server.
pub struct Target {
    access: Iscsi,
    /// By the address of the export.
    units: Mutex<HashMap<usize, Arc<Unit>>>,
    sessions: Mutex<Sessions>,
    left: Condvar,
}

impl Target {
    /// Creates targets without sessions.
    pub fn new(access: Iscsi) -> Target {
        Target { access, units: Mutex::default(), sessions: Mutex::default(), left: Condvar::new() }
    }

    /// Returns the permissions of initiators.
    pub fn access(&self) -> &Iscsi {
        &self.access
    }

    /// Returns the logical unit of an export: the same for all its names.
    pub fn unit(&self, exports: &Exports, name: &str, export: &Arc<Claimable>) -> io::Result<Arc<Unit>> {
        let mut units = self.units.lock();
        let address = Arc::as_ptr(export) as usize;
        if let Some(unit) = units.get(&address) {
            return Ok(Arc::clone(unit));
        }
        // Drops units of removed exports that no session uses.
        units.retain(|_, unit| Arc::strong_count(unit) > 1 || exports.name_of(unit.export()).is_some());
        let name = exports.name_of(export).unwrap_or_else(|| name.to_owned());
        let folder = self.access.state_directory.as_ref();
        let file = folder.map(|folder| folder.join(names::reservations_file(&name)));
        let unit = Arc::new(Unit::open(&name, Arc::clone(export), file)?);
        units.insert(address, Arc::clone(&unit));
        Ok(unit)
    }

    /// Starts a session. An older one of the same identity ends first; if it does not end in time, this fails.
    pub fn enter(&self, agreed: &Agreed, control: &Arc<Control>, deadline: Option<Instant>) -> Result<Seat<'_>, u16> {
        let export = match &agreed.purpose {
            Purpose::Normal(export) => export.clone(),
            Purpose::Discovery => String::new(),
        };
        let name = (agreed.initiator.clone(), agreed.isid, export);
        let mut sessions = self.sessions.lock();
        while let Some((_, older)) = sessions.by_name.get(&name) {
            older.abandon();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(status::OUT_OF_RESOURCES);
            }
            match left {
                None => self.left.wait(&mut sessions),
                Some(left) => drop(self.left.wait_for(&mut sessions, left)),
            }
        }
        // A number is neither 0 nor that of an existing session.
        let is_taken = |number: u16| number == 0 || sessions.by_name.values().any(|(taken, _)| *taken == number);
        let mut number = sessions.last.wrapping_add(1);
        for _ in 0..=u16::MAX {
            if !is_taken(number) {
                break;
            }
            number = number.wrapping_add(1);
        }
        if is_taken(number) {
            return Err(status::OUT_OF_RESOURCES);
        }
        sessions.last = number;
        sessions.by_name.insert(name.clone(), (number, Arc::clone(control)));
        drop(sessions);
        Ok(Seat { target: self, name, number })
    }
}

/// A session; it ends on drop.
pub struct Seat<'a> {
    target: &'a Target,
    name: Name,
    number: u16,
}

impl Seat<'_> {
    /// Returns the session's number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.target.sessions.lock().by_name.remove(&self.name);
        self.target.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use flashwise_storage::export::{Done, Error, Export, Extent, Request};

    use super::*;

    struct Nothing;

    impl Export for Nothing {
        fn size(&self) -> u64 {
            4096
        }

        fn submit(&self, _: Request, done: Done) {
            done(Err(Error::ShuttingDown));
        }

        fn extents(&self, _: u64, _: u64, _: usize) -> Result<Vec<Extent>, Error> {
            Err(Error::ShuttingDown)
        }
    }

    /// The unit of a removed export is dropped once no session uses it and another unit is created.
    #[test]
    fn units_of_exports_that_are_gone_are_not_kept() {
        let (exports, target) = (Exports::default(), Target::new(Iscsi::default()));
        let unit = |name: &str| {
            assert!(exports.add(name, Arc::new(Nothing)));
            let (_, export) = exports.find(name).unwrap();
            (target.unit(&exports, name, &export).unwrap(), Arc::downgrade(&export))
        };
        let (in_use, gone) = (unit("in use"), unit("gone"));
        exports.remove("in use");
        exports.remove("gone");
        drop(gone.0);
        assert!(gone.1.upgrade().is_some());
        let (other, _) = unit("other");
        assert!(gone.1.upgrade().is_none() && in_use.1.upgrade().is_some());
        assert_eq!((in_use.0.name(), other.name(), target.units.lock().len()), ("in use", "other", 2));
    }
}
