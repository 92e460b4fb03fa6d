//! Any text for each syntax of the command line, the configuration and the API: sizes, durations, policies, rules,
//! patterns, formats, addresses.
//!
//! Each is accepted, or refused with an error message. The displayed form is parsed to the same value.
#![no_main]

use std::fmt::Display;
use std::str::FromStr;

use flashwise_core::admission;
use flashwise_core::cache::Mode;
use flashwise_core::cache::settings::SETTINGS;
use flashwise_core::container_policy;
use flashwise_core::options::Given;
use flashwise_core::policy;
use flashwise_core::quantity::{ByteSize, Duration, Share};
use flashwise_device::flash::{GcPlacement, Victim};
use flashwise_server::front::nbd::Uri;
use flashwise_server::manage;
use flashwise_sim::array::{Arrivals, NamedWorkload, TraceRule};
use flashwise_sim::cache_settings::Ram;
use flashwise_sim::endurance::Algorithm;
use flashwise_sim::simulate::Warmup;
use flashwise_sim::size::{Size, parse_block_size};
use flashwise_trace::formats::FormatSpec;
use flashwise_trace::tools::generate::{PatternSpec, parse_rate, parse_request_blocks};
use libfuzzer_sys::fuzz_target;

/// Parses `text`; an error must have a message.
fn read<T, E: Display>(result: Result<T, E>) -> Option<T> {
    result.map_err(|error| assert!(!error.to_string().is_empty())).ok()
}

/// Parses `text` and, if it is accepted, its displayed form, which is displayed the same.
fn again<T: FromStr<Err: Display> + Display>(text: &str) {
    let Some(value) = read(text.parse::<T>()) else { return };
    let shown = value.to_string();
    match shown.parse::<T>() {
        Ok(again) => assert_eq!(again.to_string(), shown, "{text:?}"),
        Err(error) => panic!("{text:?} is shown as {shown:?}, which is refused: {error}"),
    }
}

fuzz_target!(|text: &str| {
    again::<ByteSize>(text);
    again::<Duration>(text);
    again::<Size>(text);
    again::<policy::Spec>(text);
    again::<admission::Spec>(text);
    again::<container_policy::Spec>(text);
    again::<Arrivals>(text);
    again::<Uri>(text);
    again::<manage::Address>(text);
    if let Some(size) = read(text.parse::<Size>()) {
        read(size.capacity_blocks(1000, 4096)).inspect(|blocks| assert!(*blocks > 0));
    }
    read(Size::parse_list(text));
    read(parse_block_size(text));
    read(Mode::from_str(text));
    read(text.parse::<Ram>());
    read(text.parse::<Warmup>());
    read(text.parse::<PatternSpec>());
    read(text.parse::<FormatSpec>());
    read(text.parse::<Algorithm>()).inspect(|algorithm| assert!(!algorithm.info().name.is_empty()));
    read(GcPlacement::parse(text));
    read(Victim::parse(text));
    read(TraceRule::parse_list(text)).inspect(|rules| assert!(rules.len() <= 1000));
    read(NamedWorkload::of_option("--workload", text));
    read(flashwise_device::tier_model_of_option("--cache", text));
    again::<Share>(text);
    read(parse_request_blocks(text)).inspect(|blocks| assert!(*blocks.start() >= 1 && !blocks.is_empty()));
    read(parse_rate(text)).inspect(|rate| assert!(*rate > 0.0 && rate.is_finite()));
    read(manage::parse_changes(text.as_bytes()));
    // One key for each text, because trying all takes longer than everything else.
    read(SETTINGS[text.len() % SETTINGS.len()].read(&Given::Text(text.to_owned())));
});
