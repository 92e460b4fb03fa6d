//! Access control of the management API: by the user of its Unix socket, by a token, or by the cookie of a page.
//!
//! Source: RFC 6750 (bearer tokens), unix(7) (SO_PEERCRED). Over the Unix socket, root and the server's own user may do
//! everything. Over TCP, every user of the machine can connect, so a request needs a token or a session cookie.
//!
//! Foreign web pages reach loopback, too. With DNS rebinding, their own name resolves to it; the `Host` header shows
//! that. Or they send requests whose answers they cannot read; the `Origin` header shows that. A browser adds cookies
//! automatically, so a change with a cookie must come from this server's own page. The read-only token shows everything
//! and changes nothing.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use parking_lot::{Mutex, RwLock};
use subtle::ConstantTimeEq;

use super::page;
use super::sessions::{Right, Sessions};
use crate::front::uri_parts::split_host;
use crate::limits::Repeated;

/// Why a request may not be made.
#[derive(Debug)]
pub struct Refusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// The value found and the value expected.
    pub error: String,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// A process of this machine, over the API's Unix socket; `None` if the system does not identify it.
    Unix(Option<Process>),
    /// Over TCP, from this address.
    Tcp(SocketAddr),
}

/// A process of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// Its user.
    pub uid: u32,
    /// Its number, if it is seen from here.
    pub pid: Option<i32>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Unix(Some(Process { uid, pid: Some(pid) })) => write!(f, "uid {uid} (pid {pid})"),
            Peer::Unix(Some(Process { uid, pid: None })) => write!(f, "uid {uid}"),
            Peer::Unix(None) => f.write_str("an unknown user"),
            Peer::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// The sender of a request: its permission, and its name in the log.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Its permission.
    pub right: Right,
    /// The user or the token, such as `uid 0` or `admin (token-file)`.
    pub owner: String,
    /// Its address, over TCP.
    pub address: Option<IpAddr>,
    /// True if the permission comes from a cookie, which a browser adds automatically.
    pub by_cookie: bool,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.owner)?;
        self.address.iter().try_for_each(|address| write!(f, ", from {address}"))?;
        if self.by_cookie { f.write_str(", on the page") } else { Ok(()) }
    }
}

/// The credentials that requests are held to.
#[derive(Debug)]
pub struct Guard {
    /// The token for changes, if there is one.
    pub token: Option<RwLock<String>>,
    /// The token for reading, if there is one.
    pub read_token: Option<RwLock<String>>,
    /// The server's own user.
    pub owner: u32,
    /// The pages that are signed in.
    pub sessions: Sessions,
    /// Changes that were refused or failed.
    pub refused: Mutex<Repeated>,
}

/// The path of requests that sign in and out.
const SESSION: &str = "/v1/session";
/// Where the address of a page is asked for, which has the right of the request.
const PAGE: &str = "/v1/page";

/// True for health checks, which anybody may make.
pub(super) fn is_health(path: &str) -> bool {
    ["/healthz", "/readyz"].contains(&path)
}

/// True for requests that need no credential: they reveal nothing about the server, or sign in.
pub(super) fn is_open(method: &Method, path: &str) -> bool {
    is_health(path) || page::is_of_page(path) || (path == SESSION && method != Method::DELETE)
}

