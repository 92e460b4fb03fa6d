//! `flashwise pool` and `flashwise disk`: pools and their logical disks, managed by the API of their server.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use flashwise_core::cache::Mode;
use flashwise_core::human;
use flashwise_core::quantity::ByteSize;
use flashwise_server::manage::NewPool;
use flashwise_storage::pool::status::{LogicalDiskStatus, MapRun, PoolStatus};
use flashwise_storage::pool::{DiskAdded, DiskGivenUp, LogicalDiskChange, NewLogical, prepare};
use flashwise_storage::status::Unserved;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::failure::Misuse;
use crate::live::api::{ApiClient, ApiOptions};
use crate::live::status::not_served;
use crate::table;

/// Create pools of disks, and add and remove disks online
#[derive(Debug, Subcommand)]
pub enum PoolCommand {
    /// Create a pool of unused disks, for a configuration or a running server
    Create(Create),
    /// Show the pools of a running server: space, disks and logical disks
    Status(Status),
    /// Add a disk to a served pool
    Add(Add),
    /// Move a disk's data to the other disks and remove it from its pool
    Remove(Remove),
    /// Delete an empty pool that a running server created, and blank its disks
    Delete(DeletePool),
}

impl PoolCommand {
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            PoolCommand::Create(create) => create.run(),
            PoolCommand::Status(status) => status.run(),
            PoolCommand::Add(add) => add.run(),
            PoolCommand::Remove(remove) => remove.run(),
            PoolCommand::Delete(delete) => delete.run(),
        }
    }
}

const NO_POOL: &str = "the server has no pool; create one with flashwise pool create --serve";

/// Options that choose a pool of a running server.
#[derive(Debug, Args)]
pub struct Of {
    /// Pool [default: the only one]
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    #[command(flatten)]
    api: ApiOptions,
}

impl Of {
    fn pools(&self, client: &ApiClient) -> anyhow::Result<Vec<PoolStatus>> {
        let json = client.get("/v1/pools")?;
        serde_json::from_value(json)
            .context("the server is of another version; use flashwise of its version, or --json")
    }

    /// Connects to the server and finds the pool.
    fn find(&self) -> anyhow::Result<(ApiClient, PoolStatus)> {
        let client = self.api.client()?;
        let pools = self.pools(&client)?;
        let there = pools.iter().map(|pool| pool.name.clone()).collect::<Vec<_>>().join(", ");
        let one = pools.len() == 1;
        let wanted = |pool: &PoolStatus| self.pool.as_ref().map_or(one, |name| *name == pool.name);
        let found = pools.into_iter().find(wanted).ok_or_else(|| match &self.pool {
            Some(name) => Misuse(format!("--pool: no pool '{name}', expected one of: {there}")),
            None if there.is_empty() => Misuse(NO_POOL.to_owned()),
            None => Misuse(format!("--pool is missing, expected one of: {there}")),
        })?;
        Ok((client, found))
    }
}

/// Returns the escaped API path of a part of a pool.
fn path(pool: &PoolStatus, parts: &[&str]) -> String {
    let escaped = |part: &&str| format!("/{}", utf8_percent_encode(part, NON_ALPHANUMERIC));
    let rest: String = parts.iter().map(escaped).collect();
    format!("/v1/pools/{}{}", utf8_percent_encode(&pool.name, NON_ALPHANUMERIC), rest.replace("%2D", "-"))
}

#[derive(Debug, Args)]
pub struct Create {
    /// Name of the pool: 1 to 64 lower-case letters, digits, hyphens and dots
    #[arg(value_name = "NAME")]
    name: String,
    /// Disks: block devices or regular files
    #[arg(value_name = "DISK", required = true)]
    disks: Vec<PathBuf>,
    /// Wipe this disk although it has data, which is lost; the same path as above; repeatable
    #[arg(long, value_name = "DISK")]
    wipe: Vec<PathBuf>,
    /// Let the running server create the pool and serve it now and after each restart
    #[arg(long)]
    serve: bool,
    /// Configuration of the pool for --serve, such as flash=/dev/nvme0n1 or ram=1GiB; repeatable
    #[arg(long, value_name = "KEY=VALUE", requires = "serve")]
    set: Vec<String>,
    #[command(flatten)]
    api: ApiOptions,
}

