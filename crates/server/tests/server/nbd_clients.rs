//! Other clients: nbdinfo, nbdcopy and nbdsh of libnbd, qemu-img and qemu-io, and nbdkit's client.
//!
//! They must be installed; without them these tests fail.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use flashwise_server::front::{Options, Server, Tls, nbd};
use flashwise_testing::certificates::Certificates;
use flashwise_testing::memory::{Memory, noise};
use serde_json::Value;

use crate::support::Rig;

const SIZE: u64 = 16 << 20;

fn output(program: &str, arguments: &[&str]) -> Output {
    // The system's libnbd needs the system's Python, which may not be the first in PATH.
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap());
    Command::new(program)
        .args(arguments)
        .env("PATH", path)
        .output()
        .unwrap_or_else(|error| panic!("{program} does not run: {error}"))
}

/// Returns the output of a program, which must succeed.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = output(program, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the error message of a program, which must fail.
fn fails(program: &str, arguments: &[&str]) -> String {
    let output = output(program, arguments);
    assert!(!output.status.success(), "{program} {arguments:?} succeeds");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs Python in nbdsh, with a handle `h` that is not connected.
fn nbdsh(uri: &str, script: &str) {
    let script = format!("uri = {uri:?}\n{script}");
    run("nbdsh", &["-c", &script]);
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn nbdinfo_lists_exports_and_describes_them() {
    let mut read_only = Memory::new(3 << 40);
    read_only.read_only = true;
    read_only.description = "ein großes Archiv".into();
    let exports = [("disk", Arc::new(Memory::new(SIZE))), ("archive / old", Arc::new(read_only))];
    let rig = Rig::start(&exports, Options::default());
    let found = json(&run("nbdinfo", &["--list", "--json", &rig.uri("")]));
    assert_eq!(found["protocol"], "newstyle-fixed");
    let [archive, disk] = &found["exports"].as_array().unwrap()[..] else { panic!("two exports: {found}") };
    assert_eq!((&disk["export-name"], &disk["export-size"]), (&"disk".into(), &SIZE.into()));
    assert_eq!((&archive["export-name"], &archive["export-size"]), (&"archive / old".into(), &(3_u64 << 40).into()));
    assert_eq!(archive["description"], "ein großes Archiv");
    for (export, writable) in [(disk, true), (archive, false)] {
        for able in ["can_fua", "can_trim", "can_zero", "can_fast_zero"] {
            assert_eq!(export[able], writable, "{able}: {export}");
        }
        for able in ["can_cache", "can_df", "can_flush", "can_multi_conn"] {
            assert_eq!(export[able], true, "{able}: {export}");
        }
        assert_eq!(export["is_read_only"], !writable);
        assert_eq!(export["contexts"], json("[\"base:allocation\"]"));
        let sizes = ["block_size_minimum", "block_size_preferred", "block_size_maximum"].map(|key| &export[key]);
        assert_eq!(sizes, [&1.into(), &4096.into(), &(32 << 20).into()] as [&Value; 3]);
    }
    assert_eq!(run("nbdinfo", &["--size", &rig.uri("archive / old")]).trim(), (3_u64 << 40).to_string());
    assert!(fails("nbdinfo", &["--size", &rig.uri("none")]).contains("export"));
    assert!(fails("nbdinfo", &["--size", &rig.uri("")]).contains("export"));
}

#[test]
fn nbdinfo_maps_the_allocated_extents() {
    let disk = Arc::new(Memory::new(5 << 40));
    disk.write(1 << 20, &[1; 131_072]);
    disk.write((4 << 40) + 65536, &[1; 65536]);
    let rig = Rig::start(&[("disk", disk)], Options::default());
    let uri = rig.uri("disk");
    // All of 5 TiB would take a request for each 4 GiB, and a walk through the pages for each.
    let script = "
h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
h.connect_uri(uri)
def extents(count, offset, flags=0):
    found = []
    h.block_status(count, offset, lambda context, offset, entries, error: found.extend(entries), flags)
    return found
M = 1 << 20
assert extents(2 * M, 0) == [M, 3, 131072, 0, M - 131072, 3]
assert extents(2 * M, 0, nbd.CMD_FLAG_REQ_ONE) == [M, 3]
assert extents(131072, 4 << 40) == [65536, 3, 65536, 0]
try:
    extents(2, (5 << 40) - 1)
    assert False
except nbd.Error as error:
    assert error.errno == 'EINVAL', error
";
    nbdsh(&uri, script);
    let small = Arc::new(Memory::new(4 << 20));
    small.write(1 << 20, &[1; 1 << 20]);
    assert!(rig.exports.add("small", small));
    let map = json(&run("nbdinfo", &["--map", "--json", &rig.uri("small")]));
    let rows: Vec<_> =
        map.as_array().unwrap().iter().map(|row| (row["offset"].as_u64(), row["type"].as_u64())).collect();
    assert_eq!(rows, [(Some(0), Some(3)), (Some(1 << 20), Some(0)), (Some(2 << 20), Some(3))]);
}

#[test]
fn nbdcopy_brings_bytes_in_and_out_as_they_are() {
    for later in [false, true] {
        let mut disk = Memory::new(SIZE);
        if later {
            disk = disk.answering_later(9);
        }
        let disk = Arc::new(disk);
        let rig = Rig::start(&[("disk", disk.clone())], Options::default());
        let data = [noise(1, 5 << 20), vec![0; 4 << 20], noise(2, 7 << 20)].concat();
        std::fs::write(rig.path("in"), &data).unwrap();
        run("nbdcopy", &["--flush", &rig.path("in"), &rig.uri("disk")]);
        assert!(disk.read(0, SIZE) == data);
        assert!(disk.seen.flushes.load(Ordering::SeqCst) > 0);
        run("nbdcopy", &["--connections=4", "--threads=4", "--requests=64", &rig.uri("disk"), &rig.path("out")]);
        assert!(std::fs::read(rig.path("out")).unwrap() == data);
        assert!(rig.server.counters().connections_accepted.load(Ordering::Relaxed) > 4);
    }
}

#[test]
fn qemu_img_converts_and_compares() {
    let (rig, disk) = Rig::with_disk(SIZE);
    std::fs::write(rig.path("raw"), [noise(3, 3 << 20), vec![0; 13 << 20]].concat()).unwrap();
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &rig.path("raw"), &rig.uri("disk")]);
    assert!(disk.read(0, 3 << 20) == noise(3, 3 << 20));
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &rig.path("raw"), &rig.uri("disk")]);
    disk.write(12_345_678, &[1]);
    let differing = output("qemu-img", &["compare", "-f", "raw", "-F", "raw", &rig.path("raw"), &rig.uri("disk")]);
    assert!(String::from_utf8_lossy(&differing.stdout).contains("Content mismatch at offset 12345344"));
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &rig.uri("disk"), &rig.path("qcow2")]);
    let map = json(&run("qemu-img", &["map", "--output=json", "-f", "raw", &rig.uri("disk")]));
    assert_eq!((&map[0]["start"], &map[0]["length"], &map[0]["zero"]), (&0.into(), &(3 << 20).into(), &false.into()));
}

