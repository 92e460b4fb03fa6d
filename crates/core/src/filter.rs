//! The I/O filter: allow and deny lists of clients, which decide whose requests are cached.
//!
//! Source: Flashcache, doc/flashcache-sa-guide.txt, "Caching Controls", and its `flashcache_uncacheable`, which LARC
//! (Huang et al., MSST 2013), section V.A, uses: "Administrators can configure a white list or black list to specify
//! which processes should be cached."
//!
//! The precedence is Flashcache's. It distinguishes a thread (by its pid) from a group of threads (by their tgid). Here
//! a rule names one client, or a group of clients:
//!
//! | | [`Clients::All`]: cache everything | [`Clients::None`]: cache nothing |
//! | --- | --- | --- |
//! | 1. the client itself is listed | denied: not cached | allowed: cached |
//! | 2. its group is listed, and it is not an exception | denied: not cached | allowed: cached |
//! | 3. its group is listed, and the client itself is on the other list | allowed: cached | denied: not cached |
//! | 4. neither is listed | cached, except [sequential streams](crate::streams) | not cached |
//!
//! Listed clients are cached even when they read sequentially.
//!
//! Departures from Flashcache: rules cover more than processes, and last until changed, whereas pids expire after a
//! minute.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::options::did_you_mean;

crate::words! {
    /// Treatment of a client's misses.
    #[derive(Default)]
    pub enum Caching {
        /// The client is not listed: sequential streams bypass the flash, and the policy decides about all other
        /// requests.
        #[default]
        Usual "usual",
        /// The policy decides about all requests.
        Always "always",
        /// All misses bypass the flash. Cached blocks are still read, and kept valid.
        Never "never",
        /// As usual, but a write reaches the backend before its answer. No list sets this; it is used for a
        /// write-through logical disk in a write-back pool.
        Through "through",
        /// As never, for zeroes of blocks that no client can read yet: ordered write-back delays none of them. No list
        /// sets this; it is used for new chunks of a pool.
        Unowned "unowned",
    }
}

impl Caching {
    /// Returns the variant's number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the variant of a [`number`](Self::number).
    pub fn of_number(number: u8) -> Option<Caching> {
        Caching::ALL.get(usize::from(number)).copied()
    }
}

/// Known properties of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// The number of its connection to the server, if connections are counted.
    pub connection: Option<u64>,
    /// The name of the export that it opened, as the client gave it.
    pub export: String,
    /// The protocol that it speaks, as in URIs; empty if unknown.
    pub protocol: &'static str,
    /// The name of its iSCSI initiator.
    pub initiator: Option<String>,
    /// Its process, if on this machine.
    pub pid: Option<u32>,
    /// The user of its process.
    pub uid: Option<u32>,
    /// The group of that user.
    pub gid: Option<u32>,
    /// The name of its program, according to the kernel.
    pub program: Option<String>,
    /// Its network address.
    pub address: Option<IpAddr>,
    /// The names in its certificate.
    pub tls_names: Vec<String>,
}

/// The longest program name that the kernel keeps (`TASK_COMM_LEN` without the terminator).
const PROGRAM_BYTES_MAX: usize = 15;

/// A pattern that names a client or a group of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// One process.
    Pid(u32),
    /// The client whose certificate has this name.
    Tls(String),
    /// All processes of a user.
    Uid(u32),
    /// All processes of a group.
    Gid(u32),
    /// All processes of a program.
    Program(String),
    /// All addresses of a network.
    Address(Network),
    /// All clients that opened the volume by this name.
    Export(String),
}

