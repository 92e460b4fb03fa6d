//! Signals to a server with data that only its cache has. It reloads, continues or stops cleanly; none kills it by
//! accident.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::common::{fail, flashwise, succeed};
use crate::serving::{Server, Setting};
use flashwise_server::front::Address;
use flashwise_server::front::nbd::protocol::command::{NBD_CMD_READ, NBD_CMD_WRITE};
use flashwise_server::front::nbd::protocol::{option, option_reply};
use flashwise_testing::certificates::Certificates;
use flashwise_testing::client::{Client, Socket, named, option_bytes, request_bytes};
use flashwise_testing::waiting::{wait_for, wait_until};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

type Tls = StreamOwned<ClientConnection, TcpStream>;

const VOLUME_KEYS: &str = "flash-size = \"16MiB\"\nerase-unit = \"256KiB\"\nram = \"8MiB\"\ndirect-io = false\n";

fn signal(server: &Server, name: &str) {
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
}

/// Sends SIGHUP and waits until the server has logged `what`.
fn hang_up(server: &Server, what: &str) {
    let before = server.told().len();
    signal(server, "HUP");
    wait_until(what, || server.told()[before..].contains(what));
}

/// Copies the server's certificate and key from `from` to the configured paths.
fn install(from: &Certificates, folder: &Path) {
    for kind in ["cert", "key"] {
        std::fs::copy(from.path(&format!("server-{kind}.pem")), folder.join(format!("{kind}.pem"))).unwrap();
    }
}

/// Opens the volume over TLS, trusting only the authority of `certificates`.
fn open(address: &Address, certificates: &Certificates) -> io::Result<Tls> {
    let mut client = Client::connect(address)?;
    client.give(&[0, 0, 0, 3])?;
    assert_eq!(client.option(option::NBD_OPT_STARTTLS, b"")?, [(option_reply::NBD_REP_ACK, vec![])]);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates.path("ca-cert.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let tls = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let Socket::Tcp(socket) = client.socket else { panic!("the server listens at TCP") };
    let mut stream = StreamOwned::new(tls, socket);
    stream.write_all(&option_bytes(option::NBD_OPT_GO, &named("v", b"\0\0")))?;
    loop {
        let mut header = [0; 20];
        stream.read_exact(&mut header)?;
        let mut data = vec![0; u32::from_be_bytes(header[16..].try_into().unwrap()) as usize];
        stream.read_exact(&mut data)?;
        if header[12..16] == option_reply::NBD_REP_ACK.to_be_bytes() {
            return Ok(stream);
        }
    }
}

/// True if the server showed the certificate in this file.
fn shows(stream: &Tls, certificates: &Certificates) -> bool {
    let expected = CertificateDer::from_pem_file(certificates.path("server-cert.pem")).unwrap();
    stream.conn.peer_certificates().unwrap()[0] == expected
}

fn write(stream: &mut Tls, offset: u64, data: &[u8]) {
    stream.write_all(&request_bytes(NBD_CMD_WRITE, 0, 1, offset, data.len() as u32)).unwrap();
    stream.write_all(data).unwrap();
    let mut reply = [0; 16];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0; 4]);
}

fn read(stream: &mut Tls, offset: u64, length: usize) -> Vec<u8> {
    stream.write_all(&request_bytes(NBD_CMD_READ, 0, 1, offset, length as u32)).unwrap();
    let mut reply = vec![0; 16 + length];
    stream.read_exact(&mut reply).unwrap();
    reply.split_off(16)
}

