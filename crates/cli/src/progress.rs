//! Progress bars, on a terminal only, for long work.

use flashwise_trace::progress::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::log::{note, shows_progress, warning};

/// A bar on standard error, cleared when dropped.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar for `total` bytes.
    pub fn bytes(what: String, total: u64) -> Bar {
        Self::new(what, total, "{prefix} {wide_bar} {bytes}/{total_bytes} {eta}")
    }

    /// A bar for `total` block accesses.
    pub fn accesses(what: String, total: u64) -> Bar {
        Self::new(what, total, "{prefix} {wide_bar} {human_pos}/{human_len} accesses {eta}")
    }

    /// A bar for `total` requests.
    pub fn requests(what: String, total: u64) -> Bar {
        Self::new(what, total, "{prefix} {wide_bar} {human_pos}/{human_len} requests {eta}")
    }

    /// A bar for `total` traces.
    #[cfg(feature = "parquet")] // Only sweeps have many traces.
    pub fn traces(what: String, total: u64) -> Bar {
        Self::new(what, total, "{prefix} {wide_bar} {human_pos}/{human_len} traces {eta}")
    }

    /// A bar for `total` seconds.
    pub fn seconds(what: String, total: u64) -> Bar {
        Self::new(what, total, "{prefix} {wide_bar} {pos}/{len} s")
    }

    /// A bar for erase units of a cache.
    pub fn erase_units(what: String) -> Bar {
        Self::new(what, 0, "{prefix} {wide_bar} {human_pos}/{human_len} erase units {eta}")
    }

    /// Changes the label.
    pub fn rename(&self, what: String) {
        self.0.set_prefix(what);
    }

    /// Shows `done` of `total`, which may have changed.
    pub fn set(&self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    fn new(what: String, total: u64, template: &str) -> Bar {
        let shown = shows_progress();
        let target = if shown { ProgressDrawTarget::stderr_with_hz(8) } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        Bar(ProgressBar::with_draw_target(Some(total), target).with_style(style).with_prefix(what))
    }
}

impl Progress for Bar {
    fn advance(&self, amount: u64) {
        self.0.inc(amount);
    }

    fn note(&self, path: &str, what: &str) {
        self.0.suspend(|| note!("{path}: {what}"));
    }

    fn ends_early(&self, path: &str, rows: u64) {
        let rows = flashwise_core::human::count(rows);
        self.0.suspend(|| warning!("{path}: the end is missing, as after a server was killed; {rows} rows were read"));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
