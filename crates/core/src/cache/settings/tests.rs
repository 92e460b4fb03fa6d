use super::*;
use crate::filter::Clients;
use crate::options::{Kind, Parameter};
use crate::tiers::{Array, Device, Tier};

const GEOMETRY: Geometry = Geometry { units: 32, unit_pages: 512 };
const TIER: Tier = Tier {
    device: Device { capacity_bytes: 1e9, endurance_cycles: 1e4, read_latency_us: 100.0, write_latency_us: 100.0 },
    devices: 1.0,
    write_amplification: 1.0,
};
const DEVICES: Devices =
    Devices { flash_bytes: 64 << 20, storage_bytes: 1 << 30, array: Array { cache: TIER, storage: TIER } };

fn config(rows: &[(&str, &str)]) -> Config {
    Settings::of(rows).unwrap().config(GEOMETRY, &DEVICES)
}

fn refusal(name: &str, text: &str) -> String {
    Settings::of(&[(name, text)]).unwrap_err().to_string()
}

/// Names are unique, and every row is complete.
#[test]
fn every_row_is_a_setting_with_a_valid_default_that_reads_as_it_is_shown() {
    for (number, setting) in SETTINGS.iter().enumerate() {
        let Parameter { name, default, meaning, .. } = setting.parameter;
        assert!(SETTINGS[..number].iter().all(|other| other.name() != name), "{name} is there twice");
        assert_eq!(setting.default().to_string(), default, "{name}");
        assert!(meaning.len() > 20 && !meaning.ends_with('.') && meaning.starts_with(char::is_uppercase), "{name}");
        assert_eq!(setting.values, setting.values.to_uppercase(), "{name}");
        if let Kind::Choice(words) = setting.parameter.kind {
            for word in words {
                assert_eq!(setting.read(&Given::from(*word)).unwrap().to_string(), *word, "{name}");
            }
        }
        assert!(setting.read(&Given::Boolean(true)).unwrap_err().to_string().contains("found true"), "{name}");
    }
}

#[test]
fn omitted_settings_have_documented_defaults() {
    let all = config(&[]);
    // 128 MiB are 32,768 blocks.
    assert_eq!((all.read_buffer_blocks, all.write_buffer_blocks), (16_384, 16_384));
    assert_eq!((all.policy.to_string(), all.admission.is_none(), all.mode), ("larc".to_owned(), true, Mode::WriteBack));
    let bare = Config::new(GEOMETRY, "lru".parse().unwrap());
    assert_eq!((bare.read_buffer_blocks, bare.write_buffer_blocks), (0, 0));
    assert_eq!((bare.policy.to_string(), bare.segment_blocks), ("lru".to_owned(), RECORDS_PER_PAGE as u32));
    for config in [all, bare] {
        assert_eq!((config.over_provision, config.copy_forward), (0.1, CopyForward::Used));
        assert_eq!(config.order, WriteBackOrder::None);
        assert_eq!((config.dirty_high, config.dirty_low), (0.5, 0.4));
        assert_eq!((config.dirty_age_us, config.commit_age_us), (900_000_000, 5_000_000));
        assert_eq!((config.sequential_blocks, config.geometry), (1024, GEOMETRY));
    }
    assert_eq!(Settings::default().erase_unit_bytes(), 2 << 20);
    assert_eq!(Settings::default().filter(), Filter::default());
}

#[test]
fn every_setting_arrives_where_it_belongs() {
    let config = config(&[
        ("ram", "1MiB"),
        ("write-buffer-share", "25%"),
        ("write-buffer-half-life", "3"),
        ("policy", "mq:m=4"),
        ("admission", "size:max=8KiB"),
        ("write-mode", "write-around"),
        ("write-back-order", "barriers"),
        ("over-provision", "0.2"),
        ("copy-forward", "young:30%"),
        ("dirty-high", "60%"),
        ("dirty-low", "30%"),
        ("dirty-age", "30s"),
        ("commit-age", "1s"),
        ("sequential-bypass", "1MiB"),
    ]);
    assert_eq!((config.read_buffer_blocks, config.write_buffer_blocks), (192, 64));
    assert_eq!(config.write_buffer_half_life, 3);
    let admission = config.admission.unwrap();
    assert_eq!(
        (config.policy.to_string(), admission.rule.to_string()),
        ("mq:m=4".to_owned(), "size:max=8KiB".to_owned())
    );
    assert_eq!(admission.setting.array.storage.device.capacity_bytes, (1u64 << 30) as f64);
    assert_eq!((config.mode, config.order), (Mode::WriteAround, WriteBackOrder::Barriers));
    assert_eq!(config.over_provision, 0.2);
    assert_eq!(config.copy_forward, CopyForward::Young(0.3));
    assert_eq!((config.dirty_high, config.dirty_low), (0.6, 0.3));
    assert_eq!((config.dirty_age_us, config.commit_age_us, config.sequential_blocks), (30_000_000, 1_000_000, 256));
    let rows =
        [("erase-unit", "64KiB"), ("cache-clients", "none"), ("allow-clients", "uid:7"), ("deny-clients", "pid:1")];
    let settings = Settings::of(&rows).unwrap();
    let filter = settings.filter();
    assert_eq!((settings.erase_unit_bytes(), filter.clients), (64 << 10, Clients::None));
    assert_eq!((filter.allow, filter.deny), (vec!["uid:7".parse().unwrap()], vec!["pid:1".parse().unwrap()]));
}