/// Reads options such as `ram=1GiB`. Paths become absolute.
pub fn settings(given: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut settings = BTreeMap::new();
    for set in given {
        let Some((key, value)) = set.split_once('=') else {
            let what = format!("--set: found '{set}', expected a key and a value such as ram=1GiB");
            return Err(Misuse(what).into());
        };
        let value =
            if ["flash", "journal"].contains(&key) { absolute(&PathBuf::from(value))? } else { value.to_owned() };
        if settings.insert(key.to_owned(), value).is_some() {
            return Err(Misuse(format!("--set: {key} is given twice")).into());
        }
    }
    Ok(settings)
}

/// Returns the absolute path, because the server has another working directory.
pub fn absolute(path: &PathBuf) -> std::io::Result<String> {
    std::path::absolute(path).map(|path| path.display().to_string())
}

impl Create {
    fn serve(&self) -> anyhow::Result<()> {
        let absolute = |paths: &[PathBuf]| paths.iter().map(absolute).collect::<std::io::Result<Vec<String>>>();
        let settings = settings(&self.set)?;
        let new =
            NewPool { name: self.name.clone(), disks: absolute(&self.disks)?, wipe: absolute(&self.wipe)?, settings };
        let made = self.api.client()?.send("POST", "/v1/pools", &serde_json::to_value(&new)?)?;
        let size = made["size_bytes"].as_u64().unwrap_or_default();
        let disks = human::counted(self.disks.len() as u64, "disk");
        println!("Pool {} has {disks} with {} and is served.", self.name, bytes(size));
        println!("Create its logical disks with flashwise disk create.");
        Ok(())
    }

    fn run(&self) -> anyhow::Result<()> {
        if let Some(other) = self.wipe.iter().find(|path| !self.disks.contains(path)) {
            return Err(Misuse(format!("--wipe: {} is not one of the pool's disks", other.display())).into());
        }
        if self.serve {
            return self.serve();
        }
        let pool = prepare::create(&self.name, &self.disks, &self.wipe)?;
        let size = u64::from(pool.map.space.count().chunks) * flashwise_storage::pool::CHUNK_BYTES;
        let disks = human::counted(pool.present.len() as u64, "disk");
        println!("Pool {} has {disks} with {}.", self.name, human::bytes(size as f64));
        println!("To serve it, add a table [[pool]] with its name and disks to the configuration.");
        Ok(())
    }
}

#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    of: Of,
    /// Print all figures as JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    fn run(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &self.of.api.client()?.get("/v1/pools")?)
                .map_err(std::io::Error::from)?;
            writeln!(out)?;
            return Ok(());
        }
        if self.of.pool.is_some() {
            return Ok(write!(out, "{}", page(&self.of.find()?.1))?);
        }
        let client = self.of.api.client()?;
        let mut pools: Vec<String> = self.of.pools(&client)?.iter().map(page).collect();
        let unserved: Vec<Unserved> = serde_json::from_value(client.get("/v1/status")?["unserved_pools"].take())?;
        pools.extend(unserved.iter().map(|pool| not_served("pool", pool)));
        if pools.is_empty() {
            return Ok(writeln!(out, "{NO_POOL}")?);
        }
        Ok(write!(out, "{}", pools.join("\n"))?)
    }
}

fn bytes(bytes: u64) -> String {
    human::bytes(bytes as f64)
}

fn page(pool: &PoolStatus) -> String {
    let mut page = format!(
        "pool {}, {}: {} of {} in use, {} free, {} provisioned to logical disks\n",
        pool.name,
        pool.state,
        bytes(pool.used_bytes),
        bytes(pool.size_bytes),
        bytes(pool.free_bytes),
        bytes(pool.provisioned_bytes)
    );
    if let Some(warning) = &pool.warning {
        page += &format!("WARNING: {warning}\n");
    }
    let mut disks = table::plain(&["disk", "path", "state", "size", "used"], 3);
    for disk in &pool.disks {
        let state = disk.failed.as_ref().map_or(disk.state.to_string(), |failed| format!("{}: {failed}", disk.state));
        disks.add_row([
            disk.number.to_string(),
            disk.path.clone(),
            state,
            bytes(disk.size_bytes),
            bytes(disk.used_bytes),
        ]);
    }
    page += &format!("{}\n", disks.trim_fmt());
    if !pool.logical_disks.is_empty() {
        page += &format!("{}\n", logical_disks(&pool.logical_disks));
    }
    page
}

