//! A server that was built without HTTP: there is no management API, and nothing can be asked of it.

use std::sync::Arc;

use super::{Address, ApiError, Managed, Options, Tokens};

/// The API while it runs: it never does.
#[derive(Debug)]
pub enum Api {}

impl Api {
    /// Refuses.
    pub fn start(address: &Address, _: Options, _: Arc<dyn Managed>) -> Result<Api, ApiError> {
        Err(ApiError::NotBuilt { address: address.to_string() })
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        match *self {}
    }

    /// Asks for other tokens from now on.
    pub fn set_tokens(&self, _: Tokens) -> Result<(), ApiError> {
        match *self {}
    }

    /// Stops listening.
    pub fn stop(self) {
        match self {}
    }
}
