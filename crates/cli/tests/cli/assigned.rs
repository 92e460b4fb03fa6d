//! Volumes that only their assigned clients see: nbdsh, nbdinfo and qemu-img with certificates, and libiscsi.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use crate::common::fail;
use crate::pool::{send, tool};
use crate::serving::Server;
use flashwise_testing::certificates::Certificates;
use flashwise_testing::waiting::wait_until;
use serde_json::{Value, json};
use tempfile::TempDir;

const ASSIGNED: &str =
    "assign = [\"mail tls:client\", \"mail tls:DB.example read-only\", \"web iqn.2026-11.org.example:web\"]";

/// Two volumes, one of them `mail` with the alias `post`, served over the protocols of one folder, and the accepted
/// certificates.
struct Setting {
    folder: TempDir,
    certificates: Certificates,
    nbd: u16,
    iscsi: u16,
}

/// Returns a free port; each call returns another.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Setting {
    fn new() -> Setting {
        let (folder, certificates) = (TempDir::new().unwrap(), Certificates::default());
        for name in ["mail.img", "web.img"] {
            std::fs::File::create(folder.path().join(name)).unwrap().set_len(16 << 20).unwrap();
        }
        Setting { folder, certificates, nbd: port(), iscsi: port() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a configuration with the keys of the table `[iscsi]`, over iSCSI or not, with the authorities of clients
    /// or without.
    fn configure(&self, keys: &str, over_iscsi: bool, authorities: bool) {
        let file = |name: &str| self.certificates.path(name).to_str().unwrap().to_owned();
        let iscsi = if over_iscsi { format!(", \"iscsi://127.0.0.1:{}\"", self.iscsi) } else { String::new() };
        let clients =
            if authorities { format!("client-authorities = {:?}", file("ca-cert.pem")) } else { String::new() };
        let config = format!(
            "listen = [\"nbd+unix:///?socket=nbd.sock\", \"nbd://127.0.0.1:{}\"{iscsi}]\nstate-directory = \".\"\n\
             [api]\nlisten = \"unix:api.sock\"\n[tls]\nmode = \"allowed\"\ncertificate = {:?}\nkey = {:?}\n{clients}\n\
             [iscsi]\n{keys}\n[[volume]]\nname = \"mail\"\naliases = [\"post\"]\nbackend = \"mail.img\"\nram = \
             \"1MiB\"\n\
             [[volume]]\nname = \"web\"\nbackend = \"web.img\"\nram = \"1MiB\"\n",
            self.nbd,
            file("server-cert.pem"),
            file("server-key.pem"),
        );
        std::fs::write(self.path().join("flashwise.toml"), config).unwrap();
    }

    fn serve(&self) -> Server {
        Server::start(self.path(), &["serve", "flashwise.toml"])
    }

    /// Asks the API: the status of the answer, and its body.
    fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, _, answer) = send(self.path(), method, path, None, body);
        (status, answer)
    }

    fn assign(&self, export: &str, assigned: &Value) -> (u16, Value) {
        self.ask("PUT", &format!("/v1/iscsi/exports/{export}"), &json!({ "assigned": assigned }))
    }
}

/// How a client comes.
struct Comes {
    uri: String,
    _certificate: Option<TempDir>,
}

impl Comes {
    fn with(setting: &Setting, name: &str) -> Comes {
        let certificate = setting.certificates.of_client(name);
        let uri = format!("nbds://127.0.0.1:{}/EXPORT?tls-certificates={}", setting.nbd, certificate.path().display());
        Comes { uri, _certificate: Some(certificate) }
    }

    /// Without a certificate, over TCP and over the Unix socket.
    fn plain(setting: &Setting) -> [Comes; 2] {
        let socket = format!("nbd+unix:///EXPORT?socket={}", setting.path().join("nbd.sock").display());
        let tcp = format!("nbd://127.0.0.1:{}/EXPORT", setting.nbd);
        [tcp, socket].map(|uri| Comes { uri, _certificate: None })
    }

    fn uri(&self, export: &str) -> String {
        self.uri.replace("EXPORT", export)
    }

    /// The exports that it sees.
    fn listed(&self) -> Vec<String> {
        let output = client("nbdinfo", &["--list", "--json", &self.uri("")]);
        let list: Value = serde_json::from_slice(&output.stdout).unwrap();
        let exports = list["exports"].as_array().unwrap();
        exports.iter().map(|export| export["export-name"].as_str().unwrap().to_owned()).collect()
    }

