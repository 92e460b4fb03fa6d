//! Checks between the keys of a configuration.

use std::collections::HashMap;

use flashwise_core::cache::settings::{SETTINGS, Setting};
use flashwise_core::cache::{Mode, WriteBackOrder};
use flashwise_core::format::{BLOCK_BYTES, Geometry, Layout};
use flashwise_core::options::listed;
use flashwise_core::quantity::ByteSize;

use super::keys::VOLUME_BYTES_MAX;
use super::{Api, ConfigError, Origin, Section, ServerConfig, TlsMode};
use crate::front::iscsi::names;
use crate::front::{self, Assignment};
use crate::manage::Address;
use flashwise_storage::disk::zoned::may_have_zones;
use flashwise_storage::disk::zoned::zoning::Zoning;
use flashwise_storage::pool::PoolConfig;
use flashwise_storage::volume::{VolumeConfig, check_exports};
use flashwise_storage::wlfc::start::check_units;

/// Returns all errors between keys; for each volume and pool, only the first.
pub(super) fn check(config: &ServerConfig, origin: &Origin<'_>) -> Vec<ConfigError> {
    let mut wrong = Vec::new();
    if config.listen.is_empty() {
        let expected =
            "a URI such as nbd+unix:///?socket=/run/flashwise.sock, nbd://localhost:10809 or iscsi://127.0.0.1:3260";
        wrong.push(origin.missing(Section::Server, "listen", expected));
    }
    let of_listen = config.listen.iter().filter_map(|uri| check_listen(uri, config).err());
    wrong.extend(of_listen.map(|problem| origin.refuse(Section::Server, "listen", problem)));
    if !config.insecure {
        let open = config.open_to_all().map(|uri| {
            format!(
                "found '{uri}', where other machines can connect and read and write every volume. Set mode = \
                 \"required\" and client-authorities in the table [tls], use an address of this machine, or set \
                 insecure = true"
            )
        });
        wrong.extend(open.map(|problem| origin.refuse(Section::Server, "listen", problem)));
    }
    let of_api = config.api.address().and_then(|address| check_api(address, &config.api).err());
    wrong.extend(of_api.map(|problem| origin.refuse(Section::Api, "listen", problem)));
    if config.api.read_token_file.is_some() && config.api.token_file.is_none() {
        wrong.push(origin.missing(Section::Api, "token-file", "the token for changes, besides the read-only token"));
    }
    wrong.extend(check_tls(config, origin).err());
    wrong.extend(check_iscsi(config, origin).err());
    if config.volumes.is_empty() && config.pools.is_empty() && config.api.address().is_none() {
        let expected = "at least one table [[volume]] or [[pool]], or the management API, which can create them";
        wrong.push(origin.missing(Section::Server, "[[volume]]", expected));
    }
    let mut names = HashMap::new();
    for (number, volume) in config.volumes.iter().enumerate() {
        let checked = check_volume(number, volume, origin)
            .and_then(|()| check_names(number, volume, &mut names, origin))
            .and_then(|()| check_rules(number, volume, origin));
        wrong.extend(checked.err());
    }
    let of_pools = config.pools.iter().enumerate();
    wrong.extend(of_pools.filter_map(|(number, pool)| check_pool(number, pool, config, origin).err()));
    wrong
}

fn check_api(text: &str, api: &Api) -> Result<(), String> {
    let address = text.parse::<Address>().map_err(|error| format!("{error}, or off"))?;
    if cfg!(not(feature = "http")) {
        return Err(format!("found '{text}', expected off: this server was built without the feature http"));
    }
    match address {
        Address::Tcp(..) if api.token_file.is_none() => Err(format!(
            "found '{text}' without a token-file, so every user of this machine could change everything; expected \
             a token-file \
             too, or unix:PATH"
        )),
        _ => Ok(()),
    }
}

fn check_pool(number: usize, pool: &PoolConfig, config: &ServerConfig, origin: &Origin<'_>) -> Result<(), ConfigError> {
    let section = Section::Pool(number);
    if pool.cache.name.is_empty() {
        return Err(origin.missing(section, "name", "the name of the pool"));
    }
    if pool.disks.is_empty() {
        return Err(origin.missing(section, "disks", "the pool's disks: block devices or regular files"));
    }
    let name = &pool.cache.name;
    let taken = config.volumes.iter().any(|volume| volume.export_names().contains(name))
        || config.pools[..number].iter().any(|other| other.cache.name == *name);
    if taken {
        let problem = format!("found '{name}', which is the name of a volume or a pool too; expected another");
        return Err(origin.refuse(section, "name", problem));
    }
    check_cache(section, &pool.cache, origin)?;
    check_journal(section, &pool.cache, origin)
}

