//! The volumes, pools and clients of a server, which may change while it runs, and the state that survives restarts.

pub mod clients;
pub(crate) mod kept;
pub(crate) mod making;
pub mod managed;
pub mod pools;
pub mod served;
pub(crate) mod volumes;
