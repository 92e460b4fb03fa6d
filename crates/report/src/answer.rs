//! The answer at the top of a report: what to buy and why, in three sentences and a picture.
//!
//! Each statement follows from the rows, for all policies and sizes. Offline policies are compared, but never
//! recommended.

pub(crate) mod advice;
pub(crate) mod answers;
pub(crate) mod brief;
pub(crate) mod candidates;
pub(crate) mod certainty;
pub(crate) mod choice;
pub(crate) mod decision;
#[cfg(test)]
mod exhaustive;
pub(crate) mod purchase;
pub(crate) mod summary;

use flashwise_core::tiers::YEAR_DAYS;
use flashwise_device::Profile;
use flashwise_device::flash::lifetime::{bytes_per_day, drive_writes_per_day};
use flashwise_sim::checks::Checks;
use flashwise_sim::results::ResultRow;
use serde::Serialize;

use super::Section;
use crate::answer::certainty::Certainty;
use crate::answer::choice::{ALIKE, Choice, best_of_each_size, dominates, worth};
use crate::answer::purchase::{PRICES, Purchase};
use crate::facts::{Fact, facts};
use crate::figures::{NOT_RUN, Subject};
use crate::grid::{Grid, GridSize};
use crate::numbers::{bytes, count, counted, lifetime, number, percent, points, years as in_table};
use crate::rows::rule;
use crate::table::{Picture, Table};

/// Caching is called hardly worthwhile when fewer accesses than this share are to a block accessed before.
const REACCESS_RATIO_MIN: f64 = 0.10;
/// Caching is called hardly worthwhile at the simulated sizes when the best policy hits less than this.
const HIT_RATIO_MIN: f64 = 0.05;
/// The drives whose lifetime is given, one for each class of endurance. The sentences use the first.
const DRIVES: [&str; 3] = ["p4500", "9200-max", "p4800x"];
/// A rule is recommended in front of a policy if this share of the hits remains.
const RULE_HITS: f64 = 0.99;
/// Such a rule writes at most this share.
const RULE_WRITES: f64 = 0.9;
/// A run that saves a smaller share of the flash writes is not worth fewer hits.
const TRADE_MIN: f64 = 0.05;

/// The answer for one trace.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// The purchase, its hits, price and life, and the certainty.
    pub facts: Vec<Fact>,
    /// The purchase, the reason for the size, its cost and its savings.
    pub sentences: Vec<String>,
    /// Hits against flash writes at the recommended size.
    pub picture: Option<Picture>,
    /// How sure that is.
    pub certainty: Certainty,
    /// The gain of each step of size.
    pub steps: Option<Table>,
    /// How fast real drives wear out.
    pub drives: Option<Table>,
    /// Further points to consider before a purchase.
    pub cautions: Vec<String>,
    #[serde(skip)]
    pub recommended: Option<Recommended>,
}

/// The recommended run, for summaries of many traces.
#[derive(Clone, Debug)]
pub struct Recommended {
    pub policy: String,
    pub size_bytes: u64,
    pub hit_ratio: f64,
    pub lru: Option<f64>,
    pub larc: Option<f64>,
    pub bound: Option<f64>,
    pub flash_bytes_per_day: Option<f64>,
    /// Years until the first of the drives is worn out.
    pub years: Option<f64>,
    pub is_worthwhile: bool,
}

/// Returns the drives whose lifetime is given.
pub fn drives() -> Vec<Profile> {
    let all = Profile::all();
    DRIVES.iter().filter_map(|name| all.iter().find(|profile| profile.name == *name).cloned()).collect()
}

/// Drives that hold this many bytes.
fn number_of(drive: &Profile, cache_bytes: u64) -> f64 {
    (cache_bytes as f64 / drive.device.capacity_bytes).ceil().max(1.0)
}

/// Returns the lifetime in years of enough drives for the cache at this write rate.
fn years(drive: &Profile, cache_bytes: u64, flash_bytes_per_day: f64) -> f64 {
    let bears = number_of(drive, cache_bytes) * drive.device.capacity_bytes * drive.device.endurance_cycles;
    bears / flash_bytes_per_day / YEAR_DAYS
}

/// A run as the head of a column: its policy, and the rule that it is behind.
fn named(row: &ResultRow) -> String {
    match &rule(row)[..] {
        "" => row.policy.to_string(),
        rule => format!("{} behind\n{}", row.policy, rule.replace(',', ",\n")),
    }
}

