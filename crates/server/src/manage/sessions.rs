//! Browser sessions: a page sends a token or the code of its address once, and receives a cookie for later requests.
//!
//! The cookie is a random number of 256 bits. The server stores only its hash with the tokens, for twelve hours. A file
//! keeps it, so a restart ends no session; another token does. Scripts cannot read the cookie (`HttpOnly`), and
//! browsers do not send it with requests from other sites (`SameSite=Strict`). Its name is unique to this server,
//! because browsers share cookies among all ports of a machine.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use parking_lot::{Mutex, RwLock};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Tokens;
use crate::state::kept;

/// How long a page is signed in.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// How long the address of a page can be opened.
pub const ADDRESS_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// Most pages that are signed in, and most addresses that can be opened; the oldest goes first.
const SECRETS_MAX: usize = 256;

/// Issued random numbers, by their hashes: time of issue, permission, name of the owner.
type Given = HashMap<String, (SystemTime, Right, String)>;

/// A permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Right {
    /// Read-only access.
    Look,
    /// Full access.
    Change,
}

impl Right {
    /// The holder of the token with this permission, and the token's key in the configuration.
    pub fn token_owner(self) -> &'static str {
        match self {
            Right::Look => "viewer (read-token-file)",
            Right::Change => "admin (token-file)",
        }
    }
}

/// Issued random numbers.
#[derive(Debug)]
struct Secrets {
    lifetime: Duration,
    given: Mutex<Given>,
}

impl Secrets {
    fn new(lifetime: Duration, given: Given) -> Secrets {
        Secrets { lifetime, given: Mutex::new(given) }
    }

    fn counts(&self, since: SystemTime) -> bool {
        since.elapsed().is_ok_and(|age| age < self.lifetime)
    }

    /// Issues a number, and stores its hash.
    ///
    /// # Errors
    /// The system has no random numbers.
    fn give(&self, right: Right, owner: &str, hash: impl FnOnce(&str) -> String) -> io::Result<String> {
        let mut random = [0; 32];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let secret = crate::hex(&random);
        let mut given = self.given.lock();
        given.retain(|_, (since, ..)| self.counts(*since));
        if given.len() == SECRETS_MAX
            && let Some(oldest) = given.iter().min_by_key(|(_, (since, ..))| *since).map(|(hash, _)| hash.clone())
        {
            given.remove(&oldest);
        }
        given.insert(hash(&secret), (SystemTime::now(), right, owner.to_owned()));
        Ok(secret)
    }

    fn find(&self, hash: &str) -> Option<(Right, String)> {
        let given = self.given.lock();
        let (since, right, owner) = given.get(hash)?;
        self.counts(*since).then(|| (*right, owner.clone()))
    }

    fn take(&self, hash: &str) -> Option<(Right, String)> {
        let (since, right, owner) = self.given.lock().remove(hash)?;
        self.counts(since).then_some((right, owner))
    }
}

/// The signed-in pages in the file.
#[derive(Serialize, Deserialize)]
struct KeptSession {
    name: String,
    begun: Given,
}

/// The pages that are signed in, and the addresses that sign one in.
#[derive(Debug)]
pub struct Sessions {
    /// The cookie's name.
    name: String,
    tokens: RwLock<Tokens>,
    begun: Secrets,
    addresses: Secrets,
    file: Option<PathBuf>,
}

impl Sessions {
    /// Creates the sessions of a server with these tokens: those in the file, if any.
    pub fn new(tokens: Tokens, file: Option<PathBuf>) -> Sessions {
        // A file that cannot be read costs a sign-in.
        let kept = file.as_deref().and_then(|file| kept::read::<KeptSession>(file, "sessions").ok().flatten());
        let new = || format!("flashwise-{:016x}", RandomState::new().build_hasher().finish());
        let KeptSession { name, begun } = kept.unwrap_or_else(|| KeptSession { name: new(), begun: Given::new() });
        let (begun, addresses) = (Secrets::new(LIFETIME, begun), Secrets::new(ADDRESS_LIFETIME, Given::new()));
        Sessions { name, tokens: RwLock::new(tokens), begun, addresses, file }
    }

    /// Writes the file. A failure costs a sign-in after a restart.
    fn keep(&self) {
        if let Some(file) = &self.file {
            let kept = KeptSession { name: self.name.clone(), begun: self.begun.given.lock().clone() };
            let _ = tokio::task::block_in_place(|| kept::write(file, &kept));
        }
    }

    /// Returns the hash of a random number and the tokens.
    fn hash(&self, secret: &str) -> String {
        let Tokens { change, read } = &*self.tokens.read();
        let text = [Some(secret), change.as_deref(), read.as_deref()].map(Option::unwrap_or_default).join("\0");
        crate::hex(&Sha256::digest(text))
    }

