//! Assignments of exports to clients.
//!
//! Assignments made while a server runs override the configuration and survive restarts. A client is an iSCSI
//! initiator, or an NBD client identified by a name in its certificate.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use flashwise_core::filter::is_named;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::iscsi::names;
use crate::state::kept;

/// The contents of the file, for error messages.
const WHAT: &str = "assignments of exports to clients";
/// Prefix of a name in a certificate.
const CERTIFICATE: &str = "tls:";
/// Longest name in a certificate, in bytes; a DNS name has at most 253.
const CERTIFICATE_NAME_BYTES_MAX: usize = 1024;

/// A client's permission for an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Read only.
    Read,
    /// Read and write.
    Write,
}

/// Checks the name of a client; the error describes the problem.
pub fn check_client(name: &str) -> Result<(), String> {
    let is_right = match name.strip_prefix(CERTIFICATE) {
        None => names::is_initiator(name),
        Some(name) => {
            let is_whole = !name.is_empty() && name.trim() == name && !name.contains(char::is_control);
            is_whole && name.len() <= CERTIFICATE_NAME_BYTES_MAX
        }
    };
    is_right.then_some(()).ok_or_else(|| {
        format!(
            "found '{name}', expected the name of an initiator, such as iqn.1993-08.org.debian:01:abc, or tls: and a \
             name in an NBD client's certificate, such as tls:db.example.com"
        )
    })
}

/// An assignment of an export to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The export's name; not an alias.
    pub export: String,
    /// The initiator's name, or `tls:` and a name in a certificate.
    pub initiator: String,
    /// True if it may only read.
    pub read_only: bool,
}

impl Assignment {
    /// Returns the name in the client's certificate; `None` for an iSCSI initiator.
    pub fn certificate(&self) -> Option<&str> {
        self.initiator.strip_prefix(CERTIFICATE)
    }
}

impl FromStr for Assignment {
    type Err = String;

    /// Parses `EXPORT INITIATOR` or `EXPORT tls:NAME`, optionally followed by `read-only`. A name in a certificate may
    /// contain spaces.
    fn from_str(text: &str) -> Result<Assignment, String> {
        let (export, rest) = text.trim().split_once(char::is_whitespace).unwrap_or_default();
        let rest = rest.trim_start();
        let reads = rest.strip_suffix("read-only").filter(|client| client.ends_with(char::is_whitespace));
        let client = reads.unwrap_or(rest).trim_end();
        let has_spaces = !client.starts_with(CERTIFICATE) && client.contains(char::is_whitespace);
        if client.is_empty() || has_spaces {
            return Err(format!(
                "found '{text}', expected an export, an initiator (or tls: and a name in a certificate) and optionally \
                 read-only, such as 'mail iqn.1993-08.org.debian:01:abc read-only'"
            ));
        }
        Ok(Assignment { export: export.to_owned(), initiator: client.to_owned(), read_only: reads.is_some() })
    }
}

/// A client to which an export is assigned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Assigned {
    /// The name of an initiator, or `tls:` and a name in an NBD client's certificate.
    pub initiator: String,
    /// True if it may only read.
    #[serde(default)]
    pub read_only: bool,
}

impl Assigned {
    /// Returns the name in the client's certificate; `None` for an iSCSI initiator.
    pub fn certificate(&self) -> Option<&str> {
        self.initiator.strip_prefix(CERTIFICATE)
    }

