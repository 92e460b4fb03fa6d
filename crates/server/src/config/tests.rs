//! Tests of configurations: refused values with their messages, and the example file, which has every key.

use std::collections::BTreeSet;

use flashwise_core::cache::Mode;
use flashwise_core::cache::settings::Devices;
use flashwise_core::cache::settings::SETTINGS;
use flashwise_core::format::Geometry;

use super::keys::{ALERT_KEYS, API_KEYS, ISCSI_KEYS, LIMITS_KEYS, POOL_KEYS, SERVER_KEYS, TLS_KEYS, VOLUME_KEYS};

use super::*;

const EXAMPLE: &str = include_str!("../../../../docs/flashwise.toml");

const LEAST: &str = "\
listen = 'nbd://localhost'
[[volume]]
name = 'a'
backend = 'disk.img'
flash = 'cache.img'
";

fn parse(text: &str) -> Result<ServerConfig, String> {
    ServerConfig::parse(Path::new("flashwise.toml"), text).map_err(|error| error.to_string())
}

fn refusal(text: &str) -> String {
    parse(text).unwrap_err()
}

/// Keys of the example by table with their values, those that are commented out too.
fn example_keys() -> Vec<(String, String, String)> {
    let mut table = String::new();
    let mut keys = Vec::new();
    for line in EXAMPLE.lines() {
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']']).to_owned();
        } else if line.starts_with(|first: char| first.is_ascii_lowercase())
            || line.starts_with('#') && line[1..].starts_with(|second: char| second.is_ascii_lowercase())
        {
            let (key, value) = line.split_once(" = ").unwrap();
            keys.push((table.clone(), key.to_owned(), value.trim_matches('"').to_owned()));
        }
    }
    keys
}

fn known_keys() -> Vec<(&'static str, &'static str, Option<String>)> {
    fn of<T>(table: &'static str, keys: &[Key<T>]) -> Vec<(&'static str, &'static str, Option<String>)> {
        keys.iter().map(|key| (table, key.name, key.default.as_ref().map(ToString::to_string))).collect()
    }
    [
        of("", SERVER_KEYS),
        of("api", API_KEYS),
        of("tls", TLS_KEYS),
        of("limits", LIMITS_KEYS),
        of("iscsi", ISCSI_KEYS),
        of("alerts", ALERT_KEYS),
        of("volume", &VOLUME_KEYS),
        of("pool", &POOL_KEYS),
    ]
    .concat()
}

#[test]
fn the_example_has_every_key_with_its_default_and_no_other() {
    // A volume may do without flash, which is not what the example is about.
    let required = [
        ("", "listen"),
        ("volume", "name"),
        ("volume", "backend"),
        ("volume", "flash"),
        ("pool", "name"),
        ("pool", "disks"),
    ];
    let found = example_keys();
    let known = known_keys();
    let names = |key: &(String, String, String)| (key.0.clone(), key.1.trim_start_matches('#').to_owned());
    let found_names: BTreeSet<_> = found.iter().map(names).collect();
    assert_eq!(found_names.len(), found.len(), "a key is in the example twice");
    let known_names: BTreeSet<_> = known.iter().map(|(table, key, _)| (table.to_string(), key.to_string())).collect();
    assert_eq!(found_names, known_names);
    for (table, key, value) in &found {
        let name = key.trim_start_matches('#');
        let default = known.iter().find(|known| known.0 == table && known.1 == name).unwrap().2.as_deref();
        if required.contains(&(table, name)) {
            assert!(!key.starts_with('#') && default.is_none(), "{name} is required");
        } else {
            assert_eq!(
                key.starts_with('#'),
                default.is_none(),
                "{table} {name}: commented out unless it has a default"
            );
        }
        if let Some(default) = default {
            assert_eq!(value, default, "{table} {name}");
        }
    }
}