#[test]
fn qemu_io_writes_zeroes_discards_and_flushes() {
    let (rig, disk) = Rig::with_disk(SIZE);
    let commands = [
        "write -P 7 0 1M",
        "write -f -P 8 1M 64k",
        "flush",
        "write -z 64k 64k",
        "write -z -u 128k 64k",
        "discard 256k 64k",
        "read -P 7 0 64k",
        "read -P 0 64k 128k",
        "read -P 8 1M 64k",
        "aio_write -P 9 2M 1M",
        "aio_read -P 9 2M 1M",
        "aio_flush",
    ];
    let uri = rig.uri("disk");
    // The client writes back only on request.
    let mut arguments = vec!["-f", "raw", "-t", "none"];
    for command in commands {
        arguments.extend(["-c", command]);
    }
    arguments.push(&uri);
    let said = run("qemu-io", &arguments);
    assert!(!said.contains("failed"), "{said}");
    let seen = &disk.seen;
    let counts = [&seen.forced, &seen.trims, &seen.zeroes].map(|counter| counter.load(Ordering::SeqCst));
    assert_eq!(counts, [1, 1, 2]);
    assert!(seen.flushes.load(Ordering::SeqCst) >= 2);
    assert_eq!(disk.read(1 << 20, 65536), [8; 65536]);
}