#[test]
fn sighup_reloads_certificates_and_token_and_loses_nothing() {
    let (old, new) = (Certificates::default(), Certificates::default());
    let setting = Setting::new(8 << 20, VOLUME_KEYS);
    let folder = setting.directory.path();
    install(&old, folder);
    flashwise_testing::write_private(setting.path("token"), "first\n");
    let config = std::fs::read_to_string(setting.path("flashwise.toml")).unwrap();
    let (before, after) = config.split_once("[api]\n").unwrap();
    let config = format!(
        "{}[tls]\nmode = 'required'\ncertificate = 'cert.pem'\nkey = 'key.pem'\n[api]\ntoken-file = 'token'\n{after}",
        before.replace("nbd+unix", "nbds://localhost:0\", \"nbds+unix")
    );
    std::fs::write(setting.path("flashwise.toml"), &config).unwrap();
    let server = setting.serve();
    let told = server.told();
    let port =
        told.split_once("is served at nbds://").unwrap().1.split_once('/').unwrap().0.rsplit_once(':').unwrap().1;
    let address = Address::Tcp { host: "localhost".to_owned(), port: port.parse().unwrap() };
    let mut early = open(&address, &old).unwrap();
    assert!(shows(&early, &old));
    let data: Vec<u8> = (0..1 << 20).map(|index| (index / 4096 + index) as u8).collect();
    write(&mut early, 0, &data);

    // Clients that are there stay; new ones see the new certificate, and must show the new token.
    install(&new, folder);
    flashwise_testing::write_private(setting.path("token"), "second\n");
    hang_up(&server, "reloaded the token of the management API");
    assert!(server.told().contains("reloaded the TLS files"), "{}", server.told());
    assert!(read(&mut early, 0, data.len()) == data);
    assert!(shows(&open(&address, &new).unwrap(), &new));
    assert!(open(&address, &old).is_err(), "the old certificate is still shown");
    let status = ["status", "--api", &setting.api(), "--token-file"];
    std::fs::write(setting.path("first"), "first\n").unwrap();
    assert!(fail(folder, &[&status[..], &["first"]].concat(), 1).contains("token"));
    let page = succeed(folder, &[&status[..], &["token"]].concat());
    assert!(page.contains("volume v: ok") && page.contains(" of 512 MiB for requests"), "{page}");

    // The error is reported, and the old files stay in use.
    std::fs::write(setting.path("cert.pem"), "no certificate").unwrap();
    hang_up(&server, "cannot reload the TLS files: TLS certificate cert.pem: no certificate found");
    assert!(shows(&open(&address, &new).unwrap(), &new));
    std::fs::write(setting.path("flashwise.toml"), "listen = 7").unwrap();
    hang_up(&server, "nothing is reloaded: flashwise.toml:1:");
    assert!(shows(&open(&address, &new).unwrap(), &new));

    // Keys that need a restart are named.
    install(&new, folder);
    let changed = config.replace("[api]", "[limits]\nconnections-max = 7\n[api]").replace("\"8MiB\"", "\"16MiB\"");
    std::fs::write(setting.path("flashwise.toml"), format!("log-level = 'debug'\n{changed}")).unwrap();
    hang_up(&server, "[[volume]] 'v' ram has changed: restart to apply it");
    let told = server.told();
    assert!(told.contains("SIGHUP: [limits] connections-max has changed: restart to apply it"), "{told}");
    assert!(told.contains("the log level is debug") && !told.contains("log-level has changed"), "{told}");

    // Ends in order, with all that was written.
    write(&mut early, 1 << 20, &data);
    signal(&server, "HUP");
    drop(early);
    assert!(server.end().ends_with("flashwise: everything is flushed, stopped\n"));
    std::fs::write(setting.path("flashwise.toml"), &config).unwrap();
    let server = setting.serve();
    assert!(server.told().contains("its cache, closed cleanly, has "), "{}", server.told());
    let told = server.told();
    let port =
        told.split_once("is served at nbds://").unwrap().1.split_once('/').unwrap().0.rsplit_once(':').unwrap().1;
    let address = Address::Tcp { host: "localhost".to_owned(), port: port.parse().unwrap() };
    let mut late = open(&address, &new).unwrap();
    assert!(read(&mut late, 0, data.len()) == data && read(&mut late, 1 << 20, data.len()) == data);
    drop(late);
    server.end();
}

/// Standard error is a pipe without a reader, like that of a closed terminal.
#[test]
fn only_signals_to_end_stop_a_server_without_readers() {
    let setting = Setting::new(8 << 20, VOLUME_KEYS);
    let mut command = flashwise(setting.directory.path(), &["serve", "flashwise.toml"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the server starts", || setting.path("api.sock").exists());
    let mut client = wait_for("the server takes clients", || Client::open(&setting.address(), "v", false).ok());
    let data = vec![0x3c; 1 << 20];
    assert_eq!(client.write(0, &data).unwrap(), 0);
    drop(child.stderr.take());
    let pid = child.id().to_string();
    for name in ["HUP", "USR1", "USR2", "PIPE", "ALRM", "XFSZ", "HUP"] {
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
        // Reads and flushes as before: the signal was dealt with, or is by the time of the next.
        assert!(client.read(0, 1 << 20).unwrap() == data, "after SIG{name}");
        setting.flashwise(&["flush", "--api", &setting.api()]);
        assert!(child.try_wait().unwrap().is_none(), "SIG{name} ends the server");
    }
    assert_eq!(client.write(1 << 20, &data).unwrap(), 0);
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let server = setting.serve();
    assert!(server.told().contains("its cache, closed cleanly, has "), "{}", server.told());
    let mut client = Client::open(&setting.address(), "v", false).unwrap();
    assert!(client.read(1 << 20, 1 << 20).unwrap() == data);
    server.end();
}

/// With flags, there is the token to reload.
#[test]
fn sighup_reloads_the_files_of_flags() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    File::create(path.join("disk.img")).unwrap().set_len(8 << 20).unwrap();
    flashwise_testing::write_private(path.join("token"), "first");
    let flags = "serve --backend disk.img --flash cache.img --flash-size 4MiB --erase-unit 64KiB --ram 1MiB --api \
        unix:api.sock \
                 --api-token-file token --listen nbd+unix:///?socket=nbd.sock";
    let server = Server::start(path, &flags.split_whitespace().collect::<Vec<_>>());
    flashwise_testing::write_private(path.join("first"), "first");
    succeed(path, &["status", "--api", "unix:api.sock", "--token-file", "first"]);
    flashwise_testing::write_private(path.join("token"), "second");
    hang_up(&server, "reloaded the token of the management API");
    fail(path, &["status", "--api", "unix:api.sock", "--token-file", "first"], 1);
    succeed(path, &["status", "--api", "unix:api.sock", "--token-file", "token"]);
    server.end();
}

#[test]
fn a_demo_that_is_ended_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = flashwise(folder.path(), &["demo", "--requests", "1000000000"])
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(demo.stdout.take().unwrap());
    let mut told = String::new();
    out.read_line(&mut told).unwrap();
    assert!(told.starts_with("A volume of 256 MiB") && std::fs::read_dir(&folder).unwrap().count() == 1, "{told}");
    assert!(Command::new("kill").args(["-TERM", &demo.id().to_string()]).status().unwrap().success());
    out.read_to_string(&mut told).unwrap();
    assert!(demo.wait().unwrap().success() && told.contains("The temporary files are deleted"), "{told}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
