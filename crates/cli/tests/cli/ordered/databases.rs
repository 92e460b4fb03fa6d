//! SQLite and PostgreSQL on a file system whose flash is lost. They recover and pass their own checks. They have every
//! transaction that was committed before the stated moment.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use flashwise_testing::mounted::{run, text, try_run};
use flashwise_testing::setting;
use flashwise_testing::waiting::wait_until;

use super::{Bed, lose, now_us, seeds, survives};

/// Transfers between accounts, whose sum stays 0. Each transaction has a row, and its bytes in two tables.
const TABLES: &str = "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
    CREATE TABLE done(id INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
    CREATE TABLE again(id INTEGER PRIMARY KEY REFERENCES done(id), bytes BLOB NOT NULL);
    CREATE INDEX by_bytes ON again(bytes);
    WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number LIMIT 1000)
    INSERT INTO account SELECT n, 0 FROM number;";

/// Each line is right if it says 1, except the last, which is the number of the last transaction.
const CHECKS: &str =
    "SELECT CASE WHEN count(*) = 1 AND max(integrity_check) = 'ok' THEN 1 ELSE max(integrity_check) END
        FROM pragma_integrity_check;
    SELECT count(*) = 0 FROM pragma_foreign_key_check;
    SELECT sum(balance) = 0 FROM account;
    SELECT count(*) = (SELECT count(*) FROM done JOIN again USING (id, bytes)) FROM done;
    SELECT count(*) = 0 OR count(*) = max(id) - min(id) + 1 FROM done;
    SELECT ifnull(max(id), 0) FROM done;";

/// A shell of SQLite that is killed when dropped.
struct Sqlite(Child);

impl Drop for Sqlite {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sqlite(bed: &mut Bed) -> Result<u64, String> {
    let database = bed.at().join("database");
    let mode = bed.random.pick(&["WAL", "WAL", "DELETE", "TRUNCATE", "PERSIST"]);
    let pragmas = format!("PRAGMA journal_mode={mode};\nPRAGMA synchronous=EXTRA;\nPRAGMA wal_autocheckpoint=100;\n");
    run("sqlite3", &[text(&database), &format!("{pragmas}{TABLES}")]);
    bed.settle();
    let mut command = Command::new("sqlite3");
    command
        .arg("-batch")
        .arg("-bail")
        .arg(&database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut shell = Sqlite(command.spawn().unwrap());
    let (mut input, output) = (shell.0.stdin.take().unwrap(), BufReader::new(shell.0.stdout.take().unwrap()));
    let mut random = bed.random.clone();
    let (sender, commits) = channel::<(u64, u64)>();
    let writer = thread::spawn(move || {
        let mut lines = output.lines().map_while(Result::ok).skip_while(|line| line != "begins");
        let mut ask = |sql: String| writeln!(input, "{sql}").and_then(|()| input.flush());
        if ask(format!("{pragmas}SELECT 'begins';")).is_err() || lines.next().is_none() {
            return;
        }
        for number in 1_u64.. {
            let (from, to, amount) = (1 + random.below(1000), 1 + random.below(1000), random.below(100));
            let bytes = 16 + if random.chance(20) { random.below(200_000) } else { random.below(3_000) };
            let oldest = number.saturating_sub(300);
            let sql = format!(
                "BEGIN; UPDATE account SET balance = balance - {amount} WHERE id = {from}; \
                 INSERT INTO done VALUES ({number}, randomblob({bytes})); \
                 INSERT INTO again SELECT id, bytes FROM done WHERE id = {number}; \
                 UPDATE account SET balance = balance + {amount} WHERE id = {to}; \
                 DELETE FROM again WHERE id < {oldest}; DELETE FROM done WHERE id < {oldest}; COMMIT; SELECT {number};"
            );
            if ask(sql).is_err() || lines.next().is_none_or(|line| line != number.to_string()) {
                return;
            }
            let _ = sender.send((number, now_us()));
        }
    });
    let gone = bed.write_until_killed(100);
    writer.join().unwrap();
    drop(shell);
    drop(gone);
    let commits: Vec<(u64, u64)> = commits.iter().collect();
    bed.lose_flash(|_, stated| {
        let out = try_run("sqlite3", &["-batch", text(&database), CHECKS])?;
        let lines: Vec<&str> = out.lines().collect();
        let (last, checks) = lines.split_last().ok_or("sqlite3 says nothing")?;
        if checks.len() != 5 || checks.iter().any(|line| *line != "1") {
            return Err(format!("SQLite, {mode}: its checks say {lines:?}"));
        }
        let last: u64 = last.parse().map_err(|_| format!("SQLite, {mode}: {out}"))?;
        let due = commits.iter().rev().find(|(_, when)| stated.is_some_and(|stated| *when < stated));
        match due {
            Some((due, _)) if last < *due => {
                Err(format!("SQLite, {mode}: commit {due} is missing; {last} is the last"))
            }
            _ => Ok(last),
        }
    })
}

/// Programs of PostgreSQL, as its user, which is not root.
struct Postgres {
    programs: PathBuf,
    /// Where its socket is.
    sockets: PathBuf,
    data: PathBuf,
}

impl Postgres {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(self.programs.join(program)).env("PGHOST", &self.sockets);
        command.env("PGDATABASE", "postgres").env("PGUSER", "postgres").current_dir("/");
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        // Servers inherit standard output; a pipe would not end before them.
        let log = self.sockets.join(format!("{program}.log"));
        let file = std::fs::File::create(&log).unwrap();
        let mut command = self.command(program);
        let status =
            command.args(arguments).stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).status();
        let told = std::fs::read_to_string(&log).unwrap();
        if status.unwrap().success() { Ok(told) } else { Err(format!("PostgreSQL: {program} {arguments:?}: {told}")) }
    }

