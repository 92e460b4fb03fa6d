//! Who is signed in to the page: a token is given once, and a cookie stands for it from then on.
//!
//! The cookie is a random number of 256 bits, of which only a hash is kept, for twelve hours. Scripts cannot read it (`HttpOnly`), and
//! browsers do not send it with requests that other sites cause (`SameSite=Strict`). Its name is of this process alone: browsers have one jar for all
//! ports of a machine, and another server there has its own.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use parking_lot::Mutex;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};

/// How long one is signed in.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Most who are signed in; the one who has been for longest is signed out.
const SESSIONS_MAX: usize = 256;

type Hash = [u8; 32];

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Look at everything.
    Look,
    /// That, and change what can be changed.
    Change,
}

/// Those who are signed in.
#[derive(Debug)]
pub struct Sessions {
    /// The cookie's name.
    name: String,
    /// When each began and what it may do, by the hash of its cookie.
    begun: Mutex<HashMap<Hash, (Instant, Right)>>,
}

impl Default for Sessions {
    /// Nobody is.
    fn default() -> Sessions {
        let own = RandomState::new().build_hasher().finish();
        Sessions { name: format!("flashwise-{own:016x}"), begun: Mutex::default() }
    }
}

impl Sessions {
    /// Signs somebody in who may do this, and gives the header `Set-Cookie` that says so.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn begin(&self, right: Right) -> io::Result<String> {
        let mut random = [0; 32];
        getrandom(&mut random, GetRandomFlags::empty())?;
        let cookie = crate::hex(&random);
        let mut begun = self.begun.lock();
        begun.retain(|_, (begun, _)| begun.elapsed() < LIFETIME);
        if begun.len() == SESSIONS_MAX
            && let Some(oldest) = begun.iter().min_by_key(|(_, (begun, _))| *begun).map(|(hash, _)| *hash)
        {
            begun.remove(&oldest);
        }
        begun.insert(hash(&cookie), (Instant::now(), right));
        let (name, seconds) = (&self.name, LIFETIME.as_secs());
        Ok(format!("{name}={cookie}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict"))
    }

    /// What somebody who sent this request may do, if signed in.
    pub fn right_of(&self, headers: &HeaderMap) -> Option<Right> {
        let begun = self.begun.lock();
        let lasting = |(begun, right): &(Instant, Right)| (begun.elapsed() < LIFETIME).then_some(*right);
        self.cookies(headers).find_map(|cookie| begun.get(&hash(cookie)).and_then(lasting))
    }

    /// Signs out whoever sent this request, and gives the header `Set-Cookie` that says so.
    pub fn end(&self, headers: &HeaderMap) -> String {
        let mut begun = self.begun.lock();
        for cookie in self.cookies(headers) {
            begun.remove(&hash(cookie));
        }
        format!("{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict", self.name)
    }

    fn cookies<'a>(&'a self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
        let values = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
        let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.filter(|&(name, _)| name == self.name).map(|(_, cookie)| cookie)
    }

    /// Signs everybody out: a token is another one.
    pub fn end_all(&self) {
        self.begun.lock().clear();
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

    /// On another port of the same machine, in the same browser.
    #[test]
    fn another_server_signs_nobody_out() {
        let [one, other] = [Sessions::default(), Sessions::default()];
        let [of_one, of_other] = [&one, &other].map(|sessions| sessions.begin(Right::Change).unwrap());
        let [(own, own_value), (others, others_value)] =
            [&of_one, &of_other].map(|set| set.split_once(';').unwrap().0.split_once('=').unwrap());
        assert_ne!(own, others);
        let both = sent(&format!("{own}={own_value}; {others}={others_value}"));
        assert_eq!([one.right_of(&both), other.right_of(&both)], [Some(Right::Change); 2]);
    }

    #[test]
    fn who_signed_in_is_known_until_signed_out() {
        let sessions = Sessions::default();
        let set = sessions.begin(Right::Change).unwrap();
        let (cookie, attributes) = set.split_once(';').unwrap();
        assert_eq!(attributes, " Path=/; Max-Age=43200; HttpOnly; SameSite=Strict");
        let (name, secret) = cookie.split_once('=').unwrap();
        assert_eq!(secret.len(), 64);
        let right_of = |cookie: &str| sessions.right_of(&sent(cookie));
        assert_eq!(right_of(cookie), Some(Right::Change));
        assert_eq!(right_of(&format!("other=1; {cookie}")), Some(Right::Change));
        let other = sessions.begin(Right::Look).unwrap();
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
    fn the_longest_signed_in_leave_where_there_are_too_many() {
        let sessions = Sessions::default();
        let all: Vec<String> = (0..=SESSIONS_MAX).map(|_| sessions.begin(Right::Change).unwrap()).collect();
        let known = |set: &String| sessions.right_of(&sent(set.split_once(';').unwrap().0)).is_some();
        assert!(!known(&all[0]));
        assert!(all[1..].iter().all(known));
    }
}
