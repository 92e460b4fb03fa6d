//! Any header and any text: decoding and encoding give the same bytes.
#![no_main]

use flashwise_server::front::iscsi::discovery::{SendTargets, answer};
use flashwise_server::front::iscsi::negotiation::Parameters;
use flashwise_server::front::iscsi::pdu::{Digests, put, take_header};
use flashwise_server::front::iscsi::text;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for header in [false, true] {
        let digests = Digests { header, data: header };
        if let Ok(Some((found, length))) = take_header(bytes, digests) {
            assert!(length <= bytes.len() && found.data_bytes() < 1 << 24);
            let mut output = Vec::new();
            put(&mut output, found, b"data", digests);
            // Additional headers are not encoded.
            assert!(found.additional_bytes() > 0 || take_header(&output, digests).is_ok_and(|again| again.is_some()));
        }
    }
    let Ok(pairs) = text::parse(bytes) else { return };
    let mut again = Vec::new();
    pairs.iter().for_each(|(key, value)| text::put(&mut again, key, value));
    assert_eq!(text::parse(&again).as_ref(), Ok(&pairs));
    for (_, value) in &pairs {
        if let Some(bytes) = text::binary(value, 64) {
            assert!(bytes.len() <= 64);
            assert_eq!(text::binary(&text::hex(&bytes), 64), Some(bytes));
        }
    }
    let mut parameters = Parameters::default();
    let mut reply = Vec::new();
    for (key, value) in &pairs {
        parameters.negotiate(key, value, &mut reply);
    }
    parameters.settle();
    assert!(parameters.first_burst_bytes_max <= parameters.burst_bytes_max && parameters.segment_bytes_max >= 512);
    let exports = ["disk".to_owned()];
    let portals = ["127.0.0.1:3260".to_owned(), "[::1]:3260".to_owned()];
    let asked = SendTargets { exports: &exports, portals: &portals, own: None };
    let _ = answer(&pairs, &asked, &mut parameters, &mut reply);
    assert!(text::parse(&reply).is_ok());
});