    /// Runs a script of nbdsh with the `uri` of an export; fails unless it succeeds.
    fn does(&self, export: &str, script: &str) {
        let script = format!("uri = {:?}\nh.set_uri_allow_local_file(True)\n{script}", self.uri(export));
        let output = client("nbdsh", &["-c", &script]);
        assert!(output.status.success(), "{}: {}", self.uri, String::from_utf8_lossy(&output.stderr));
    }

    /// Fails if the client can find the export in any way.
    fn does_not_find(&self, export: &str) {
        let script = "
h.set_opt_mode(True)
h.connect_uri(uri)
for ask in (h.opt_info, h.opt_go):
    try:
        ask()
        assert False, 'it is there'
    except nbd.Error as error:
        assert error.errno == 'ENOENT', error
h.opt_abort()
";
        self.does(export, script);
        let old = "
h.set_handshake_flags(0)
try:
    h.connect_uri(uri)
    assert False, 'it is there'
except nbd.Error:
    pass
";
        self.does(export, old);
    }
}

/// Runs a tool; the system's libnbd is for the system's Python, which another Python may come before.
fn client(program: &str, arguments: &[&str]) -> Output {
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap());
    let output = Command::new(program).args(arguments).env("PATH", path).output();
    output.unwrap_or_else(|error| panic!("{program} does not run: {error}"))
}

/// A client with an open export, which reports the end of its session.
struct Session {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Session {
    fn open(comes: &Comes, export: &str) -> Session {
        let script = format!(
            "import sys
h.set_uri_allow_local_file(True)
h.connect_uri({:?})
print('open', flush=True)
try:
    for line in sys.stdin:
        h.pread(4096, 0)
        print('read', flush=True)
except nbd.Error:
    print('ended', flush=True)
",
            comes.uri(export)
        );
        let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap());
        let mut nbdsh = Command::new("nbdsh");
        let mut child =
            nbdsh.args(["-c", &script]).env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut session = Session { said: BufReader::new(child.stdout.take().unwrap()), child };
        assert_eq!(session.says(), "open\n");
        session
    }

    fn says(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line
    }

    /// Requests a read from the client; returns its result.
    fn reads(&mut self) -> String {
        writeln!(self.child.stdin.as_ref().unwrap()).unwrap();
        self.says()
    }

    fn ends_by_the_server(mut self) {
        wait_until("the session ends", || match self.reads().as_str() {
            "read\n" => false,
            other => other == "ended\n" || panic!("{other}"),
        });
        assert!(self.child.wait().unwrap().success());
    }