fn check_listen(text: &str, config: &ServerConfig) -> Result<(), String> {
    let uri: front::Uri = text.parse().map_err(|error: front::UriError| error.to_string())?;
    if !uri.export.is_empty() {
        return Err(format!(
            "found '{text}' with export '{}', expected none: all volumes are served there",
            uri.export
        ));
    }
    if uri.endpoint.protocol.guarded && !uri.endpoint.address.is_local() && !config.iscsi.guards() {
        return Err(format!(
            "found '{text}', where other machines can connect; expected initiators or chap-secret-file in the table \
             [iscsi] of a configuration"
        ));
    }
    if uri.encrypted && config.tls.mode == TlsMode::Off {
        return Err(format!("found '{text}', which is encrypted; expected a mode in the table [tls], which is off"));
    }
    Ok(())
}

fn check_tls(config: &ServerConfig, origin: &Origin<'_>) -> Result<(), ConfigError> {
    if config.tls.mode == TlsMode::Off {
        return Ok(());
    }
    for (key, path) in [("certificate", &config.tls.certificate), ("key", &config.tls.key)] {
        if path.is_none() {
            return Err(origin.missing(Section::Tls, key, "a PEM file, as the TLS mode is not off"));
        }
    }
    Ok(())
}

fn check_iscsi(config: &ServerConfig, origin: &Origin<'_>) -> Result<(), ConfigError> {
    let iscsi = &config.iscsi;
    let missing = |key, expected| Err(origin.missing(Section::Iscsi, key, expected));
    match (&iscsi.chap_name, &iscsi.chap_secret_file) {
        (Some(_), None) => return missing("chap-secret-file", "the file of the secret for this chap-name"),
        (None, Some(_)) => return missing("chap-name", "the name that goes with the chap-secret-file"),
        _ => {}
    }
    match (&iscsi.mutual_chap_name, &iscsi.mutual_chap_secret_file) {
        (Some(_), None) => return missing("mutual-chap-secret-file", "the file of the target's own secret"),
        (None, Some(_)) => return missing("mutual-chap-name", "the name that goes with the mutual-chap-secret-file"),
        (Some(_), Some(_)) if iscsi.chap_name.is_none() => {
            return missing("chap-name", "a name and a secret of initiators, which mutual CHAP needs");
        }
        _ => {}
    }
    let (of_nbd, of_iscsi): (Vec<_>, Vec<_>) =
        iscsi.assignments.iter().partition(|assignment| assignment.certificate().is_some());
    if let Some(Assignment { initiator, .. }) = of_nbd.first().filter(|_| !config.tls.asks_clients()) {
        let problem = format!(
            "found '{initiator}', but no client can show a certificate; expected client-authorities in the table \
             [tls], and a mode that is not off"
        );
        return Err(origin.refuse(Section::Iscsi, "assign", problem));
    }
    for Assignment { export, .. } in &iscsi.assignments {
        if let Some(volume) = config.volumes.iter().find(|volume| volume.aliases.contains(export)) {
            let own = &volume.name;
            let problem = format!(
                "found '{export}', which is an alias of '{own}'; expected '{own}', which covers all of its names"
            );
            return Err(origin.refuse(Section::Iscsi, "assign", problem));
        }
    }
    let named = [
        ("read-only-initiators", iscsi.read_only_initiators.iter().collect::<Vec<_>>()),
        ("assign", of_iscsi.into_iter().map(|assignment| &assignment.initiator).collect()),
    ];
    for (key, names) in named {
        let is_shut_out = |name: &&&String| iscsi.initiators.as_ref().is_some_and(|admitted| !admitted.contains(name));
        if let Some(name) = names.iter().find(is_shut_out) {
            let problem = format!("found '{name}', which may not log in; expected a name from the key initiators");
            return Err(origin.refuse(Section::Iscsi, key, problem));
        }
    }
    let is_served = |uri: &String| uri.parse::<front::Uri>().is_ok_and(|uri| uri.endpoint.protocol.guarded);
    if !config.listen.iter().any(is_served) {
        return Ok(());
    }
    for (number, volume) in config.volumes.iter().enumerate() {
        for (at, name) in volume.export_names().iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let key = if at == 0 { "name" } else { "aliases" };
            names::check_export(name).map_err(|problem| origin.refuse(Section::Volume(number), key, problem))?;
        }
    }
    Ok(())
}