#[test]
fn nbdsh_gets_every_error_and_every_flag_through() {
    let mut slow = Memory::new(SIZE);
    slow.slow_zeroes = true;
    let slow = Arc::new(slow);
    let rig = Rig::start(&[("disk", slow.clone())], Options::default());
    let script = "
h.connect_uri(uri)
assert h.get_structured_replies_negotiated()
# The server decides, not the library.
h.set_strict_mode(0)
def fails(expected, call, *arguments):
    try:
        call(*arguments)
    except nbd.Error as error:
        assert error.errno == expected, (error.errno, expected)
    else:
        assert False, expected
size = h.get_size()
h.pwrite(b'x' * 5000, 1234, nbd.CMD_FLAG_FUA)
assert h.pread(5000, 1234, nbd.CMD_FLAG_DF) == b'x' * 5000
chunks = []
h.pread_structured(5000, 1234, lambda data, offset, status, error: chunks.append((len(data), offset, status)))
assert chunks == [(5000, 1234, nbd.READ_DATA)], chunks
fails('ENOTSUP', h.zero, 4096, 0, nbd.CMD_FLAG_FAST_ZERO)
h.zero(4096, 0, nbd.CMD_FLAG_NO_HOLE)
h.trim(4096, 0, nbd.CMD_FLAG_FUA)
h.cache(4096, 0)
h.flush()
fails('EINVAL', h.pread, 2, size - 1)
fails('ENOSPC', h.pwrite, b'xx', size - 1)
fails('ENOSPC', h.zero, 2, size - 1)
fails('EINVAL', h.trim, 2, size - 1)
fails('EINVAL', h.cache, 2, size - 1)
fails('EINVAL', h.pread, 512, 0, nbd.CMD_FLAG_REQ_ONE)
fails('EINVAL', h.flush, nbd.CMD_FLAG_DF)
fails('EINVAL', h.zero, 0, 0)
assert h.pread(512, 8192) == bytes(512)
h.shutdown()
";
    nbdsh(&rig.uri("disk"), script);
    assert_eq!(slow.seen.forced.load(Ordering::SeqCst), 2);
    assert_eq!(slow.seen.caches.load(Ordering::SeqCst), 1);
}

#[test]
fn nbdsh_without_structured_replies_is_served_too() {
    let (rig, _disk) = Rig::with_disk(SIZE);
    let script = "
h.set_request_structured_replies(False)
h.connect_uri(uri)
assert not h.get_structured_replies_negotiated()
assert not h.can_df()
h.pwrite(b'abc', 5)
assert h.pread(5, 4) == b'\\0abc\\0'
try:
    h.set_strict_mode(0)
    h.pread(1, h.get_size())
    assert False
except nbd.Error as error:
    assert error.errno == 'EINVAL'
assert h.pread(5, 4) == b'\\0abc\\0'
h.shutdown()
";
    nbdsh(&rig.uri("disk"), script);
}

#[test]
fn a_connection_reads_the_flushed_writes_of_another() {
    let (rig, _disk) = Rig::with_disk(SIZE);
    let script = "
handles = [nbd.NBD() for _ in range(8)]
for handle in handles:
    handle.connect_uri(uri)
    assert handle.can_multi_conn()
for number, handle in enumerate(handles):
    handle.pwrite(bytes([number + 1]) * 4096, number * 4096)
handles[0].flush()
for handle in handles:
    for number in range(8):
        assert handle.pread(4096, number * 4096) == bytes([number + 1]) * 4096
";
    nbdsh(&rig.uri("disk"), script);
}

