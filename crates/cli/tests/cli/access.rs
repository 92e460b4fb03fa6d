//! The threat model of docs/security.md as a table: interface x credential x verb, allowed or refused. Runs as root,
//! because some rows are for another user of the same host.

use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::common::{fail, parts, project, succeed};
use crate::serving::Server;

const NOBODY: u32 = 65534;
const MIB: u64 = 1 << 20;

/// The rights of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Right {
    /// The connection is refused.
    Unreachable,
    /// The health of the server, the files of the page, and signing in.
    Health,
    /// That, and everything that can be read.
    Look,
    /// That, and changes.
    Change,
}

/// A request, the permission that it needs, and its answer with that permission.
struct Verb {
    method: &'static str,
    path: &'static str,
    body: String,
    needs: Right,
    answer: u16,
}

/// A folder that everybody may enter, with the files of two servers, which only root may read.
struct Host {
    folder: tempfile::TempDir,
    /// A folder that no configuration names.
    elsewhere: tempfile::TempDir,
}

impl Host {
    fn new() -> Host {
        let folder = tempfile::tempdir().unwrap();
        let host = Host { folder, elsewhere: tempfile::tempdir().unwrap() };
        std::fs::set_permissions(host.path(""), Permissions::from_mode(0o711)).unwrap();
        for name in ["one.img", "two.img", "disk.img"] {
            host.private(name, 32 * MIB);
        }
        flashwise_testing::write_private(host.path("token"), "sesame\n");
        flashwise_testing::write_private(host.path("read-token"), "peep\n");
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn private(&self, name: &str, bytes: u64) {
        let file = File::create(self.path(name)).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        file.set_len(bytes).unwrap();
    }

    /// A server of a volume over NBD at a socket and a port of loopback.
    fn serve(&self, name: &str, api: &str) -> Server {
        let config = format!(
            "listen = ['nbd+unix:///?socket={name}.nbd', 'nbd://127.0.0.1:0']\nstate-directory = '.'\n[api]\n{api}\n\
             [[volume]]\nname = '{name}'\nbackend = '{name}.img'\nram = '4MiB'\n"
        );
        let file = format!("{name}.toml");
        std::fs::write(self.path(&file), config).unwrap();
        Server::start(self.folder.path(), &["serve", &file])
    }

    /// Something on the disk that a request may wipe.
    fn fill(&self) {
        let mut file = File::options().write(true).open(self.path("disk.img")).unwrap();
        file.write_all(&[7; 4096]).unwrap();
    }

    fn is_wiped(&self) -> bool {
        std::fs::read(self.path("disk.img")).unwrap()[..4096].iter().all(|byte| *byte == 0)
    }

    fn verbs(&self, volume: &str) -> Vec<Verb> {
        let disk = self.path("disk.img").display().to_string();
        let (flash, evil) = (self.path("pool.cache"), self.elsewhere.path().join("evil"));
        let pool = |flash: &Path| {
            let settings = json!({"ram": "4MiB", "flash": flash, "flash-size": "32MiB"});
            json!({"name": "p", "disks": [disk], "wipe": [disk], "settings": settings}).to_string()
        };
        let settings: &'static str = format!("/v1/volumes/{volume}").leak();
        let flush: &'static str = format!("/v1/volumes/{volume}/flush").leak();
        let verb = |method, path, body, needs, answer| Verb { method, path, body, needs, answer };
        let read = |path, needs| verb("GET", path, String::new(), needs, 200);
        vec![
            read("/healthz", Right::Health),
            read("/readyz", Right::Health),
            read("/", Right::Health),
            read("/v1/session", Right::Health),
            read("/v1/status", Right::Look),
            read("/metrics", Right::Look),
            read("/openapi.json", Right::Look),
            read("/v1/disks", Right::Look),
            read("/v1/pools", Right::Look),
            verb("POST", "/v1/page", String::new(), Right::Look, 200),
            verb("PATCH", settings, json!({"dirty-age": "5s"}).to_string(), Right::Change, 200),
            verb("POST", flush, String::new(), Right::Change, 204),
            verb("POST", "/v1/disks/wipe", json!({"path": disk, "confirm": disk}).to_string(), Right::Change, 204),
            // A path that no configuration names is nobody's, root's neither.
            verb("POST", "/v1/pools?dry-run=true", pool(&evil), Right::Change, 400),
            verb("POST", "/v1/pools", pool(&evil), Right::Change, 400),
            verb("POST", "/v1/pools?dry-run=true", pool(&flash), Right::Change, 200),
        ]
    }

    /// Makes all requests, and holds each to the right of the row.
    fn hold(&self, name: &str, api: &Api<'_>, row: &Row<'_>) {
        for Verb { method, path, body, needs, answer } in self.verbs(name) {
            self.fill();
            let status = api.ask(row, method, path, &body);
            let expected = match row.right {
                Right::Unreachable => vec![0],
                right if right >= needs => vec![answer],
                Right::Health => vec![401, 403],
                _ => vec![403],
            };
            let what = format!("{} as {}: {method} {path}", row.interface, row.credential);
            assert!(expected.contains(&status), "{what}: found {status}, expected {expected:?}");
            let wipes = path == "/v1/disks/wipe" && row.right == Right::Change;
            assert_eq!(self.is_wiped(), wipes, "{what}");
            assert!(!self.elsewhere.path().join("evil").exists(), "{what}");
        }
    }
}

/// The address of an API.
enum Api<'a> {
    Unix(&'a Path),
    Tcp(&'a str),
}

/// A client.
struct Row<'a> {
    interface: &'a str,
    credential: &'a str,
    uid: u32,
    headers: &'a [&'a str],
    right: Right,
}

