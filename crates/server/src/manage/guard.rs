//! Who may use the management API: bearers of its token, or who is on the same machine and no web page of somebody else.
//!
//! Source: RFC 6750 (bearer tokens). Without a token the API listens on loopback or a Unix socket only. Web pages reach
//! loopback too: by a name that they make resolve to it (DNS rebinding), which the `Host` header gives away, or by sending
//! requests whose answers they cannot read, which the `Origin` header gives away. Who is signed in sends a cookie in the token's place;
//! since a browser sends that by itself, what changes something must then come from this server's own page. Who bears the token for
//! reading may look at everything and change nothing.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use parking_lot::RwLock;
use subtle::ConstantTimeEq;

use super::page;
use super::sessions::{Right, Sessions};
use crate::front::uri_parts::split_host;

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
    /// The token of those who may change something; where there is none, everybody may.
    pub token: Option<RwLock<String>>,
    /// The token of those who may only look.
    pub read_token: Option<RwLock<String>>,
    /// Whether the `Host` header must name this machine.
    pub checks_host: bool,
    /// Those who are signed in to the page.
    pub sessions: Sessions,
}

/// Where one signs in and out.
const SESSION: &str = "/v1/session";

/// What anybody may ask for, who may reach the server at all: there is nothing in it, or it is how one signs in.
pub(super) fn is_open(method: &Method, path: &str) -> bool {
    ["/healthz", "/readyz"].contains(&path) || page::is_of_page(path) || (path == SESSION && method != Method::DELETE)
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
        let is_elsewhere =
            |origin: &HeaderValue| !origin.to_str().ok().zip(host).is_some_and(|(origin, host)| is_same(origin, host));
        let of_other_site = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
        if !method.is_safe() && (of_other_site || headers.get(ORIGIN).is_some_and(is_elsewhere)) {
            let error = "requests from other web pages are refused".to_owned();
            return Err(Refusal { status: StatusCode::FORBIDDEN, error });
        }
        if is_open(method, uri.path()) {
            return Ok(());
        }
        let forbidden = |error: &str| Err(Refusal { status: StatusCode::FORBIDDEN, error: error.to_owned() });
        let (right, by_cookie) = match (self.right_of_bearer(headers), self.sessions.right_of(headers)) {
            (Some(right), _) => (right, false),
            (None, Some(right)) => (right, true),
            (None, None) => {
                let error = "a token is needed, as the header 'Authorization: Bearer TOKEN'".to_owned();
                return Err(Refusal { status: StatusCode::UNAUTHORIZED, error });
            }
        };
        if method.is_safe() {
            return Ok(());
        }
        let same_site = headers.get("sec-fetch-site").is_some_and(|site| site == "same-origin");
        if by_cookie && !same_site && !headers.contains_key(ORIGIN) {
            return forbidden("a change that bears a cookie must come from the server's own page");
        }
        if right == Right::Look && uri.path() != SESSION {
            return forbidden("this token is for looking; what changes something needs the other one");
        }
        Ok(())
    }

    /// What somebody who sends these headers may do; none where a token is needed.
    pub fn right_of(&self, headers: &HeaderMap) -> Option<Right> {
        self.right_of_bearer(headers).or_else(|| self.sessions.right_of(headers))
    }

    /// What the bearer of this token may do; where none is asked for, everybody may do everything.
    pub fn right_of_token(&self, given: &[u8]) -> Option<Right> {
        // Takes as long wherever the first wrong byte is.
        let is = |token: &RwLock<String>| bool::from(given.ct_eq(token.read().as_bytes()));
        match (&self.token, &self.read_token) {
            (None, _) => Some(Right::Change),
            (Some(token), _) if is(token) => Some(Right::Change),
            (Some(_), Some(read_token)) if is(read_token) => Some(Right::Look),
            _ => None,
        }
    }

    fn right_of_bearer(&self, headers: &HeaderMap) -> Option<Right> {
        if self.token.is_none() {
            return Some(Right::Change);
        }
        let (scheme, given) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked("Bearer ".len())?;
        if scheme.eq_ignore_ascii_case(b"Bearer ") { self.right_of_token(given) } else { None }
    }
}