    /// True if both are the same client.
    pub fn is_same(&self, other: &Assigned) -> bool {
        match (self.certificate(), other.certificate()) {
            (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
            _ => self.initiator == other.initiator,
        }
    }
}

/// Returns an initiator's permission for an export with these assignments. An export without assignments is open to
/// all.
pub fn right_over_iscsi(initiator: &str, assigned: Option<&[Assigned]>) -> Option<Right> {
    let Some(assigned) = assigned else { return Some(Right::Write) };
    let mut of_iscsi = assigned.iter().filter(|own| own.certificate().is_none());
    let own = of_iscsi.find(|own| own.initiator == initiator)?;
    Some(if own.read_only { Right::Read } else { Right::Write })
}

/// Returns the permission of an NBD client with the names `tls_names` in its certificate. An export whose assignments
/// name no certificate is open to all. A client that matches several assignments has the largest permission.
pub fn right_over_nbd(tls_names: &[String], assigned: Option<&[Assigned]>) -> Option<Right> {
    let assigned = assigned.unwrap_or_default();
    if !names_certificates(assigned) {
        return Some(Right::Write);
    }
    let is_own = |own: &&Assigned| own.certificate().is_some_and(|name| is_named(tls_names, name));
    let mut rights = assigned.iter().filter(is_own).map(|own| own.read_only).peekable();
    rights.peek()?;
    Some(if rights.all(|read_only| read_only) { Right::Read } else { Right::Write })
}

/// True if an assignment names a certificate. Over NBD the export is then open to such clients only.
pub fn names_certificates(assigned: &[Assigned]) -> bool {
    assigned.iter().any(|own| own.certificate().is_some())
}

/// Assignments of all exports.
#[derive(Debug, Default)]
pub struct Assignments {
    configured: Vec<Assignment>,
    /// Assignments made while a server ran, by the export's name. They override the configuration.
    given: RwLock<BTreeMap<String, Vec<Assigned>>>,
    file: Option<PathBuf>,
}

impl From<Vec<Assignment>> for Assignments {
    fn from(configured: Vec<Assignment>) -> Assignments {
        Assignments { configured, ..Assignments::default() }
    }
}

impl Assignments {
    /// Opens the configured assignments, and those in the file, which override them.
    pub fn open(configured: Vec<Assignment>, file: PathBuf) -> io::Result<Assignments> {
        let given: BTreeMap<String, Vec<Assigned>> = kept::read(&file, WHAT)?.unwrap_or_default();
        for own in given.values().flatten() {
            let wrong = |problem| format!("{}: {problem}; move the file away to start without", file.display());
            check_client(&own.initiator)
                .map_err(|problem| io::Error::new(io::ErrorKind::InvalidData, wrong(problem)))?;
        }
        Ok(Assignments { configured, given: RwLock::new(given), file: Some(file) })
    }

    /// Returns the clients of an export; `None` if it is open to all.
    pub fn of(&self, export: &str) -> Option<Vec<Assigned>> {
        if let Some(given) = self.given.read().get(export) {
            return Some(given.clone());
        }
        self.configured(export)
    }

    /// Returns the clients of an export according to the configuration.
    pub fn configured(&self, export: &str) -> Option<Vec<Assigned>> {
        let own = self.configured.iter().filter(|assignment| assignment.export == export);
        let own: Vec<_> = own
            .map(|Assignment { initiator, read_only, .. }| Assigned {
                initiator: initiator.clone(),
                read_only: *read_only,
            })
            .collect();
        (!own.is_empty()).then_some(own)
    }

    /// Returns the exports whose assignments override the configuration.
    pub fn given(&self) -> Vec<String> {
        self.given.read().keys().cloned().collect()
    }

    /// True if the export's assignments override the configuration.
    pub fn is_given(&self, export: &str) -> bool {
        self.given.read().contains_key(export)
    }