/// The rows of a trace, with everything needed to interpret them.
struct Reading<'a> {
    section: &'a Section,
    grid: &'a Grid<'a>,
    choice: Choice<'a>,
    /// How long the counted accesses took.
    days: Option<f64>,
    /// Bytes of all blocks that the trace touches.
    touched_bytes: u64,
    /// The cheapest drives that hold the recommended size.
    flash: Purchase,
    /// The cheapest purchase that holds all blocks, unless it costs more than `flash`.
    whole: Option<Purchase>,
}

/// Returns the answer for a trace. `sentences` replace its sentences if the runs do not compare hits.
pub fn of(section: &Section, subject: &Subject, sentences: Option<Vec<String>>) -> Answer {
    let grid = subject.grid;
    let plain = |sentences: Vec<String>| Answer {
        facts: Vec::new(),
        sentences,
        picture: None,
        certainty: certainty::of(&section.info, &section.rows, section.rows.first(), section.checks.as_ref()),
        steps: None,
        drives: None,
        cautions: Vec::new(),
        recommended: None,
    };
    if let Some(sentences) = sentences {
        return plain(sentences);
    }
    let again = percent(section.info.reaccess_ratio);
    if section.rows.is_empty() {
        let most =
            format!("{again} of the accesses are to a block accessed before, which is the most that a cache can hit.");
        return plain(vec!["No policy was simulated.".to_owned(), most]);
    }
    let Some(choice) = Choice::of(grid) else {
        let nothing = "Nothing was counted, because the warm-up is as long as the trace.";
        return plain(vec![nothing.to_owned(), "A shorter warm-up leaves accesses to count.".to_owned()]);
    };
    let reading = Reading::new(section, grid, choice);
    let certainty = certainty::of(&section.info, &section.rows, Some(choice.row), section.checks.as_ref());
    if section.info.reaccess_ratio == 0.0 || choice.row.hits == 0 {
        return Answer { certainty, recommended: Some(reading.recommended()), ..plain(vec![reading.nothing(&again)]) };
    }
    let mut certainty = certainty;
    certainty.reasons.extend([("Size", reading.may_touch_more()), ("Prices", PRICES.to_owned())]);
    Answer {
        facts: reading.facts(&again, &certainty),
        sentences: reading.sentences(&again),
        picture: Some(decision::picture(subject, &choice, reading.own(), reading.rules().1)),
        certainty,
        steps: Some(reading.steps()),
        drives: reading.drives(),
        cautions: Vec::new(),
        recommended: Some(reading.recommended()),
    }
}

/// Returns the duration of the counted accesses in days. After a warm-up, only a repeated run has it.
fn days(section: &Section, row: &ResultRow) -> Option<f64> {
    if let Some(checks) = &section.checks {
        return checks.days;
    }
    if let Some(wear) = &row.endurance {
        return wear.days;
    }
    let is_whole = row.warmup_accesses == 0 && section.info.duration_us > 0;
    is_whole.then(|| section.info.duration_us as f64 / 86_400e6)
}

