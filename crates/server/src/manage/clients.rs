//! Requests about a server's clients and their access to exports.

use flashwise_storage::status::ClientStatus;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ManageError;
use super::plan::Plan;
use crate::front::Assigned;

/// Clients of a server. Calls can block.
pub trait Clients: Send + Sync {
    /// Returns the clients that have an export open.
    fn clients(&self) -> Vec<OpenClient>;

    /// Describes the effect of disconnecting a client.
    fn plan_disconnect(&self, number: u64) -> Result<Plan, ManageError>;

    /// Closes a connection, and describes it. Returns when the connection is closed or the wait is over.
    fn disconnect(&self, number: u64) -> Result<String, ManageError>;

    /// Returns who may open which export.
    fn iscsi(&self) -> IscsiStatus;

    /// Describes the effect of an assignment. Without `assigned`, the configuration's assignment applies.
    fn plan_assign(&self, export: &str, assigned: Option<&[Assigned]>) -> Result<Plan, ManageError>;

    /// Assigns an export and closes the sessions whose permission has changed. Describes the new assignment.
    fn assign(&self, export: &str, assigned: Option<Vec<Assigned>>) -> Result<String, ManageError>;
}

/// A client that has something open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenClient {
    /// The volume, or the pool, that answers it.
    pub volume: String,
    /// The client.
    #[serde(flatten)]
    pub client: ClientStatus,
}

/// Permissions to open exports, and the authentication of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IscsiStatus {
    /// Where initiators connect; empty where iSCSI is not served.
    pub listening: Vec<String>,
    /// The initiators that may log in at all; null where all may.
    pub initiators: Option<Vec<String>>,
    /// Initiators that have read-only access to every export.
    pub read_only_initiators: Vec<String>,
    /// The CHAP name of initiators; null if they do not authenticate.
    pub chap_name: Option<String>,
    /// The CHAP name of the target; null if it does not authenticate.
    pub mutual_chap_name: Option<String>,
    /// True if NBD clients authenticate with certificates, so that exports can be assigned to them.
    #[serde(default)]
    pub nbd_certificates: bool,
    /// All exports, by name.
    pub exports: Vec<ExportAccess>,
}

/// Permissions to open an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportAccess {
    /// Its name.
    pub name: String,
    /// Its iSCSI target.
    pub target: String,
    /// The assigned clients. Over iSCSI, only the initiators among them can open the export. Over NBD, only the named
    /// certificates can, or all clients if none is named. Null admits all initiators that may log in, and all NBD
    /// clients.
    pub assigned: Option<Vec<Assigned>>,
    /// True if this replaces the assignment of the configuration.
    pub changed: bool,
}

/// A new assignment of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAssignment {
    /// The assigned clients. Over iSCSI, only the initiators among them can open the export, so without one it is
    /// closed. Over NBD, only the named certificates can, or all clients if none is named.
    pub assigned: Vec<Assigned>,
}

/// Describes who may open an export.
pub fn access(export: &str, assigned: Option<&[Assigned]>) -> String {
    let named = |own: &Assigned| match own.read_only {
        true => format!("{} (read-only)", own.initiator),
        false => own.initiator.clone(),
    };
    let only = |clients: Vec<String>| (!clients.is_empty()).then(|| format!("only {}", clients.join(" and ")));
    let of = |certificates: bool| {
        let some = assigned.unwrap_or_default().iter().filter(|own| own.certificate().is_some() == certificates);
        only(some.map(named).collect())
    };
    let by_default = if assigned.is_none() { "all initiators that may log in" } else { "no initiator" };
    let over_iscsi = of(false).unwrap_or_else(|| by_default.to_owned());
    let over_nbd = of(true).unwrap_or_else(|| "all clients".to_owned());
    format!("Over iSCSI, {export} is for {over_iscsi}; over NBD, it is for {over_nbd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_described_by_protocol() {
        let assigned = |initiator: &str, read_only| Assigned { initiator: initiator.to_owned(), read_only };
        let both = [assigned("iqn.a:1", true), assigned("tls:db", false), assigned("tls:web", true)];
        for (assigned, over_iscsi, over_nbd) in [
            (None, "all initiators that may log in", "all clients"),
            (Some(&[][..]), "no initiator", "all clients"),
            (Some(&both[..1]), "only iqn.a:1 (read-only)", "all clients"),
            (Some(&both[1..2]), "no initiator", "only tls:db"),
            (Some(&both[..]), "only iqn.a:1 (read-only)", "only tls:db and tls:web (read-only)"),
        ] {
            let expected = format!("Over iSCSI, mail is for {over_iscsi}; over NBD, it is for {over_nbd}");
            assert_eq!(access("mail", assigned), expected);
        }
    }
}