/// A quarter of 67,113,864 bytes is slightly more than 4,096 blocks.
#[test]
fn ram_may_be_a_share_of_the_flash() {
    let mut settings = Settings::of(&[("write-buffer-share", "25%")]).unwrap();
    settings.set(Setting::named("ram"), Value::Share(0.25));
    let config = settings.config(GEOMETRY, &Devices { flash_bytes: (64 << 20) + 5000, ..DEVICES });
    assert_eq!((config.read_buffer_blocks, config.write_buffer_blocks), (3072, 1024));
}

#[test]
fn an_error_names_setting_found_and_expected_value() {
    let errors = [
        refusal("erase-unit", "3MiB"),
        refusal("erase-unit", "32KiB"),
        refusal("ram", "6KiB"),
        refusal("ram", "9TiB"),
        refusal("over-provision", "95%"),
        refusal("dirty-high", "130%"),
        refusal("dirty-age", "15"),
        refusal("write-mode", "writeback"),
        refusal("write-back-order", "barrier"),
        refusal("copy-forward", "half"),
        refusal("copy-forward", "young:0%"),
        refusal("policy", "fif"),
        refusal("policy", ""),
        refusal("admission", "probability:p=2"),
        refusal("cache-clients", "everybody"),
        refusal("deny-clients", "uid:x"),
    ];
    let expected = [
        "erase-unit: found '3MiB', expected a power of two from 64KiB to 256MiB",
        "erase-unit: found '32KiB', expected a power of two from 64KiB to 256MiB",
        "ram: found '6KiB', expected a multiple of 4KiB, such as 4KiB",
        "ram: found '9TiB', expected a size in bytes from 0B to 8TiB",
        "over-provision: found '95%', expected a share from 0% to 90%, such as 30% or 0.3",
        "dirty-high: found '130%', expected a share from 0% to 100%, such as 30% or 0.3",
        "dirty-age: duration '15' has no unit, expected us, ms, s, min, h or d, as in 15s",
        "write-mode: found 'writeback' (did you mean 'write-back'?), expected write-back, write-through or \
         write-around",
        "write-back-order: found 'barrier' (did you mean 'barriers'?), expected none, barriers or journal",
        "copy-forward: found 'half', expected used, all, none or young:SHARE, above 0% and up to 100%: young:50%",
        "copy-forward: found 'young:0%', expected used, all, none or young:SHARE, above 0% and up to 100%: young:50%",
        "policy: found 'fif', which needs to know the future and can only be simulated; expected another of the \
         policies that \
         `flashwise policies` lists",
        "policy: found '', expected text that is not empty",
        "admission: probability: p: found '2', expected a number from 0 to 1",
        "cache-clients: found 'everybody', expected all or none",
        "deny-clients: found 'uid:x', expected a number after uid:",
    ];
    assert_eq!(errors, expected);
    // Only values that would be accepted are suggested.
    let error = refusal("policy", "larcc");
    assert!(error.starts_with("policy: unknown policy 'larcc' (did you mean 'larc'?)"), "{error}");
    assert!(!error.contains(", fif,") && !error.contains(", min"), "{error}");
    let error = Setting::find_settable("dirty_hihg").unwrap_err().to_string();
    assert!(
        error.starts_with("dirty_hihg: unknown setting (did you mean 'dirty-high'?); expected one of: policy, "),
        "{error}"
    );
    assert!(Setting::find_settable("ram").is_err() && Setting::find_settable("policy").is_ok());
}

#[test]
fn the_cleaner_stops_below_where_it_begins() {
    let check = |rows: &[(&str, &str)]| Settings::of(rows).unwrap().check().map_err(|error| error.to_string());
    assert_eq!(check(&[("dirty-low", "50%")]), Ok(()));
    let error = "dirty-low: found 40%, expected at most dirty-high, which is 30%";
    assert_eq!(check(&[("dirty-high", "30%"), ("dirty-low", "40%")]), Err(error.to_owned()));
    // Without one of its own, it stops where it begins.
    let limits = |rows: &[(&str, &str)]| Settings::of(rows).unwrap().dirty_limits();
    assert_eq!((check(&[("dirty-high", "0%")]), limits(&[("dirty-high", "0%")])), (Ok(()), (0.0, 0.0)));
    assert_eq!(limits(&[("dirty-high", "60%")]), (0.6, 0.4));
}