fn logical_disks(disks: &[LogicalDiskStatus]) -> String {
    let of_space = ["logical disk", "kind", "cached", "size", "allocated", "missing", "lost"];
    let header = [&of_space[..], &["clients", "read", "hits", "written"]].concat();
    let mut table = table::plain(&header, 3);
    for disk in disks {
        let kind =
            [if disk.thick { "thick" } else { "thin" }, if disk.striped { "striped" } else { "linear" }].join(" ");
        table.add_row([
            disk.name.clone(),
            kind,
            match (disk.cached, disk.pinned_ram_bytes) {
                (false, _) => "no".to_owned(),
                (true, 0) => disk.mode.clone(),
                (true, kept) => format!("{}, {} kept in RAM", disk.mode, bytes(kept)),
            },
            bytes(disk.size_bytes),
            bytes(disk.allocated_bytes),
            bytes(disk.missing_bytes),
            bytes(disk.lost_bytes),
            disk.clients.to_string(),
            bytes(disk.read_bytes),
            if disk.reads == 0 { "none".to_owned() } else { human::percent(disk.read_hit_ratio) },
            bytes(disk.written_bytes),
        ]);
    }
    table.trim_fmt()
}

#[derive(Debug, Args)]
pub struct Add {
    /// Block device or regular file
    #[arg(value_name = "DISK")]
    disk: PathBuf,
    /// Wipe the disk although it has data, which is lost; repeat the path to confirm
    #[arg(long, value_name = "DISK")]
    wipe: Option<PathBuf>,
    #[command(flatten)]
    of: Of,
}

impl Add {
    fn run(&self) -> anyhow::Result<()> {
        let (client, pool) = self.of.find()?;
        let wipe = self.wipe.as_ref().map(absolute).transpose()?;
        client.send("POST", &path(&pool, &["disks"]), &json!(DiskAdded { path: absolute(&self.disk)?, wipe }))?;
        println!("{} is a disk of pool {}.", self.disk.display(), pool.name);
        if !pool.made {
            println!("Add it to the pool's disks in the configuration before the next start.");
        }
        Ok(())
    }
}

#[derive(Debug, Args)]
pub struct Remove {
    /// Number or path of the disk, from `flashwise pool status`
    #[arg(value_name = "DISK")]
    disk: String,
    /// Give up a missing disk and lose its data; repeat the path to confirm
    #[arg(long, value_name = "PATH")]
    give_up: Option<String>,
    /// Keep a disk that is being emptied; data already moved stays where it is
    #[arg(long, conflicts_with = "give_up")]
    stop: bool,
    #[command(flatten)]
    of: Of,
}

impl Remove {
    fn run(&self) -> anyhow::Result<()> {
        let (client, pool) = self.of.find()?;
        // An added disk has its absolute path in the pool.
        let absolute = absolute(&PathBuf::from(&self.disk))?;
        let is_it = |path: &str, number: u32| path == self.disk || path == absolute || number.to_string() == self.disk;
        let Some(disk) = pool.disks.iter().find(|disk| is_it(&disk.path, disk.number)) else {
            let there: Vec<_> = pool.disks.iter().map(|disk| format!("{} ({})", disk.number, disk.path)).collect();
            return Err(Misuse(format!("no disk '{}', expected one of: {}", self.disk, there.join(", "))).into());
        };
        if let Some(confirm) = &self.give_up {
            let path = path(&pool, &["disks", &disk.number.to_string(), "give-up"]);
            client.send("POST", &path, &json!(DiskGivenUp { confirm: Some(confirm.clone()) }))?;
            println!("Disk {} is given up. Reads of its data fail until new data is written there.", disk.path);
            println!("See how much is lost with flashwise pool status, and where with flashwise disk map.");
            return Ok(());
        }
        if self.stop {
            let path = path(&pool, &["disks", &disk.number.to_string(), "keep"]);
            client.send("POST", &path, &Value::Null)?;
            println!("Disk {} stays; it is no longer emptied.", disk.path);
            return Ok(());
        }
        client.send("DELETE", &path(&pool, &["disks", &disk.number.to_string()]), &Value::Null)?;
        println!("Disk {} is being emptied and will be removed; flashwise pool status shows the progress.", disk.path);
        if !pool.made {
            println!("Once it is removed, remove it from the configuration too.");
        }
        Ok(())
    }
}

