//! CHAP: each side proves that it knows a secret. Source: RFC 1994; RFC 7143, section 12.1.3.

use std::io;
use std::path::Path;

use md5::{Digest, Md5};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::text::{binary, hex, number, put};
use crate::front::options::Credentials;
use crate::secret;

/// Shortest accepted secret in bytes. RFC 7143 demands 96 bits.
const SECRET_BYTES_MIN: usize = 12;
/// Reads a secret: the file's contents without surrounding white space. A short secret is an error.
pub fn read_secret(path: &Path) -> io::Result<Vec<u8>> {
    let secret = secret::read(path)?.trim().as_bytes().to_vec();
    if secret.len() < SECRET_BYTES_MIN {
        let found = format!("found {} bytes, expected at least {SECRET_BYTES_MIN}", secret.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, found));
    }
    Ok(secret)
}

/// Length of this server's challenges in bytes.
const CHALLENGE_BYTES: usize = 16;
const CHALLENGE_BYTES_MAX: usize = 1024;

/// The hash of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Md5,
    Sha256,
}

impl Algorithm {
    /// Returns the algorithm with this number.
    fn of_number(number: u32) -> Option<Algorithm> {
        match number {
            5 => Some(Algorithm::Md5),
            7 => Some(Algorithm::Sha256),
            _ => None,
        }
    }

    fn number(self) -> u32 {
        match self {
            Algorithm::Md5 => 5,
            Algorithm::Sha256 => 7,
        }
    }

    fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        match self {
            Algorithm::Md5 => digest::<Md5>(identifier, secret, challenge),
            Algorithm::Sha256 => digest::<Sha256>(identifier, secret, challenge),
        }
    }
}

fn digest<D: Digest>(identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
    D::new().chain_update([identifier]).chain_update(secret).chain_update(challenge).finalize().to_vec()
}

/// The initiator has not proved its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// This side's challenge.
#[derive(Debug)]
pub struct Challenge {
    algorithm: Algorithm,
    identifier: u8,
    bytes: Vec<u8>,
}

/// Returns the value of a key.
fn value<'a>(pairs: &[(&str, &'a str)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(own, _)| *own == key).map(|(_, value)| *value)
}

impl Challenge {
    /// Starts a challenge with one of the algorithms that the initiator offers, and returns its keys. `random` fills a
    /// buffer with secure random bytes.
    pub fn start(
        pairs: &[(&str, &str)],
        random: impl FnOnce(&mut [u8]) -> bool,
        output: &mut Vec<u8>,
    ) -> Result<Challenge, Refused> {
        let offered: Vec<Algorithm> = value(pairs, "CHAP_A")
            .ok_or(Refused)?
            .split(',')
            .filter_map(|one| Algorithm::of_number(number(one)?))
            .collect();
        // The stronger one, regardless of the initiator's preference.
        let algorithm =
            if offered.contains(&Algorithm::Sha256) { Some(Algorithm::Sha256) } else { offered.first().copied() };
        let algorithm = algorithm.ok_or(Refused)?;
        let mut bytes = vec![0; CHALLENGE_BYTES + 1];
        if !random(&mut bytes) {
            return Err(Refused);
        }
        let identifier = bytes.pop().ok_or(Refused)?;
        put(output, "CHAP_A", &algorithm.number().to_string());
        put(output, "CHAP_I", &identifier.to_string());
        put(output, "CHAP_C", &hex(&bytes));
        Ok(Challenge { algorithm, identifier, bytes })
    }

