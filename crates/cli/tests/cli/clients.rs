//! Third-party clients on a cached volume: nbdinfo, nbdcopy, nbdsh, qemu-img and qemu-io, in plain text and over TLS.
//!
//! If a client is not installed, its tests fail.

use std::path::Path;
use std::process::{Command, Output};

use crate::serving::Setting;
use flashwise_testing::certificates::Certificates;
use flashwise_testing::random::Random;
use serde_json::Value;

const SIZE: u64 = 16 << 20;
/// Half of the volume fits.
const KEYS: &str = "flash-size = \"8MiB\"\nerase-unit = \"256KiB\"\nram = \"1MiB\"\nsequential-bypass = 0";

fn output(program: &str, arguments: &[&str]) -> Output {
    // The system's libnbd is for the system's Python, which another Python may come before.
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap());
    let output = Command::new(program).args(arguments).env("PATH", path).output();
    output.unwrap_or_else(|error| panic!("{program} does not run: {error}"))
}

/// Returns the output of a program, which must succeed.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = output(program, arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}{errors}");
    said
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    Random(seed).bytes(length)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Data, zeroes and data, in a file.
fn image(setting: &Setting, name: &str, seed: u64) -> String {
    let bytes = [noise(seed, 5 << 20), vec![0; 4 << 20], noise(seed + 1, 7 << 20)].concat();
    std::fs::write(setting.path(name), bytes).unwrap();
    text(&setting.path(name)).to_owned()
}

/// Returns the figures of the volume's cache.
fn volume(setting: &Setting) -> Value {
    let status = setting.flashwise(&["status", "--json", "--api", &setting.api()]);
    serde_json::from_str::<Value>(&status).unwrap()["volumes"][0].clone()
}

#[test]
fn qemu_and_libnbd_write_read_compare_and_map_a_cached_volume() {
    for mode in ["write-back", "write-through", "write-around"] {
        let setting = Setting::new(SIZE, &format!("{KEYS}\nwrite-mode = \"{mode}\""));
        let server = setting.serve();
        let (uri, raw) = (setting.uri(), image(&setting, "in", 1));
        let out = text(&setting.path("out")).to_owned();
        assert_eq!(run("nbdinfo", &["--size", &uri]).trim(), SIZE.to_string());
        run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &raw, &uri]);
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &raw, &uri]);
        run("nbdcopy", &["--connections=4", "--threads=2", "--requests=32", &uri, &out]);
        assert!(std::fs::read(&raw).unwrap() == std::fs::read(&out).unwrap(), "{mode}");
        let raw = image(&setting, "in", 3);
        run("nbdcopy", &["--flush", &raw, &uri]);
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &raw, &uri]);
        // Blocks that are only on flash are not shown as holes, and zeroes are shown as zeroes.
        let map: Value = serde_json::from_str(&run("nbdinfo", &["--map", "--json", &uri])).unwrap();
        for row in map.as_array().unwrap() {
            let (start, length) = (row["offset"].as_u64().unwrap(), row["length"].as_u64().unwrap());
            let is_zero = row["type"].as_u64().unwrap() & 2 != 0;
            assert!(!is_zero || (start >= 5 << 20 && start + length <= 9 << 20), "{mode}: {map}");
        }
        let commands = [
            "write -P 7 0 1M",
            "write -f -P 8 1M 64k",
            "write -P 9 12345k 512",
            "flush",
            "write -z 64k 64k",
            "write -z -u 128k 64k",
            "discard 256k 64k",
            "read -P 7 0 64k",
            "read -P 0 64k 128k",
            "read -P 8 1M 64k",
            "read -P 9 12345k 512",
            "aio_write -P 9 2M 1M",
            "aio_read -P 9 2M 1M",
            "aio_flush",
        ];
        let mut arguments = vec!["-f", "raw", "-t", "none"];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        arguments.push(&uri);
        let said = run("qemu-io", &arguments);
        assert!(!said.contains("failed"), "{mode}: {said}");
        let script = format!(
            "h.connect_uri({uri:?})
assert h.can_multi_conn() and h.can_fua() and h.can_trim()
h.pwrite(b'x' * 5000, 1234, nbd.CMD_FLAG_FUA)
other = nbd.NBD()
other.connect_uri({uri:?})
assert other.pread(5000, 1234) == b'x' * 5000
other.cache(1 << 20, 8 << 20)
h.set_strict_mode(0)
try:
    h.pread(2, h.get_size() - 1)
    assert False
except nbd.Error as error:
    assert error.errno == 'EINVAL', error
h.shutdown()
"
        );
        run("nbdsh", &["-c", &script]);
        let figures = volume(&setting);
        let count = |name: &str| figures[name].as_u64().unwrap_or_else(|| panic!("{name}: {figures}"));
        assert!(count("flash_read_hits") > 0 && count("erasures") > 0 && count("flushes") > 0, "{mode}: {figures}");
        // After a kill, the whole volume is back. After a detach, the backend is complete without the flash.
        run("nbdcopy", &["--flush", &raw, &uri]);
        server.kill();
        let server = setting.serve();
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &raw, &uri]);
        setting.flashwise(&["detach", "v", "--api", &setting.api()]);
        let checked = setting.flashwise(&["check", "--flash", text(&setting.path("cache.img"))]);
        assert!(checked.contains("dirty: 0 blocks (0 B)"), "{checked}");
        // From now on every write reaches the backend, and changing that is refused.
        let set = ["set", "v", "write-mode=write-back", "--api", &setting.api()];
        let refused = crate::common::fail(setting.directory.path(), &set, 2);
        assert!(refused.contains("write-mode: the volume has no flash"), "{refused}");
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &raw, text(&setting.path("disk.img"))]);
        server.end();
    }
}