    fn lasts(mut self) {
        (0..10).for_each(|_| assert_eq!(self.reads(), "read\n"));
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

const WRITES: &str = "
h.connect_uri(uri)
assert not h.is_read_only()
h.pwrite(b'm' * 4096, 8192, nbd.CMD_FLAG_FUA)
assert h.pread(4096, 8192) == b'm' * 4096
h.shutdown()
";

const READS: &str = "
h.connect_uri(uri)
assert h.is_read_only() and not h.can_trim() and not h.can_zero()
assert h.pread(4096, 8192) == b'm' * 4096
h.set_strict_mode(0)
for change in (lambda: h.pwrite(b'x' * 4096, 8192), lambda: h.zero(4096, 8192), lambda: h.trim(4096, 8192)):
    try:
        change()
        assert False, 'it may write'
    except nbd.Error as error:
        assert error.errno == 'EPERM', error
assert h.pread(4096, 8192) == b'm' * 4096
h.shutdown()
";

#[test]
fn a_volume_for_certificates_is_open_only_to_their_clients() {
    let setting = Setting::new();
    setting.configure(ASSIGNED, true, true);
    let server = setting.serve();
    let [writer, reader, other] = ["client", "backup", "server"].map(|name| Comes::with(&setting, name));
    for name in ["mail", "post"] {
        writer.does(name, WRITES);
        reader.does(name, READS);
    }
    for comes in [&writer, &reader] {
        assert_eq!(comes.listed(), ["mail", "post", "web"]);
    }
    let plain = Comes::plain(&setting);
    for comes in plain.iter().chain([&other]) {
        assert_eq!(comes.listed(), ["web"], "what is assigned to an initiator is for all over NBD");
        ["mail", "post", "none"].iter().for_each(|name| comes.does_not_find(name));
        comes.does("web", WRITES);
    }
    // QEMU looks for the export of the certificate that its directory has.
    let qemu = |name: &str| {
        let directory = setting.certificates.of_client(name);
        let credentials = format!("tls-creds-x509,id=tls0,endpoint=client,dir={}", directory.path().display());
        let image = format!("driver=nbd,host=127.0.0.1,port={},export=mail,tls-creds=tls0", setting.nbd);
        let commands = ["-c", "write -P 109 8k 4k", "-c", "read -P 109 8k 4k"];
        client("qemu-io", &[&["--object", &credentials], &commands[..], &["--image-opts", &image]].concat())
    };
    for (name, may) in [("client", true), ("backup", false), ("server", false)] {
        let output = qemu(name);
        assert_eq!(output.status.success(), may, "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Certificates say nothing over iSCSI.
    let portal = format!("iscsi://127.0.0.1:{}", setting.iscsi);
    let listed = |initiator: &str| tool(setting.path(), "iscsi-ls", &["-i", initiator, &portal]);
    let (web, none) = (listed("iqn.2026-11.org.example:web"), listed("iqn.2026-11.org.example:client"));
    assert!(web.contains("flashwise:web") && !web.contains("mail") && !web.contains("post"), "{web}");
    assert!(!none.contains("Target:"), "{none}");
    server.end();
}

#[test]
fn sessions_end_whose_right_is_changed_while_the_server_runs() {
    let setting = Setting::new();
    setting.configure(ASSIGNED, false, true);
    let server = setting.serve();
    let [writer, reader, other] = ["client", "backup", "server"].map(|name| Comes::with(&setting, name));
    let [_, plain] = Comes::plain(&setting);
    writer.does("mail", WRITES);
    let open = |comes: &Comes, export: &str| Session::open(comes, export);
    let [written, read, elsewhere] = [open(&writer, "post"), open(&reader, "mail"), open(&plain, "web")];
    // The one may only read from now on, the other not even that, and a third may write.
    let route = "/v1/iscsi/exports/mail";
    let assigned = json!([{ "initiator": "tls:client", "read_only": true }, { "initiator": "tls:server" }]);
    let (status, plan) = setting.ask("PUT", &format!("{route}?dry-run=true"), &json!({ "assigned": assigned }));
    let does = plan["does"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(status, 200, "{plan}");
    let told = "Over iSCSI, mail is for no initiator; over NBD, it is for only tls:client (read-only) and tls:server.";
    assert_eq!(does[0], told);
    for line in [
        "127.0.0.1 with the certificate of client has it open; its session ends, and it can log in again.",
        "127.0.0.1 with the certificate of backup, db.example has it open, and is disconnected.",
    ] {
        assert!(does.contains(&line), "{does:#?}");
    }
    assert_eq!(does.len(), 4, "{does:#?}");
    let (status, iscsi) = setting.assign("mail", &assigned);
    assert_eq!((status, &iscsi["nbd_certificates"]), (200, &json!(true)), "{iscsi}");
    assert_eq!((iscsi["listening"].as_array().unwrap().len(), &iscsi["exports"][0]["changed"]), (0, &json!(true)));
    written.ends_by_the_server();
    read.ends_by_the_server();
    elsewhere.lasts();
    let holds = || {
        writer.does("mail", READS);
        other.does("mail", WRITES);
        reader.does_not_find("mail");
        plain.does_not_find("post");
    };
    holds();
    // A client whose permission is unchanged keeps its session.
    let stays = open(&writer, "mail");
    assert_eq!(setting.assign("mail", &assigned).0, 200);
    let more = json!([{ "initiator": "tls:client", "read_only": true }, { "initiator": "tls:server" }, { "initiator": "tls:new" }]);
    assert_eq!(setting.assign("mail", &more).0, 200);
    stays.lasts();
    // A refusal has no effects.
    for (assigned, status, expected) in [
        (json!([{ "initiator": "tls:" }]), 400, "found 'tls:', expected the name of an initiator"),
        (json!([{ "initiator": "tls:a" }, { "initiator": "tls:A" }]), 400, "found 'tls:A' twice, expected it once"),
        (json!([{ "initiator": "iqn.2026-11.org.example:a" }]), 409, "but iSCSI is not served"),
    ] {
        let (found, answer) = setting.assign("mail", &assigned);
        assert_eq!(found, status, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(expected), "{answer}");
    }
    // An export that all may open is so no more for those who have it open.
    let open_to_all = open(&plain, "web");
    assert_eq!(setting.assign("web", &json!([{ "initiator": "tls:client" }])).0, 200);
    open_to_all.ends_by_the_server();
    plain.does_not_find("web");
    server.end();
    let server = setting.serve();
    holds();
    let last = open(&other, "mail");
    assert_eq!(setting.ask("DELETE", route, &Value::Null).0, 200);
    last.ends_by_the_server();
    writer.does("mail", WRITES);
    reader.does("mail", READS);
    other.does_not_find("mail");
    server.end();
}

#[test]
fn without_client_certificates_none_is_named() {
    let setting = Setting::new();
    setting.configure(ASSIGNED, true, false);
    let error = fail(setting.path(), &["serve", "flashwise.toml"], 2);
    let expected = "[iscsi] assign: found 'tls:client', but no client can show a certificate; expected \
        client-authorities in the table [tls]";
    assert!(error.contains(expected), "{error}");
    setting.configure("assign = \"mail tls: read-only\"", true, true);
    let error = fail(setting.path(), &["serve", "--check-config", "flashwise.toml"], 2);
    assert!(error.contains("[iscsi] assign: found 'tls:', expected the name of an initiator"), "{error}");
    setting.configure("", true, false);
    let server = setting.serve();
    let (status, answer) = setting.assign("mail", &json!([{ "initiator": "tls:client" }]));
    assert_eq!(status, 409, "{answer}");
    let expected = "found 'tls:client', but no client of NBD can show a certificate";
    assert!(answer["error"].as_str().unwrap().contains(expected), "{answer}");
    server.end();
    // Without certificates, an earlier assignment still holds: no client finds the export until the assignment is
    // removed.
    setting.configure("", false, true);
    let server = setting.serve();
    assert_eq!(setting.assign("mail", &json!([{ "initiator": "tls:client" }])).0, 200);
    server.end();
    setting.configure("", false, false);
    let server = setting.serve();
    assert!(
        server.told().contains("no NBD client can open the export: it is assigned to clients with certificates"),
        "{}",
        server.told()
    );
    let [_, plain] = Comes::plain(&setting);
    plain.does_not_find("mail");
    assert_eq!(setting.assign("web", &json!([])).0, 409);
    assert_eq!(setting.ask("DELETE", "/v1/iscsi/exports/mail", &Value::Null).0, 200);
    plain.does("mail", WRITES);
    server.end();
}

/// Rules set at run time follow a volume to its new name; those of a removed volume can be deleted.
#[test]
fn an_assignment_follows_a_volume_to_its_new_name() {
    let setting = Setting::new();
    setting.configure("", false, true);
    let server = setting.serve();
    assert_eq!(setting.assign("mail", &json!([{ "initiator": "tls:client" }])).0, 200);
    assert_eq!(setting.assign("web", &json!([{ "initiator": "tls:client" }])).0, 200);
    server.end();
    let config = setting.path().join("flashwise.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let renamed = "name = \"letters\"\naliases = [\"mail\", \"post\"]";
    let text = text.replace("name = \"mail\"\naliases = [\"post\"]", renamed).replace("\"web\"", "\"shop\"");
    std::fs::write(&config, text).unwrap();
    let server = setting.serve();
    for name in ["letters", "mail", "post"] {
        Comes::plain(&setting).iter().for_each(|comes| comes.does_not_find(name));
        Comes::with(&setting, "client").does(name, WRITES);
    }
    let (_, access) = setting.ask("GET", "/v1/iscsi", &Value::Null);
    assert_eq!(
        access["exports"][0]["assigned"],
        json!([{ "initiator": "tls:client", "read_only": false }]),
        "{access}"
    );
    // Nothing is there by the old name of the other, which is said, and whose assignment goes by that name.
    assert_eq!(setting.ask("DELETE", "/v1/iscsi/exports/web", &Value::Null).0, 200);
    assert_eq!(setting.ask("DELETE", "/v1/iscsi/exports/web", &Value::Null).0, 404);
    let kept = std::fs::read_to_string(setting.path().join("assignments.json")).unwrap();
    assert!(kept.contains("letters") && !kept.contains("web") && !kept.contains("mail"), "{kept}");
    let log = server.end();
    assert!(log.contains("clients were assigned to an export that does not exist"), "{log}");
}

/// A new logical disk has no rules, even if an earlier disk of its name had some.
#[test]
fn a_new_logical_disk_inherits_nothing() {
    let setting = Setting::new();
    setting.configure("assign = [\"ld tls:client\"]", false, true);
    let said = json!({ "ld": [{ "initiator": "tls:db.example" }] });
    std::fs::write(setting.path().join("assignments.json"), said.to_string()).unwrap();
    let server = setting.serve();
    std::fs::File::create(setting.path().join("a.img")).unwrap().set_len(64 << 20).unwrap();
    let path = setting.path().join("a.img").canonicalize().unwrap();
    let pool = json!({ "name": "tank", "disks": [path], "settings": { "ram": "16MiB" } });
    assert_eq!(setting.ask("POST", "/v1/pools", &pool).0, 201);
    let disk = json!({ "name": "ld", "size_bytes": 4 << 20 });
    assert_eq!(setting.ask("POST", "/v1/pools/tank/logical-disks", &disk).0, 201);
    Comes::with(&setting, "backup").does_not_find("ld");
    Comes::with(&setting, "client").does("ld", WRITES);
    server.end();
}
