//! `flashwise trace info`: what traces are like.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use flashwise_trace::tools::info::InfoPass;

use crate::input::InputOptions;
use crate::table::plain;

/// Show what traces are like: requests, blocks, sizes, duration, re-access
#[derive(Debug, Args)]
pub struct Info {
    /// Traces of any format, or normalised ones; - is standard input
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    #[command(flatten)]
    input: InputOptions,
    /// Print a JSON array, one object per trace
    #[arg(long)]
    json: bool,
}

impl Info {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut infos = Vec::new();
        for path in &self.traces {
            let mut pass = InfoPass::new(0);
            let about = self.input.pass(path, |columns| pass.accesses(columns))?;
            infos.push(pass.finish(about));
        }
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&infos)?)?;
            return Ok(());
        }
        let header: Vec<_> = ["trace"].into_iter().chain(infos.iter().map(|info| info.trace.as_str())).collect();
        let mut table = plain(&header, 1);
        let columns: Vec<_> = infos.iter().map(|info| info.rows()).collect();
        for (row, (name, _)) in columns[0].iter().enumerate() {
            table.add_row([*name].into_iter().chain(columns.iter().map(|column| column[row].1.as_str())));
        }
        writeln!(out, "{}", table.trim_fmt())?;
        Ok(())
    }
}
