//! Other initiators: the tests and tools of libiscsi, qemu-img and qemu-io.
//!
//! They must be installed; without them these tests fail.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::Arc;

use flashwise_server::front::{Address, Credentials, Iscsi, Options, Server, iscsi};
use flashwise_storage::export::Exports;
use flashwise_testing::memory::{Memory, noise};

const SIZE: u64 = 256 << 20;

/// Skipped tests of libiscsi 1.19, by suite, with the reason.
const SKIPPED: [(&str, usize, &str); 5] = [
    ("PreventAllow", 8, "the medium is not removable"),
    ("StartStopUnit", 1, "Simple ejects, and the medium is not removable"),
    ("ReadOnly", 1, "the unit can be written; it passes below, for an initiator that may read only"),
    ("Sanitize", 11, "SANITIZE is not served; the tests run only with --allow-sanitize"),
    ("WriteAtomic16", 6, "WRITE ATOMIC (16) is not served: no backend is known to write more than a sector at once"),
];

/// Failed tests, and the reason why the target is correct.
const FAILED: [(&str, &str); 1] = [(
    "GetLBAStatus.UnmapSingle",
    "asks for the status of block n + 1 and expects that of block n + 8, where a physical block has 8 logical ones: \
     SBC-3, section 5.6, \
     wants the block that was asked for",
)];

struct Rig {
    disk: Arc<Memory>,
    _server: Server,
    portal: String,
}

impl Rig {
    fn start(iscsi: Iscsi) -> Rig {
        let disk = Arc::new(Memory::new(SIZE));
        let exports = Exports::default();
        assert!(exports.add("disk", disk.clone()));
        let address = Address::Tcp { host: "127.0.0.1".into(), port: 0 };
        let options = Options { iscsi, ..Options::default() };
        let server = Server::start(&[iscsi::PROTOCOL.at(address)], exports, options).unwrap();
        let portal = server.endpoints()[0].address.to_string();
        Rig { disk, _server: server, portal }
    }

    fn uri(&self, user: &str) -> String {
        format!("iscsi://{user}{}/iqn.2026-11.org.flashwise:disk/0", self.portal)
    }
}

fn output(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program} does not run: {error}"))
}

/// Returns the output of a program, which must succeed.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = output(program, arguments);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    Skipped,
    Failed,
}

/// Returns the result of each test by its name. The summary counts skipped tests as passed.
fn verdicts(log: &str) -> BTreeMap<String, Verdict> {
    let mut suite = "";
    let mut name = None;
    let mut verdicts = BTreeMap::new();
    for line in log.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("Suite: ") {
            (suite, name) = (rest.trim(), None);
        } else if let Some(rest) = line.strip_prefix("Test: ") {
            let test = format!("{suite}.{}", rest.split_whitespace().next().unwrap());
            verdicts.insert(test.clone(), Verdict::Passed);
            name = Some(test);
        } else if line.starts_with("Run Summary") {
            name = None;
        }
        let Some(name) = &name else { continue };
        let found = verdicts.get_mut(name).unwrap();
        if line == "FAILED" || line.ends_with("...FAILED") {
            *found = Verdict::Failed;
        } else if *found == Verdict::Passed && ["SKIPPED", "kipping"].iter().any(|word| line.contains(word)) {
            *found = Verdict::Skipped;
        }
    }
    verdicts
}

#[test]
fn the_tests_of_libiscsi_pass() {
    let rig = Rig::start(Iscsi::default());
    let uri = rig.uri("");
    // Two paths to the same unit, for the tests of several sessions.
    let output = output("iscsi-test-cu", &["-t", "ALL", "-d", "-v", &uri, &uri]);
    let log = String::from_utf8_lossy(&output.stdout);
    let verdicts = verdicts(&log);
    let with = |verdict: Verdict| -> Vec<&str> {
        verdicts.iter().filter(|(_, found)| **found == verdict).map(|(name, _)| name.as_str()).collect()
    };
    assert_eq!(with(Verdict::Failed), FAILED.map(|(name, _)| name), "{log}");
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
    for name in with(Verdict::Skipped) {
        *skipped.entry(name.split('.').next().unwrap()).or_default() += 1;
    }
    let expected: BTreeMap<&str, usize> = SKIPPED.iter().map(|(suite, count, _)| (*suite, *count)).collect();
    assert_eq!(skipped, expected, "{log}");
    assert_eq!((verdicts.len(), with(Verdict::Passed).len()), (230, 202));
}

#[test]
fn a_read_only_initiator_sees_a_write_protected_unit() {
    let reader = "iqn.2026-11.org.example:reader";
    let rig = Rig::start(Iscsi { read_only_initiators: vec![reader.into()], ..Iscsi::default() });
    let output = output("iscsi-test-cu", &["-i", reader, "-t", "ALL.ReadOnly", "-d", "-v", &rig.uri("")]);
    let log = String::from_utf8_lossy(&output.stdout);
    assert_eq!(verdicts(&log).get("ReadOnly.ReadOnlySBC"), Some(&Verdict::Passed), "{log}");
}