/// True if one of the names in a certificate equals `name`, ignoring case.
pub fn is_named(tls_names: &[String], name: &str) -> bool {
    tls_names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

impl Rule {
    /// The keywords before the colon.
    pub const KINDS: [&str; 7] = ["pid", "tls", "uid", "gid", "program", "address", "export"];

    /// Returns the rule's keyword, one of [`KINDS`](Self::KINDS).
    pub fn kind(&self) -> &'static str {
        let number = match self {
            Rule::Pid(_) => 0,
            Rule::Tls(_) => 1,
            Rule::Uid(_) => 2,
            Rule::Gid(_) => 3,
            Rule::Program(_) => 4,
            Rule::Address(_) => 5,
            Rule::Export(_) => 6,
        };
        Rule::KINDS[number]
    }

    /// True if it names one client rather than a group.
    fn names_one(&self) -> bool {
        matches!(self, Rule::Pid(_) | Rule::Tls(_))
    }

    fn names(&self, client: &Client) -> bool {
        match self {
            Rule::Pid(pid) => client.pid == Some(*pid),
            Rule::Tls(name) => is_named(&client.tls_names, name),
            Rule::Uid(uid) => client.uid == Some(*uid),
            Rule::Gid(gid) => client.gid == Some(*gid),
            Rule::Program(name) => client.program.as_ref() == Some(name),
            Rule::Address(network) => client.address.is_some_and(|address| network.contains(address)),
            Rule::Export(name) => client.export == *name,
        }
    }

    /// Parses rules separated by commas, or `none`.
    ///
    /// # Errors
    /// A message about the first invalid rule.
    pub fn parse_list(text: &str) -> Result<Vec<Rule>, String> {
        match text {
            "none" => Ok(Vec::new()),
            _ => text.split(',').map(|rule| rule.trim().parse()).collect(),
        }
    }
}

/// Formats rules as [`Rule::parse_list`] parses them.
pub fn listed(rules: &[Rule]) -> String {
    match rules {
        [] => "none".to_owned(),
        _ => rules.iter().map(Rule::to_string).collect::<Vec<_>>().join(","),
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind())?;
        match self {
            Rule::Pid(number) | Rule::Uid(number) | Rule::Gid(number) => write!(f, "{number}"),
            Rule::Tls(name) | Rule::Program(name) | Rule::Export(name) => f.write_str(name),
            Rule::Address(network) => network.fmt(f),
        }
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let wrong = |expected: &str| format!("found '{text}', expected {expected}");
        let Some((kind, value)) = text.split_once(':').filter(|(_, value)| !value.is_empty()) else {
            let kinds = Rule::KINDS.join(", ");
            return Err(wrong(&format!("a rule such as uid:1000 or program:rsync, of {kinds}, or none")));
        };
        let number = || value.parse::<u32>().map_err(|_| wrong(&format!("a number after {kind}:")));
        match kind {
            "pid" => number().map(Rule::Pid),
            "uid" => number().map(Rule::Uid),
            "gid" => number().map(Rule::Gid),
            "tls" => Ok(Rule::Tls(value.to_owned())),
            "export" => Ok(Rule::Export(value.to_owned())),
            "program" if value.len() > PROGRAM_BYTES_MAX => {
                let most = format!("at most {PROGRAM_BYTES_MAX} bytes of a program's name, as the kernel keeps them");
                Err(wrong(&most))
            }
            "program" => Ok(Rule::Program(value.to_owned())),
            "address" => value.parse().map(Rule::Address).map_err(|expected: String| wrong(&expected)),
            _ => {
                let near = did_you_mean(kind, &Rule::KINDS);
                Err(format!("found '{text}'{near}, expected one of {}", Rule::KINDS.join(", ")))
            }
        }
    }
}

/// A network address, or all addresses with the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// Returns the bits of an address, left-aligned, and their number.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

/// Returns the first `count` bits of an address; the others are 0.
fn prefix(bits: u128, count: u8) -> u128 {
    bits & u128::MAX.checked_shl(128 - u32::from(count)).unwrap_or(0)
}

impl Network {
    /// True if an address is in the network. An IPv4-mapped IPv6 address counts as IPv4.
    fn contains(&self, address: IpAddr) -> bool {
        let ((own, length), (other, other_length)) = (bits(self.address), bits(address.to_canonical()));
        length == other_length && prefix(own ^ other, self.prefix_bits) == 0
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix_bits == bits(self.address).1 {
            true => self.address.fmt(f),
            false => write!(f, "{}/{}", self.address, self.prefix_bits),
        }
    }
}