impl<'a> Reading<'a> {
    fn new(section: &'a Section, grid: &'a Grid<'a>, choice: Choice<'a>) -> Reading<'a> {
        let (info, row) = (&section.info, choice.row);
        let of_row = row.unique_blocks.saturating_mul(row.block_size_bytes);
        let touched_bytes = info.working_set_bytes.max(of_row);
        let flash = Purchase::flash(choice.size.bytes);
        // RAM keeps no writes.
        let serves_reads = info.read_reaccess_ratio > 0.0;
        let whole = if serves_reads { Purchase::any(touched_bytes) } else { Purchase::flash(touched_bytes) };
        let whole = Some(whole).filter(|whole| whole.price <= flash.price);
        Reading { section, grid, choice, days: days(section, choice.row), touched_bytes, flash, whole }
    }

    fn row_of(&self, base: &str, size: GridSize) -> Option<&'a ResultRow> {
        let policy = self.grid.policies.iter().copied().find(|policy| policy.name == base)?;
        self.grid.row(policy, size)
    }

    /// Returns the recommended run: that of the policy, or that behind the rule that saves writes.
    fn own(&self) -> &'a ResultRow {
        self.rules().0.unwrap_or(self.choice.row)
    }

    fn lru(&self) -> Option<&'a ResultRow> {
        self.row_of("lru", self.choice.size).filter(|lru| lru.policy != self.choice.row.policy)
    }

    fn bound(&self) -> Option<&'a ResultRow> {
        let bound = self.grid.bound()?;
        self.grid.row(bound, self.choice.size).filter(|bound| bound.policy != self.choice.row.policy)
    }

    fn per_day(&self, row: &ResultRow) -> Option<f64> {
        bytes_per_day(row.flash_bytes_written, (self.days? * 86_400e6) as u64).filter(|bytes| *bytes > 0.0)
    }

    fn is_worthwhile(&self) -> bool {
        self.section.info.reaccess_ratio >= REACCESS_RATIO_MIN && self.choice.row.hit_ratio >= HIT_RATIO_MIN
    }

    /// Returns the recommended run behind a rule, and the run behind another rule with the most hits. No other run
    /// dominates a recommended one.
    fn rules(&self) -> (Option<&'a ResultRow>, Option<&'a ResultRow>) {
        let Some(Checks { recommended, .. }) = &self.section.checks else { return (None, None) };
        let [alone, behind @ ..] = &recommended[..] else { return (None, None) };
        let keeps = |row: &&ResultRow| {
            self.keeps_hits(row) && row.flash_writes_blocks as f64 <= RULE_WRITES * alone.flash_writes_blocks as f64
        };
        let sparing = |row: &&ResultRow| (row.flash_writes_blocks, std::cmp::Reverse(row.hits));
        let is_better = |row: &&ResultRow| {
            let alone = self.choice.row;
            dominates(row, alone) || row.hits >= alone.hits && worth(row) > worth(alone) + ALIKE
        };
        let better = || behind.iter().filter(is_better).max_by(|a, b| worth(a).total_cmp(&worth(b)));
        let policies = self.grid.policies.iter().filter(|policy| !policy.offline);
        let mut alone_too = policies.filter_map(|&policy| self.grid.row(policy, self.choice.size));
        let best = behind.iter().filter(keeps).min_by_key(sparing).or_else(better);
        let best = best.filter(|best| !alone_too.any(|row| dominates(row, best)));
        let own = behind.iter().filter(|row| row.policy == alone.policy);
        (best, own.max_by_key(|row| row.hits))
    }

    /// True if a run has about as many hits as the recommended policy without a rule.
    fn keeps_hits(&self, row: &ResultRow) -> bool {
        row.hits as f64 >= RULE_HITS * self.choice.row.hits as f64
    }

    /// The first sentences: the purchase, the cache on less flash, the reasons, and its wear.
    fn sentences(&self, again: &str) -> Vec<String> {
        let mut sentences = vec![self.buy(again)];
        if self.whole.is_some() {
            sentences.push(format!("Of less flash, take {}", self.what()));
        }
        sentences.extend([self.why(), self.cost()]);
        sentences
    }

    /// The purchase, and the accesses that it serves.
    fn buy(&self, again: &str) -> String {
        let few_again = self.section.info.reaccess_ratio < REACCESS_RATIO_MIN;
        let few = match () {
            () if few_again => &format!(
                "A cache is hardly worth its price here, because only {again} of the accesses are to a block accessed \
                 before; if any, buy"
            ),
            () if self.whole.is_some() || self.is_worthwhile() => "Buy",
            () => "A cache of these sizes is hardly worth its price; if any, buy",
        };
        let Some(whole) = &self.whole else {
            let flash = &self.flash;
            return format!("{few} {} for {}. Use {}", flash.name, flash.price(), self.what());
        };
        let holds = format!("{few} {} for {}: it holds all {}", whole.name, whole.price(), bytes(self.touched_bytes));
        let reads = percent(self.section.info.read_reaccess_ratio);
        let beside = Purchase::flash(self.touched_bytes);
        match (whole.is_ram(), self.section.info.writes) {
            (false, _) => format!("{holds} that the trace touches, and {again} of the accesses hit with lru."),
            (true, 0) => format!(
                "{holds} that the trace touches, and {reads} of the reads hit. As much flash costs {}.",
                beside.price()
            ),
            (true, _) => format!(
                "{holds} that the trace touches, and {reads} of the reads hit. Writes go to the disks at once; flash \
                 for all, {}, also \
                 takes them and costs {}.",
                beside.name,
                beside.price()
            ),
        }
    }

    /// A reason for doubt: a short trace touches fewer blocks than the workload.
    fn may_touch_more(&self) -> String {
        format!("the trace touches {}; a longer one may touch more", bytes(self.touched_bytes))
    }

    fn facts(&self, again: &str, certainty: &Certainty) -> Vec<Fact> {
        let info = &self.section.info;
        let bought = self.whole.as_ref().unwrap_or(&self.flash);
        let holds = match self.whole {
            Some(_) => format!("holds all {} that the trace touches", bytes(self.touched_bytes)),
            None => format!("{} of it for the cache", bytes(self.choice.size.bytes)),
        };
        let hits = match &self.whole {
            Some(whole) if whole.is_ram() => (percent(info.read_reaccess_ratio), "of the reads"),
            Some(_) => (again.to_owned(), "of the accesses"),
            None => (percent(self.own().hit_ratio), "of the accesses"),
        };
        // With every block on flash, each write and each first read is written to it.
        let first_reads = self.section.reuse.reads.first_accesses;
        let all_written = (info.writes + first_reads).saturating_mul(info.block_size_bytes);
        let per_day = match self.whole {
            Some(_) if info.duration_us > 0 => bytes_per_day(all_written, info.duration_us),
            Some(_) => None,
            None => self.per_day(self.own()),
        };
        let lasts = match (bought.endurance_bytes, per_day) {
            (None, _) => ("no wear".to_owned(), "RAM"),
            (Some(endurance), Some(per_day)) => (lifetime(endurance / per_day / YEAR_DAYS), "until its rated writes"),
            (Some(_), None) => ("unknown".to_owned(), "the trace has no times"),
        };
        facts(bought, &holds, (&hits.0, hits.1), (&lasts.0, lasts.1), certainty)
    }

    /// No cache hits.
    fn nothing(&self, again: &str) -> String {
        if self.section.info.reaccess_ratio == 0.0 {
            return "Buy no cache: no block is accessed twice, so that none can hit.".to_owned();
        }
        let bound = match self.bound() {
            Some(bound) if bound.hits > 0 => {
                format!("; MIN, which knows the future, hits {}", percent(bound.hit_ratio))
            }
            Some(_) => ", and neither does MIN, which knows the future".to_owned(),
            None => String::new(),
        };
        format!(
            "Buy none of these: no policy hits at all, although {again} of the accesses are to a block accessed \
             before{bound}."
        )
    }

    /// The size and the policy that are recommended, and the accesses that they serve.
    fn what(&self) -> String {
        let Choice { size, row, leads, leader, .. } = self.choice;
        let rule = self.rules().0.and_then(|row| row.admission.as_deref());
        let behind = rule.map_or_else(String::new, |rule| format!(" behind {rule}"));
        let (policy, runs) = (&row.policy, &self.own().policy);
        let given = if size.given.ends_with('%') {
            format!(", {} of the blocks that are touched,", size.given)
        } else {
            String::new()
        };
        let beside = |other: Option<&ResultRow>, name: &str, verb: &str| {
            other.map(|other| format!("{name}{verb} {}", percent(other.hit_ratio)))
        };
        let beside: Vec<String> = [beside(self.lru(), "lru", " serves"), beside(self.bound(), "the best possible", "")]
            .into_iter()
            .flatten()
            .collect();
        let beside = if beside.is_empty() { String::new() } else { format!(", where {}", beside.join(" and ")) };
        let sizes = self.grid.sizes.len();
        let led = match sizes {
            1 => String::new(),
            _ if leads == sizes => format!("; it leads at all {sizes} sizes"),
            _ if *policy == leader.0 || leads == leader.1 => format!("; it leads at {leads} of {sizes} sizes"),
            _ => format!("; {} leads at {} of {sizes} sizes", leader.0, leader.1),
        };
        let led = if self.grid.candidates().len() == 1 { String::new() } else { led };
        let serves = percent(self.own().hit_ratio);
        format!("{}{given} and run {runs}{behind}: it serves {serves} of the accesses{beside}{led}.", size.named())
    }

    /// Why this size, and why this admission.
    fn why(&self) -> String {
        let best = best_of_each_size(self.grid);
        let at = best.iter().position(|(size, _)| size.blocks == self.choice.size.blocks).unwrap_or(0);
        let size = match (&best[at], best.get(at + 1)) {
            ((size, row), Some((next, more))) => {
                let gain = more.hit_ratio - row.hit_ratio;
                let added = next.bytes - size.bytes;
                let (before, from) = at.checked_sub(1).map_or((0.0, 0), |at| (best[at].1.hit_ratio, best[at].0.bytes));
                let step = (row.hit_ratio - before) / (size.bytes - from).max(1) as f64;
                let of_each = (gain / added as f64) / step;
                let bends = if of_each <= 1.0 {
                    "The curve bends there"
                } else {
                    "Beyond that, flash brings less a byte than a cache of every block does on average"
                };
                let (points, of_each) = (points(gain.max(0.0)), percent(of_each.max(0.0)));
                format!(
                    "{bends}: the next {}, to {}, would serve another {points} percentage points, {of_each} as much a \
                     byte as the step before",
                    bytes(added),
                    bytes(next.bytes)
                )
            }
            (_, None) if best.len() == 1 => {
                "No other size was simulated that could show where the curve bends".to_owned()
            }
            _ => "The curve has not bent at the largest size that was simulated, so that more may be worth its price"
                .to_owned(),
        };
        let admission = match self.rules() {
            (Some(rule), _) => {
                let alone = self.row_of(&rule.policy, self.choice.size).map_or(0, |alone| alone.flash_writes_blocks);
                let saved = 1.0 - rule.flash_writes_blocks as f64 / alone.max(1) as f64;
                match saved > 0.0 {
                    true => format!(", and the rule saves {} of the flash writes", percent(saved)),
                    false => String::new(),
                }
            }
            (None, Some(next)) if self.saved(next) >= TRADE_MIN => format!(
                "; an admission rule {}: {} would serve {} with {} of the flash writes",
                if self.keeps_hits(next) { "saves little" } else { "would trade hits for flash writes" },
                next.admission.as_deref().unwrap_or_default(),
                percent(next.hit_ratio),
                percent(1.0 - self.saved(next))
            ),
            (None, _) => String::new(),
        };
        format!("{size}{admission}.")
    }

    /// Returns the share of the recommended policy's flash writes that the other run saves.
    fn saved(&self, other: &ResultRow) -> f64 {
        1.0 - other.flash_writes_blocks as f64 / self.choice.row.flash_writes_blocks.max(1) as f64
    }

    /// Returns the saved disk reads, and the wear of the flash.
    fn cost(&self) -> String {
        let sparing = self.choice.sparing;
        let row = self.own();
        let share = |hits: u64, all: u64| percent(hits as f64 / all.max(1) as f64);
        let reads = format!("{} of the reads", share(row.read_hits, row.reads));
        let writes = format!("{} of the writes, if they are written back later,", share(row.write_hits, row.writes));
        let saved = match (row.reads, row.writes) {
            (_, 0) => reads,
            (0, _) => writes,
            _ => format!("{reads} and {writes}"),
        };
        let wear = |row: &ResultRow| {
            let per_day = self.per_day(row)?;
            Some((self.flash.endurance_bytes? / per_day / YEAR_DAYS, per_day))
        };
        let Some((own, per_day)) = wear(row) else {
            let volume =
                format!("{} ({})", counted(row.flash_writes_blocks, "block", "blocks"), bytes(row.flash_bytes_written));
            return format!(
                "It keeps {saved} from the disks and writes {volume} to flash; the trace has no times, so years are \
                 unknown."
            );
        };
        let own_writes = row.flash_writes_blocks.max(1) as f64;
        // More hits or clearly fewer writes make an alternative.
        let is_trade = |other: &&ResultRow| {
            other.hits > row.hits || (other.flash_writes_blocks as f64) <= (1.0 - TRADE_MIN) * own_writes
        };
        let alone = Some(self.choice.row).filter(|alone| alone.policy != row.policy);
        let other = sparing.or(alone).filter(is_trade).or_else(|| self.lru().filter(is_trade));
        let beside = |row: Option<&ResultRow>| {
            let row = row?;
            let of = percent(row.flash_writes_blocks as f64 / own_writes);
            Some(format!(
                ". With {}: {of} of these flash writes, {} served, {}",
                row.policy,
                percent(row.hit_ratio),
                lifetime(wear(row)?.0)
            ))
        };
        format!(
            "It keeps {saved} from the disks and writes {} a day to flash, so {} would last {}{}.",
            bytes(per_day as u64),
            self.flash.name,
            lifetime(own),
            beside(other).unwrap_or_default()
        )
    }

    /// Returns the gain of each step of size.
    fn steps(&self) -> Table {
        let (unit, unit_bytes) = crate::numbers::binary_unit(self.choice.size.bytes);
        let policy = &self.choice.row.policy;
        // If a rule is recommended, these columns are of the policy without it.
        let alone = if self.rules().0.is_some() { " only" } else { "" };
        let columns = vec![
            "Cache size".to_owned(),
            "Leads".to_owned(),
            "serves".to_owned(),
            format!("{policy}{alone}\nserves"),
            "The step buys\npoints of hits".to_owned(),
            format!("A {unit} of it buys\npoints of hits"),
            format!(
                "Flash writes\na day{}",
                if alone.is_empty() { String::new() } else { format!(",\n{policy}{alone}") }
            ),
        ];
        let mut table = Table::new("Gain of each step of size", columns);
        let (mut before, mut held) = (0.0, 0);
        for (size, best) in best_of_each_size(self.grid) {
            let gain = (best.hit_ratio - before) * 100.0;
            let of_unit = gain / ((size.bytes - held).max(1) as f64 / unit_bytes);
            let own = self.row_of(policy, size);
            let per_day =
                own.and_then(|own| self.per_day(own)).map_or_else(|| "unknown".to_owned(), |day| bytes(day as u64));
            let chosen = if size.blocks == self.choice.size.blocks { " \u{25c0}" } else { "" };
            table.push(
                format!("{}{chosen}", bytes(size.bytes)),
                vec![
                    best.policy.to_string(),
                    percent(best.hit_ratio),
                    own.map_or_else(|| NOT_RUN.to_owned(), |own| percent(own.hit_ratio)),
                    number(gain),
                    number(of_unit),
                    per_day,
                ],
            );
            (before, held) = (best.hit_ratio, size.bytes);
        }
        table
    }

    /// How fast real drives wear out, with the recommended policy and beside it.
    fn drives(&self) -> Option<Table> {
        let Choice { size, sparing, .. } = self.choice;
        let rows: Vec<&ResultRow> =
            [Some(self.own()), self.lru(), sparing.filter(|row| row.policy != "lru")].into_iter().flatten().collect();
        let days = self.days?;
        let mut columns = vec!["Drive".to_owned(), "Drives".to_owned(), "Rated\nwrites a day".to_owned()];
        for row in &rows {
            columns.extend([format!("{}:\nwrites a day", named(row)), "lasts\nyears".to_owned()]);
        }
        let mut table =
            Table::new("Wear of drives: full writes per day, and years until the rated writes are used up", columns);
        for drive in drives() {
            let drives = number_of(&drive, size.bytes);
            let rated = drive.device.endurance_cycles / 365.0 / 5.0;
            let mut cells = vec![count(drives as u64), number(rated)];
            for row in &rows {
                let all = (drives * drive.device.capacity_bytes) as u64;
                let writes = drive_writes_per_day(row.flash_bytes_written, all, (days * 86_400e6) as u64);
                cells.push(writes.map_or_else(|| "none".to_owned(), number));
                let per_day = self.per_day(row);
                cells.push(
                    per_day.map_or_else(|| "unlimited".to_owned(), |day| in_table(years(&drive, size.bytes, day))),
                );
            }
            table.push(drive.title, cells);
        }
        Some(table)
    }

    fn recommended(&self) -> Recommended {
        let (size, row) = (self.choice.size, self.own());
        let flash_bytes_per_day = self.per_day(row);
        let first = drives().into_iter().next();
        let hits_of = |base: &str| self.row_of(base, size).map(|row| row.hit_ratio);
        Recommended {
            policy: row.policy.to_string(),
            size_bytes: size.bytes,
            hit_ratio: row.hit_ratio,
            lru: hits_of("lru"),
            larc: hits_of("larc"),
            bound: self.bound().map(|row| row.hit_ratio),
            flash_bytes_per_day,
            years: first.zip(flash_bytes_per_day).map(|(drive, day)| years(&drive, size.bytes, day)),
            is_worthwhile: self.is_worthwhile() && row.hits > 0,
        }
    }
}

#[cfg(test)]
mod tests;