#[test]
fn targets_are_found_and_described() {
    let rig = Rig::start(Iscsi::default());
    let listed = run("iscsi-ls", &["-s", &format!("iscsi://{}", rig.portal)]);
    assert!(listed.contains(&format!("Target:iqn.2026-11.org.flashwise:disk Portal:{},1", rig.portal)), "{listed}");
    assert!(listed.contains("Lun:0    Type:DIRECT_ACCESS"), "{listed}");
    let capacity = run("iscsi-readcapacity16", &[&rig.uri("")]);
    assert!(capacity.contains(&format!("Total size:{SIZE}")), "{capacity}");
    assert!(capacity.contains("LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT:3"), "{capacity}");
}

/// Over loopback, which has two IPv4 addresses here, and an IPv6 address if available.
#[test]
fn all_portals_of_a_target_are_found_and_lead_to_it() {
    let exports = Exports::default();
    assert!(exports.add("disk", Arc::new(Memory::new(SIZE))));
    let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    let hosts = ["127.0.0.1", "127.0.0.2", "::1"].into_iter().filter(|host| has_ipv6 || !host.contains("::"));
    let endpoints: Vec<_> = hosts.map(|host| iscsi::PROTOCOL.at(Address::Tcp { host: host.into(), port: 0 })).collect();
    let server = Server::start(&endpoints, exports, Options::default()).unwrap();
    let portals: Vec<String> = server.endpoints().iter().map(|endpoint| endpoint.address.to_string()).collect();
    for (at, portal) in portals.iter().enumerate() {
        let mut others = portals.clone();
        others.remove(at);
        let told: Vec<String> = std::iter::once(portal.clone()).chain(others).collect();
        let listed = run("iscsi-ls", &["-s", &format!("iscsi://{portal}")]);
        let told: Vec<String> =
            told.iter().map(|portal| format!("Target:iqn.2026-11.org.flashwise:disk Portal:{portal},1")).collect();
        // The tool lists the last target first.
        let found: Vec<&str> = listed.lines().rev().filter(|line| line.starts_with("Target:")).collect();
        assert_eq!(found, told, "{listed}");
        // It has logged in at each of them.
        assert_eq!(listed.matches("Lun:0    Type:DIRECT_ACCESS").count(), portals.len(), "{listed}");
    }
}

#[test]
fn secrets_are_proved_by_both_sides() {
    let credentials =
        |name: &str, secret: &str| Some(Credentials { name: name.into(), secret: secret.as_bytes().to_vec() });
    let rig = Rig::start(Iscsi {
        chap: credentials("me", "a-secret-of-mine"),
        mutual_chap: credentials("target", "a-secret-of-its"),
        ..Iscsi::default()
    });
    let said = run("iscsi-inq", &[&rig.uri("me%a-secret-of-mine@")]);
    assert!(said.contains("Product:flashwise volume"), "{said}");
    let both = format!("{}?target_user=target&target_password=a-secret-of-its", rig.uri("me%a-secret-of-mine@"));
    run("iscsi-inq", &[&both]);
    for (user, rest) in [
        ("", ""),
        ("me%a-secret-of-yours@", ""),
        ("you%a-secret-of-mine@", ""),
        ("me%a-secret-of-mine@", "?target_user=target&target_password=a-secret-of-none"),
    ] {
        let output = output("iscsi-inq", &[&format!("{}{rest}", rig.uri(user))]);
        assert!(!output.status.success(), "{user}{rest} is let in");
    }
}

#[test]
fn qemu_img_and_qemu_io_read_their_writes() {
    let rig = Rig::start(Iscsi::default());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let data = noise(8, SIZE as usize);
    std::fs::write(path("in"), &data).unwrap();
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &path("in"), &rig.uri("")]);
    assert!(rig.disk.read(0, SIZE) == data);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &path("in"), &rig.uri("")]);
    let (host, target) = (&rig.portal, "iqn.2026-11.org.flashwise:disk");
    let image = format!("driver=iscsi,transport=tcp,portal={host},target={target},lun=0,header-digest=crc32c");
    let commands = [
        "write -P 3 16M 40M",
        "read -P 3 16M 40M",
        "write -f -P 4 512 1536",
        "read -P 4 512 1536",
        "write -z 16M 1M",
        "read -P 0 16M 1M",
        "discard 0 4M",
        "aio_write -P 5 64M 1M",
        "aio_write -P 6 65M 1M",
        "aio_flush",
        "flush",
        "read -P 5 64M 1M",
    ];
    let mut arguments: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
    arguments.extend(["--image-opts", &image]);
    let said = run("qemu-io", &arguments);
    assert!(!said.contains("failed") && !said.contains("verification"), "{said}");
    assert!(rig.disk.read(65 << 20, 1 << 20) == vec![6; 1 << 20]);
}
