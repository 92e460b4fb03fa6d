//! What can be asked of a server's clients, and of who may open what.

use flashwise_storage::status::ClientStatus;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ManageError;
use super::plan::Plan;
use crate::front::Assigned;

/// What can be asked of clients. Calls may wait.
pub trait Clients: Send + Sync {
    /// Those who have something open.
    fn clients(&self) -> Vec<OpenClient>;

    /// What disconnecting one would do.
    fn plan_disconnect(&self, number: u64) -> Result<Plan, ManageError>;

    /// Ends a connection, and says for people whose it was; returns when it has ended, or was given up.
    fn disconnect(&self, number: u64) -> Result<String, ManageError>;

    /// Who may open what.
    fn iscsi(&self) -> IscsiStatus;

    /// What assigning an export would do; without `assigned`, to whom the configuration says.
    fn plan_assign(&self, export: &str, assigned: Option<&[Assigned]>) -> Result<Plan, ManageError>;

    /// Assigns it, and ends the sessions of those whose right has changed; says for people what holds now.
    fn assign(&self, export: &str, assigned: Option<Vec<Assigned>>) -> Result<String, ManageError>;
}

/// A client that has something open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OpenClient {
    /// The volume, or the pool, that answers it.
    pub volume: String,
    /// What is known of it.
    #[serde(flatten)]
    pub client: ClientStatus,
}

/// Who may open what, and how clients prove who they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IscsiStatus {
    /// Where initiators connect; empty where iSCSI is not served.
    pub listening: Vec<String>,
    /// The initiators that may log in at all; null where all may.
    pub initiators: Option<Vec<String>>,
    /// Those that may only read, whatever they open.
    pub read_only_initiators: Vec<String>,
    /// The name that initiators give by CHAP; null where none is asked for a proof.
    pub chap_name: Option<String>,
    /// The name that the target gives by CHAP; null where it proves nothing.
    pub mutual_chap_name: Option<String>,
    /// Whether clients of NBD show certificates, so that exports can be assigned to them.
    #[serde(default)]
    pub nbd_certificates: bool,
    /// All exports, by name.
    pub exports: Vec<ExportAccess>,
}

/// Who may open an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportAccess {
    /// Its name.
    pub name: String,
    /// Its iSCSI target.
    pub target: String,
    /// The clients that it is for; null where it is for all initiators that may log in, and for all clients of NBD.
    /// Over iSCSI it is for the initiators among them alone. Over NBD it is for those alone whose certificates are
    /// named, and for all where none is.
    pub assigned: Option<Vec<Assigned>>,
    /// Whether that was said in place of what the configuration says.
    pub changed: bool,
}

/// To whom an export is to be assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAssignment {
    /// The clients that it is for. Over iSCSI it is for no other initiators, and for nobody where there are none. Over
    /// NBD it is for no others than those whose certificates are named, and for all where none is.
    pub assigned: Vec<Assigned>,
}

/// Who an export is for, for people.
pub fn told(export: &str, assigned: Option<&[Assigned]>) -> String {
    let named = |own: &Assigned| match own.read_only {
        true => format!("{} (may only read)", own.initiator),
        false => own.initiator.clone(),
    };
    let alone = |clients: Vec<String>| (!clients.is_empty()).then(|| format!("{} alone", clients.join(", and ")));
    let of = |certificates: bool| {
        let some = assigned.unwrap_or_default().iter().filter(|own| own.certificate().is_some() == certificates);
        alone(some.map(named).collect())
    };
    let everybody = if assigned.is_none() { "all initiators that may log in" } else { "nobody" };
    let over_iscsi = of(false).unwrap_or_else(|| everybody.to_owned());
    let over_nbd = of(true).unwrap_or_else(|| "all clients".to_owned());
    format!("Over iSCSI, {export} is for {over_iscsi}; over NBD, it is for {over_nbd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_an_export_is_for_is_told_by_protocol() {
        let assigned = |initiator: &str, read_only| Assigned { initiator: initiator.to_owned(), read_only };
        let both = [assigned("iqn.a:1", true), assigned("tls:db", false), assigned("tls:web", true)];
        for (assigned, over_iscsi, over_nbd) in [
            (None, "all initiators that may log in", "all clients"),
            (Some(&[][..]), "nobody", "all clients"),
            (Some(&both[..1]), "iqn.a:1 (may only read) alone", "all clients"),
            (Some(&both[1..2]), "nobody", "tls:db alone"),
            (Some(&both[..]), "iqn.a:1 (may only read) alone", "tls:db, and tls:web (may only read) alone"),
        ] {
            let expected = format!("Over iSCSI, mail is for {over_iscsi}; over NBD, it is for {over_nbd}");
            assert_eq!(told("mail", assigned), expected);
        }
    }
}
