//! A program that was built without HTTP: it can ask no server.

use serde_json::Value;

use crate::failure::Misuse;

/// A connection to a server: there is none.
#[derive(Debug)]
pub enum Client {}

impl Client {
    /// Refuses.
    pub fn of(address: &str, _: Option<String>) -> anyhow::Result<Client> {
        let problem = "this program was built without HTTP, expected one that was built with the feature http";
        Err(Misuse(format!("--api: the server at {address} cannot be asked: {problem}")).into())
    }

    /// Asks for what is at a path.
    pub fn get(&self, _: &str) -> anyhow::Result<Value> {
        match *self {}
    }

    /// Has something done.
    pub fn post(&self, _: &str) -> anyhow::Result<Value> {
        match *self {}
    }

    /// Changes something.
    pub fn patch(&self, _: &str, _: &Value) -> anyhow::Result<Value> {
        match *self {}
    }

    /// Has something done that this method stands for.
    pub fn send(&self, _: &str, _: &str, _: &Value) -> anyhow::Result<Value> {
        match *self {}
    }
}
