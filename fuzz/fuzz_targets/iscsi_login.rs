//! An initiator logs in with any bytes, or with keys of any values.
//!
//! Each message gets a reply or ends the connection, no login succeeds without the secret, and the division into
//! packets makes no difference.
#![no_main]

use flashwise_server::front::iscsi::login::{Login, Step};
use flashwise_server::front::{Credentials, Iscsi};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

const TEXTS: [&str; 20] = [
    "InitiatorName=iqn.2026-11.org.example:a\0",
    "TargetName=iqn.2026-11.org.flashwise:disk\0",
    "SessionType=Discovery\0",
    "SessionType=Normal\0",
    "AuthMethod=CHAP,None\0",
    "AuthMethod=None\0",
    "CHAP_A=5,7\0",
    "CHAP_N=me\0",
    "CHAP_R=0x00000000000000000000000000000000\0",
    "CHAP_I=1\0",
    "CHAP_C=0b",
    "HeaderDigest=CRC32C,None\0",
    "DataDigest=None\0",
    "MaxRecvDataSegmentLength=",
    "InitialR2T=No\0",
    "MaxBurstLength=16776192\0",
    "65536\0",
    "ErrorRecoveryLevel=2\0",
    "X-org.example=",
    "\0",
];

fn messages(program: &mut Unstructured) -> Result<Vec<u8>> {
    let mut said = Vec::new();
    while !program.is_empty() {
        let mut data = Vec::new();
        let [flags, texts, lie] = program.arbitrary::<[u8; 3]>()?;
        for _ in 0..texts % 8 {
            let choice = usize::from(program.arbitrary::<u8>()?);
            match TEXTS.get(choice % 24) {
                Some(text) => data.extend(text.bytes()),
                None => data.extend(program.bytes((choice % 32).min(program.len()))?),
            }
        }
        let mut header = [0; 48];
        (header[0], header[1]) = (0x43, [0x81, 0x87, 0x01, 0x04, 0x40, flags][usize::from(flags) % 6]);
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        if lie > 250 {
            header[usize::from(program.arbitrary::<u8>()? % 48)] = program.arbitrary()?;
        }
        said.extend(header);
        said.extend(&data);
        said.resize(said.len().next_multiple_of(4), 0);
    }
    Ok(said)
}

/// Returns the reply to `said`, which arrives in pieces of `at_once` bytes, and true if there is a session.
fn answers(said: &[u8], access: &Iscsi, at_once: usize) -> (Vec<u8>, bool) {
    let exists = |name: &str| name == "disk";
    let random = |bytes: &mut [u8]| {
        bytes.fill(7);
        true
    };
    let mut login = Login::new(access, &exists, &random);
    let (mut start, mut arrived, mut answers) = (0, 0, Vec::new());
    loop {
        let (taken, step) = login.advance(&said[start..arrived], &mut answers);
        start += taken;
        match step {
            Step::Continue if taken > 0 => {}
            Step::Continue if arrived < said.len() => arrived = (arrived + at_once).min(said.len()),
            Step::Begin(agreed) => {
                assert!(agreed.parameters.first_burst_bytes_max <= agreed.parameters.burst_bytes_max);
                login.finish(Ok(1), &mut answers);
                return (answers, true);
            }
            Step::Continue | Step::End => return (answers, false),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let said = match bytes.split_first() {
        Some((first, rest)) if first % 8 == 0 => rest.to_vec(),
        Some((_, rest)) => messages(&mut Unstructured::new(rest)).unwrap_or_default(),
        None => return,
    };
    let secret = Some(Credentials { name: "me".into(), secret: b"nobody says this".to_vec() });
    let guarded = Iscsi { chap: secret.clone(), mutual_chap: secret, ..Iscsi::default() };
    for access in [Iscsi::default(), guarded] {
        let whole = answers(&said, &access, said.len().max(1));
        assert!(whole.0.len().is_multiple_of(4) && whole.0.len() <= 1024 + 8 * said.len());
        assert!(!whole.1 || access.chap.is_none(), "who does not know the secret is let in");
        assert!(answers(&said, &access, 7) == whole);
    }
});
