//! A client of a running server's management API, over TCP or a Unix socket.

mod unix;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use flashwise_server::manage::DEFAULT_ADDRESS;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use ureq::Agent;
use ureq::http::{Request, Response};
use ureq::unversioned::resolver::DefaultResolver;

use crate::failure::Misuse;

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

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    agent: Agent,
    address: String,
    /// What paths are appended to.
    base: String,
    token: Option<String>,
}

/// Largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

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
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .build();
        let address = self.api.clone();
        if let Some(path) = address.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(
                    Misuse("--api: found 'unix:' without the path of a socket, expected unix:PATH".to_owned()).into()
                );
            }
            let agent = Agent::with_parts(config, unix::UnixConnector::new(path.into()), DefaultResolver::default());
            // Numbers need no resolver; the connector goes to the socket.
            return Ok(Client { agent, address, base: "http://127.0.0.1".to_owned(), token });
        }
        let host = address.strip_prefix("http://").unwrap_or(&address).trim_end_matches('/');
        let base = format!("http://{host}");
        if host.is_empty() || base.parse::<ureq::http::Uri>().is_err() || host.contains('/') {
            let problem = format!("--api: found '{address}', expected HOST:PORT or unix:PATH");
            return Err(Misuse(problem).into());
        }
        Ok(Client { agent: Agent::new_with_config(config), base, address, token })
    }
}

impl Client {
    /// Asks for what is at a path.
    pub fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask("GET", path, None)
    }

    /// Has something done.
    pub fn post(&self, path: &str) -> anyhow::Result<Value> {
        self.ask("POST", path, None)
    }

    /// Changes something.
    pub fn patch(&self, path: &str, change: &Value) -> anyhow::Result<Value> {
        self.ask("PATCH", path, Some(change))
    }

    /// Has something done that this method stands for; null is no body.
    pub fn send(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.ask(method, path, (!body.is_null()).then_some(body))
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(body).with_context(|| format!("asking {} for {path}", self.address))?;
        let response = self.agent.run(request).map_err(|error| self.unreachable(error))?;
        self.answer(response)
    }

    fn unreachable(&self, error: ureq::Error) -> anyhow::Error {
        let address = &self.address;
        match error {
            ureq::Error::Io(error) => anyhow::anyhow!(
                "{address}: no answer from a server: {error}; is `flashwise serve` running, with its API there (see --api)?"
            ),
            error => anyhow::anyhow!("{address}: {error}"),
        }
    }

    fn answer(&self, mut response: Response<ureq::Body>) -> anyhow::Result<Value> {
        let status = response.status();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(|error| anyhow::anyhow!("{}: reading the answer: {error}", self.address))?;
        let json: Option<Value> = if text.is_empty() { Some(Value::Null) } else { serde_json::from_str(&text).ok() };
        if status.is_success() {
            return json.with_context(|| format!("{}: the answer is no JSON; is this flashwise's API?", self.address));
        }
        let told = json.as_ref().and_then(|json| json.get("error")).and_then(Value::as_str);
        match (told, status.as_u16()) {
            (told, 401) => {
                let told = told.unwrap_or("the server wants a token");
                bail!("{}: {told}; give it with --token-file", self.address)
            }
            (Some(told), _) => bail!("{told}"),
            (None, status) => bail!("{}: found status {status}; is this flashwise's API?", self.address),
        }
    }
}

/// The path of a volume, whatever its name.
pub fn volume_path(name: &str, rest: &str) -> String {
    format!("/v1/volumes/{}{rest}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}
