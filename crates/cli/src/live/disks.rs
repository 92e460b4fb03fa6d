//! `flashwise disks`: the machine's disks and their possible roles.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use flashwise_core::human;
use flashwise_storage::disk::inventory::{DiskInfo, Places, Role, examine, mark_locked, scan};

use crate::table;

/// List the machine's disks with their contents, users and roles
///
/// A disk's role is data (part of a pool), cache, spare (blank), foreign (other contents) or system (in use by the
/// machine). Nothing is written. Only root can see the contents of disks; without root they are foreign.
#[derive(Debug, Args)]
pub struct Disks {
    /// Disks to list: devices, partitions or regular files [default: every disk]
    #[arg(value_name = "DISK")]
    disks: Vec<PathBuf>,
    /// Print a JSON array with all details of each disk
    #[arg(long)]
    json: bool,
}

impl Disks {
    pub fn run(&self) -> anyhow::Result<()> {
        let places = Places::default();
        let mut disks: Vec<DiskInfo> = match &self.disks[..] {
            [] => scan(&places)?,
            named => named.iter().map(|path| examine(&places, path)).collect::<Result<_, _>>()?,
        };
        mark_locked(&places, &mut disks);
        let mut out = std::io::stdout().lock();
        if self.json {
            serde_json::to_writer_pretty(&mut out, &disks).map_err(std::io::Error::from)?;
            writeln!(out)?;
        } else if disks.is_empty() {
            writeln!(out, "The machine has no disks.")?;
        } else {
            writeln!(out, "{}", page(&disks))?;
        }
        Ok(())
    }
}

/// Returns a table with a line per disk.
fn page(disks: &[DiskInfo]) -> String {
    let mut table =
        table::plain(&["disk", "role", "model", "serial", "bus", "size", "temp", "wear", "not free, as"], 5);
    if let Some(column) = table.column_mut(8) {
        column.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for disk in disks {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let because = match (disk.role, &disk.refused) {
            (Role::Spare, None) => "-".to_owned(),
            (_, because) => text(because),
        };
        table.add_row([
            disk.path.clone(),
            disk.role.name().to_owned(),
            text(&disk.model),
            text(&disk.serial),
            text(&disk.bus_address),
            human::bytes(disk.size_bytes as f64),
            disk.temperature_celsius.map_or_else(|| "-".to_owned(), |celsius| format!("{celsius:.0} °C")),
            disk.wear_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent}%")),
            because,
        ]);
    }
    table.trim_fmt()
}