impl Guard {
    /// The sender of a request that may be made; none if the request needs no credential.
    ///
    /// # Errors
    /// The request may not be made.
    pub fn check(
        &self,
        peer: &Peer,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Option<Caller>, Refusal> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let forbidden = |error: String| Err(Refusal { status: StatusCode::FORBIDDEN, error });
        let checks_host = self.token.is_none() && matches!(peer, Peer::Tcp(_));
        if checks_host && !host.is_some_and(is_this_machine) {
            let found = host.map_or("none".to_owned(), |host| format!("'{}'", host.escape_debug()));
            return forbidden(format!("Host header: found {found}, expected localhost or a loopback address"));
        }
        let is_elsewhere =
            |origin: &HeaderValue| !origin.to_str().ok().zip(host).is_some_and(|(origin, host)| is_same(origin, host));
        let of_other_site = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
        if !method.is_safe() && (of_other_site || headers.get(ORIGIN).is_some_and(is_elsewhere)) {
            return forbidden("requests from other web pages are refused".to_owned());
        }
        if is_open(method, uri.path()) {
            return Ok(None);
        }
        let Some(client) = self.client(peer, headers) else { return Err(self.refusal(peer)) };
        if method.is_safe() {
            return Ok(Some(client));
        }
        let same_site = headers.get("sec-fetch-site").is_some_and(|site| site == "same-origin");
        if client.by_cookie && !same_site && !headers.contains_key(ORIGIN) {
            return forbidden("a change with a cookie must come from the server's own page".to_owned());
        }
        if client.right == Right::Look && ![SESSION, PAGE].contains(&uri.path()) {
            return forbidden("this token is read-only; a change needs the token for changes".to_owned());
        }
        Ok(Some(client))
    }

    fn refusal(&self, peer: &Peer) -> Refusal {
        match (&self.token, peer) {
            (Some(_), _) => Refusal {
                status: StatusCode::UNAUTHORIZED,
                error: "a token is needed, as the header 'Authorization: Bearer TOKEN'".to_owned(),
            },
            (None, Peer::Tcp(_)) => Refusal {
                status: StatusCode::UNAUTHORIZED,
                error: "open the page by the address that `flashwise page` prints".to_owned(),
            },
            (None, Peer::Unix(_)) => Refusal {
                status: StatusCode::FORBIDDEN,
                error: format!("found {peer}, expected root or the server's own user, uid {}", self.owner),
            },
        }
    }

    /// Returns the sender of a request with these headers, or `None` without a valid credential. A request with a token
    /// is judged only by that, so a wrong token is refused.
    pub fn client(&self, peer: &Peer, headers: &HeaderMap) -> Option<Caller> {
        let client = |right, owner: String, by_cookie| {
            let address = if let Peer::Tcp(address) = peer { Some(address.ip().to_canonical()) } else { None };
            Some(Caller { right, owner, address, by_cookie })
        };
        if self.token.is_some()
            && let Some(given) = headers.get(AUTHORIZATION)
        {
            let (scheme, given) = given.as_bytes().split_at_checked("Bearer ".len())?;
            let right = scheme.eq_ignore_ascii_case(b"Bearer ").then(|| self.right_of_token(given)).flatten()?;
            return client(right, right.token_owner().to_owned(), false);
        }
        match peer {
            Peer::Unix(Some(Process { uid, .. })) if [0, self.owner].contains(uid) => {
                client(Right::Change, peer.to_string(), false)
            }
            _ => {
                let (right, owner) = self.sessions.signed_in(headers)?;
                client(right, owner, true)
            }
        }
    }

    /// The right that a token gives, if it is one of the API's.
    pub fn right_of_token(&self, given: &[u8]) -> Option<Right> {
        // Takes as long wherever the first wrong byte is.
        let is = |token: &Option<RwLock<String>>| {
            token.as_ref().is_some_and(|token| given.ct_eq(token.read().as_bytes()).into())
        };
        match (is(&self.token), is(&self.read_token)) {
            (true, _) => Some(Right::Change),
            (false, true) => Some(Right::Look),
            (false, false) => None,
        }
    }
}

/// True if a `Host` header names this machine, by name or address, with or without a port.
fn is_this_machine(host: &str) -> bool {
    let (name, _) = split_host(host).unwrap_or_default();
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(is_loopback)
}

