//! Text requests in a session: discovery of targets. Source: RFC 7143, section 4.3 and appendix C.

use super::names;
use super::negotiation::{Negotiated, Parameters};
use super::text::{Malformed, put};

/// The only group of portals.
pub const PORTAL_GROUP: &str = "1";

/// The data for a reply to SendTargets.
pub struct SendTargets<'a> {
    /// Names of the visible exports.
    pub exports: &'a [String],
    /// Addresses to connect to, as `HOST:PORT`.
    pub portals: &'a [String],
    /// The export of its session, unless that is for discovery.
    pub own: Option<&'a str>,
}

/// Replies to a text request.
pub fn answer(
    pairs: &[(&str, &str)],
    asked: &SendTargets<'_>,
    parameters: &mut Parameters,
    reply: &mut Vec<u8>,
) -> Result<(), Malformed> {
    for (key, value) in pairs {
        match *key {
            "SendTargets" => send_targets(value, asked, reply),
            // All other keys were negotiated at login.
            "MaxRecvDataSegmentLength" => match parameters.negotiate(key, value, reply) {
                Negotiated::Answered => {}
                Negotiated::Unknown | Negotiated::Wrong => return Err(Malformed),
            },
            key => put(reply, key, "NotUnderstood"),
        }
    }
    Ok(())
}

fn send_targets(whose: &str, asked: &SendTargets<'_>, reply: &mut Vec<u8>) {
    let is_asked = |export: &str| match whose {
        "All" => asked.own.is_none(),
        "" => asked.own == Some(export),
        name => names::export(name) == Some(export),
    };
    for export in asked.exports.iter().filter(|export| names::check_export(export).is_ok() && is_asked(export)) {
        put(reply, "TargetName", &names::target(export));
        for portal in asked.portals {
            put(reply, "TargetAddress", &format!("{portal},{PORTAL_GROUP}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(whose: &str, own: Option<&str>) -> String {
        let exports = ["a".to_owned(), "b".to_owned(), "Not One".to_owned()];
        let portals = ["127.0.0.1:3260".to_owned(), "[::1]:3261".to_owned()];
        let asked = SendTargets { exports: &exports, portals: &portals, own };
        let mut reply = Vec::new();
        answer(&[("SendTargets", whose)], &asked, &mut Parameters::default(), &mut reply).unwrap();
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn replies_list_targets_with_all_their_portals() {
        let portals = "TargetAddress=127.0.0.1:3260,1\0TargetAddress=[::1]:3261,1\0";
        let one = |name: &str| format!("TargetName=iqn.2026-11.org.flashwise:{name}\0{portals}");
        assert_eq!(targets("All", None), one("a") + &one("b"));
        assert_eq!(targets("iqn.2026-11.org.flashwise:b", None), one("b"));
        assert_eq!(targets("", Some("a")), one("a"));
        assert_eq!((targets("iqn.other:b", None), targets("All", Some("a"))), (String::new(), String::new()));
    }
}
