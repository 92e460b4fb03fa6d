//! Passes once over the accesses of a trace of any kind, without a copy of it on disk.

use std::ops::ControlFlow;
use std::path::Path;

use crate::error::TraceError;
use crate::files::name_of;
use crate::normalised::Normaliser;
use crate::normalised::times::Times;
use crate::normalised::trace::{Accesses, Description, Trace};
use crate::progress::Progress;
use crate::requests::Requests;
use crate::settings::Settings;

/// The description of a trace after a complete pass.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// The name for reports: the path as the user gave it.
    pub name: String,
    /// The length of a block, in bytes.
    pub block_size_bytes: u64,
    /// The number of block accesses.
    pub accesses: u64,
    /// The number of distinct blocks; block ids are smaller.
    pub unique_blocks: u64,
    /// The figures of its requests.
    pub description: Description,
    /// The figures of their times.
    pub times: Times,
}

impl About {
    /// Returns the description of an open trace.
    pub fn of(trace: &Trace) -> About {
        About {
            name: trace.name().to_owned(),
            block_size_bytes: trace.block_size_bytes(),
            accesses: trace.len() as u64,
            unique_blocks: trace.unique_blocks() as u64,
            description: trace.description().clone(),
            times: trace.times(),
        }
    }
}

/// Hands the accesses of the trace at `path`, in order and in batches of columns, to `each`; `-` is standard input. A
/// normalised trace is mapped; any other is read once, from the beginning to the end. Blocks are numbered during the
/// pass, so their number is only known at the end. Memory: 19 to 45 bytes for each distinct block, and some MiB.
/// `progress` receives the number of bytes read from `path`.
///
/// # Errors
/// Those of [`open`](crate::normalised::open).
pub fn pass(
    path: impl AsRef<Path>,
    settings: &Settings,
    progress: &dyn Progress,
    mut each: impl FnMut(&Accesses),
) -> Result<About, TraceError> {
    let path = path.as_ref();
    let requests = Requests::open(path, settings, progress)?;
    let block_size_bytes = requests.block_size_bytes(settings)?;
    let requests = match requests {
        Requests::Normalised(trace, _) => {
            for columns in trace.batches() {
                each(&columns);
                progress.advance(columns.bytes);
            }
            return Ok(About::of(&trace));
        }
        requests => requests,
    };
    let name = name_of(path);
    let mut normaliser = Normaliser::passing(&name, block_size_bytes);
    normaliser.description = requests.about();
    let mut accesses = 0;
    let mut hand_on = |batches: Vec<Accesses>| {
        for columns in batches {
            accesses += columns.rows as u64;
            each(&columns);
        }
    };
    requests.for_each_batch(block_size_bytes, &mut |batch| {
        normaliser.batch(batch)?;
        hand_on(normaliser.passed());
        Ok(ControlFlow::Continue(()))
    })?;
    let unique_blocks = normaliser.end_pass()?;
    hand_on(normaliser.passed());
    let description = normaliser.described();
    let times = description.times.unwrap_or_default();
    Ok(About { name, block_size_bytes, accesses, unique_blocks, description, times })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::normalised;
    use crate::progress::Silent;

    #[test]
    fn copies_pass_the_rule_that_keeps_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        let line = |at: u64| {
            format!(
                "{},{},{},{}\n",
                10 * at,
                at * at % 4093 * 512,
                512 * (1 + at % 300),
                "RW".as_bytes()[(at % 2) as usize] as char
            )
        };
        let lines: String = (0..9000).map(line).collect();
        std::fs::write(&path, format!("time_us,offset,length,op\n{lines}")).unwrap();
        let rows = |columns: &Accesses| {
            let row = |at: usize| {
                (
                    columns.time_us[at],
                    columns.op[at],
                    columns.block[at],
                    columns.request[at],
                    columns.request_blocks[at],
                )
            };
            (0..columns.rows).map(row).collect::<Vec<_>>()
        };
        let settings = Settings { block_size_bytes: Some(512), ..Settings::default() };
        let kept = normalised::open(&path, &settings, &Silent).unwrap();
        let expected: Vec<_> = kept.batches().flat_map(|columns| rows(&columns)).collect();
        let converted = folder.path().join("trace.arrow");
        crate::tools::convert::convert(&path, &converted, &settings, &Silent).unwrap();
        for (path, settings) in [(path, settings), (converted, Settings::default())] {
            let (mut found, mut batches) = (Vec::new(), 0);
            let about = pass(&path, &settings, &Silent, |columns| {
                batches += 1;
                found.extend(rows(columns));
            });
            assert!(found == expected && batches > 1, "{} rows in {batches} batches", found.len());
            let about = about.unwrap();
            assert_eq!(About { name: String::new(), ..about }, About { name: String::new(), ..About::of(&kept) });
        }
    }
}