/// Whether a `Host` header names this machine, in words or as an address, with or without a port.
fn is_this_machine(host: &str) -> bool {
    let (name, _) = split_host(host).unwrap_or_default();
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

    fn guard(token: Option<&str>) -> Guard {
        let read_token = token.map(|_| RwLock::new("peep".to_owned()));
        let token = token.map(|token| RwLock::new(token.to_owned()));
        Guard { checks_host: token.is_none(), token, read_token, sessions: Sessions::default() }
    }

    fn check(guard: &Guard, method: Method, path: &str, headers: &[(&'static str, &str)]) -> u16 {
        let headers = headers.iter().map(|(name, value)| {
            (axum::http::HeaderName::from_static(name), axum::http::HeaderValue::from_str(value).unwrap())
        });
        let checked = guard.check(&method, &path.parse().unwrap(), &headers.collect());
        checked.map_or_else(|refusal| refusal.status.as_u16(), |()| 200)
    }

    #[test]
    fn only_names_of_this_machine_pass_where_there_is_no_token() {
        let guard = guard(None);
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
        let guard = guard(Some("sesame"));
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
    fn a_cookie_stands_for_the_token_on_the_own_page() {
        let guard = guard(Some("sesame"));
        let set = guard.sessions.begin(Right::Change).unwrap();
        let cookie = set.split_once(';').unwrap().0;
        let from = |method, more: &[(&'static str, &str)]| {
            check(&guard, method, "/v1/flush", &[&[("host", "nas:9470"), ("cookie", cookie)], more].concat())
        };
        assert_eq!(from(Method::GET, &[]), 200);
        assert_eq!(from(Method::POST, &[]), 403);
        assert_eq!(from(Method::POST, &[("sec-fetch-site", "same-origin")]), 200);
        assert_eq!(from(Method::POST, &[("sec-fetch-site", "cross-site")]), 403);
        assert_eq!(from(Method::POST, &[("origin", "https://nas:9470")]), 200);
        assert_eq!(from(Method::POST, &[("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")]), 403);
        assert_eq!(check(&guard, Method::GET, "/v1/status", &[("cookie", "flashwise=0")]), 401);
        for (method, path, status) in [
            (Method::GET, "/", 200),
            (Method::GET, "/page/app.mjs", 200),
            (Method::GET, "/v1/session", 200),
            (Method::POST, "/v1/session", 200),
            (Method::DELETE, "/v1/session", 401),
            (Method::GET, "/v1/events", 401),
            (Method::GET, "/pages", 401),
        ] {
            assert_eq!(check(&guard, method, path, &[]), status, "{path}");
        }
    }

    #[test]
    fn who_may_look_changes_nothing() {
        let guard = guard(Some("sesame"));
        let set = guard.sessions.begin(Right::Look).unwrap();
        let cookie = ("cookie", set.split_once(';').unwrap().0);
        let same_site = ("sec-fetch-site", "same-origin");
        for sent in [&[("authorization", "Bearer peep")][..], &[cookie, same_site]] {
            for method in [Method::POST, Method::PATCH, Method::DELETE, Method::PUT] {
                assert_eq!(check(&guard, method, "/v1/volumes/one", sent), 403);
            }
            for path in ["/v1/status", "/metrics", "/v1/events", "/openapi.json"] {
                assert_eq!(check(&guard, Method::GET, path, sent), 200, "{path}");
                assert_eq!(check(&guard, Method::HEAD, path, sent), 200, "{path}");
            }
            assert_eq!(check(&guard, Method::DELETE, SESSION, sent), 200);
        }
        // Who has signed in to look, and bears the other token, may change.
        assert_eq!(check(&guard, Method::POST, "/v1/flush", &[cookie, ("authorization", "Bearer sesame")]), 200);
        assert_eq!(check(&guard, Method::GET, "/v1/status", &[("authorization", "Bearer peek")]), 401);
    }

    #[test]
    fn pages_from_elsewhere_change_nothing() {
        let guard = guard(None);
        let from = |method, origin: &str| {
            check(&guard, method, "/v1/flush", &[("host", "localhost:9470"), ("origin", origin)])
        };
        assert_eq!(from(Method::POST, "http://localhost:9470"), 200);
        assert_eq!(from(Method::POST, "http://localhost:80"), 403);
        assert_eq!(from(Method::PATCH, "http://evil.example"), 403);
        assert_eq!(from(Method::POST, "null"), 403);
        assert_eq!(from(Method::GET, "http://evil.example"), 200);
        let without_origin = [("host", "localhost:9470"), ("sec-fetch-site", "cross-site")];
        assert_eq!(check(&guard, Method::POST, "/v1/flush", &without_origin), 403);
        assert_eq!(check(&guard, Method::GET, "/v1/flush", &without_origin), 200);
    }
}