/// Refuses a duplicate name. `taken` has the names of the previous volumes, with their numbers.
fn check_names(
    number: usize,
    volume: &VolumeConfig,
    taken: &mut HashMap<String, usize>,
    origin: &Origin<'_>,
) -> Result<(), ConfigError> {
    for (at, name) in volume.export_names().into_iter().enumerate() {
        let whose = match taken.get(&name) {
            None => {
                taken.insert(name, number);
                continue;
            }
            Some(&other) if other == number => "the volume itself, or an alias".to_owned(),
            Some(other) => format!("volume number {}", other + 1),
        };
        let key = if at == 0 { "name" } else { "aliases" };
        let problem = format!("found '{name}', which is the name of {whose} too; expected another");
        return Err(origin.refuse(Section::Volume(number), key, problem));
    }
    Ok(())
}

fn check_rules(number: usize, volume: &VolumeConfig, origin: &Origin<'_>) -> Result<(), ConfigError> {
    let names = volume.export_names();
    let filter = volume.cache.filter();
    for (key, rules) in [("allow-clients", &filter.allow), ("deny-clients", &filter.deny)] {
        check_exports(rules, &names).map_err(|problem| origin.refuse(Section::Volume(number), key, problem))?;
    }
    Ok(())
}

fn check_volume(number: usize, volume: &VolumeConfig, origin: &Origin<'_>) -> Result<(), ConfigError> {
    let section = Section::Volume(number);
    let required = [
        ("name", volume.name.is_empty(), "the name that clients open"),
        ("backend", volume.backend.as_os_str().is_empty(), "a regular file or a block device: the slow storage"),
    ];
    if let Some((key, _, expected)) = required.into_iter().find(|(_, missing, _)| *missing) {
        return Err(origin.missing(section, key, expected));
    }
    check_cache(section, volume, origin)?;
    check_journal(section, volume, origin)
}

/// Checks that there is a journal if write-back uses one.
fn check_journal(section: Section, volume: &VolumeConfig, origin: &Origin<'_>) -> Result<(), ConfigError> {
    if volume.cache.order() == WriteBackOrder::Journal && volume.journal.is_none() {
        return Err(origin.missing(section, "journal", "a file or a partition for write-back-order = \"journal\""));
    }
    if let Some(journal) = &volume.journal
        && volume.cache.order() != WriteBackOrder::Journal
    {
        let found = journal.display();
        let problem = format!("found {found}, which only write-back-order = \"journal\" uses; expected none");
        return Err(origin.refuse(section, "journal", problem));
    }
    if volume.journal.is_none() && volume.journal_size_bytes.is_some() {
        return Err(origin.missing(section, "journal", "the journal with this journal-size"));
    }
    Ok(())
}

fn check_cache(section: Section, volume: &VolumeConfig, origin: &Origin<'_>) -> Result<(), ConfigError> {
    volume.cache.check().map_err(|error| origin.refuse(section, &error.key, error.problem))?;
    if volume.flash.as_os_str().is_empty() && volume.flash_size_bytes.is_some() {
        return Err(origin.missing(section, "flash", "the flash with this flash-size"));
    }
    // Existing zones define their own size.
    if let Some(bytes) = volume.flash_size_bytes {
        match volume.flash_zones {
            Some(Zoning { size, .. }) => check_zones(bytes, size),
            None if may_have_zones(&volume.flash) => Ok(()),
            None => check_flash_size(bytes, volume.cache.erase_unit_bytes()),
        }
        .map_err(|problem| origin.refuse(section, "flash-size", problem))?;
    }
    check_layout(section, volume, origin)
}