impl FromStr for Network {
    /// The expected form.
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let expected = || "an address such as 10.0.0.7, or a network such as 10.0.0.0/8".to_owned();
        let (address, count) = match text.split_once('/') {
            Some((address, count)) => (address, Some(count)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| expected())?;
        let (all, length) = bits(address);
        let count = count.map_or(Ok(length), |count| count.parse::<u8>()).map_err(|_| expected())?;
        if count > length {
            return Err(format!("at most {length} bits after /"));
        }
        if prefix(all, count) != all {
            return Err(format!("an address whose bits after the first {count} are 0"));
        }
        Ok(Network { address, prefix_bits: count })
    }
}

crate::words! {
    /// The default for clients that no rule names.
    #[derive(Default)]
    pub enum Clients {
        /// Cache all: Flashcache's mode "cache everything".
        #[default]
        All "all",
        /// Cache none: its mode "cache nothing".
        None "none",
    }
}

/// The lists, and the default for all other clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The default for clients on neither list.
    pub clients: Clients,
    /// The allow list, Flashcache's white list.
    pub allow: Vec<Rule>,
    /// The deny list, Flashcache's black list.
    pub deny: Vec<Rule>,
}

impl Filter {
    /// Returns the treatment of a client's requests.
    pub fn caching(&self, client: &Client) -> Caching {
        let (list, exceptions, [of_listed, of_exceptions, of_others]) = match self.clients {
            Clients::All => (&self.deny, &self.allow, [Caching::Never, Caching::Always, Caching::Usual]),
            Clients::None => (&self.allow, &self.deny, [Caching::Always, Caching::Never, Caching::Never]),
        };
        let named = |rules: &[Rule], one: bool| rules.iter().any(|rule| rule.names_one() == one && rule.names(client));
        if named(list, true) {
            of_listed
        } else if !named(list, false) {
            of_others
        } else if named(exceptions, true) {
            of_exceptions
        } else {
            of_listed
        }
    }

