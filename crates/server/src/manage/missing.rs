//! A server that was built without HTTP: there is no management API, and nothing can be asked of it.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Address, AlertOptions, ApiError, ApiOptions, Managed, Tokens};

/// The socket of an API that does not answer yet: there is none.
#[derive(Debug)]
pub enum Listening {}

impl Listening {
    /// Refuses.
    pub fn at(address: &Address, _: Tokens) -> Result<Listening, ApiError> {
        Err(ApiError::NotBuilt { address: address.to_string() })
    }
}

/// The API while it runs: it never does.
#[derive(Debug)]
pub enum Api {}

impl Api {
    /// Refuses.
    pub fn start(address: &Address, options: ApiOptions, _: Arc<dyn Managed>) -> Result<Api, ApiError> {
        match Listening::at(address, options.tokens)? {}
    }

    /// Fails, because there is no API.
    pub fn serve(
        listening: Listening,
        _: Option<PathBuf>,
        _: AlertOptions,
        _: Arc<dyn Managed>,
    ) -> Result<Api, ApiError> {
        match listening {}
    }

    /// Returns the address.
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