    /// Assigns an export durably, with immediate effect. `None` restores the configured assignments.
    pub fn set(&self, export: &str, assigned: Option<Vec<Assigned>>) -> io::Result<()> {
        let mut given = self.given.write();
        let mut new = given.clone();
        let before = match assigned {
            Some(assigned) => new.insert(export.to_owned(), assigned),
            None => new.remove(export),
        };
        if before.is_none() && new.len() == given.len() {
            return Ok(());
        }
        let Some(file) = &self.file else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "there is no state directory to keep this in"));
        };
        kept::check_unchanged(file, WHAT, &*given)?;
        let failed = |error: &io::Error| format!("{} cannot be written: {error}", file.display());
        kept::write(file, &new).map_err(|error| io::Error::new(error.kind(), failed(&error)))?;
        *given = new;
        Ok(())
    }

    /// Moves the assignments of `alias` to the export's own name, unless that has some already.
    pub fn follow(&self, alias: &str, own: &str) -> io::Result<()> {
        let said = self.given.read().get(alias).cloned();
        let Some(said) = said else { return Ok(()) };
        if !self.is_given(own) {
            self.set(own, Some(said))?;
        }
        self.set(alias, None)
    }

    /// Deletes the assignments and reservations of a deleted export, so that a new export of this name does not inherit
    /// them.
    pub fn forget(&self, export: &str) -> io::Result<()> {
        self.set(export, None)?;
        let Some(folder) = self.file.as_ref().and_then(|file| file.parent()) else { return Ok(()) };
        let reservations = folder.join(names::reservations_file(export));
        match std::fs::remove_file(&reservations) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io::Error::new(error.kind(), format!("{}: {error}", reservations.display())))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(initiator: &str, read_only: bool) -> Assigned {
        Assigned { initiator: initiator.to_owned(), read_only }
    }

    #[test]
    fn assignments_are_parsed_as_they_are_written() {
        let read = |text: &str| {
            let Assignment { export, initiator, read_only } = text.parse().unwrap();
            (export, initiator, read_only)
        };
        for (text, client, read_only) in [
            ("mail iqn.a:1", "iqn.a:1", false),
            ("  mail \t iqn.a:1  read-only ", "iqn.a:1", true),
            ("mail tls:db.example.com", "tls:db.example.com", false),
            ("mail tls:the  mail server read-only", "tls:the  mail server", true),
            ("mail tls:read-only", "tls:read-only", false),
        ] {
            assert_eq!(read(text), ("mail".to_owned(), client.to_owned(), read_only), "{text}");
        }
        for wrong in ["", "mail", "mail iqn.a:1 iqn.b:2", "mail iqn.a:1 read-write", "mail iqn.a:1 tls:a read-only"] {
            assert!(wrong.parse::<Assignment>().is_err(), "{wrong}");
        }
        for right in ["iqn.a:1", "tls:a", "tls:the mail server", "tls:mailto:a@b"] {
            assert_eq!(check_client(right), Ok(()), "{right}");
        }
        for wrong in ["tls:", "tls: ", "tls: a", "tls:a\0", "TLS:a", "a", &format!("tls:{}", "a".repeat(1025))] {
            assert!(check_client(wrong).unwrap_err().starts_with(&format!("found '{wrong}', expected ")), "{wrong}");
        }
        assert!(assigned("tls:Db", true).is_same(&assigned("tls:dB", false)));
        assert!(!assigned("tls:iqn.a:1", false).is_same(&assigned("iqn.a:1", false)));
        assert!(!assigned("iqn.A:1", false).is_same(&assigned("iqn.a:1", false)));
    }

    #[test]
    fn each_protocol_has_its_own_clients() {
        use Right::{Read, Write};
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let of = |assigned: &[Assigned], initiator: &str, certificate: &[&str]| {
            let over_nbd = right_over_nbd(&names(certificate), Some(assigned));
            (right_over_iscsi(initiator, Some(assigned)), over_nbd)
        };
        assert_eq!((right_over_iscsi("iqn.a:1", None), right_over_nbd(&[], None)), (Some(Write), Some(Write)));
        assert_eq!(of(&[], "iqn.a:1", &["db"]), (None, Some(Write)));
        let initiators = [assigned("iqn.a:1", true)];
        assert_eq!(of(&initiators, "iqn.a:1", &[]), (Some(Read), Some(Write)));
        assert_eq!(of(&initiators, "iqn.b:2", &["iqn.a:1"]), (None, Some(Write)));
        let certificates = [assigned("tls:db", true), assigned("tls:Web", false), assigned("iqn.a:1", false)];
        assert_eq!(of(&certificates, "iqn.a:1", &["DB", "other"]), (Some(Write), Some(Read)));
        assert_eq!(of(&certificates, "db", &["db", "web"]), (None, Some(Write)), "the larger right");
        for others in [&[][..], &[""], &["iqn.a:1"], &["tls:db"], &["d", "b"]] {
            assert_eq!(of(&certificates, "tls:db", others), (None, None), "{others:?}");
        }
    }

    #[test]
    fn later_assignments_override_the_configuration_and_survive_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/assignments.json");
        let configured = || vec!["mail iqn.a:1".parse().unwrap(), "mail iqn.b:2 read-only".parse().unwrap()];
        let of_configuration = Some(vec![assigned("iqn.a:1", false), assigned("iqn.b:2", true)]);
        let assignments = Assignments::open(configured(), file.clone()).unwrap();
        assert_eq!((assignments.of("mail"), assignments.of("web")), (of_configuration.clone(), None));
        assignments.set("mail", Some(vec![assigned("iqn.c:3", false)])).unwrap();
        assignments.set("web", Some(Vec::new())).unwrap();
        let assignments = Assignments::open(configured(), file.clone()).unwrap();
        assert_eq!(assignments.of("mail"), Some(vec![assigned("iqn.c:3", false)]));
        assert_eq!(assignments.of("web"), Some(Vec::new()), "for nobody is not for all");
        assert!(assignments.is_given("mail") && !assignments.is_given("data"));
        assignments.set("mail", None).unwrap();
        assert_eq!(assignments.of("mail"), of_configuration);
        assert!(!Assignments::open(Vec::new(), file.clone()).unwrap().is_given("mail"));
        assignments.follow("web", "shop").unwrap();
        assert_eq!(
            (assignments.of("web"), assignments.of("shop")),
            (None, Some(Vec::new())),
            "it has another name now"
        );
        assignments.set("web", Some(vec![assigned("iqn.d:4", true)])).unwrap();
        assignments.follow("web", "shop").unwrap();
        assert_eq!((assignments.of("web"), assignments.of("shop")), (None, Some(Vec::new())), "its own counts");
        for name in ["TLS:a.example", " tls:a.example", ""] {
            std::fs::write(&file, format!("{{\"mail\": [{{\"initiator\": \"{name}\"}}]}}")).unwrap();
            let error = Assignments::open(Vec::new(), file.clone()).unwrap_err().to_string();
            assert!(error.contains(&format!("assignments.json: found '{name}', expected the name")), "{error}");
        }
        std::fs::write(&file, "[1]").unwrap();
        let error = Assignments::open(Vec::new(), file).unwrap_err().to_string();
        assert!(error.contains("expected assignments of exports to clients as JSON"), "{error}");
    }

    #[test]
    fn changes_by_another_server_are_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("assignments.json");
        let [one, other] = [(); 2].map(|()| Assignments::open(Vec::new(), file.clone()).unwrap());
        one.set("mail", Some(vec![assigned("iqn.a:1", false)])).unwrap();
        let written = std::fs::read(&file).unwrap();
        let error = other.set("web", Some(vec![assigned("iqn.b:2", false)])).unwrap_err().to_string();
        assert!(error.contains("assignments.json cannot be written: something else has changed it"), "{error}");
        assert_eq!((other.of("web"), std::fs::read(&file).unwrap()), (None, written));
        one.set("web", Some(Vec::new())).unwrap();
    }

    #[test]
    fn a_new_export_inherits_nothing_from_a_deleted_one() {
        let folder = tempfile::tempdir().unwrap();
        let assignments = Assignments::open(Vec::new(), folder.path().join("assignments.json")).unwrap();
        assignments.set("mail", Some(vec![assigned("iqn.a:1", false)])).unwrap();
        let [mail, web] = ["mail", "web"].map(|name| folder.path().join(names::reservations_file(name)));
        [&mail, &web].into_iter().for_each(|file| std::fs::write(file, "{}").unwrap());
        assignments.forget("mail").unwrap();
        assert_eq!((assignments.of("mail"), mail.exists(), web.exists()), (None, false, true));
        assignments.forget("mail").unwrap();
    }

    #[test]
    fn a_change_that_cannot_be_saved_is_refused_without_effect() {
        let assignments = Assignments::from(Vec::new());
        assert!(assignments.set("mail", Some(Vec::new())).is_err());
        assert_eq!(assignments.of("mail"), None);
        assert!(assignments.set("mail", None).is_ok(), "nothing was to be changed");
        let folder = tempfile::tempdir().unwrap();
        let assignments = Assignments::open(Vec::new(), folder.path().join("other/assignments.json")).unwrap();
        std::fs::write(folder.path().join("other"), "no folder").unwrap();
        assert!(assignments.set("mail", Some(Vec::new())).is_err());
        assert_eq!(assignments.of("mail"), None);
    }
}