    /// Iterates over all rules.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.allow.iter().chain(&self.deny)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(clients: Clients, allow: &str, deny: &str) -> Filter {
        Filter { clients, allow: Rule::parse_list(allow).unwrap(), deny: Rule::parse_list(deny).unwrap() }
    }

    /// The branches of `flashcache_uncacheable`, with `pid:` for its pid and `program:` for its tgid.
    #[test]
    fn precedence_is_that_of_flashcache() {
        use Caching::{Always, Never, Usual};
        let client = Client { pid: Some(7), program: Some("rsync".to_owned()), ..Client::default() };
        for (allow, deny, of_all, of_none) in [
            ("none", "none", Usual, Never),
            // "This overrides everything else": a thread on the list of the mode.
            ("none", "pid:7", Never, Never),
            ("pid:7", "none", Usual, Always),
            ("pid:7", "pid:7", Never, Always),
            ("pid:7,program:rsync", "pid:7", Never, Always),
            ("pid:7", "pid:7,program:rsync", Never, Always),
            // A group on the list of the mode, and a member as the exception.
            ("none", "program:rsync", Never, Never),
            ("program:rsync", "none", Usual, Always),
            ("pid:7", "program:rsync", Always, Always),
            ("program:rsync", "pid:7", Never, Never),
            // A group cannot be an exception to another group.
            ("program:rsync", "program:rsync", Never, Always),
            ("pid:8,program:cp", "pid:9,program:dd", Usual, Never),
        ] {
            assert_eq!(filter(Clients::All, allow, deny).caching(&client), of_all, "all, {allow}; {deny}");
            assert_eq!(filter(Clients::None, allow, deny).caching(&client), of_none, "none, {allow}; {deny}");
        }
    }

    #[test]
    fn a_rule_names_those_that_it_describes_and_no_others() {
        let client = Client {
            export: "raw".to_owned(),
            protocol: "nbd",
            initiator: None,
            connection: None,
            pid: Some(1),
            uid: Some(2),
            gid: Some(3),
            program: Some("dd".to_owned()),
            address: Some("10.1.2.3".parse().unwrap()),
            tls_names: vec!["one".to_owned(), "Two.example".to_owned()],
        };
        let names = |rule: &str| rule.parse::<Rule>().unwrap().names(&client);
        for rule in ["export:raw", "pid:1", "uid:2", "gid:3", "program:dd", "address:10.0.0.0/8", "tls:two.example"] {
            assert!(names(rule), "{rule}");
            assert!(!rule.parse::<Rule>().unwrap().names(&Client::default()), "{rule}");
            assert_eq!(rule.parse::<Rule>().unwrap().to_string(), rule);
        }
        for rule in ["export:ra", "pid:2", "uid:3", "gid:1", "program:d", "address:11.0.0.0/8", "tls:example"] {
            assert!(!names(rule), "{rule}");
        }
    }

    #[test]
    fn networks_are_compared_by_their_first_bits() {
        let contains =
            |network: &str, address: &str| network.parse::<Network>().unwrap().contains(address.parse().unwrap());
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("10.0.0.4/31", "10.0.0.5") && !contains("10.0.0.4/31", "10.0.0.6"));
        assert!(contains("10.0.0.4", "10.0.0.4") && !contains("10.0.0.4", "10.0.0.5"));
        assert!(contains("0.0.0.0/0", "1.2.3.4") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("10.0.0.0/8", "::ffff:10.0.0.1"), "an IPv4 client at a socket of IPv6");
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1") && !contains("2001:db8::/32", "2001:db9::"));
        assert!(contains("::/0", "::1") && !contains("::/0", "0.0.0.0"));
    }

    #[test]
    fn invalid_rules_are_refused_with_the_reason() {
        let errors = [
            "",
            "rsync",
            "pid:",
            "pid:-1",
            "uid:root",
            "progam:dd",
            "program:sixteen-letters-",
            "address:localhost",
            "address:10.0.0.0/33",
            "address:10.0.0.1/8",
            "address:::1/x",
        ]
        .map(|rule| rule.parse::<Rule>().unwrap_err());
        let all = "pid, tls, uid, gid, program, address, export";
        let rule = format!("expected a rule such as uid:1000 or program:rsync, of {all}, or none");
        let address = "expected an address such as 10.0.0.7, or a network such as 10.0.0.0/8";
        let expected = [
            format!("found '', {rule}"),
            format!("found 'rsync', {rule}"),
            format!("found 'pid:', {rule}"),
            "found 'pid:-1', expected a number after pid:".to_owned(),
            "found 'uid:root', expected a number after uid:".to_owned(),
            format!("found 'progam:dd' (did you mean 'program'?), expected one of {all}"),
            "found 'program:sixteen-letters-', expected at most 15 bytes of a program's name, as the kernel keeps them"
                .to_owned(),
            format!("found 'address:localhost', {address}"),
            "found 'address:10.0.0.0/33', expected at most 32 bits after /".to_owned(),
            "found 'address:10.0.0.1/8', expected an address whose bits after the first 8 are 0".to_owned(),
            format!("found 'address:::1/x', {address}"),
        ];
        assert_eq!(errors, expected);
        assert_eq!(Rule::parse_list("none"), Ok(Vec::new()));
        assert_eq!(Rule::parse_list("pid:1, uid:2"), Ok(vec![Rule::Pid(1), Rule::Uid(2)]));
        assert!(Rule::parse_list("pid:1,").is_err() && Rule::parse_list("pid:1,none").is_err());
        assert_eq!(listed(&Rule::parse_list("pid:1, uid:2").unwrap()), "pid:1,uid:2");
        assert_eq!(listed(&[]), "none");
    }
}