#[test]
fn clients_come_over_tls_and_are_refused_in_the_clear() {
    let certificates = Certificates::default();
    let path = |name: &str| text(&certificates.path(name)).to_owned();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let keys = format!(
        "{KEYS}\n[tls]\nmode = \"required\"\ncertificate = \"{}\"\nkey = \"{}\"\nclient-authorities = \"{}\"",
        path("server-cert.pem"),
        path("server-key.pem"),
        path("ca-cert.pem")
    );
    let setting = Setting::new(SIZE, &keys);
    let config = std::fs::read_to_string(setting.path("flashwise.toml")).unwrap();
    let config = config.replacen("listen = [", &format!("listen = [\"nbd://127.0.0.1:{port}\", "), 1);
    std::fs::write(setting.path("flashwise.toml"), config).unwrap();
    let server = setting.serve();
    let directory = text(certificates.directory.path()).to_owned();
    let uri = format!("nbds://127.0.0.1:{port}/v?tls-certificates={directory}");
    let (raw, out) = (image(&setting, "in", 5), text(&setting.path("out")).to_owned());
    assert_eq!(run("nbdinfo", &["--size", &uri]).trim(), SIZE.to_string());
    run("nbdcopy", &["--flush", &raw, &uri]);
    run("nbdcopy", &[&uri, &out]);
    assert!(std::fs::read(&raw).unwrap() == std::fs::read(&out).unwrap());
    let credentials = format!("tls-creds-x509,id=tls0,endpoint=client,dir={directory}");
    let image = format!("driver=nbd,host=127.0.0.1,port={port},export=v,tls-creds=tls0");
    let commands = ["-c", "write -P 3 8M 1M", "-c", "read -P 3 8M 1M"];
    run("qemu-io", &[&["--object", &credentials], &commands[..], &["--image-opts", &image]].concat());
    // In the clear, over the Unix socket too, and with a certificate of an authority that is not trusted.
    for plain in [format!("nbd://127.0.0.1:{port}/v"), setting.uri()] {
        let refused = output("nbdinfo", &["--size", &plain]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("TLS"), "{plain}: {said}");
    }
    let stranger = certificates.of_client("stranger");
    let uri = format!("nbds://127.0.0.1:{port}/v?tls-certificates={}", text(stranger.path()));
    assert!(!output("nbdinfo", &["--size", &uri]).status.success(), "a stranger is let in");
    server.end();
}