    /// Starts a session of `owner`; returns its `Set-Cookie` header.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn begin(&self, right: Right, owner: &str) -> io::Result<String> {
        let cookie = self.begun.give(right, owner, |secret| self.hash(secret))?;
        self.keep();
        let (name, seconds) = (&self.name, LIFETIME.as_secs());
        Ok(format!("{name}={cookie}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict"))
    }

    /// A code that signs a page of `owner` in, once and soon.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn invite(&self, right: Right, owner: &str) -> io::Result<String> {
        self.addresses.give(right, owner, |secret| self.hash(secret))
    }

    /// Signs a page in by such a code, as [`begin`](Self::begin); none if the code was used, is too old or never was
    /// one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn accept(&self, code: &str) -> io::Result<Option<String>> {
        let Some((right, owner)) = self.addresses.take(&self.hash(code)) else { return Ok(None) };
        self.begin(right, &owner).map(Some)
    }

    /// The right of the page that sent this request, and its owner's name, if it is signed in.
    pub fn signed_in(&self, headers: &HeaderMap) -> Option<(Right, String)> {
        self.cookies(headers).find_map(|cookie| self.begun.find(&self.hash(cookie)))
    }

    /// Ends the session of this request; returns the `Set-Cookie` header that deletes the cookie.
    pub fn end(&self, headers: &HeaderMap) -> String {
        for cookie in self.cookies(headers) {
            self.begun.take(&self.hash(cookie));
        }
        self.keep();
        format!("{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict", self.name)
    }

    fn cookies<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let values = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.filter(|&(name, _)| name == self.name).map(|(_, cookie)| cookie)
    }

    /// Ends all sessions if the tokens differ from the current ones.
    pub fn change_tokens(&self, tokens: Tokens) {
        if *self.tokens.read() == tokens {
            return;
        }
        *self.tokens.write() = tokens;
        self.begun.given.lock().clear();
        self.addresses.given.lock().clear();
        self.keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, cookie.parse().unwrap())])
    }

    #[test]
    fn a_restart_ends_no_session_and_another_token_does() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sessions.json");
        let token = |token: &str| Tokens { change: Some(token.to_owned()), read: None };
        let of = |tokens| Sessions::new(tokens, Some(file.clone()));
        let set = of(token("sesame")).begin(Right::Change, "me").unwrap();
        let cookie = sent(set.split_once(';').unwrap().0);
        let kept = std::fs::read_to_string(&file).unwrap();
        assert!(!kept.contains("sesame") && !kept.contains(&set.split_once('=').unwrap().1[..64]), "{kept}");
        assert_eq!(of(token("other")).signed_in(&cookie), None);
        let again = of(token("sesame"));
        assert_eq!(again.signed_in(&cookie), Some((Right::Change, "me".to_owned())));
        again.end(&cookie);
        assert_eq!(of(token("sesame")).signed_in(&cookie), None);
        std::fs::write(&file, "garbage").unwrap();
        assert_eq!(of(token("sesame")).signed_in(&cookie), None);
    }

    /// The other server is on another port of the same machine, in the same browser.
    #[test]
    fn another_server_does_not_end_sessions() {
        let [one, other] = [(); 2].map(|()| Sessions::new(Tokens::default(), None));
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
        let sessions = Sessions::new(Tokens::default(), None);
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
        sessions.change_tokens(Tokens { change: Some("other".to_owned()), read: None });
        assert_eq!(right_of(other), None);
    }

    #[test]
    fn an_address_signs_one_page_in_with_the_right_of_its_owner() {
        let sessions = Sessions::new(Tokens::default(), None);
        let code = sessions.invite(Right::Look, "uid 7").unwrap();
        assert_eq!(sessions.accept(&code[1..]).unwrap(), None);
        let set = sessions.accept(&code).unwrap().unwrap();
        let cookie = set.split_once(';').unwrap().0;
        assert_eq!(sessions.signed_in(&sent(cookie)), Some((Right::Look, "uid 7".to_owned())));
        assert_eq!(sessions.accept(&code).unwrap(), None, "it was used");
        let code = sessions.invite(Right::Change, "uid 7").unwrap();
        sessions.change_tokens(Tokens { change: Some("other".to_owned()), read: None });
        assert_eq!(sessions.accept(&code).unwrap(), None, "a token is another one");
    }

    #[test]
    fn the_longest_signed_in_leave_where_there_are_too_many() {
        let sessions = Sessions::new(Tokens::default(), None);
        let all: Vec<String> = (0..=SECRETS_MAX).map(|_| sessions.begin(Right::Change, "me").unwrap()).collect();
        let known = |set: &String| sessions.signed_in(&sent(set.split_once(';').unwrap().0)).is_some();
        assert!(!known(&all[0]));
        assert!(all[1..].iter().all(known));
    }
}
