//! Browser sessions: a page sends a token or the code of its address once, and receives a cookie for later requests.
//!
//! The cookie is a random number of 256 bits. The server stores only its hash, for twelve hours. Scripts cannot read it
//! (`HttpOnly`), and browsers do not send it with requests from other sites (`SameSite=Strict`). Its name is unique to
//! this process, because browsers share cookies among all ports of a machine.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use parking_lot::Mutex;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};

/// How long a page is signed in.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// How long the address of a page can be opened.
pub const ADDRESS_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// Most pages that are signed in, and most addresses that can be opened; the oldest goes first.
const SECRETS_MAX: usize = 256;

type Hash = [u8; 32];

/// A permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Read-only access.
    Look,
    /// Full access.
    Change,
}

impl Right {
    /// The key of the configuration whose token has this permission.
    pub fn token(self) -> &'static str {
        match self {
            Right::Look => "the token of read-token-file",
            Right::Change => "the token of token-file",
        }
    }
}

/// Issued random numbers, by their hashes: time of issue, permission, name of the owner.
#[derive(Debug)]
struct Secrets {
    lifetime: Duration,
    given: Mutex<HashMap<Hash, (Instant, Right, String)>>,
}

impl Secrets {
    fn new(lifetime: Duration) -> Secrets {
        Secrets { lifetime, given: Mutex::default() }
    }

    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    fn give(&self, right: Right, name: &str) -> io::Result<String> {
        let mut random = [0; 32];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let secret = crate::hex(&random);
        let mut given = self.given.lock();
        given.retain(|_, (since, ..)| since.elapsed() < self.lifetime);
        if given.len() == SECRETS_MAX
            && let Some(oldest) = given.iter().min_by_key(|(_, (since, ..))| *since).map(|(hash, _)| *hash)
        {
            given.remove(&oldest);
        }
        given.insert(hash(&secret), (Instant::now(), right, name.to_owned()));
        Ok(secret)
    }

    fn find(&self, secret: &str) -> Option<(Right, String)> {
        let given = self.given.lock();
        let (since, right, name) = given.get(&hash(secret))?;
        (since.elapsed() < self.lifetime).then(|| (*right, name.clone()))
    }

    fn take(&self, secret: &str) -> Option<(Right, String)> {
        let (since, right, name) = self.given.lock().remove(&hash(secret))?;
        (since.elapsed() < self.lifetime).then_some((right, name))
    }
}

/// The pages that are signed in, and the addresses that sign one in.
#[derive(Debug)]
pub struct Sessions {
    /// The cookie's name.
    name: String,
    begun: Secrets,
    addresses: Secrets,
}

impl Default for Sessions {
    /// There are none.
    fn default() -> Sessions {
        let own = RandomState::new().build_hasher().finish();
        let (begun, addresses) = (Secrets::new(LIFETIME), Secrets::new(ADDRESS_LIFETIME));
        Sessions { name: format!("flashwise-{own:016x}"), begun, addresses }
    }
}

impl Sessions {
    /// Starts a session of `owner`; returns its `Set-Cookie` header.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn begin(&self, right: Right, owner: &str) -> io::Result<String> {
        let (name, cookie, seconds) = (&self.name, self.begun.give(right, owner)?, LIFETIME.as_secs());
        Ok(format!("{name}={cookie}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict"))
    }

    /// A code that signs a page of `owner` in, once and soon.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn invite(&self, right: Right, owner: &str) -> io::Result<String> {
        self.addresses.give(right, owner)
    }

    /// Signs a page in by such a code, as [`begin`](Self::begin); none if the code was used, is too old or never was
    /// one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn accept(&self, code: &str) -> io::Result<Option<String>> {
        let Some((right, owner)) = self.addresses.take(code) else { return Ok(None) };
        self.begin(right, &owner).map(Some)
    }

    /// The right of the page that sent this request, and its owner's name, if it is signed in.
    pub fn signed_in(&self, headers: &HeaderMap) -> Option<(Right, String)> {
        self.cookies(headers).find_map(|cookie| self.begun.find(cookie))
    }

    /// Ends the session of this request; returns the `Set-Cookie` header that deletes the cookie.
    pub fn end(&self, headers: &HeaderMap) -> String {
        for cookie in self.cookies(headers) {
            self.begun.take(cookie);
        }
        format!("{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict", self.name)
    }

    fn cookies<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let values = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.filter(|&(name, _)| name == self.name).map(|(_, cookie)| cookie)
    }

    /// Signs every page out: a token is another one.
    pub fn end_all(&self) {
        self.begun.given.lock().clear();
        self.addresses.given.lock().clear();
    }
}