/// Returns the output of nbdsh for `script`, where `h` is connected to the volume.
fn nbdsh(setting: &Setting, script: &str) -> String {
    run("nbdsh", &["-c", &format!("h.connect_uri({:?})\n{script}\nh.shutdown()", setting.uri())])
}

/// Requests of 64 KiB are refused, until the rule goes; one of 4 KiB is not. In `write-back` a write reaches flash by a
/// flush.
#[test]
fn rejected_blocks_are_not_on_flash_and_read_correctly() {
    for mode in ["write-back", "write-through"] {
        let keys = format!("{KEYS}\npolicy = \"lru\"\nadmission = \"size:max=16KiB\"\nwrite-mode = \"{mode}\"");
        let setting = Setting::new(SIZE, &keys);
        let server = setting.serve();
        let set = |rule: &str| {
            setting.flashwise(&["set", "v", &format!("admission={rule}"), "--api", &setting.api()]);
            assert_eq!(volume(&setting)["admission"], rule);
        };
        let written = || {
            let figures = volume(&setting);
            let count = |key: &str| figures[key].as_u64().unwrap();
            (count("flash_client_blocks") + count("flash_admission_blocks"), count("bypasses"))
        };
        let write = |letter: char, at: u64, length: u64| {
            let script = format!(
                "h.pwrite(b'{letter}' * {length}, {at})\nh.flush()\nassert h.pread({length}, {at}) == b'{letter}' * \
                 {length}"
            );
            nbdsh(&setting, &script);
        };
        write('a', 0, 65536);
        let (blocks, bypassed) = written();
        assert_eq!((blocks, volume(&setting)["flash_bytes_written"].as_u64()), (0, Some(0)), "{mode}");
        assert!(bypassed >= 16, "{mode}: {bypassed}");
        let on_backend = std::fs::read(setting.path("disk.img")).unwrap();
        assert!(on_backend[..65536].iter().all(|&byte| byte == b'a') && on_backend[65536] == 0, "{mode}");
        write('b', 1 << 20, 4096);
        assert_eq!(written().0, 1, "{mode}");
        set("none");
        write('c', 2 << 20, 65536);
        let (before, bypassed) = written();
        assert_eq!(before, 17, "{mode}");
        // The rule does not affect cached blocks. The outdated copy of a rejected write is dropped.
        set("probability:p=0");
        write('d', 2 << 20, 65536);
        write('e', 3 << 20, 65536);
        // Where it is clean, and waits in memory, one takes the place of the other.
        assert_eq!(written().0, if mode == "write-back" { before + 16 } else { before }, "{mode}");
        assert!(written().1 >= bypassed + 16, "{mode}");
        set("auto");
        let page = setting.flashwise(&["status", "--api", &setting.api()]);
        assert!(page.contains("\n  admission     auto, now policy lru after 0 decisions; "), "{page}");
        server.kill();
        // The rule of the configuration is back, and so is what was flushed.
        let server = setting.serve();
        assert_eq!(volume(&setting)["admission"], "size:max=16KiB");
        let expected = [('a', 0, 65536), ('b', 1 << 20, 4096), ('d', 2 << 20, 65536), ('e', 3 << 20, 65536)];
        for (letter, at, length) in expected {
            nbdsh(&setting, &format!("assert h.pread({length}, {at}) == b'{letter}' * {length}"));
        }
        server.end();
    }
}

