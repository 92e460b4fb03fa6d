//! What can be asked of a server's clients, and of who may open what over iSCSI.

use flashwise_engine::status::ClientStatus;
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

    /// Who may open what over iSCSI.
    fn iscsi(&self) -> IscsiStatus;

    /// What assigning an export would do; without `assigned`, to whom the configuration says.
    fn plan_assign(&self, export: &str, assigned: Option<&[Assigned]>) -> Result<Plan, ManageError>;

    /// Assigns it, and ends the sessions of those who may not open it any more; says for people what holds now.
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

/// Who may open what over iSCSI, and how initiators prove who they are.
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
    /// All exports, by name.
    pub exports: Vec<ExportAccess>,
}

/// Who may open an export over iSCSI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportAccess {
    /// Its name.
    pub name: String,
    /// Its iSCSI target.
    pub target: String,
    /// The initiators that it is for; null where it is for all that may log in.
    pub assigned: Option<Vec<Assigned>>,
    /// Whether that was said in place of what the configuration says.
    pub changed: bool,
}

/// To whom an export is to be assigned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAssignment {
    /// The initiators that it is for, and nobody else; for nobody where there are none.
    pub assigned: Vec<Assigned>,
}

/// Who an export is for, for people.
pub fn told(export: &str, assigned: Option<&[Assigned]>) -> String {
    let Some(assigned) = assigned else { return format!("Over iSCSI, {export} is for all initiators that may log in") };
    let named = |own: &Assigned| match own.read_only {
        true => format!("{} (may only read)", own.initiator),
        false => own.initiator.clone(),
    };
    match assigned {
        [] => format!("Over iSCSI, {export} is for nobody"),
        some => {
            let names: Vec<_> = some.iter().map(named).collect();
            format!("Over iSCSI, {export} is for {} alone", names.join(", and "))
        }
    }
}