/// True if packets to this address stay on this machine.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn is_same(origin: &str, host: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, of_page)| of_page.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 1000;

    fn guard(token: Option<&str>) -> Guard {
        let read_token = token.map(|_| RwLock::new("peep".to_owned()));
        let token = token.map(|token| RwLock::new(token.to_owned()));
        Guard {
            token,
            read_token,
            owner: OWNER,
            sessions: Sessions::new(crate::manage::Tokens::default(), None),
            refused: Mutex::default(),
        }
    }

    fn tcp() -> Peer {
        Peer::Tcp(([127, 0, 0, 1], 40_000).into())
    }

    fn unix(uid: u32) -> Peer {
        Peer::Unix(Some(Process { uid, pid: Some(7) }))
    }

    fn check(guard: &Guard, method: Method, path: &str, headers: &[(&'static str, &str)]) -> u16 {
        check_of(&tcp(), guard, method, path, headers)
    }

    fn check_of(peer: &Peer, guard: &Guard, method: Method, path: &str, headers: &[(&'static str, &str)]) -> u16 {
        let headers = headers.iter().map(|(name, value)| {
            (axum::http::HeaderName::from_static(name), axum::http::HeaderValue::from_str(value).unwrap())
        });
        let checked = guard.check(peer, &method, &path.parse().unwrap(), &headers.collect());
        checked.map_or_else(|refusal| refusal.status.as_u16(), |_| 200)
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
            assert_eq!(check(&guard, Method::GET, "/healthz", &[("host", host)]), status, "{host}");
        }
        assert_eq!(check(&guard, Method::GET, "/healthz", &[]), 403);
    }

    #[test]
    fn root_and_the_own_user_may_do_everything_over_the_unix_socket_and_others_nothing() {
        for token in [None, Some("sesame")] {
            let guard = guard(token);
            for (peer, status) in [(unix(0), 200), (unix(OWNER), 200), (unix(65534), 403), (Peer::Unix(None), 403)] {
                let refused = if token.is_some() && status != 200 { 401 } else { status };
                assert_eq!(check_of(&peer, &guard, Method::GET, "/v1/status", &[]), refused, "{peer}");
                assert_eq!(check_of(&peer, &guard, Method::POST, "/v1/disks/wipe", &[]), refused, "{peer}");
                assert_eq!(check_of(&peer, &guard, Method::GET, "/healthz", &[]), 200, "{peer}");
            }
            // A token takes precedence over a cookie.
            let wrong = [("authorization", "Bearer sesam")];
            let expected = if token.is_some() { 401 } else { 200 };
            assert_eq!(check_of(&unix(0), &guard, Method::GET, "/v1/status", &wrong), expected);
        }
        assert_eq!(
            check_of(
                &unix(7),
                &guard(Some("sesame")),
                Method::POST,
                "/v1/flush",
                &[("authorization", "Bearer sesame")]
            ),
            200
        );
        assert_eq!(check(&guard(None), Method::GET, "/v1/status", &[("host", "localhost")]), 401);
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
        let set = guard.sessions.begin(Right::Change, "me").unwrap();
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
    fn a_read_only_client_changes_nothing() {
        let guard = guard(Some("sesame"));
        let set = guard.sessions.begin(Right::Look, "me").unwrap();
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
        // A request with a read-only session and the other token may change settings.
        assert_eq!(check(&guard, Method::POST, "/v1/flush", &[cookie, ("authorization", "Bearer sesame")]), 200);
        assert_eq!(check(&guard, Method::GET, "/v1/status", &[("authorization", "Bearer peek")]), 401);
    }

    #[test]
    fn pages_from_elsewhere_change_nothing() {
        let guard = guard(None);
        let check = |method, headers: &[(&'static str, &str)]| check_of(&unix(0), &guard, method, "/v1/flush", headers);
        let from = |method, origin: &str| check(method, &[("host", "localhost:9470"), ("origin", origin)]);
        assert_eq!(from(Method::POST, "http://localhost:9470"), 200);
        assert_eq!(from(Method::POST, "http://localhost:80"), 403);
        assert_eq!(from(Method::PATCH, "http://evil.example"), 403);
        assert_eq!(from(Method::POST, "null"), 403);
        assert_eq!(from(Method::GET, "http://evil.example"), 200);
        let without_origin = [("host", "localhost:9470"), ("sec-fetch-site", "cross-site")];
        assert_eq!(check(Method::POST, &without_origin), 403);
        assert_eq!(check(Method::GET, &without_origin), 200);
    }
}
