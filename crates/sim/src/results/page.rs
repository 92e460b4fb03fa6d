//! The page that explains each figure.

use std::fmt::Write;

use super::output::{Groups, groups};
use super::{Epoch, ResultRow};
use crate::advise::AdvisedCache;
use crate::array::ArrayEpoch;
use crate::columns::Column;

/// Returns all figures of `flashwise simulate` as Markdown: `docs/figures.md`.
pub fn page() -> String {
    let mut page = String::from(
        "# Figures\n\n`flashwise simulate` prints these figures, under the same names in JSON, CSV, Parquet and the \
         report. A figure that was not simulated is absent. One that cannot be computed, such as a ratio of nothing, \
         is empty (null in JSON). [wear.md](wear.md) explains the algorithms M+ and H and the figures of wear, \
         [lifetime.md](lifetime.md) those of arrays. This page is generated from the table of columns in \
         `crates/sim/src/results/`.\n",
    );
    groups(&mut HtmlPage(&mut page));
    group(&mut page, "Each epoch (`--epoch`)", Epoch::COLUMNS);
    group(&mut page, "Each epoch of a cache in front of an array", ArrayEpoch::COLUMNS);
    group(&mut page, "A cache that `flashwise advise` ran", AdvisedCache::COLUMNS);
    page
}

struct HtmlPage<'a>(&'a mut String);

impl Groups for HtmlPage<'_> {
    fn group<R>(&mut self, heading: &'static str, columns: &'static [Column<R>], _: fn(&ResultRow) -> Option<&R>) {
        group(self.0, heading, columns);
    }
}

fn group<R>(page: &mut String, heading: &str, columns: &[Column<R>]) {
    let _ = write!(page, "\n## {heading}\n\n| figure | unit | meaning |\n| --- | --- | --- |\n");
    for about in columns.iter().map(|column| column.about) {
        let unit = if about.unit.is_empty() { "text" } else { about.unit };
        let _ = writeln!(page, "| `{}` | {unit} | {} |", about.name, linked(&about.meaning()));
    }
}

/// Returns a meaning without links to code documentation.
fn linked(meaning: &str) -> String {
    meaning.replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}