#[test]
fn clients_haggle_option_by_option() {
    let (rig, _disk) = Rig::with_disk(SIZE);
    let script = "
h.set_opt_mode(True)
h.connect_uri(uri)
names = []
h.opt_list(lambda name, description: names.append((name, description)))
assert names == [('disk', 'in memory')], names
contexts = []
h.add_meta_context('base:')
h.opt_list_meta_context(lambda name: contexts.append(name))
assert contexts == ['base:allocation'], contexts
h.set_export_name('none')
try:
    h.opt_info()
    assert False
except nbd.Error as error:
    assert error.errno == 'ENOENT', error
h.set_export_name('')
h.set_full_info(True)
h.opt_info()
assert h.get_canonical_export_name() == 'disk'
assert h.get_export_description() == 'in memory'
h.set_export_name('disk')
h.opt_go()
assert h.get_size() == 16 << 20
h.shutdown()
h = nbd.NBD()
h.set_opt_mode(True)
h.connect_uri(uri)
h.opt_abort()
";
    nbdsh(&rig.uri("disk"), script);
}

#[test]
fn nbdkit_as_a_client_passes_bytes_on() {
    let (rig, disk) = Rig::with_disk(SIZE);
    disk.write(0, &noise(6, 1 << 20));
    let uri = format!("uri={}", rig.uri("disk"));
    let copy = format!("nbdcopy \"$uri\" {}", rig.path("out"));
    run("nbdkit", &["-U", "-", "nbd", &uri, "--run", &copy]);
    assert!(std::fs::read(rig.path("out")).unwrap() == disk.read(0, SIZE));
}

#[test]
fn clients_come_over_tls() {
    let certificates = Certificates::default();
    let config = certificates.server_files(true).load().unwrap();
    let disk = Arc::new(Memory::new(SIZE));
    let exports = flashwise_storage::export::Exports::default();
    exports.add("disk", disk.clone());
    let options = Options { tls: Tls::Required(config), ..Options::default() };
    let server =
        Server::start(&[nbd::PROTOCOL.at(crate::support::tcp_address("127.0.0.1"))], exports, options).unwrap();
    let uri = server.uris("disk")[0].clone();
    let directory = certificates.directory.path().to_str().unwrap();
    let authenticated = format!("{uri}?tls-certificates={directory}");
    assert_eq!(run("nbdinfo", &["--size", &authenticated]).trim(), SIZE.to_string());
    let script = "
h.set_uri_allow_local_file(True)
h.connect_uri(uri)
assert h.get_tls_negotiated()
h.pwrite(b'secret' * 100000, 4096, nbd.CMD_FLAG_FUA)
assert h.pread(600000, 4096) == b'secret' * 100000
h.shutdown()
";
    nbdsh(&authenticated, script);
    assert_eq!(disk.read(4096, 6), b"secret");
    let socket = server.endpoints()[0].address.to_string();
    let (host, port) = socket.split_once(':').unwrap();
    let credentials = format!("tls-creds-x509,id=tls0,endpoint=client,dir={directory}");
    let image = format!("driver=nbd,host={host},port={port},export=disk,tls-creds=tls0");
    let commands =
        ["--object", &credentials, "-c", "read -P 0 8M 1M", "-c", "write -P 3 8M 1M", "--image-opts", &image];
    run("qemu-io", &commands);
    assert_eq!(disk.read(8 << 20, 1 << 20), vec![3; 1 << 20]);
    let plain = uri.replace("nbds:", "nbd:");
    let said = fails("nbdinfo", &["--size", &plain]);
    assert!(said.contains("TLS"), "{said}");
    assert!(server.stop(std::time::Duration::from_secs(60)));
}
