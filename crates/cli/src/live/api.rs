//! Requests to a running server over its management API. The client is built with the feature `http`.

#[cfg(feature = "http")]
mod client;
#[cfg(not(feature = "http"))]
mod missing;

#[cfg(feature = "http")]
use client as built;
#[cfg(not(feature = "http"))]
use missing as built;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use flashwise_server::config::ServerConfig;
use flashwise_server::manage::find_default_socket;
use flashwise_server::secret;
use flashwise_storage::attach::stores::default_state_directory;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::failure::Misuse;

pub use built::ApiClient;

/// The default configuration of a server.
pub const DEFAULT_CONFIG: &str = "/etc/flashwise/flashwise.toml";

/// Options that locate the server.
#[derive(Clone, Debug, Args)]
pub struct ApiOptions {
    /// Address of the server's API: HOST:PORT or unix:PATH [default: that of the running server or of
    /// /etc/flashwise/flashwise.toml]
    #[arg(long, value_name = "ADDRESS")]
    api: Option<String>,
    /// File with the token for the API
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl ApiOptions {
    /// The options for an API at `address` without a token.
    pub fn at(address: String) -> ApiOptions {
        ApiOptions { api: Some(address), token_file: None }
    }

    /// Returns a client; it has not connected yet.
    pub fn client(&self) -> anyhow::Result<ApiClient> {
        let (address, token_file) = match &self.api {
            Some(address) => (address.clone(), None),
            None => find()?,
        };
        let token = match self.token_file.as_ref().or(token_file.as_ref()) {
            Some(path) => {
                let text = secret::read(path).with_context(|| format!("token file {}", path.display()))?;
                Some(text.trim().to_owned())
            }
            None => None,
        };
        ApiClient::of(&address, token)
    }
}

/// Finds the server of this machine: its address and its token file, if any.
fn find() -> anyhow::Result<(String, Option<PathBuf>)> {
    if let Some(socket) = find_default_socket(&default_state_directory()) {
        return Ok((format!("unix:{}", socket.display()), None));
    }
    let configured = Path::new(DEFAULT_CONFIG).exists().then(|| ServerConfig::read_alone(Path::new(DEFAULT_CONFIG)));
    match configured.transpose().context("--api is not given")? {
        Some(config) if config.api.address().is_some() => Ok((config.api.listen, config.api.token_file)),
        _ => {
            let what = "found no running server with the default socket; give --api unix:PATH or HOST:PORT, which \
                flashwise serve \
                        prints at start";
            Err(Misuse(what.to_owned()).into())
        }
    }
}

/// Returns the escaped API path of a volume.
pub fn volume_path(name: &str, rest: &str) -> String {
    format!("/v1/volumes/{}{rest}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}
