//! Results of the runs, compared with the paper's.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use flashwise_report::{Panel, panels_chart};

use super::{Experiment, Outcome};

type Run = (Experiment, Outcome);

/// Returns the run with this RAM, SSD and write buffer.
fn find(runs: &[Run], ram_mb: u64, flash_mb: u64, write_buffer_percent: u64) -> Option<&Outcome> {
    let wanted = |run: &&Run| {
        (run.0.ram_mb, run.0.flash_mb, run.0.write_buffer_percent) == (ram_mb, flash_mb, write_buffer_percent)
    };
    runs.iter().find(wanted).map(|run| &run.1)
}

fn rams(runs: &[Run]) -> BTreeSet<u64> {
    runs.iter().map(|run| run.0.ram_mb).collect()
}

fn flashes(runs: &[Run]) -> BTreeSet<u64> {
    runs.iter().map(|run| run.0.flash_mb).collect()
}

/// Returns the share of the write buffer in all runs that have one.
fn share(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.0.write_buffer_percent).max().unwrap_or(0)
}

/// Returns the relative difference, in percent.
fn less(with: f64, without: f64) -> String {
    if without > 0.0 { format!("{:+.0} %", (with / without - 1.0) * 100.0) } else { "-".to_owned() }
}

/// Returns tables in Markdown: transactions and acceleration, then write requests with and without the write buffer.
pub fn table(runs: &[Run]) -> String {
    let share = share(runs);
    let mut table = String::from(
        "| RAM | SSD | transactions/s | acceleration | reads that hit | written to flash per transaction | written \
         back per transaction |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for ram in rams(runs) {
        let none = find(runs, ram, 0, share).map(Outcome::tps);
        for flash in flashes(runs) {
            let Some(outcome) = find(runs, ram, flash, share) else { continue };
            let acceleration = none.map_or("-".to_owned(), |none| format!("{:.2}", outcome.tps() / none));
            let transactions = outcome.totals.transactions as f64;
            writeln!(
                table,
                "| {ram} MB | {flash} MB | {:.0} | {acceleration} | {:.1} % | {:.2} blocks | {:.2} blocks |",
                outcome.tps(),
                outcome.read_hit_ratio() * 100.0,
                outcome.status.flash_bytes_written as f64 / 4096.0 / transactions,
                (outcome.status.destaged_blocks + outcome.status.backend_written_blocks) as f64 / transactions,
            )
            .expect("a string takes everything");
        }
    }
    table += "\n| RAM | SSD | write requests per transaction, without and with write buffer | change | blocks, without \
        and with | change | transactions/s, without and with |\n";
    table += "| --- | --- | --- | --- | --- | --- | --- |\n";
    for ram in rams(runs) {
        for flash in flashes(runs) {
            let (Some(with), Some(without)) = (find(runs, ram, flash, share), find(runs, ram, flash, 0)) else {
                continue;
            };
            let both = |of: fn(&Outcome) -> f64, digits: usize| {
                format!("{:.digits$}, {:.digits$} | {}", of(without), of(with), less(of(with), of(without)))
            };
            writeln!(
                table,
                "| {ram} MB | {flash} MB | {} | {} | {:.0}, {:.0} |",
                both(Outcome::write_requests, 2),
                both(Outcome::written_blocks, 2),
                without.tps(),
                with.tps()
            )
            .expect("a string takes everything");
        }
    }
    table
}

/// Returns the paper's Figures 4 and 5 as a chart, and the write requests with and without the write buffer.
pub fn chart(runs: &[Run]) -> String {
    let share = share(runs);
    let line = |ram: u64, name: String, write_buffer: u64, value: &dyn Fn(&Outcome) -> Option<f64>| {
        let point = |flash: u64| Some((flash as f64 / 1024.0, value(find(runs, ram, flash, write_buffer)?)?));
        (name, flashes(runs).into_iter().filter_map(point).collect::<Vec<_>>())
    };
    let by_ram = |value: &dyn Fn(u64, &Outcome) -> Option<f64>| {
        let one = |ram: u64| line(ram, format!("RAM of {ram} MB"), share, &|outcome| value(ram, outcome));
        rams(runs).into_iter().map(one).collect::<Vec<_>>()
    };
    let tps = by_ram(&|_, outcome| Some(outcome.tps()));
    let acceleration = by_ram(&|ram, outcome| Some(outcome.tps() / find(runs, ram, 0, share)?.tps()));
    let mut requests = by_ram(&|_, outcome| Some(outcome.write_requests()));
    for ram in rams(runs) {
        let name = format!("RAM of {ram} MB, no write buffer");
        requests.push(line(ram, name, 0, &|outcome| Some(outcome.write_requests())));
    }
    // Without an SSD there are no write requests to it.
    requests.iter_mut().for_each(|(_, points)| points.retain(|(flash, _)| *flash > 0.0));
    requests.retain(|(_, points)| points.len() > 1);
    let panel = |label: &str, lines| Panel { label: label.to_owned(), lines };
    panels_chart(
        "A storage server with an SSD and without",
        "Transactions per second, their acceleration against no SSD, and write requests to the SSD per transaction, \
         against the size of the SSD, \
         for 512 MB and 1 GB of RAM.",
        "Size of the SSD in the paper's terms, in GB",
        3,
        &[
            panel("transactions per second (Figure 4)", tps),
            panel("acceleration (Figure 5)", acceleration),
            panel("write requests to the SSD per transaction", requests),
        ],
    )
}