/// Checks the settings that only one layout has.
fn check_layout(section: Section, volume: &VolumeConfig, origin: &Origin<'_>) -> Result<(), ConfigError> {
    let refuse = |key: &str, problem: &str| Err(origin.refuse(section, key, problem.to_owned()));
    // One error names all of them, at the place of the first.
    let refuse_others = |given: &[&str], layout: &str, what_has: &str| match given {
        [] => Ok(()),
        [key] => refuse(key, &format!("{layout} has no such setting; {what_has}")),
        [key, others @ ..] => {
            refuse(key, &format!("{layout} has no such setting, nor {}; {what_has}", others.join(", ")))
        }
    };
    if volume.layout.number() == Layout::Log {
        // Older examples set them to their defaults, which have no effect.
        let is_given = |setting: &&Setting| {
            !setting.is_of(Layout::Log) && volume.cache.given(setting).is_some_and(|value| *value != setting.default())
        };
        let given: Vec<&str> = SETTINGS.iter().filter(is_given).map(Setting::name).collect();
        return refuse_others(&given, "layout log", "layout wlfc does");
    }
    if volume.flash.as_os_str().is_empty() {
        return Err(origin.missing(section, "flash", "the flash that layout wlfc needs"));
    }
    if volume.cache.mode() != Mode::WriteBack {
        return refuse("write-mode", "layout wlfc supports only write-back: its buckets hold dirty blocks");
    }
    if volume.discard {
        return refuse("discard", "layout wlfc does not support discards");
    }
    let (key, unit) = match volume.flash_zones {
        Some(zoning) => ("flash-zones", zoning.capacity),
        None => ("erase-unit", volume.cache.erase_unit_bytes()),
    };
    let limits = volume.flash_zones.into_iter().flat_map(|zoning| [zoning.max_active, zoning.max_open]);
    let unit_is_of_flash = volume.flash_zones.is_none() && may_have_zones(&volume.flash);
    if let Err(problem) = check_units(unit, limits.filter(|most| *most > 0).min())
        && !unit_is_of_flash
    {
        return refuse(key, &problem);
    }
    let is_of_log = |key: &&str| {
        let setting = SETTINGS.iter().find(|setting| setting.name() == *key);
        setting.map_or(["journal", "journal-size", "cache-device", "storage-device"].contains(key), |setting| {
            !setting.is_of(Layout::Wlfc)
        })
    };
    let given = origin.tables.entries(section).iter().map(|entry| entry.key.as_str());
    let given: Vec<&str> = given.filter(is_of_log).collect();
    let all: Vec<&str> = SETTINGS.iter().filter(|setting| setting.is_of(Layout::Wlfc)).map(Setting::name).collect();
    refuse_others(&given, "layout wlfc", &format!("it has {}", listed(&all)))
}

/// Refuses a file with too few zones for a cache, which needs two for superblocks.
fn check_zones(bytes: u64, zone_bytes: u64) -> Result<(), String> {
    let shown = |bytes| ByteSize::new(bytes).to_string();
    let (zones, zones_min) = (bytes / zone_bytes, u64::from(Geometry::UNITS_MIN) + 1);
    if zones >= zones_min {
        return Ok(());
    }
    let (found, zone, expected) = (shown(bytes), shown(zone_bytes), shown(zones_min * zone_bytes));
    Err(format!("found {found}, which is {zones} zones of {zone}; expected at least {zones_min}, {expected}"))
}

/// Refuses a flash that is too small or too large for a cache.
pub(super) fn check_flash_size(bytes: u64, erase_unit_bytes: u64) -> Result<(), String> {
    let shown = |bytes| ByteSize::new(bytes).to_string();
    let (units, unit) = (bytes / erase_unit_bytes, shown(erase_unit_bytes));
    let units_min = u64::from(Geometry::UNITS_MIN);
    if units < units_min {
        return Err(format!(
            "found {}, which is {units} erase units of {unit}; expected at least {units_min}, {}; use more flash or a \
             smaller \
             erase-unit",
            shown(bytes),
            shown(units_min * erase_unit_bytes)
        ));
    }
    let pages = units * (erase_unit_bytes / BLOCK_BYTES as u64);
    if pages > u64::from(u32::MAX) {
        return Err(format!(
            "found {}, expected less than {}; set a smaller flash-size",
            shown(bytes),
            shown(VOLUME_BYTES_MAX)
        ));
    }
    Ok(())
}