/// Refuses to delete something whose name is not repeated to confirm.
fn check_confirmed(confirm: &str, name: &str, what: &str) -> Result<(), Misuse> {
    if confirm == name {
        return Ok(());
    }
    Err(Misuse(format!("--confirm: found '{confirm}', expected '{name}', the {what} to delete")))
}

/// Deletes a volume or a pool that a running server created. Returns true if it was served.
pub fn delete(api: &ApiOptions, kind: &str, name: &str, confirm: &str) -> anyhow::Result<bool> {
    check_confirmed(confirm, name, kind)?;
    if name.is_empty() {
        return Err(Misuse(format!("the {kind}'s name is empty")).into());
    }
    let client = api.client()?;
    let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
    let is_served = client.get(&format!("/v1/{kind}s/{name}")).is_ok();
    client.send("DELETE", &format!("/v1/{kind}s/{name}?confirm={name}"), &Value::Null)?;
    Ok(is_served)
}

#[derive(Debug, Args)]
pub struct DeletePool {
    /// Pool
    #[arg(value_name = "NAME")]
    name: String,
    /// The same name, to confirm
    #[arg(long, value_name = "NAME")]
    confirm: String,
    #[command(flatten)]
    api: ApiOptions,
}

impl DeletePool {
    fn run(&self) -> anyhow::Result<()> {
        match delete(&self.api, "pool", &self.name, &self.confirm)? {
            true => println!("Pool {} is deleted. Its disks are blank.", self.name),
            false => {
                println!("Pool {} was not served and is forgotten. Its disks keep their data.", self.name)
            }
        }
        Ok(())
    }
}

/// Create, grow, cache, delete and map logical disks of a pool
#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Create a logical disk, with an NBD export and an iSCSI target of its name
    Create(CreateDisk),
    /// Enlarge a logical disk online
    Grow(Grow),
    /// Enable or disable caching of a logical disk, and set its mode
    Cache(Cache),
    /// Delete a logical disk and its data
    Delete(Delete),
    /// Show the location of a logical disk's chunks
    Map(Map),
}

impl DiskCommand {
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            DiskCommand::Create(create) => create.run(),
            DiskCommand::Grow(grow) => grow.run(),
            DiskCommand::Cache(cache) => cache.run(),
            DiskCommand::Delete(delete) => delete.run(),
            DiskCommand::Map(map) => map.run(),
        }
    }
}

/// Reads the mode of a logical disk.
fn modes() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::NAMES.map(|(name, _)| name)).try_map(|name| name.parse::<Mode>())
}

#[derive(Debug, Args)]
pub struct CreateDisk {
    /// Name: 1 to 64 lower-case letters, digits, hyphens and dots
    #[arg(value_name = "NAME")]
    name: String,
    /// Size, such as 10GiB
    #[arg(long, value_name = "SIZE")]
    size: ByteSize,
    /// Reserve all space now; otherwise space is allocated by writes
    #[arg(long)]
    thick: bool,
    /// Place neighbouring chunks on different disks
    #[arg(long)]
    striped: bool,
    /// Do not cache requests
    #[arg(long)]
    uncached: bool,
    /// Write mode; if the pool's is stricter, that applies
    #[arg(long, value_name = "MODE", default_value = "write-back", value_parser = modes())]
    mode: Mode,
    /// Reserve this much of the pool's RAM for the blocks last read from this disk
    #[arg(long, value_name = "SIZE", default_value = "0B")]
    keep_ram: ByteSize,
    #[command(flatten)]
    of: Of,
}

impl CreateDisk {
    fn run(&self) -> anyhow::Result<()> {
        let (client, pool) = self.of.find()?;
        let new = NewLogical {
            name: self.name.clone(),
            size_bytes: self.size.bytes(),
            thick: self.thick,
            striped: self.striped,
            cached: !self.uncached,
            mode: Some(self.mode),
            pinned_ram_bytes: self.keep_ram.bytes(),
        };
        client.send("POST", &path(&pool, &["logical-disks"]), &json!(new))?;
        println!("Logical disk {} of pool {} has {}.", self.name, pool.name, self.size);
        Ok(())
    }
}