    /// Verifies the initiator's response, and answers the initiator's challenge, if any.
    pub fn check(
        &self,
        pairs: &[(&str, &str)],
        own: &Credentials,
        mutual: Option<&Credentials>,
        output: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let name = value(pairs, "CHAP_N").ok_or(Refused)?;
        let response = value(pairs, "CHAP_R").and_then(|text| binary(text, 64)).ok_or(Refused)?;
        let expected = self.algorithm.response(self.identifier, &own.secret, &self.bytes);
        let is_right = response.ct_eq(&expected) & name.as_bytes().ct_eq(own.name.as_bytes());
        if !bool::from(is_right) {
            return Err(Refused);
        }
        let (identifier, challenge) = match (value(pairs, "CHAP_I"), value(pairs, "CHAP_C")) {
            (None, None) => return Ok(()),
            (Some(identifier), Some(challenge)) => (identifier, challenge),
            _ => return Err(Refused),
        };
        let mutual = mutual.ok_or(Refused)?;
        let identifier = number(identifier).and_then(|number| u8::try_from(number).ok()).ok_or(Refused)?;
        let challenge = binary(challenge, CHALLENGE_BYTES_MAX).ok_or(Refused)?;
        if challenge == self.bytes {
            // The initiator reflects our own challenge.
            return Err(Refused);
        }
        put(output, "CHAP_N", &mutual.name);
        put(output, "CHAP_R", &hex(&self.algorithm.response(identifier, &mutual.secret, &challenge)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(name: &str, secret: &str) -> Credentials {
        Credentials { name: name.into(), secret: secret.into() }
    }

    fn started(offered: &str) -> Result<(Challenge, String), Refused> {
        let mut output = Vec::new();
        let fill = |bytes: &mut [u8]| {
            bytes.fill(1);
            true
        };
        let challenge = Challenge::start(&[("CHAP_A", offered)], fill, &mut output)?;
        Ok((challenge, String::from_utf8(output).unwrap()))
    }

    #[test]
    fn only_an_initiator_with_the_secret_is_accepted() {
        let (challenge, asked) = started("5").unwrap();
        assert_eq!(asked, format!("CHAP_A=5\0CHAP_I=1\0CHAP_C=0x{}\0", "01".repeat(16)));
        // python3 -c "import hashlib; print(hashlib.md5(bytes([1]) + b'twelve bytes' + bytes([1]) * 16).hexdigest())"
        let response = "0x0237ee222bf4883cc745c3e11088f14f";
        let own = credentials("me", "twelve bytes");
        let check = |name: &str, response: &str| {
            challenge.check(&[("CHAP_N", name), ("CHAP_R", response)], &own, None, &mut Vec::new())
        };
        assert_eq!(check("me", response), Ok(()));
        assert_eq!(check("you", response), Err(Refused));
        assert_eq!(check("me", &response.replace('2', "3")), Err(Refused));
        assert_eq!(check("me", "0x"), Err(Refused));
    }

    #[test]
    fn sha_256_comes_first_and_unknown_algorithms_are_refused() {
        assert!(started("5,7").unwrap().1.starts_with("CHAP_A=7\0"));
        assert!(started("6,5").unwrap().1.starts_with("CHAP_A=5\0"));
        assert_eq!(started("6,8").map(|_| ()), Err(Refused));
    }

    #[test]
    fn the_target_proves_itself_too_but_not_with_the_initiators_question() {
        let (challenge, _) = started("5").unwrap();
        let (own, mutual) = (credentials("me", "twelve bytes"), credentials("target", "another twelve"));
        let response = hex(&challenge.algorithm.response(1, b"twelve bytes", &challenge.bytes));
        let ask = |asked: &str, mutual: Option<&Credentials>| {
            let pairs = [("CHAP_N", "me"), ("CHAP_R", response.as_str()), ("CHAP_I", "7"), ("CHAP_C", asked)];
            let mut output = Vec::new();
            challenge.check(&pairs, &own, mutual, &mut output).map(|()| String::from_utf8(output).unwrap())
        };
        let expected = hex(&Algorithm::Md5.response(7, b"another twelve", &[2, 3]));
        assert_eq!(ask("0x0203", Some(&mutual)), Ok(format!("CHAP_N=target\0CHAP_R={expected}\0")));
        assert_eq!(ask("0x0203", None), Err(Refused));
        assert_eq!(ask(&hex(&[1; 16]), Some(&mutual)), Err(Refused));
    }
}
