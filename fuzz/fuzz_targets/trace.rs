//! Any bytes as a trace, in whatever format and compression they look like: read to the end or refused.
#![no_main]

use std::io::Cursor;

use flashwise_sim::input::Input;
use flashwise_sim::normalise::{Settings, normalise};
use flashwise_sim::progress::Silent;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for lenient in [false, true] {
        let Ok(mut input) = Input::new("trace", Box::new(Cursor::new(bytes.to_vec())), &Silent) else { return };
        let settings = Settings { lenient, ..Settings::default() };
        // Refusing it is as right.
        let _ = normalise(&mut input, &settings, Cursor::new(Vec::new()));
    }
});
