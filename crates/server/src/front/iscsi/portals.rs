//! Portals: the addresses at which an initiator can reach the targets. Source: RFC 7143, section 4.4.1 and appendix C.

use std::net::{IpAddr, SocketAddr};

use crate::front::address::Address;

/// Returns the portals of a server that listens at `listening`, for an initiator that connected to `own`. Its own is
/// first, and each occurs once.
///
/// Loopback addresses are omitted for other machines, and link-local addresses except `own` always. A wildcard address
/// is replaced by `own` if both have the same family.
pub fn told(own: Option<SocketAddr>, listening: &[SocketAddr]) -> Vec<String> {
    // The wildcard address of IPv6 also accepts IPv4 if one of its clients uses it.
    let mapped = own.is_some_and(|own| own.ip().to_canonical() != own.ip());
    let own = own.map(|own| SocketAddr::new(own.ip().to_canonical(), own.port()));
    let is_near = own.is_some_and(|own| is_loopback(own.ip()));
    let reached = |portal: &SocketAddr| {
        let (address, port) = (portal.ip(), portal.port());
        if address.is_unspecified() {
            let same = own.filter(|own| own.is_ipv4() == portal.is_ipv4() || mapped && portal.is_ipv6())?;
            return Some(SocketAddr::new(same.ip(), port));
        }
        (!is_of_one_link(address) && (is_near || !is_loopback(address))).then_some(*portal)
    };
    let mut portals: Vec<String> = Vec::new();
    for portal in own.into_iter().chain(listening.iter().filter_map(reached)) {
        let told = SocketAddr::new(portal.ip().to_canonical(), portal.port());
        let told = Address::Tcp { host: told.ip().to_string(), port: told.port() }.to_string();
        if !portals.contains(&told) {
            portals.push(told);
        }
    }
    portals
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn is_of_one_link(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the portals for an initiator that connected to `own`.
    fn to(own: &str, listening: &str) -> String {
        let listening: Vec<SocketAddr> = listening.split_whitespace().map(|text| text.parse().unwrap()).collect();
        told(own.parse().ok(), &listening).join(" ")
    }

    #[test]
    fn portals_are_listed_once_with_the_own_one_first() {
        let both = "10.0.0.1:3260 10.0.1.1:3260";
        assert_eq!(to("10.0.0.1:3260", both), both);
        assert_eq!(to("10.0.1.1:3260", both), "10.0.1.1:3260 10.0.0.1:3260");
        assert_eq!(to("10.0.0.1:3260", "10.0.0.1:3260 10.0.0.1:3261"), "10.0.0.1:3260 10.0.0.1:3261");
        assert_eq!(to("[2001:db8::1]:3260", "10.0.0.1:3260 [2001:db8::1]:3260"), "[2001:db8::1]:3260 10.0.0.1:3260");
        assert_eq!(to("", both), both, "where it came to is not known");
    }

    #[test]
    fn loopback_is_listed_for_clients_on_loopback() {
        let portals = "127.0.0.1:3260 [::1]:3260 10.0.0.1:3260 [fe80::1]:3260 169.254.0.1:3260";
        assert_eq!(to("10.0.0.1:3260", portals), "10.0.0.1:3260");
        assert_eq!(to("[::1]:3260", portals), "[::1]:3260 127.0.0.1:3260 10.0.0.1:3260");
        assert_eq!(to("[::ffff:127.0.0.1]:3261", portals), "127.0.0.1:3261 127.0.0.1:3260 [::1]:3260 10.0.0.1:3260");
        assert_eq!(to("[fe80::1]:3260", portals), "[fe80::1]:3260 10.0.0.1:3260");
    }

    #[test]
    fn a_wildcard_is_listed_as_the_own_address() {
        assert_eq!(to("10.0.0.1:3260", "0.0.0.0:3260"), "10.0.0.1:3260");
        assert_eq!(to("10.0.0.1:3260", "0.0.0.0:3260 0.0.0.0:3261"), "10.0.0.1:3260 10.0.0.1:3261");
        assert_eq!(to("10.0.0.1:3260", "10.0.0.1:3260 [::]:3261"), "10.0.0.1:3260", "it may take IPv6 alone");
        assert_eq!(to("[2001:db8::1]:3260", "[::]:3260 0.0.0.0:3261"), "[2001:db8::1]:3260");
        // IPv4 mapped to IPv6: all of these accept it.
        assert_eq!(to("[::ffff:10.0.0.1]:3260", "[::]:3260 [::]:3261"), "10.0.0.1:3260 10.0.0.1:3261");
        assert_eq!(to("[::ffff:10.0.0.1]:3260", "[::]:3260 0.0.0.0:3261"), "10.0.0.1:3260 10.0.0.1:3261");
        assert_eq!(to("", "0.0.0.0:3260"), "");
    }
}
