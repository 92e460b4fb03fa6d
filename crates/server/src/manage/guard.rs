//! Who may use the management API: bearers of its token, or who is on the same machine and no web page of somebody else.
//!
//! Source: RFC 6750 (bearer tokens). Without a token the API listens on loopback or a Unix socket only. Web pages reach
//! loopback too: by a name that they make resolve to it (DNS rebinding), which the `Host` header gives away, or by sending
//! requests whose answers they cannot read, which the `Origin` header gives away.

use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use subtle::ConstantTimeEq;

/// Why a request may not be made.
#[derive(Debug)]
pub struct Refusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// What was found and what was expected, for people.
    pub error: String,
}

/// What is asked of those who send requests.
#[derive(Debug)]
pub struct Guard {
    /// The token that requests must bear.
    pub token: Option<RwLock<String>>,
    /// Whether the `Host` header must name this machine.
    pub checks_host: bool,
}

impl Guard {
    /// Refuses a request that may not be made.
    pub fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        if self.checks_host && !host.is_some_and(is_this_machine) {
            let found = host.map_or("none".to_owned(), |host| format!("'{}'", host.escape_debug()));
            let error = format!("Host header: found {found}, expected localhost or a loopback address");
            return Err(Refusal { status: StatusCode::FORBIDDEN, error });
        }
        if !method.is_safe()
            && let Some(origin) = headers.get(ORIGIN)
            && !origin.to_str().ok().zip(host).is_some_and(|(origin, host)| is_same(origin, host))
        {
            let error = "requests from other web pages are refused".to_owned();
            return Err(Refusal { status: StatusCode::FORBIDDEN, error });
        }
        if ["/healthz", "/readyz"].contains(&uri.path()) || self.bears_token(headers) {
            return Ok(());
        }
        let error = "a token is needed, as the header 'Authorization: Bearer TOKEN'".to_owned();
        Err(Refusal { status: StatusCode::UNAUTHORIZED, error })
    }

    fn bears_token(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes()).and_then(|value| {
            let (scheme, given) = value.split_at_checked("Bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"Bearer ").then_some(given)
        });
        // Takes as long wherever the first wrong byte is.
        let token = token.read().unwrap_or_else(PoisonError::into_inner);
        given.is_some_and(|given| bool::from(given.ct_eq(token.as_bytes())))
    }
}

/// Whether a `Host` header names this machine, in words or as an address, with or without a port.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(address, _)| address),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(is_loopback)
}

/// Whether packets to this address stay on this machine.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn is_same(origin: &str, host: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, of_page)| of_page.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(guard: &Guard, method: Method, path: &str, headers: &[(&'static str, &str)]) -> u16 {
        let headers = headers.iter().map(|(name, value)| {
            (axum::http::HeaderName::from_static(name), axum::http::HeaderValue::from_str(value).unwrap())
        });
        let checked = guard.check(&method, &path.parse().unwrap(), &headers.collect());
        checked.map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[test]
    fn only_names_of_this_machine_pass_where_there_is_no_token() {
        let guard = Guard { token: None, checks_host: true };
        for (host, status) in [
            ("localhost", 200),
            ("LocalHost:9470", 200),
            ("127.0.0.1:80", 200),
            ("127.8.8.8", 200),
            ("[::1]:9470", 200),
            ("[::ffff:127.0.0.1]", 200),
            ("evil.example", 403),
            ("localhost.evil.example:9470", 403),
            ("127.0.0.1.evil.example", 403),
            ("192.0.2.1", 403),
            ("[2001:db8::1]", 403),
            ("[::1", 403),
            ("", 403),
        ] {
            assert_eq!(check(&guard, Method::GET, "/v1/status", &[("host", host)]), status, "{host}");
        }
        assert_eq!(check(&guard, Method::GET, "/healthz", &[]), 403);
    }

    #[test]
    fn only_the_whole_token_passes() {
        let guard = Guard { token: Some(RwLock::new("sesame".to_owned())), checks_host: false };
        for (header, status) in [
            ("Bearer sesame", 200),
            ("bearer sesame", 200),
            ("Bearer sesam", 401),
            ("Bearer sesames", 401),
            ("Bearer Sesame", 401),
            ("Bearer ", 401),
            ("Bearer", 401),
            ("Basic sesame", 401),
            ("sesame", 401),
        ] {
            assert_eq!(check(&guard, Method::GET, "/metrics", &[("authorization", header)]), status, "{header}");
        }
        assert_eq!(check(&guard, Method::GET, "/metrics", &[]), 401);
        assert_eq!(check(&guard, Method::GET, "/healthz", &[]), 200);
        assert_eq!(check(&guard, Method::GET, "/readyz", &[]), 200);
    }

    #[test]
    fn pages_from_elsewhere_change_nothing() {
        let guard = Guard { token: None, checks_host: true };
        let from = |method, origin: &str| {
            check(&guard, method, "/v1/flush", &[("host", "localhost:9470"), ("origin", origin)])
        };
        assert_eq!(from(Method::POST, "http://localhost:9470"), 200);
        assert_eq!(from(Method::POST, "http://localhost:80"), 403);
        assert_eq!(from(Method::PATCH, "http://evil.example"), 403);
        assert_eq!(from(Method::POST, "null"), 403);
        assert_eq!(from(Method::GET, "http://evil.example"), 200);
    }
}