    fn control(&self, arguments: &[&str]) -> Result<String, String> {
        let log = self.sockets.join("server.log");
        let first = ["-D", text(&self.data), "-l", text(&log), "-w", "-t", "120"];
        self.run("pg_ctl", &[&first[..], arguments].concat())
            .map_err(|error| error + &std::fs::read_to_string(&log).unwrap_or_default())
    }

    fn ask(&self, sql: &str) -> Result<String, String> {
        Ok(self.run("psql", &["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql])?.trim().to_owned())
    }
}

/// Makes a small cluster with the tables of pgbench, which runs copy.
fn make_cluster(directory: &Path, programs: &Path) -> Result<(), String> {
    run("chmod", &["755", text(directory)]);
    run("install", &["-d", "-o", "postgres", text(&directory.join("run")), text(&directory.join("data"))]);
    let (programs, sockets, data) = (programs.to_owned(), directory.join("run"), directory.join("data"));
    let postgres = Postgres { programs, sockets, data };
    postgres
        .run("initdb", &["-D", text(&postgres.data), "-A", "trust", "--data-checksums", "--wal-segsize=1", "-N"])?;
    let settings = "listen_addresses = ''\nshared_buffers = '2MB'\nmax_wal_size = '8MB'\nmin_wal_size = '2MB'\n\
                    checkpoint_timeout = '30s'\ndynamic_shared_memory_type = mmap\nautovacuum_naptime = '1s'\n";
    let path = postgres.data.join("postgresql.conf");
    let old = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, old + settings + &format!("unix_socket_directories = '{}'\n", text(&postgres.sockets)))
        .unwrap();
    postgres.control(&["start"])?;
    postgres.run("pgbench", &["-i", "-q", "-s", "1"])?;
    postgres.ask("CREATE EXTENSION amcheck")?;
    postgres.control(&["stop"]).map(drop)
}

/// Returns the directory of PostgreSQL's programs.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed");
    versions.map(|version| version.unwrap().path().join("bin")).max().expect("PostgreSQL is installed")
}

fn postgres(bed: &mut Bed, cluster: &Path, programs: &Path) -> Result<u64, String> {
    run("chmod", &["755", text(bed.setting.directory.path()), text(&bed.at())]);
    let data = bed.at().join("data");
    run("cp", &["-a", text(&cluster.join("data")), text(&data)]);
    let postgres = Postgres { programs: programs.to_owned(), sockets: cluster.join("run"), data };
    postgres.control(&["start"])?;
    bed.settle();
    let log = postgres.sockets.join("transactions");
    let mut command = postgres.command("pgbench");
    command.args(["-n", "-c", "4", "-j", "1", "-T", "60", "-l", "--log-prefix", text(&log)]);
    let mut load = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let gone = bed.write_until_killed(100);
    // Its server's data is gone, too: it ends by itself, or here.
    let _ = postgres.control(&["stop", "-m", "immediate"]);
    load.wait().unwrap();
    // The lock of its socket begins with its process number. Another server would refuse to start.
    if let Ok(lock) = std::fs::read_to_string(postgres.sockets.join(".s.PGSQL.5432.lock")) {
        let process = Path::new("/proc").join(lock.lines().next().expect("it has lines").trim());
        wait_until("the killed database's server has ended", || !process.exists());
    }
    drop(gone);
    let mut commits = Vec::new();
    for entry in std::fs::read_dir(&postgres.sockets).unwrap() {
        let path = entry.unwrap().path();
        if text(&path).starts_with(text(&log)) {
            commits.extend(std::fs::read_to_string(&path).unwrap().lines().filter_map(committed_us));
            std::fs::remove_file(path).unwrap();
        }
    }
    bed.lose_flash(|_, stated| {
        let _ = std::fs::remove_file(postgres.data.join("postmaster.pid"));
        postgres.control(&["start"])?;
        let checked = check_cluster(&postgres, &commits, stated);
        postgres.control(&["stop"])?;
        let count = checked?;
        postgres.run("pg_checksums", &["--check", "-D", text(&postgres.data)])?;
        Ok(count)
    })
}

/// Returns the time of a commit in microseconds, from a line of pgbench's log; none if the line is torn.
fn committed_us(line: &str) -> Option<u64> {
    let columns: Vec<u64> = line.split(' ').map_while(|column| column.parse().ok()).collect();
    (columns.len() >= 6).then(|| columns[4] * 1_000_000 + columns[5])
}

/// Checks the cluster, and returns the number of its transactions.
fn check_cluster(postgres: &Postgres, commits: &[u64], stated: Option<u64>) -> Result<u64, String> {
    postgres.run("pg_amcheck", &["--heapallindexed", "--rootdescend", "--parent-check", "postgres"])?;
    let sums = "SELECT (SELECT coalesce(sum(delta), 0) FROM pgbench_history) = \
                (SELECT sum(abalance) FROM pgbench_accounts) \
                AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches) \
                AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(abalance) FROM pgbench_accounts) \
                AND (SELECT count(*) FROM pgbench_accounts) = 100000";
    if postgres.ask(sums)? != "t" {
        return Err("PostgreSQL: the balances do not agree".to_owned());
    }
    let count: u64 =
        postgres.ask("SELECT count(*) FROM pgbench_history")?.parse().map_err(|error| format!("{error}"))?;
    let due = commits.iter().filter(|&&when| stated.is_some_and(|stated| when < stated)).count() as u64;
    if count < due { Err(format!("PostgreSQL: has {count} of {due} transactions")) } else { Ok(count) }
}

fn runs() -> u64 {
    setting("FLASHWISE_ORDERED", 5).div_ceil(5)
}

#[test]
fn sqlite_survives_the_loss_of_the_flash() {
    survives("ext4", runs().div_ceil(2), sqlite);
    survives("xfs", runs() / 2, sqlite);
}

#[test]
fn postgresql_survives_the_loss_of_the_flash() {
    let (directory, programs) = (tempfile::tempdir().unwrap(), programs());
    make_cluster(directory.path(), &programs).unwrap_or_else(|error| panic!("{error}"));
    let run = |bed: &mut Bed| postgres(bed, directory.path(), &programs);
    survives("ext4", runs().div_ceil(2), run);
    survives("xfs", runs() / 2, run);
}

/// The control: without an order of write-back, databases are damaged.
#[test]
fn databases_without_an_order_are_damaged() {
    // About every third database is damaged.
    let is_damaged = |seed: u64| !lose("none", "ext4", seed..seed + 1, sqlite).failures.is_empty();
    assert!(seeds(20).any(is_damaged), "no database was damaged");
}