#[test]
fn the_example_is_valid_with_and_without_commented_keys() {
    let config = parse(EXAMPLE).unwrap();
    assert_eq!(config.volumes[0].cache.policy().to_string(), "larc");
    let all: String = EXAMPLE
        .lines()
        .map(|line| if line.starts_with("# ") { "" } else { line.trim_start_matches('#') })
        .fold(String::new(), |mut text, line| {
            text += line;
            text.push('\n');
            text
        });
    // Only this order has a journal.
    let config = parse(&all.replace("write-back-order = \"none\"", "write-back-order = \"journal\"")).unwrap();
    let volume = &config.volumes[0];
    assert_eq!((volume.size_bytes, volume.flash_size_bytes), (Some(10 << 30), Some(1 << 30)));
    assert_eq!((volume.drive_writes_per_day, volume.discard), (Some(1.0), true));
    assert_eq!(volume.export_names(), ["data", "data-uncached"]);
    assert_eq!(config.tls.client_authorities.unwrap(), Path::new("/etc/flashwise/clients.pem"));
    assert_eq!(config.api.token_file.unwrap(), Path::new("/etc/flashwise/token"));
    assert_eq!(config.record.unwrap(), Path::new("/var/lib/flashwise/requests.csv.zst"));
}

#[test]
fn omitted_options_have_documented_defaults() {
    let config = parse(LEAST).unwrap();
    assert_eq!(config.listen, ["nbd://localhost"]);
    let is_default = |address: &str| address.starts_with("unix:/") && address.ends_with("/api.sock");
    assert_eq!(config.api.address().map(is_default), cfg!(feature = "http").then_some(true));
    let recording = config.record_limits;
    assert_eq!((recording.segment_bytes_max, recording.total_bytes_max), (1 << 30, 10 << 30));
    assert_eq!((config.limits.connections_max, config.limits.bytes_in_flight_max), (4096, 64 << 20));
    assert_eq!((config.limits.requests_in_flight_max, config.limits.handshake_time_max_us), (128, 60_000_000));
    let volume = &config.volumes[0];
    // The defaults of the cache's settings are in their table.
    assert_eq!((volume.cache.erase_unit_bytes(), volume.cache.ram_bytes()), (2 << 20, 128 << 20));
    assert_eq!((volume.cache.mode(), volume.backend_delay_us), (Mode::WriteBack, 0));
    assert_eq!((volume.direct_io, volume.warranty_years, volume.aliases.len()), (true, 5.0, 0));
    assert_eq!(volume.array, flashwise_device::paper());
    let made = VolumeConfig::of("a", Path::new("disk.img"), Path::new("cache.img"));
    // A setting that is not given is its default.
    let geometry = Geometry { units: 32, unit_pages: 512 };
    let devices = Devices { flash_bytes: 64 << 20, storage_bytes: 1 << 30, array: volume.array };
    let [cache, other] = [&made, volume].map(|volume| format!("{:?}", volume.cache.config(geometry, &devices)));
    assert_eq!(cache, other);
    let volume = VolumeConfig { cache: made.cache.clone(), ..volume.clone() };
    assert_eq!(format!("{made:?}"), format!("{volume:?}"));
    let off = parse(&format!("{LEAST}[api]\nlisten = 'off'\n")).unwrap();
    assert_eq!(off.api.address(), None);
}

