//! `flashwise disks`: the machine's disks, and what each could be used for.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use flashwise_engine::inventory::{DiskInfo, Places, Role, examine, scan};
use flashwise_trace::human;

use crate::table;

/// List the machine's disks: what they are, what they hold, who uses them, and what they could be used for
///
/// A disk's role is data (it belongs to a pool), cache, spare (blank), foreign (it holds something else) or system (the machine uses it).
/// Nothing is written. Root sees what disks hold; for others they are foreign.
#[derive(Debug, Args)]
pub struct Disks {
    /// These alone: devices, partitions, or regular files, which count as disks when they are named
    #[arg(value_name = "DISK")]
    disks: Vec<PathBuf>,
    /// Print a JSON array with all that is known of each disk
    #[arg(long)]
    json: bool,
}

impl Disks {
    pub fn run(&self) -> anyhow::Result<()> {
        let places = Places::default();
        let disks: Vec<DiskInfo> = match &self.disks[..] {
            [] => scan(&places)?,
            named => named.iter().map(|path| examine(&places, path)).collect::<Result<_, _>>()?,
        };
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

/// One line per disk.
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
            disk.wear_percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent} %")),
            because,
        ]);
    }
    table.trim_fmt()
}