fn hash(cookie: &str) -> Hash {
    Sha256::digest(cookie).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, cookie.parse().unwrap())])
    }

    /// The other server is on another port of the same machine, in the same browser.
    #[test]
    fn another_server_does_not_end_sessions() {
        let [one, other] = [Sessions::default(), Sessions::default()];
        let [of_one, of_other] = [&one, &other].map(|sessions| sessions.begin(Right::Change, "me").unwrap());
        let [(own, own_value), (others, others_value)] =
            [&of_one, &of_other].map(|set| set.split_once(';').unwrap().0.split_once('=').unwrap());
        assert_ne!(own, others);
        let both = sent(&format!("{own}={own_value}; {others}={others_value}"));
        let known = Some((Right::Change, "me".to_owned()));
        assert_eq!([one.signed_in(&both), other.signed_in(&both)], [known.clone(), known]);
    }

    #[test]
    fn a_session_lasts_until_sign_out() {
        let sessions = Sessions::default();
        let set = sessions.begin(Right::Change, "me").unwrap();
        let (cookie, attributes) = set.split_once(';').unwrap();
        assert_eq!(attributes, " Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
        let (name, secret) = cookie.split_once('=').unwrap();
        assert_eq!(secret.len(), 64);
        let right_of = |cookie: &str| sessions.signed_in(&sent(cookie)).map(|(right, _)| right);
        assert_eq!(right_of(cookie), Some(Right::Change));
        assert_eq!(right_of(&format!("other=1; {cookie}")), Some(Right::Change));
        let other = sessions.begin(Right::Look, "me").unwrap();
        assert_ne!(other, set);
        let wrong = [
            String::new(),
            format!("{name}="),
            name.to_owned(),
            format!("{name}=00"),
            format!("flashwise={secret}"),
            cookie[..cookie.len() - 1].to_owned(),
            format!("x{cookie}"),
        ];
        for wrong in &wrong {
            assert_eq!(right_of(wrong), None, "{wrong}");
        }
        sessions.end(&sent(cookie));
        assert_eq!(right_of(cookie), None);
        let other = other.split_once(';').unwrap().0;
        assert_eq!(right_of(other), Some(Right::Look));
        sessions.end_all();
        assert_eq!(right_of(other), None);
    }

    #[test]
    fn an_address_signs_one_page_in_with_the_right_of_its_owner() {
        let sessions = Sessions::default();
        let code = sessions.invite(Right::Look, "uid 7").unwrap();
        assert_eq!(sessions.accept(&code[1..]).unwrap(), None);
        let set = sessions.accept(&code).unwrap().unwrap();
        let cookie = set.split_once(';').unwrap().0;
        assert_eq!(sessions.signed_in(&sent(cookie)), Some((Right::Look, "uid 7".to_owned())));
        assert_eq!(sessions.accept(&code).unwrap(), None, "it was used");
        let code = sessions.invite(Right::Change, "uid 7").unwrap();
        sessions.end_all();
        assert_eq!(sessions.accept(&code).unwrap(), None, "a token is another one");
    }

    #[test]
    fn the_longest_signed_in_leave_where_there_are_too_many() {
        let sessions = Sessions::default();
        let all: Vec<String> = (0..=SECRETS_MAX).map(|_| sessions.begin(Right::Change, "me").unwrap()).collect();
        let known = |set: &String| sessions.signed_in(&sent(set.split_once(';').unwrap().0)).is_some();
        assert!(!known(&all[0]));
        assert!(all[1..].iter().all(known));
    }
}
