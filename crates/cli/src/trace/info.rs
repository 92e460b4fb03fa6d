//! `flashwise trace info`: figures that describe traces.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use comfy_table::ContentArrangement;
use flashwise_trace::tools::info::{Info as TraceInfo, InfoPass};

use crate::fit;
use crate::input::InputOptions;
use crate::table::{GAP, plain};

/// Describe traces: requests, blocks, sizes, duration, reuse
#[derive(Debug, Args)]
pub struct Info {
    /// Traces in any format; - is standard input
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Print a JSON array, one object per trace
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: InputOptions,
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
        write!(out, "{}", tables(&infos, fit::width().unwrap_or(WIDTH)))?;
        Ok(())
    }
}

/// Columns of output if the width of the terminal is unknown.
const WIDTH: usize = 80;
/// Columns reserved for a trace's name, at most.
const NAME: usize = 24;

/// Returns tables of the traces, each with as many traces as fit side by side in `width` columns.
fn tables(infos: &[TraceInfo], width: usize) -> String {
    let columns: Vec<Vec<(&str, String)>> = infos.iter().map(TraceInfo::rows).collect();
    let names: Vec<&str> = columns[0].iter().map(|(name, _)| *name).collect();
    let longest = |texts: &mut dyn Iterator<Item = &str>| texts.map(|text| text.chars().count()).max().unwrap_or(0);
    let beside = longest(&mut names.iter().copied()) + GAP;
    let room = width.saturating_sub(beside).max(NAME);
    // The columns of a CSV, and a long name, wrap.
    let of_trace = |(info, rows): (&TraceInfo, &Vec<(&str, String)>)| {
        let short = rows.iter().filter(|(name, _)| *name != "columns").map(|(_, shown)| shown.as_str());
        GAP + longest(&mut short.chain([info.trace.as_str()])).min(NAME)
    };
    let widths: Vec<usize> = [beside].into_iter().chain(infos.iter().zip(&columns).map(of_trace)).collect();
    let mut all = String::new();
    for group in fit::groups(&widths, 1, Some(width + GAP)) {
        let traces = &group[1..];
        let room = room / traces.len();
        let shown = |text: &str| fit::sentences(text, 0, Some(room));
        let header: Vec<&str> =
            ["trace"].into_iter().chain(traces.iter().map(|at| infos[at - 1].trace.as_str())).collect();
        let mut table = plain(&header, 1);
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(u16::try_from(width + GAP).unwrap_or(u16::MAX));
        for (row, name) in names.iter().enumerate() {
            let cells = traces.iter().map(|at| shown(&columns[at - 1][row].1));
            table.add_row([(*name).to_owned()].into_iter().chain(cells));
        }
        let between = if all.is_empty() { "" } else { "\n" };
        all += &format!("{between}{}\n", table.trim_fmt());
    }
    all
}
