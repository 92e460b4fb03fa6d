//! Sweeps over traces in S3, with results there, on the server moto, which `run-tests` installs.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use flashwise_sim::results::Brief;
use flashwise_sim::sweep::rows;
use flashwise_testing::waiting::wait_until;
use object_store::ObjectStoreExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use tempfile::TempDir;
use tokio::runtime::Builder;

use crate::common::{flashwise, parts, succeed};

/// A server of S3, with a bucket of traces and one of results. It checks the signature of each request.
struct Server {
    port: u16,
    process: Child,
    /// The credentials of a user who may do everything.
    key: String,
    secret: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

impl Server {
    fn moto() -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let program = crate::common::project().join(".venv/bin/moto_server");
        let mut command = Command::new(&program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut server = Server { port, process: server, key: String::new(), secret: String::new() };
        wait_until("moto answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        for bucket in ["traces", "results"] {
            server.send(&format!("PUT /{bucket}"), "text/plain", "");
        }
        // The scope of an unchecked signature names the service that these requests go to.
        let user = |action: &str| {
            let scope = "Credential=x/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=0";
            let form = format!("application/x-www-form-urlencoded\r\nAuthorization: AWS4-HMAC-SHA256 {scope}");
            server.send("POST /", &form, &format!("Version=2010-05-08&UserName=someone&Action={action}"))
        };
        user("CreateUser");
        let policy = r#"{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"s3:*","Resource":"*"}}"#;
        user(&format!("PutUserPolicy&PolicyName=all&PolicyDocument={policy}"));
        let keys = user("CreateAccessKey");
        let field =
            |name: &str| keys.split([' ', '<', '>']).skip_while(|&part| part != name).nth(1).unwrap().to_owned();
        (server.key, server.secret) = (field("AccessKeyId"), field("SecretAccessKey"));
        // From now on every request must be signed.
        server.send("POST /moto-api/reset-auth", "text/plain", "0");
        server
    }

    /// Sends an unsigned request and returns the answer.
    fn send(&self, what: &str, kind: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!("{what} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close", self.port);
        let request = format!("{head}\r\nContent-Length: {}\r\nContent-Type: {kind}\r\n\r\n{body}", body.len());
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{what}: {answer}");
        answer
    }

    /// Contents of an object, or nothing where it is made: what `ask` does with it.
    fn ask<T>(&self, bucket: &str, ask: impl AsyncFnOnce(AmazonS3) -> object_store::Result<T>) -> T {
        // It fails if it is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let store = AmazonS3Builder::new()
            .with_endpoint(format!("http://127.0.0.1:{}", self.port))
            .with_allow_http(true)
            .with_access_key_id(&self.key)
            .with_secret_access_key(&self.secret)
            .with_bucket_name(bucket);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(ask(store.build().unwrap())).unwrap()
    }

    fn put(&self, name: &str, contents: &[u8]) {
        let contents = contents.to_vec();
        self.ask("traces", async |store| store.put(&name.into(), contents.into()).await);
    }

    /// Runs the program with the settings for the server, but with `secret`.
    fn output(&self, folder: &Path, secret: &str, arguments: &[&str]) -> Output {
        let mut command = flashwise(folder, arguments);
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)).env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", &self.key).env("AWS_SECRET_ACCESS_KEY", secret);
        command.output().unwrap()
    }

    fn succeed(&self, folder: &Path, arguments: &[&str]) -> String {
        let (out, err, code) = parts(self.output(folder, &self.secret, arguments));
        let others: String = err.lines().filter(|line| !line.contains(": read as csv:")).collect();
        assert_eq!((code, others.as_str()), (0, ""), "{arguments:?}: {out}");
        out
    }

    fn fail(&self, folder: &Path, secret: &str, arguments: &[&str], code: i32) -> String {
        let (out, err, found) = parts(self.output(folder, secret, arguments));
        assert_eq!((found, out.as_str()), (code, ""), "{arguments:?}: {err}");
        err
    }

    /// Copies the results that a sweep reported to a folder here.
    fn results(&self, said: &str) -> TempDir {
        let folder = TempDir::new().unwrap();
        for line in said.lines() {
            let (_, place) = line.split_once(": s3://").unwrap();
            let (bucket, key) = place.split_once('/').unwrap();
            let contents = self.ask(bucket, async |store| store.get(&key.into()).await?.bytes().await);
            std::fs::write(folder.path().join(key.rsplit('/').next().unwrap()), contents).unwrap();
        }
        folder
    }
}

