//! The client of a program built without HTTP: every use is refused.

use serde_json::Value;

use crate::failure::Misuse;

/// A connection to a server, which cannot exist.
#[derive(Debug)]
pub enum ApiClient {}

impl ApiClient {
    /// Refuses.
    pub fn of(address: &str, _: Option<String>) -> anyhow::Result<ApiClient> {
        let problem = "this flashwise was built without HTTP; use one built with the feature http";
        Err(Misuse(format!("--api: cannot connect to {address}: {problem}")).into())
    }

    /// Sends a GET request.
    pub fn get(&self, _: &str) -> anyhow::Result<Value> {
        match *self {}
    }

    /// Sends a POST request.
    pub fn post(&self, _: &str) -> anyhow::Result<Value> {
        match *self {}
    }

    /// Sends a PATCH request.
    pub fn patch(&self, _: &str, _: &Value) -> anyhow::Result<Value> {
        match *self {}
    }

    /// Sends a request with another method.
    pub fn send(&self, _: &str, _: &str, _: &Value) -> anyhow::Result<Value> {
        match *self {}
    }
}