#[derive(Debug, Args)]
pub struct Grow {
    /// Logical disk
    #[arg(value_name = "NAME")]
    name: String,
    /// New size
    #[arg(long, value_name = "SIZE")]
    size: ByteSize,
    #[command(flatten)]
    of: Of,
}

impl Grow {
    fn run(&self) -> anyhow::Result<()> {
        let (client, pool) = self.of.find()?;
        let change = LogicalDiskChange { size_bytes: Some(self.size.bytes()), ..LogicalDiskChange::default() };
        client.send("PATCH", &path(&pool, &["logical-disks", &self.name]), &json!(change))?;
        println!(
            "Logical disk {} has {}; iSCSI clients see that at once, NBD clients when they reconnect.",
            self.name, self.size
        );
        Ok(())
    }
}

#[derive(Debug, Args)]
pub struct Cache {
    /// Logical disk
    #[arg(value_name = "NAME")]
    name: String,
    /// Caching of requests
    #[arg(value_name = "on|off", value_parser = ["on", "off"])]
    cached: String,
    /// Write mode; if the pool's is stricter, that applies [default: unchanged]
    #[arg(long, value_name = "MODE", value_parser = modes())]
    mode: Option<Mode>,
    /// Reserve this much of the pool's RAM for the blocks last read from this disk; 0B for none [default: unchanged]
    #[arg(long, value_name = "SIZE")]
    keep_ram: Option<ByteSize>,
    #[command(flatten)]
    of: Of,
}

impl Cache {
    fn run(&self) -> anyhow::Result<()> {
        let (client, pool) = self.of.find()?;
        let change = LogicalDiskChange {
            size_bytes: None,
            cached: Some(self.cached == "on"),
            mode: self.mode,
            pinned_ram_bytes: self.keep_ram.map(|size| size.bytes()),
        };
        client.send("PATCH", &path(&pool, &["logical-disks", &self.name]), &json!(change))?;
        println!("Caching of logical disk {} is {}.", self.name, self.cached);
        Ok(())
    }
}

#[derive(Debug, Args)]
pub struct Delete {
    /// Logical disk
    #[arg(value_name = "NAME")]
    name: String,
    /// The same name, to confirm; the data is lost
    #[arg(long, value_name = "NAME")]
    confirm: String,
    #[command(flatten)]
    of: Of,
}

impl Delete {
    fn run(&self) -> anyhow::Result<()> {
        check_confirmed(&self.confirm, &self.name, "disk")?;
        let (client, pool) = self.of.find()?;
        let name = utf8_percent_encode(&self.name, NON_ALPHANUMERIC);
        let path = format!("{}?confirm={name}", path(&pool, &["logical-disks", &self.name]));
        client.send("DELETE", &path, &Value::Null)?;
        println!("Logical disk {} is deleted.", self.name);
        Ok(())
    }
}

#[derive(Debug, Args)]
pub struct Map {
    /// Logical disk
    #[arg(value_name = "NAME")]
    name: String,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: Of,
}

impl Map {
    fn run(&self) -> anyhow::Result<()> {
        let (client, pool) = self.of.find()?;
        let json = client.get(&path(&pool, &["logical-disks", &self.name, "map"]))?;
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &json).map_err(std::io::Error::from)?;
            writeln!(out)?;
            return Ok(());
        }
        let runs: Vec<MapRun> = serde_json::from_value(json)
            .context("the server is of another version; use flashwise of its version, or --json")?;
        let mut table = table::plain(&["disk", "path", "state", "from", "every", "length", "on disk at"], 3);
        for run in runs {
            let state = match (run.lost, run.missing, run.written) {
                (true, ..) => "lost",
                (_, true, _) => "missing",
                (_, _, true) => "written",
                (_, _, false) => "reserved",
            };
            let of_disk = |text: String| if run.lost { "-".to_owned() } else { text };
            table.add_row([
                of_disk(run.disk.to_string()),
                of_disk(run.path.clone()),
                state.to_owned(),
                human::count(run.offset_bytes),
                bytes(run.step_bytes),
                bytes(run.length_bytes),
                of_disk(human::count(run.disk_offset_bytes)),
            ]);
        }
        writeln!(out, "{}", table.trim_fmt())?;
        Ok(())
    }
}
