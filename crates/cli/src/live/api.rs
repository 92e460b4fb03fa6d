//! What is asked of a running server: by a client of its management API, which is built with the feature `http`.

#[cfg(feature = "http")]
mod client;
#[cfg(not(feature = "http"))]
mod missing;

#[cfg(feature = "http")]
use client as built;
#[cfg(not(feature = "http"))]
use missing as built;

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use flashwise_server::manage::DEFAULT_ADDRESS;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

pub use built::Client;

/// Where the server is.
#[derive(Clone, Debug, Args)]
pub struct ApiOptions {
    /// The server's API: HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS)]
    api: String,
    /// The file that holds the token that the API asks for
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl ApiOptions {
    /// A server whose API is at an address and asks for no token.
    pub fn at(address: String) -> ApiOptions {
        ApiOptions { api: address, token_file: None }
    }

    /// A client; nothing is asked yet.
    pub fn client(&self) -> anyhow::Result<Client> {
        let token = match &self.token_file {
            Some(path) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("token file {}", path.display()))?;
                Some(text.trim().to_owned())
            }
            None => None,
        };
        Client::of(&self.api, token)
    }
}

/// The path of a volume, whatever its name.
pub fn volume_path(name: &str, rest: &str) -> String {
    format!("/v1/volumes/{}{rest}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}