const RUN: &str = "[[run]]\npolicy = [\"lru\", \"larc\"]\nsize = [\"5%\", \"20%\"]\n";

fn plan(folder: &Path, name: &str, traces: &str, more: &str) {
    std::fs::write(folder.join(name), format!("traces = {traces}\n{more}\n{RUN}")).unwrap();
}

/// The copies in a folder of them: of each object its name, and whether its checksum is beside it.
fn copies(folder: &Path) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
        for file in std::fs::read_dir(entry.path()).into_iter().flatten().map(Result::unwrap) {
            let name = file.file_name().into_string().unwrap();
            if name != "sha256" {
                found.insert(name, entry.path().join("sha256").exists());
            }
        }
    }
    found
}

/// The rows of a sweep without the names of the traces.
fn figures(folder: &Path) -> Vec<Brief> {
    let mut rows = rows(folder).unwrap().rows;
    rows.iter_mut().for_each(|row| row.trace = row.trace.rsplit("msr/").next().unwrap().to_owned());
    rows
}

#[test]
fn traces_and_results_are_objects_of_moto() {
    let server = &Server::moto();
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    std::fs::create_dir(path.join("msr")).unwrap();
    // The first is longer than one piece.
    for (name, accesses, seed) in [("a.csv", "300000", "1"), ("b.csv", "5000", "2"), ("c.arrow", "9000", "3")] {
        let name = format!("msr/{name}");
        let mut options = vec!["trace", "generate", &name, "--blocks", "4000", "--accesses", accesses, "--seed", seed];
        options.extend(name.ends_with(".csv").then_some("--csv"));
        succeed(path, &options);
        server.put(&name, &std::fs::read(path.join(&name)).unwrap());
    }
    let tar = std::process::Command::new("tar").current_dir(path).args(["czf", "all.tar.gz", "msr"]).status();
    assert!(tar.unwrap().success());
    server.put("all.tar.gz", &std::fs::read(path.join("all.tar.gz")).unwrap());
    server.put("notes.txt", b"not a trace\n");

    let more = r#"["msr/*", "all.tar.gz/msr/b.csv", "msr/a.csv + msr/b.csv"]"#;
    plan(path, "here.toml", more, "out = \"here\"");
    succeed(path, &["-q", "sweep", "here.toml"]);
    let traces = more
        .replace("\"msr/", "\"s3://traces/msr/")
        .replace("\"all", "\"s3://traces/all")
        .replace(" + msr/", " + s3://traces/msr/");
    plan(path, "there.toml", &traces, "out = \"s3://results/one\"\ncache = \"copies\"");
    let status = || server.succeed(path, &["sweep", "status", "there.toml"]);
    assert!(
        status().ends_with("0 of 5 traces done\n") && copies(&path.join("copies")).is_empty(),
        "nothing is fetched"
    );
    let said = server.succeed(path, &["-q", "sweep", "there.toml", "--workers", "2"]);
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 5, "{said}");
    assert!(lines[1].starts_with("s3://traces/msr/a.csv + s3://traces/msr/b.csv: s3://results/one/b-"), "{said}");
    let names = ["a.csv", "all.tar.gz", "b.csv", "c.arrow"];
    assert_eq!(copies(&path.join("copies")), names.map(|name| (name.to_owned(), true)).into());

    // The rows are those of files.
    let found = server.results(&said);
    let expected = figures(&path.join("here"));
    assert_eq!(expected.len(), 5 * 4);
    let sorted = |mut rows: Vec<Brief>| {
        rows.sort_by_key(|row| (row.accesses, row.capacity_blocks, row.policy.clone(), row.trace.clone()));
        rows
    };
    assert_eq!(sorted(figures(found.path())), sorted(expected.clone()));
    server.succeed(path, &["sweep", "report", "s3://results/one", "--html", "page.html"]);
    assert!(std::fs::read_to_string(path.join("page.html")).unwrap().contains("5 traces in "));

    // A machine without copies fetches nothing for finished jobs.
    std::fs::remove_dir_all(path.join("copies")).unwrap();
    assert!(status().ends_with("5 of 5 traces done\n"));
    let mut again: Vec<String> =
        server.succeed(path, &["-q", "sweep", "there.toml"]).lines().map(str::to_owned).collect();
    again.sort_unstable();
    assert!(again == lines && copies(&path.join("copies")).is_empty(), "{again:?}");
    // Additional jobs of the plan run, over new copies.
    let added = there_with(path, "there.toml", "\"larc\"", "\"larc\", \"arc\"");
    std::fs::write(path.join("there.toml"), added).unwrap();
    assert!(status().ends_with("0 of 5 traces done\n"));
    server.succeed(path, &["-q", "sweep", "there.toml"]);
    assert_eq!(copies(&path.join("copies")).len(), 4);

    // An interrupted copy is fetched again.
    for entry in std::fs::read_dir(path.join("copies")).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            std::fs::remove_file(entry.path().join("sha256")).unwrap();
            let begun = std::fs::read_dir(entry.path()).unwrap().next().unwrap().unwrap();
            std::fs::write(begun.path(), "begun").unwrap();
        }
    }
    plan(path, "anew.toml", &traces, "out = \"anew\"\ncache = \"copies\"");
    server.succeed(path, &["-q", "sweep", "anew.toml"]);
    assert_eq!(sorted(figures(&path.join("anew"))), sorted(expected));

    // A change of an object is one of its traces.
    let lines: Vec<String> =
        std::fs::read_to_string(path.join("msr/b.csv")).unwrap().lines().map(str::to_owned).collect();
    server.put("msr/b.csv", lines[..3000].join("\n").as_bytes());
    assert!(status().ends_with("3 of 5 traces done\n"), "{}", status());

    // Copies take no more than they may: what was used last stays.
    plan(path, "small.toml", &traces, "out = \"small\"\ncache = \"few\"\ncache-size = \"200KiB\"");
    server.succeed(path, &["-q", "sweep", "small.toml"]);
    let few = copies(&path.join("few"));
    assert!(few.contains_key("b.csv") && !few.contains_key("c.arrow"), "{few:?}");
    assert_eq!(std::fs::read_dir(path.join("small")).unwrap().filter(is_parquet).count(), 5);

    // Missing objects are reported under the name of the trace.
    for (traces, code, expected) in [
        ("s3://traces/msr/none.csv", 1, "flashwise: s3://traces/msr/none.csv: found no such object\n"),
        (
            "s3://traces/msr/none*",
            2,
            "flashwise: bad.toml: traces: s3://traces/msr/none*: found none, expected objects that fit the pattern\n",
        ),
        ("s3://no-traces/*", 2, "flashwise: bad.toml: traces: s3://no-traces/: the server says NoSuchBucket"),
        ("s3:///msr/a.csv", 1, "flashwise: s3:///msr/a.csv: found no bucket, expected s3://BUCKET/KEY\n"),
        ("s3://traces/notes.txt", 1, "flashwise: s3://traces/notes.txt: copies/"),
    ] {
        plan(path, "bad.toml", &format!("[\"{traces}\"]"), "out = \"s3://results/bad\"\ncache = \"copies\"");
        let err = server.fail(path, &server.secret, &["-q", "sweep", "bad.toml"], code);
        assert!(err.starts_with(expected), "{err}");
    }

    // A server that computes another signature serves nothing.
    // The answer to HEAD, about a single object, has no text.
    for (traces, code, said) in
        [("msr/a.csv", 1, ": 403 Forbidden"), ("msr/*", 2, "the server says SignatureDoesNotMatch")]
    {
        plan(path, "forged.toml", &format!("[\"s3://traces/{traces}\"]"), "out = \"forged\"\ncache = \"none\"");
        let err = server.fail(path, "another secret", &["-q", "sweep", "forged.toml"], code);
        assert!(err.contains(said), "{err}");
    }
    assert!(copies(&path.join("none")).is_empty());
}

fn is_parquet(entry: &std::io::Result<std::fs::DirEntry>) -> bool {
    entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "parquet")
}

fn there_with(folder: &Path, name: &str, from: &str, to: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap().replace(from, to)
}
