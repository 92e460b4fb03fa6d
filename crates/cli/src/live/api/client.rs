//! A client of a running server's management API, over TCP or a Unix socket.

mod unix;

use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use ureq::Agent;
use ureq::http::{Request, Response};
use ureq::unversioned::resolver::DefaultResolver;

use crate::failure::Misuse;

/// A connection to a server.
#[derive(Debug)]
pub struct ApiClient {
    agent: Agent,
    address: String,
    /// Start of every URI.
    base: String,
    token: Option<String>,
}

/// Largest accepted answer.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Time for an answer to a GET. Other requests may take as long as the devices need.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

impl ApiClient {
    /// Returns a client for the server at an address.
    pub fn of(address: &str, token: Option<String>) -> anyhow::Result<ApiClient> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIME_MAX))
            .build();
        let address = address.to_owned();
        if let Some(path) = address.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(
                    Misuse("--api: found 'unix:' without the path of a socket, expected unix:PATH".to_owned()).into()
                );
            }
            let agent = Agent::with_parts(config, unix::UnixConnector::new(path.into()), DefaultResolver::default());
            // An IP address needs no resolver, and the connector ignores it.
            return Ok(ApiClient { agent, address, base: "http://127.0.0.1".to_owned(), token });
        }
        let host = address.strip_prefix("http://").unwrap_or(&address).trim_end_matches('/');
        let base = format!("http://{host}");
        if host.is_empty() || base.parse::<ureq::http::Uri>().is_err() || host.contains('/') {
            let problem = format!("--api: found '{address}', expected HOST:PORT or unix:PATH");
            return Err(Misuse(problem).into());
        }
        Ok(ApiClient { agent: Agent::new_with_config(config), base, address, token })
    }

    /// Sends a GET request.
    pub fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask("GET", path, None)
    }

    /// Sends a POST request.
    pub fn post(&self, path: &str) -> anyhow::Result<Value> {
        self.ask("POST", path, None)
    }

    /// Sends a PATCH request.
    pub fn patch(&self, path: &str, change: &Value) -> anyhow::Result<Value> {
        self.ask("PATCH", path, Some(change))
    }

    /// Sends a request with any method; null is no body.
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
        let time_max = (method == "GET").then_some(ANSWER_TIME_MAX);
        let request = self.agent.configure_request(request).timeout_recv_response(time_max).build();
        let response = self.agent.run(request).map_err(|error| self.unreachable(error))?;
        self.answer(response)
    }

    fn unreachable(&self, error: ureq::Error) -> anyhow::Error {
        use std::io::ErrorKind::{PermissionDenied, TimedOut, WouldBlock};
        let address = &self.address;
        let is_late = |error: &std::io::Error| matches!(error.kind(), TimedOut | WouldBlock);
        match error {
            ureq::Error::Io(error) if is_late(&error) => self.late(),
            ureq::Error::Timeout(ureq::Timeout::RecvResponse) => self.late(),
            ureq::Error::Io(error) if error.kind() == PermissionDenied => {
                anyhow::anyhow!("{address}: {error}; run this as the server's user or as root")
            }
            ureq::Error::Io(error) => anyhow::anyhow!(
                "{address}: no server: {error}; check that `flashwise serve` runs with its API there (--api)"
            ),
            error => anyhow::anyhow!("{address}: {error}"),
        }
    }

    fn late(&self) -> anyhow::Error {
        let seconds = ANSWER_TIME_MAX.as_secs();
        anyhow::anyhow!(
            "{}: no answer within {seconds} s; check that this is flashwise's API and that the server is healthy",
            self.address
        )
    }

    fn answer(&self, mut response: Response<ureq::Body>) -> anyhow::Result<Value> {
        let status = response.status();
        let text = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(|error| anyhow::anyhow!("{}: reading the answer: {error}", self.address))?;
        let json: Option<Value> = if text.is_empty() { Some(Value::Null) } else { serde_json::from_str(&text).ok() };
        if status.is_success() {
            return json.with_context(|| {
                format!("{}: the answer is not JSON; check that this is flashwise's API", self.address)
            });
        }
        let error = json.as_ref().and_then(|json| json.get("error")).and_then(Value::as_str);
        match (error, status.as_u16()) {
            (error, 401) => {
                let error = error.unwrap_or("the server requires a token");
                bail!("{}: {error}; give it with --token-file", self.address)
            }
            // Unknown names and bad requests are misuse; a refusal for now is not.
            (Some(error), 400 | 404 | 422) => Err(Misuse(error.to_owned()).into()),
            (Some(error), _) => bail!("{error}"),
            (None, status) => bail!("{}: found status {status}; check that this is flashwise's API", self.address),
        }
    }
}
