//! Any text as a description of devices: an array and its workloads, or a flash device. If it is accepted, all figures
//! are numbers.
#![no_main]

use std::sync::LazyLock;

use flashwise_core::tiers::Array;
use flashwise_device::flash::Profile;
use flashwise_sim::array::{Description, Lifetime};
use libfuzzer_sys::fuzz_target;

static PAPER: LazyLock<Array> = LazyLock::new(flashwise_device::paper);

fn array(text: &str) {
    let description = match Description::parse("array.toml", text) {
        Ok(description) => description,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut array = *PAPER;
    array.cache = description.cache.unwrap_or(array.cache);
    array.storage = description.storage.unwrap_or(array.storage);
    for workload in &description.workloads {
        let lifetime = Lifetime::of(&array, workload);
        for figure in
            [lifetime.lifetime_years, lifetime.latency_mean_us, lifetime.cache_wear_rate, lifetime.storage_wear_rate]
        {
            assert!(figure >= 0.0, "{lifetime:?}");
        }
        assert!(lifetime.latency_request_mean_us.is_none_or(|latency_us| latency_us >= 0.0), "{lifetime:?}");
    }
}

fuzz_target!(|text: &str| {
    array(text);
    match Profile::parse("device.toml", text) {
        Ok(profile) => assert!(profile.block_bytes() > 0),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