/// `simulate` reproduces a recorded run: hits, and flash writes by cause. Nothing is dirty in this mode, so the times
/// of write-back have no effect.
#[test]
fn a_recorded_run_behind_an_admission_rule_is_the_same_simulated() {
    for rule in ["probability:p=0.3", "adaptive:timeframe=20ms,target=1h"] {
        let place = tempfile::tempdir().unwrap();
        let trace = place.path().join("requests.csv");
        let keys = format!("{KEYS}\npolicy = \"lru\"\nadmission = \"{rule}\"\nwrite-mode = \"write-through\"");
        let setting = Setting::with(&format!("record = {:?}", text(&trace)), SIZE, &keys);
        let server = setting.serve();
        nbdsh(
            &setting,
            "import random
r = random.Random(5)
for _ in range(3000):
    block = int(4096 ** r.random()) - 1
    length = min(r.choice([1, 1, 2, 8]), 4096 - block) * 4096
    if r.random() < 0.4:
        h.pwrite(bytes(length), block * 4096)
    else:
        h.pread(length, block * 4096)
# So that the flush at the server's end, which is recorded too, finds nothing to write.
h.flush()",
        );
        let live = volume(&setting);
        server.end();
        if rule.starts_with("adaptive") {
            assert!(live["admission_decisions"].as_u64() > Some(0), "{rule}: {live}");
        }
        let trace = place.path().join("requests.000001.csv");
        let options = "--size 8MiB --erase-unit 256KiB --ram 1MiB --sequential-bypass 0 --policy lru --write-mode \
            write-through \
                       --storage-size 16MiB --json";
        let mut arguments = vec!["simulate", text(&trace), "--admission", rule];
        arguments.extend(options.split_whitespace());
        let rows: Value = serde_json::from_str(&setting.flashwise(&arguments)).unwrap();
        for (key, figure) in [
            ("reads", "reads"),
            ("writes", "writes"),
            ("ram_read_hits", "ram_read_hits"),
            ("flash_read_hits", "flash_read_hits"),
            ("bypasses", "bypasses"),
            ("flash_client_blocks", "flash_client_blocks"),
            ("flash_admission_blocks", "flash_admission_blocks"),
            ("flash_copy_forward_blocks", "flash_copy_forward_blocks"),
            ("flash_metadata_blocks", "flash_metadata_blocks"),
            ("erasures", "erasures"),
        ] {
            assert_eq!(live[key], rows[0][figure], "{rule}: {key}");
        }
        assert!(live["erasures"].as_u64() > Some(0) && live["bypasses"].as_u64() > Some(0), "{rule}: {live}");
    }
}

/// The recording has each request of qemu-io, and `simulate` reads it.
#[test]
fn requests_of_clients_are_recorded() {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("requests.csv");
    let setting = Setting::with(&format!("record = {:?}", text(&trace)), SIZE, KEYS);
    let server = setting.serve();
    let uri = setting.uri();
    let commands = [
        "write -P 7 0 64k",
        "write -f -P 8 1M 4k",
        "flush",
        "write -z 64k 64k",
        "discard 256k 64k",
        "read 0 8k",
        "read 1M 512",
    ];
    let mut arguments = vec!["-f", "raw", "-t", "none"];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(&uri);
    run("qemu-io", &arguments);
    let status = setting.flashwise(&["status", "--api", &setting.api()]);
    assert!(status.contains("recording to ") && status.contains(" in all segments\n"), "{status}");
    server.end();
    let trace = place.path().join("requests.000001.csv");
    let recorded =
        flashwise_trace::recording::Recording::open(text(&trace), &flashwise_trace::progress::Silent).unwrap();
    let recorded: Vec<String> = recorded
        .map(|request| {
            let request = request.unwrap();
            let durable = if request.flags.force_unit_access { " durable" } else { "" };
            format!("{:?} {} {}{durable}", request.operation, request.offset_bytes, request.length_bytes)
        })
        .collect();
    let asked = [
        "Write 0 65536",
        "Write 1048576 4096 durable",
        "Flush 0 0",
        "WriteZeroes 65536 65536",
        "Trim 262144 65536",
        "Read 0 8192",
        "Read 1048576 512",
    ];
    // The client asks for more of its own accord: it probes, and flushes when it closes.
    let mut rest = recorded.iter();
    for expected in asked {
        assert!(rest.any(|found| found == expected), "'{expected}' in its place in {recorded:#?}");
    }
    // 16 blocks and 1 written, 2 and 1 read.
    let json = setting.flashwise(&["simulate", text(&trace), "--policy", "lru", "--size", "100", "--json"]);
    let rows: Value = serde_json::from_str(&json).unwrap();
    assert!(rows[0]["accesses"].as_u64().unwrap() >= 20, "{rows}");
}