/// A program as a user of this machine, without any privilege unless that is root.
fn command_of(uid: u32, program: &str) -> Command {
    if uid == 0 {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", program]);
    command
}

impl Api<'_> {
    /// The status of the answer; 0 if the connection is refused.
    fn ask(&self, row: &Row<'_>, method: &str, path: &str, body: &str) -> u16 {
        let mut curl = command_of(row.uid, "curl");
        curl.args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--request", method]);
        curl.args(row.headers.iter().flat_map(|header| ["--header", header]));
        if !body.is_empty() {
            curl.args(["--header", "Content-Type: application/json", "--data", body]);
        }
        match self {
            Api::Unix(socket) => curl.arg("--unix-socket").arg(socket).arg(format!("http://localhost{path}")),
            Api::Tcp(address) => curl.arg(format!("http://{address}{path}")),
        };
        let (status, _, code) = parts(curl.current_dir("/").output().unwrap());
        // 7: the connection failed.
        assert!(code == 0 || code == 7, "curl ended with {code}");
        status.parse().unwrap()
    }
}

/// The words of a log line after this text.
fn after<'a>(log: &'a str, text: &str) -> &'a str {
    log.split_once(text).unwrap_or_else(|| panic!("{text}: {log}")).1.split_whitespace().next().unwrap()
}

