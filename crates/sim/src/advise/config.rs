//! The configuration of `flashwise serve` for an advice.

use std::fmt::Write;

use flashwise_core::quantity::{ByteSize, Share};
use flashwise_core::tiers::YEAR_DAYS;
use flashwise_device::offers::{Catalogue, WARRANTY_YEARS};

use super::AdvisedCache;
use super::words::gb;

/// Paths of the devices; the reader fills in missing ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Paths<'a> {
    /// The slow storage.
    pub backend: Option<&'a str>,
    /// The flash.
    pub flash: Option<&'a str>,
}

/// Returns the configuration of a server with such a cache, which `command` advised.
pub fn configuration(command: &str, cache: &AdvisedCache, catalogue: &Catalogue, paths: Paths) -> String {
    let share = Share::new(cache.over_provision).unwrap_or_default();
    let offer = catalogue.offers.iter().find(|offer| {
        offer.name == cache.device && offer.devices() == cache.devices && offer.capacity_bytes() == cache.size_bytes
    });
    let mut text = format!("# A configuration of `flashwise serve`, made by: {}\n", command.replace(['\n', '\r'], " "));
    text += "listen = [\"nbd+unix:///?socket=/run/flashwise/nbd.sock\"]\n\n[[volume]]\n";
    let change = |named: Option<&str>| if named.is_some() { "" } else { "CHANGE: " };
    let number = if cache.devices > 1 { format!("{} striped ", cache.devices) } else { String::new() };
    let device = cache.device.replace(['\n', '\r'], " ");
    let mut key = |name: &str, value: &str| {
        let _ = match name {
            "backend" => writeln!(text, "# {}the slow storage, a file or a block device.", change(paths.backend)),
            "flash" => writeln!(text, "# {}the flash, {number}{device}.", change(paths.flash)),
            "journal" => writeln!(text, "# CHANGE: the journal, a file or a partition beside the backend."),
            "flash-size" => writeln!(text, "# {} in whole erase units of 2MiB.", gb(cache.size_bytes as f64)),
            _ => Ok(()),
        };
        let _ = writeln!(text, "{name} = {}", quoted(value));
    };
    key("name", "data");
    key("backend", paths.backend.unwrap_or("/dev/disk/by-id/BACKEND"));
    key("flash", paths.flash.unwrap_or("/dev/disk/by-id/FLASH"));
    // Whole erase units.
    key("flash-size", &ByteSize::new(cache.size_bytes >> 21 << 21).to_string());
    key("ram", &ByteSize::new(cache.ram_bytes).to_string());
    key("policy", &cache.policy);
    key("admission", &cache.admission);
    key("write-mode", &cache.write_mode);
    if cache.write_back_order != "none" {
        key("write-back-order", &cache.write_back_order);
    }
    if cache.write_back_order == "journal" {
        key("journal", "/srv/data.journal");
    }
    key("over-provision", &share.to_string());
    if let Some(offer) = offer {
        key("cache-device", &offer.model.to_string());
        key("storage-device", &catalogue.storage.to_string());
        let cycles = offer.model.tier.device.endurance_cycles;
        if cycles.is_finite() {
            // The drive writes per day that use up its endurance within the warranty.
            let per_day = cycles / YEAR_DAYS / WARRANTY_YEARS;
            let _ = writeln!(text, "drive-writes-per-day = {per_day:?}\nwarranty-years = {WARRANTY_YEARS}");
        }
    }
    text
}

/// Quotes text for TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}