#[test]
fn a_refusal_names_file_line_key_found_and_expected() {
    let volume = |lines: &str| refusal(&format!("{LEAST}{lines}\n"));
    let second = "[[volume]]\nname = 'a'\nbackend = 'b'\nflash = 'c'";
    let errors = [
        volume("backend-sise = '10GiB'"),
        volume("backend-size = '10PB'"),
        volume("backend-size = 5000"),
        volume("backend-size = '17TiB'"),
        volume("flash-size = '16MiB'"),
        volume("erase-unit = '3MiB'"),
        volume("erase-unit = '32KiB'"),
        volume("ram = true"),
        volume("policy = 'lark'"),
        volume("policy = 'fif'"),
        volume("policy = 'larc:fil=ghost'"),
        volume("admission = 'sise:max=64KiB'"),
        volume("admission = 'size:max=64PB'"),
        volume("admission = 5"),
        volume("cache-device = 'slcc'"),
        volume("storage-device = 'hdd:read-latency-ms=0'"),
        volume("storage-device = 'missing.toml'"),
        volume("write-mode = 'writeback'"),
        volume("write-back-order = 'barrier'"),
        volume("layout = 'wlfc'\nwrite-back-order = 'barriers'"),
        volume("write-back-order = 'journal'"),
        volume("journal-size = '32MiB'"),
        volume("journal-size = '64MiB'"),
        volume("journal = 'disk.journal'"),
        volume("layout = 'wlfc'\njournal = 'disk.journal'"),
        volume("over-provision = '95%'"),
        volume("dirty-high = '30%'\ndirty-low = '35%'"),
        volume("dirty-age = '15'"),
        volume("cache-clients = 'nobody'"),
        volume("deny-clients = 'rsync'"),
        volume("deny-clients = ['uid:0', 'progam:rsync']"),
        volume("allow-clients = 'address:10.0.0.1/8'"),
        volume("allow-clients = 'export:b'"),
        volume("aliases = ['a/b']"),
        volume("aliases = 'a'"),
        volume(&format!("aliases = ['c', 'd']\n{}", second.replace("name = 'a'", "name = 'd'"))),
        volume("discard = 'yes'"),
        volume("drive-writes-per-day = 0"),
        volume("name = 'b'"),
        volume(second),
        volume("[limits]\nconnections = 5"),
        volume("[limits]\nbytes-in-flight-max = '1MiB'"),
        volume("[tls]\nmode = 'required'\nkey = 'a.pem'"),
        volume("[tls]\nmode = 'on'"),
        volume("[tsl]\nmode = 'on'"),
        refusal(""),
        refusal("listen = []"),
        refusal("listen = 'nbd://localhost'\n[api]\nlisten = 'off'"),
        refusal("listen = 5"),
        refusal("listen = 'nbd://localhost'\nvolume = 7"),
        refusal("listen = 'nbd://localhost'\ntls = 'required'"),
        refusal("listen = 'nbd://localhost'\n[volume]\nname = 'a'"),
        refusal("listen = 'nbd://localhost'\n[[volume]]\nname = 'a/b'"),
        refusal("listen = 'nbd://localhost'\n[[volume]]\nname = '..'"),
        refusal("listen = 'nbd://localhost'\n[[pool]]\nname = 'a'"),
        refusal("listen = 'nbd://localhost'\n[[pool]]\nname = 'a'\ndisks = 'disk.img'\nwrite-back-order = 'journal'"),
        refusal("listen = 'nbd://localhost'\n[[pool]]\nname = 'A'\ndisks = 'disk.img'"),
        refusal("listen = 'nbd://localhost'\n[[pool]]\nname = 'a'\ndisks = 'disk.img'\nflash-size = '64MiB'"),
        refusal("listen = 'nbd://localhost'\n[[volume]]\nbackend = 'disk.img'"),
        refusal("listen = 'nbd://localhost'\n[[volume]\nbackend = 'disk.img'"),
        refusal("listen = 2026-11-21"),
        refusal("listen = 'localhost:10809'"),
        refusal("listen = 'nbd://localhost/data'"),
        refusal("listen = 'nbds://localhost'"),
        volume("[api]\nlisten = 'localhost:port'"),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn all_errors_are_reported_together() {
    let text = "listn = 'nbd://localhost'\n[limits]\nmemory-max = 'much'\n[[volume]]\nname = 'a'\nbackend-sise = '1GiB'\nram = \
        '10MB'\n";
    let Err(ConfigError::Several(errors)) = ServerConfig::parse(Path::new("flashwise.toml"), text) else {
        panic!("refused for one thing alone, or not at all")
    };
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let begins = [
        "flashwise.toml:1: listn: unknown key (did you mean 'listen'?)",
        "flashwise.toml:3: [limits] memory-max: found 'much'",
        "flashwise.toml:6: [[volume]] 'a' backend-sise: unknown key (did you mean 'backend-size'?)",
        "flashwise.toml:7: [[volume]] 'a' ram: found '10MB', expected a multiple of 4KiB, such as 9764KiB",
    ];
    for (error, begins) in errors.iter().zip(begins) {
        assert!(error.starts_with(begins), "{error}");
    }
    assert_eq!(errors.len(), begins.len(), "{errors:#?}");
    // Errors between keys: the first of each volume.
    let between = refusal("[[volume]]\nname = 'b'\n[[volume]]\nname = 'c'\n");
    let begins = [
        "flashwise.toml: listen: is missing",
        "[[volume]] 'b' backend: is missing",
        "[[volume]] 'c' backend: is missing",
    ];
    let told: Vec<&str> = between.split("; flashwise.toml").collect();
    assert_eq!(told.len(), begins.len(), "{between}");
    for (told, begins) in told.iter().zip(begins) {
        assert!(told.contains(begins), "{told}");
    }
}

/// Any text is read or refused, and never a panic: here, the example with each line cut or bent.
#[test]
fn a_damaged_configuration_is_refused_and_does_not_panic() {
    let mut refused = 0;
    for (number, line) in EXAMPLE.lines().enumerate().filter(|(_, line)| line.contains(" = ") && !line.starts_with('#'))
    {
        let key = line.split(" = ").next().unwrap();
        for value in [
            "",
            "-1",
            "99999999999999999999",
            "0x7fffffffffffffff",
            "inf",
            "[[[]]]",
            "{ a = 1 }",
            "'\\u0000'",
            "1979-05-27",
        ] {
            let bent = format!("{key} = {value}");
            let text: Vec<&str> =
                EXAMPLE.lines().enumerate().map(|(at, line)| if at == number { bent.as_str() } else { line }).collect();
            refused += usize::from(parse(&text.join("\n")).is_err());
        }
    }
    assert!(refused > 150, "only {refused} were refused");
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::File::create(folder.path().join("disk.img")).unwrap().set_len(1 << 20).unwrap();
    std::fs::File::create(folder.path().join("small.img")).unwrap().set_len(20 << 20).unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    std::fs::hard_link(folder.path().join("disk.img"), folder.path().join("same.img")).unwrap();
    folder
}

fn flags(folder: &tempfile::TempDir, volume: &[(&'static str, &str)]) -> Flags {
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let is_path = |key: &str| matches!(key, "backend" | "flash");
    let given =
        |(key, value): &(&'static str, &str)| (*key, if is_path(key) { path(value) } else { value.to_string() });
    let mut volume: Vec<_> = volume.iter().map(given).collect();
    for (key, value) in [("name", "a".to_owned()), ("backend", path("disk.img")), ("flash", path("new.img"))] {
        if !volume.iter().any(|(given, _)| *given == key) {
            volume.push((key, value));
        }
    }
    Flags { listen: vec!["nbd://localhost".to_owned()], volume, ..Flags::default() }
}

#[test]
fn files_that_cannot_be_used_are_refused_by_flag_and_path() {
    let folder = folder();
    let rows: [&[(&'static str, &str)]; 12] = [
        &[("backend", "missing.img"), ("flash-size", "64MiB")],
        &[("backend", "folder"), ("flash-size", "64MiB")],
        &[("backend-size", "2MiB"), ("flash-size", "64MiB")],
        &[],
        &[("flash", "small.img")],
        &[("flash", "small.img"), ("flash-size", "64MiB")],
        &[("flash", "disk.img"), ("flash-size", "64MiB")],
        &[("flash", "same.img"), ("flash-size", "64MiB")],
        &[("flash", "missing/new.img"), ("flash-size", "64MiB")],
        &[("flash-size", "16MiB")],
        &[("backend", "/dev/no-such-disk"), ("flash-size", "64MiB")],
        &[("flash", "/dev/no-such-disk"), ("flash-size", "64MiB")],
    ];
    let errors = rows.map(|volume| {
        let error = ServerConfig::from_flags(flags(&folder, volume)).unwrap_err().to_string();
        error.replace(folder.path().to_str().unwrap(), "FOLDER")
    });
    insta::assert_snapshot!(errors.join("\n"));
}

#[test]
fn flags_are_read_like_the_keys_of_a_file() {
    let folder = folder();
    let given =
        [("backend-size", "512KiB"), ("flash-size", "64MiB"), ("policy", "lru"), ("write-mode", "write-around")];
    let config = ServerConfig::from_flags(flags(&folder, &given)).unwrap();
    let volume = &config.volumes[0];
    assert_eq!((volume.size_bytes, volume.flash_size_bytes), (Some(512 << 10), Some(64 << 20)));
    assert_eq!((volume.cache.policy().to_string().as_str(), volume.cache.mode()), ("lru", Mode::WriteAround));
    assert!(!volume.discard, "files are not discarded unless asked for");
    let config = ServerConfig::from_flags(flags(&folder, &[("flash-size", "64MiB"), ("discard", "true")])).unwrap();
    assert!(config.volumes[0].discard);
}

#[test]
fn a_file_used_by_two_volumes_or_for_the_record_is_refused() {
    let folder = folder();
    let path = folder.path().join("flashwise.toml");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let volume = |name: &str, flash: &str| {
        let (backend, flash) = (at(&format!("{name}.img")), at(flash));
        format!("[[volume]]\nname = '{name}'\nbackend = '{backend}'\nflash = '{flash}'\nflash-size = '64MiB'\n")
    };
    let read = |text: String| {
        std::fs::write(&path, text).unwrap();
        let error = ServerConfig::read(&path).unwrap_err().to_string();
        error.replace(folder.path().to_str().unwrap(), "FOLDER")
    };
    let twice = read(format!(
        "listen = 'nbd://localhost'\n{}{}",
        volume("disk", "new.img"),
        volume("small", "folder/../new.img")
    ));
    let recorded =
        read(format!("listen = 'nbd://localhost'\nrecord = '{}'\n{}", at("disk.img"), volume("disk", "new.img")));
    let device = read(format!("listen = 'nbd://localhost'\nrecord = '/dev/sdz9'\n{}", volume("disk", "new.img")));
    assert!(device.ends_with("record: found /dev/sdz9, which names a device; expected a file"), "{device}");
    let token = read(format!(
        "listen = 'nbd://localhost'\n{}[api]\ntoken-file = '{}'\n",
        volume("disk", "new.img"),
        at("token")
    ));
    let memory = read(format!("listen = 'nbd://localhost'\n{}ram = '7TiB'\n", volume("disk", "new.img")));
    let memory = memory.split("memory, ").next().unwrap().to_owned();
    let unread = ServerConfig::read(Path::new("/does/not/exist.toml")).unwrap_err().to_string();
    insta::assert_snapshot!([twice, recorded, token, memory, unread].join("\n"));
}

/// Each setting of the cache is a key of the file, with its value in the words of the table.
#[test]
fn every_setting_of_the_cache_is_a_key_of_a_volume() {
    for setting in SETTINGS {
        let (name, default) = (setting.name(), setting.parameter.default);
        let config = parse(&format!("{LEAST}{name} = '{default}'\n")).unwrap();
        assert_eq!(config.volumes[0].cache.given(setting), Some(&setting.default()), "{name}");
        let error = refusal(&format!("{LEAST}{name} = true\n"));
        assert!(
            error.starts_with(&format!("flashwise.toml:6: [[volume]] 'a' {name}: found true, expected ")),
            "{error}"
        );
    }
}

#[test]
fn iscsi_beyond_this_machine_needs_names_or_secrets() {
    let with = |listen: &str, keys: &str| {
        LEAST.replace("nbd://localhost", listen).replace("[[volume]]", &format!("{keys}\n[[volume]]"))
    };
    for local in ["iscsi://127.0.0.1", "iscsi://[::1]:3261", "iscsi://localhost"] {
        assert!(parse(&with(local, "")).is_ok(), "{local}");
    }
    let open = refusal(&with("iscsi://192.0.2.1", ""));
    assert_eq!(
        open,
        "flashwise.toml:1: listen: found 'iscsi://192.0.2.1', where other machines can connect; expected initiators or \
         chap-secret-file in the table [iscsi] of a configuration"
    );
    for open in ["iscsi://", "iscsi://0.0.0.0", "iscsi://[::]:3260", "iscsi://storage.example.com"] {
        assert!(refusal(&with(open, "")).contains("expected initiators"), "{open}");
    }
    let named = parse(&with("iscsi://0.0.0.0", "[iscsi]\ninitiators = 'iqn.1993-08.org.debian:01:abc'")).unwrap();
    assert_eq!(named.iscsi.initiators, Some(vec!["iqn.1993-08.org.debian:01:abc".to_owned()]));
    assert!(parse(&with("iscsi://0.0.0.0", "[iscsi]\nchap-name = 'me'\nchap-secret-file = 'secret'")).is_ok());
}

#[test]
fn errors_of_iscsi_settings_are_reported() {
    let with = |keys: &str| {
        LEAST
            .replace("nbd://localhost", "iscsi://localhost")
            .replace("[[volume]]", &format!("[iscsi]\n{keys}\n[[volume]]"))
    };
    for (keys, expected) in [
        ("initiators = 'abc'", "[iscsi] initiators: found 'abc', expected names of initiators"),
        ("assign = 'mail abc'", "[iscsi] assign: found 'abc', expected the name of an initiator"),
        ("assign = 'mail tls: read-only'", "[iscsi] assign: found 'tls:', expected the name of an initiator"),
        ("assign = 'mail tls:db'", "[iscsi] assign: found 'tls:db', but no client can show a certificate"),
        ("initiators = 'tls:db'", "[iscsi] initiators: found 'tls:db', expected names of initiators"),
        ("assign = 'mail'", "[iscsi] assign: found 'mail', expected an export, an initiator"),
        ("initiators = 'iqn.a:1'\nassign = 'mail iqn.b:2'", "[iscsi] assign: found 'iqn.b:2', which may not log in"),
        (
            "initiators = 'iqn.a:1'\nread-only-initiators = 'iqn.b:2'",
            "[iscsi] read-only-initiators: found 'iqn.b:2', which may not log in",
        ),
        ("chap-name = 'me'", "[iscsi] chap-secret-file: is missing"),
        ("chap-secret-file = 'secret'", "[iscsi] chap-name: is missing"),
        ("mutual-chap-name = 'it'\nmutual-chap-secret-file = 'own'", "[iscsi] chap-name: is missing"),
        ("chap = 'me'", "unknown key"),
    ] {
        assert!(refusal(&with(keys)).contains(expected), "{keys}: {}", refusal(&with(keys)));
    }
    let by_alias = with("assign = 'b iqn.a:1'").replace("name = 'a'", "name = 'a'\naliases = 'b'");
    let expected = "[iscsi] assign: found 'b', which is an alias of 'a'; expected 'a'";
    assert!(refusal(&by_alias).contains(expected), "{}", refusal(&by_alias));
    let named = LEAST.replace("nbd://localhost", "iscsi://localhost").replace("'a'", "'Data_1'");
    assert!(refusal(&named).contains("name: found 'Data_1', which has 'D'"), "{}", refusal(&named));
    assert!(parse(&LEAST.replace("'a'", "'Data_1'")).is_ok(), "NBD takes any name");
}

#[test]
fn a_certificate_is_named_where_clients_can_show_one() {
    let files = "certificate = 'a'\nkey = 'b'";
    let with = |tls: &str| {
        let tables =
            format!("[iscsi]\ninitiators = 'iqn.a:1'\nassign = ['a iqn.a:1', 'a tls:Db 1 read-only']\n[tls]\n{tls}");
        LEAST.replace("[[volume]]", &format!("{tables}\n[[volume]]"))
    };
    let refused = "[iscsi] assign: found 'tls:Db 1', but no client can show a certificate; expected client-authorities \
        in the table [tls]";
    for tls in ["", "client-authorities = 'c'", &format!("mode = 'required'\n{files}")] {
        assert!(refusal(&with(tls)).contains(refused), "{tls}: {}", refusal(&with(tls)));
    }
    for mode in ["allowed", "required"] {
        let found = parse(&with(&format!("mode = '{mode}'\nclient-authorities = 'c'\n{files}"))).unwrap();
        assert_eq!(found.iscsi.assignments[1], "a tls:Db 1 read-only".parse().unwrap());
    }
}

#[test]
fn a_pool_with_layout_wlfc_is_refused_with_the_reason() {
    let pool = "listen = 'nbd://localhost'\n[[pool]]\nname = 'a'\ndisks = 'disk.img'";
    let with = |layout| refusal(&format!("{pool}\nlayout = '{layout}'\nram = true"));
    let expected = "layout: found wlfc, expected log: a pool grows with its disks";
    assert!(with("wlfc").contains(expected), "{}", with("wlfc"));
    assert!(!with("log").contains("layout"), "{}", with("log"));
}

/// Run by `make features`.
#[cfg(not(feature = "http"))]
#[test]
fn a_server_that_was_built_without_http_has_no_api() {
    assert_eq!(parse(LEAST).unwrap().api.address(), None);
    assert_eq!(
        refusal(&format!("{LEAST}[api]\nlisten = '127.0.0.1:9470'\n")),
        "flashwise.toml:7: [api] listen: found '127.0.0.1:9470', expected off: this server was built without the \
         feature http"
    );
}

#[test]
fn secrets_of_chap_are_looked_at_before_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, contents: &str| {
        let path = folder.path().join(name);
        flashwise_testing::write_private(&path, contents);
        path.display().to_string()
    };
    let (backend, config) = (file("disk.img", &"0".repeat(1 << 20)), folder.path().join("flashwise.toml"));
    let volume = format!("[[volume]]\nname = 'a'\nbackend = '{backend}'\n");
    let (one, same, other) =
        (file("one", "0123456789ab\n"), file("same", " 0123456789ab"), file("other", "ba9876543210"));
    let (short, empty) = (file("short", "01234\n"), file("empty", ""));
    let read_at = |listen: &str, secret: &str, mutual: &str| {
        let iscsi = format!(
            "chap-name = 'me'\nchap-secret-file = '{secret}'\nmutual-chap-name = 'it'\nmutual-chap-secret-file = \
             '{mutual}'\n"
        );
        let listen = format!("listen = '{listen}'\nstate-directory = '{}'\n", folder.path().display());
        std::fs::write(&config, format!("{listen}[iscsi]\n{iscsi}{volume}")).unwrap();
        ServerConfig::read(&config).map(drop).map_err(|error| error.to_string())
    };
    let read = |secret: &str, mutual: &str| read_at("iscsi://localhost", secret, mutual);
    assert_eq!(read(&one, &other), Ok(()));
    let (long, longer) = (file("long", "0123456789abcdef\n"), file("longer", "0123456789abcdefg"));
    for listen in ["iscsi://0.0.0.0", "iscsi://[::]:3260"] {
        assert_eq!(read_at(listen, &long, &longer), Ok(()));
        for (secret, mutual, key) in [(&one, &long, "chap-secret-file"), (&long, &one, "mutual-chap-secret-file")] {
            let error = read_at(listen, secret, mutual).unwrap_err();
            let expected =
                format!("[iscsi] {key}: {one}: found 12 bytes, expected at least 16, as other machines can connect");
            assert!(error.ends_with(&expected), "{error}");
        }
    }
    for (secret, mutual, expected) in [
        (&short, &other, "[iscsi] chap-secret-file: FOLDER/short: found 5 bytes, expected at least 12"),
        (&one, &empty, "[iscsi] mutual-chap-secret-file: FOLDER/empty: found 0 bytes, expected at least 12"),
        (
            &one,
            &same,
            "[iscsi] mutual-chap-secret-file: FOLDER/same: found the secret of initiators, expected another one (RFC \
             7143)",
        ),
        (
            &one,
            &"nowhere".to_owned(),
            "[iscsi] mutual-chap-secret-file: nowhere: No such file or directory (os error 2)",
        ),
    ] {
        let error = read(secret, mutual).unwrap_err().replace(folder.path().to_str().unwrap(), "FOLDER");
        assert!(error.ends_with(expected), "{error}");
    }
}

#[test]
fn nbd_needs_certificates_to_listen_for_other_machines() {
    let tls = |mode: &str, authorities: &str| {
        format!("[tls]\nmode = '{mode}'\ncertificate = 'server.pem'\nkey = 'server.key'\n{authorities}")
    };
    let authorities = "client-authorities = 'clients.pem'\n";
    let volume = "[[volume]]\nname = 'a'\nbackend = 'disk.img'\n";
    let of = |listen: &str, tls: &str| {
        parse(&format!("listen = '{listen}'\n{tls}{volume}")).map(|config| config.open_to_all().count())
    };
    for listen in ["nbd://0.0.0.0", "nbd://[::]:10809", "nbd://nas.example", "nbd://"] {
        let open = [String::new(), tls("off", ""), tls("allowed", authorities), tls("required", "")];
        for tls in open {
            let error = of(listen, &tls).unwrap_err().to_string();
            assert!(
                error.contains("where other machines can connect and read and write every volume"),
                "{listen} {tls}: {error}"
            );
            assert_eq!(of(listen, &format!("insecure = true\n{tls}")).unwrap(), 1, "{listen} {tls}");
        }
        assert_eq!(of(listen, &tls("required", authorities)).unwrap(), 0, "{listen}");
    }
    for listen in ["nbd://localhost", "nbd://127.0.0.1", "nbd://[::1]", "nbd+unix:///?socket=nbd.sock"] {
        assert_eq!(of(listen, "").unwrap(), 0, "{listen}");
    }
}