#[test]
fn permissions_match_the_threat_model() {
    assert!(rustix::process::geteuid().is_root(), "expected to run as root");
    let host = Host::new();
    let server = host.serve("one", "");
    let socket = host.path("api.sock");
    let unix = Api::Unix(&socket);
    let mode = socket.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let row = |interface, credential, uid, headers, right| Row { interface, credential, uid, headers, right };
    let default = "the default socket";
    host.hold("one", &unix, &row(default, "root", 0, &[], Right::Change));
    host.hold(
        "one",
        &unix,
        &row(default, "root, for an API without a token", 0, &["Authorization: Bearer x"], Right::Change),
    );
    host.hold("one", &unix, &row(default, "nobody", NOBODY, &[], Right::Unreachable));
    // The mode is not the only guard.
    std::fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let open = "a socket that everybody may connect to";
    host.hold("one", &unix, &row(open, "nobody", NOBODY, &[], Right::Health));
    host.hold(
        "one",
        &unix,
        &row(open, "nobody with a made-up token", NOBODY, &["Authorization: Bearer sesame"], Right::Health),
    );

    // The page of root, as every user of the machine can connect to it.
    let url = succeed(host.folder.path(), &["page"]);
    let address = url.trim_end().strip_prefix("http://").unwrap().split_once('/').unwrap().0.to_owned();
    let page = Api::Tcp(&address);
    host.hold("one", &page, &row("the page", "nobody", NOBODY, &[], Right::Health));
    let (out, err, code) =
        parts(Command::new("curl").args(["--silent", "--include", url.trim_end()]).output().unwrap());
    assert_eq!(code, 0, "{err}");
    let cookie = out.split_once("set-cookie: ").unwrap().1.split_once(';').unwrap().0.to_owned();
    let cookie = format!("Cookie: {cookie}");
    let own = [cookie.as_str(), "Sec-Fetch-Site: same-origin"];
    host.hold("one", &page, &row("the page", "its cookie, from its own scripts", 0, &own, Right::Change));
    let forged = [cookie.as_str(), "Sec-Fetch-Site: cross-site"];
    assert_eq!(
        page.ask(&row("the page", "its cookie, from another site", 0, &forged, Right::Look), "POST", "/v1/flush", ""),
        403
    );
    let told = server.told();
    let me = "by uid 0 (pid ";
    for change in [
        format!(" INFO Settings were changed: dirty-age = 5s, {me}"),
        format!(" INFO The disk {} was wiped, {me}", host.path("disk.img").display()),
        "), from 127.0.0.1, on the page".to_owned(),
        // Refusals are in the log once a minute, with the first one.
        format!(
            " WARN a request to the API failed method=POST path=\"/v1/pools\" status=400 error=\"flash: found {}, \
             expected ",
            host.elsewhere.path().join("evil").display()
        ),
    ] {
        assert!(told.contains(&change), "{change}: {told}");
    }
    let nbd = host.path("one.nbd").display().to_string();
    let port = after(&told, "is served at nbd://127.0.0.1:");
    for (uri, uid, is_open) in [
        (format!("nbd+unix:///one?socket={nbd}"), 0, true),
        (format!("nbd+unix:///one?socket={nbd}"), NOBODY, false),
        // docs/security.md warns of it.
        (format!("nbd://127.0.0.1:{port}"), NOBODY, true),
    ] {
        let opened = command_of(uid, "nbdinfo").args(["--size", &uri]).current_dir("/").output().unwrap();
        assert_eq!(opened.status.success(), is_open, "{uri} as {uid}: {opened:?}");
    }
    server.end();

    let server = host.serve("two", "listen = '127.0.0.1:0'\ntoken-file = 'token'\nread-token-file = 'read-token'");
    let told = server.told();
    let address = after(&told, "the management API is at ");
    let tcp = Api::Tcp(address);
    let interface = "loopback with tokens";
    for (credential, uid, headers, right) in [
        ("root without a token", 0, &[][..], Right::Health),
        ("nobody", NOBODY, &[], Right::Health),
        ("nobody with a wrong token", NOBODY, &["Authorization: Bearer sesam"], Right::Health),
        ("nobody with the token for reading", NOBODY, &["Authorization: Bearer peep"], Right::Look),
        ("nobody with the token for changes", NOBODY, &["Authorization: Bearer sesame"], Right::Change),
    ] {
        host.hold("two", &tcp, &row(interface, credential, uid, headers, right));
    }
    let told = server.end();
    for line in [
        "was wiped, by admin (token-file), from 127.0.0.1",
        " WARN a request to the API failed method=POST path=\"/v1/page\" status=401 error=\"a token is needed, as the \
         header 'Authorization: Bearer TOKEN'\" \
         client=\"127.0.0.1:",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
}

/// Tokens of commands, as those of the server: no device, no FIFO, no file that other users can read.
#[test]
fn commands_read_tokens_from_private_files_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    flashwise_testing::write_private(path.join("open"), "sesame\n");
    std::fs::set_permissions(path.join("open"), Permissions::from_mode(0o644)).unwrap();
    assert!(Command::new("mkfifo").arg(path.join("fifo")).status().unwrap().success());
    for (file, expected) in [
        ("/dev/zero", "it is not a regular file"),
        ("fifo", "it is not a regular file"),
        ("open", "its mode is 644, so that every user of this machine may use it; run: chmod o= open"),
    ] {
        let error = fail(path, &["status", "--api", "unix:none.sock", "--token-file", file], 1);
        assert!(error.contains(&format!("token file {file}: {expected}")), "{error}");
    }
}

/// In the table of interfaces, the last cell of a row lists files with their tests.
#[test]
fn each_row_of_the_threat_model_names_tests_that_are_there() {
    let document = std::fs::read_to_string(project().join("docs/security.md")).unwrap();
    let table = document.split_once("| held by |").unwrap().1;
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() >= 12, "{rows:?}");
    for row in rows {
        let cell = row.trim_end_matches(['|', ' ']).rsplit_once('|').unwrap().1;
        let (mut file, mut text, mut tests) = ("", String::new(), 0);
        for name in cell.split('`').skip(1).step_by(2) {
            if name.contains('/') {
                (file, text) = (name, std::fs::read_to_string(project().join(name)).unwrap());
            } else {
                tests += 1;
                let lines: Vec<&str> = text.lines().map(str::trim).collect();
                let is_test = lines.windows(2).any(|two| two == ["#[test]", &format!("fn {name}() {{")]);
                assert!(is_test, "{file} has no test {name}: {row}");
            }
        }
        assert!(tests > 0, "no test is named: {row}");
    }
}
