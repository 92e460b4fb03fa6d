//! Names of targets and initiators. Source: RFC 7143, section 4.2.7; RFC 3722.

use super::text::hex;

/// Prefix of all targets' names; the export's name follows.
pub const PREFIX: &str = "iqn.2026-11.org.flashwise:";
/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 223;

/// Returns the name of an export's target.
pub fn target(export: &str) -> String {
    format!("{PREFIX}{export}")
}

/// Returns the name of the file in the state directory for the persistent reservations of an export.
pub fn reservations_file(export: &str) -> String {
    format!("reservations-{export}.json")
}

/// Returns the export in a target's name, if the name has the right form.
pub fn export(target: &str) -> Option<&str> {
    target.strip_prefix(PREFIX).filter(|export| !export.is_empty())
}

/// Checks an export's name as part of a target's name; the error describes the problem.
pub fn check_export(export: &str) -> Result<(), String> {
    let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.:".contains(letter);
    if let Some(letter) = export.chars().find(|letter| !allowed(*letter)) {
        return Err(format!(
            "found '{export}', which has '{letter}'; expected only lower-case letters, digits, '-', '.' and ':', as in \
             iSCSI names"
        ));
    }
    let length = PREFIX.len() + export.len();
    if length > NAME_BYTES_MAX {
        let most = NAME_BYTES_MAX - PREFIX.len();
        return Err(format!("found a name of {} bytes, expected at most {most} over iSCSI", export.len()));
    }
    Ok(())
}

/// True if this is a valid name of an initiator.
pub fn is_initiator(name: &str) -> bool {
    let kinds = ["iqn.", "eui.", "naa."];
    name.len() <= NAME_BYTES_MAX
        && kinds.iter().any(|kind| name.starts_with(kind))
        && !name.chars().any(|letter| letter.is_control() || letter.is_whitespace())
}

/// Returns the transport ID of an initiator port, with its ISID. Source: SPC-4, section 7.6.4.6.
pub fn transport_id(initiator: &str, isid: [u8; 6]) -> Vec<u8> {
    let mut name = format!("{initiator},i,{}", hex(&isid)).into_bytes();
    name.push(0);
    while name.len() % 4 != 0 || name.len() < 20 {
        name.push(0);
    }
    let mut id = vec![0x45, 0];
    id.extend((name.len() as u16).to_be_bytes());
    id.extend(name);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_have_targets_whose_names_are_allowed() {
        assert_eq!(target("data"), "iqn.2026-11.org.flashwise:data");
        assert_eq!(export(&target("a:b")), Some("a:b"));
        assert_eq!((export("iqn.2026-11.org.flashwise:"), export("iqn.2026-11.org.other:a")), (None, None));
        assert_eq!(check_export("data-1.old:x"), Ok(()));
        for wrong in ["Data", "a b", "a_b", "ä"] {
            assert!(check_export(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
        assert!(check_export(&"a".repeat(197)).is_ok() && check_export(&"a".repeat(198)).is_err());
    }

    #[test]
    fn a_transport_id_is_as_long_as_it_says() {
        let id = transport_id("iqn.1993-08.org.debian:01:abc", [0x80, 1, 2, 3, 0, 9]);
        assert_eq!(id[..4], [0x45, 0, 0, 48]);
        assert_eq!(id.len(), 52);
        assert!(id[4..].starts_with(b"iqn.1993-08.org.debian:01:abc,i,0x800102030009\0"));
        assert!(is_initiator("iqn.1993-08.org.debian:01:abc") && !is_initiator("iqn.a b") && !is_initiator("debian"));
    }
}
