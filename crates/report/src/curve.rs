//! The page of curves: hits at every cache size, reads and writes separately, and the blocks in use over time.

use flashwise_sim::curve::CurvePoint;
use flashwise_trace::tools::curve::WorkingSet;
use flashwise_trace::tools::info::Info;

use crate::answer::summary;
use crate::draw::charts::{Chart, Series};
use crate::draw::look::{Look, Looks};
use crate::draw::scales::{SizeAxis, linear};
use crate::figures::{NUMBERS_FOLLOW, figure};
use crate::numbers::{binary_unit, bytes, count, percent, shortest};
use crate::table::{Figure, Table};

/// Name of the marks in the legend.
const KNEE: &str = "knee";

/// The curves of one trace.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Description of the trace.
    pub info: Info,
    /// Points of each policy, by size.
    pub points: Vec<CurvePoint>,
    /// The blocks in use over time.
    pub working_sets: Vec<WorkingSet>,
}

impl Curves {
    /// Returns the policies, in the order of their first points.
    pub(crate) fn policies(&self) -> Vec<&str> {
        let mut policies: Vec<&str> = self.points.iter().map(|point| point.policy.as_str()).collect();
        let mut seen = Vec::new();
        policies.retain(|policy| {
            !seen.contains(policy) && {
                seen.push(policy);
                true
            }
        });
        policies
    }

    fn of<'a>(&'a self, policy: &'a str) -> impl Iterator<Item = &'a CurvePoint> + Clone {
        self.points.iter().filter(move |point| point.policy == policy)
    }

    /// Summarises the curves in sentences.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let sentence = |policy: &&str| {
            let knee = self.of(policy).find_map(|point| {
                let bytes_of = point.capacity_bytes.checked_div(point.capacity_blocks)?;
                Some((point.knee_blocks?.saturating_mul(bytes_of), point.knee_hit_ratio?))
            });
            match knee {
                None => {
                    format!("{policy} has no knee: each further block of cache brings about as much as the one before.")
                }
                Some((size, hits)) => format!(
                    "{policy} bends at {}, where {} of the accesses hit: beyond that, a block of cache brings less \
                     than it does on average.",
                    bytes(size),
                    percent(hits)
                ),
            }
        };
        self.policies().iter().map(sentence).collect()
    }

    /// Returns a table that describes the trace.
    pub(crate) fn info(&self) -> Table {
        summary::characteristics(&self.info)
    }

    /// Returns the charts, with ids that start with `id`.
    pub(crate) fn figures(&self, id: &str) -> Vec<Figure> {
        vec![self.hits(id), self.by_op(id), self.in_use(id)]
    }

    fn hits(&self, id: &str) -> Figure {
        let policies = self.policies();
        let looks = Looks::new(policies.iter().copied().chain([KNEE]));
        let x = self.sizes();
        let mut series = Vec::new();
        for policy in &policies {
            let named = |points| Series { name: (*policy).to_owned(), look: looks.of(policy), points };
            let ends = |point: &CurvePoint| Some([point.hit_ratio_low?, point.hit_ratio_high?]);
            let interval = |point: &CurvePoint| {
                let place = x.place(point.capacity_bytes);
                ends(point).map(|ends| named(ends.map(|end| (place, 100.0 * end)).to_vec()))
            };
            series.extend(self.of(policy).filter_map(interval));
            series.push(named(self.of(policy).map(|point| at(&x, point, point.hit_ratio)).collect()));
        }
        let knee = |point: &CurvePoint| mark(looks.of(KNEE), at(&x, point, point.hit_ratio));
        series.extend(self.points.iter().filter(|point| point.knee == 1).map(knee));
        let sampled = self.points.iter().any(|point| point.hit_ratio_low.is_some());
        let cell = |point: &CurvePoint| match point.hit_ratio_standard_error {
            Some(error) => format!("{} \u{b1} {}", percent(point.hit_ratio), percent(error)),
            None => percent(point.hit_ratio),
        };
        let caption = "Hit ratio at each cache size; a mark is a knee, where the curve bends.";
        let of_sample = " From a sample: upright lines are intervals that hold the truth in 95 of 100 samples, \u{b1} \
            is the standard error.";
        let caption = caption.to_owned() + if sampled { of_sample } else { "" };
        let chart = chart(format!("{id}-hits"), "Hit ratio by cache size", "Hit ratio", "%", x, series);
        Figure { caption, open: false, ..figure(&chart, self.by_size("Hit ratio", &policies, &[cell])) }
    }

    fn by_op(&self, id: &str) -> Figure {
        let policies = self.policies();
        let names: Vec<[String; 2]> =
            policies.iter().map(|policy| ["reads", "writes"].map(|op| format!("{policy}, {op}"))).collect();
        let looks = Looks::new(names.iter().flatten().map(String::as_str));
        let x = self.sizes();
        let mut series = Vec::new();
        for (policy, names) in policies.iter().zip(&names) {
            let of_op = [|point: &CurvePoint| point.read_hit_ratio, |point: &CurvePoint| point.write_hit_ratio];
            for (name, value) in names.iter().zip(of_op) {
                let points = self.of(policy).map(|point| at(&x, point, value(point))).collect();
                series.push(Series { name: name.clone(), look: looks.of(name), points });
            }
        }
        let cells: [fn(&CurvePoint) -> String; 2] =
            [|point| percent(point.read_hit_ratio), |point| percent(point.write_hit_ratio)];
        let names: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
        let chart =
            chart(format!("{id}-ops"), "Read and write hits by cache size", "Hits of reads, of writes", "%", x, series);
        let table = self.by_size("Read hits per read and write hits per write", &names, &cells);
        let caption = "Read hits per read and write hits per write, at each cache size.".to_owned();
        Figure { caption, open: false, ..figure(&chart, table) }
    }

    fn in_use(&self, id: &str) -> Figure {
        let block_bytes = self.info.block_size_bytes;
        let most = self.working_sets.iter().map(|part| part.blocks * block_bytes).max().unwrap_or(0);
        let (unit, unit_bytes) = binary_unit(most);
        type Kind = (&'static str, fn(&WorkingSet) -> u64);
        let kinds: [Kind; 3] = [
            ("accessed", |part| part.blocks),
            ("written", |part| part.written_blocks),
            ("new", |part| part.new_blocks),
        ];
        let looks = Looks::new(kinds.map(|(name, _)| name));
        let line = |(name, of): (&str, fn(&WorkingSet) -> u64)| {
            let point = |part: &WorkingSet| {
                let middle = part.first_access as f64 + part.accesses as f64 / 2.0;
                (middle, (of(part) * block_bytes) as f64 / unit_bytes)
            };
            Series {
                name: name.to_owned(),
                look: looks.of(name),
                points: self.working_sets.iter().map(point).collect(),
            }
        };
        let series: Vec<Series> = kinds.into_iter().map(line).collect();
        let end = self.working_sets.last().map_or(0, |part| part.first_access + part.accesses);
        let label = format!("Different blocks, in {unit}");
        let chart = Chart {
            id: format!("{id}-working-set"),
            title: "Working set over time".to_owned(),
            description: format!(
                "Lines of accessed, written and new blocks in each part of the trace. {NUMBERS_FOLLOW}"
            ),
            x: linear("Accesses from the beginning", [end as f64].into_iter(), ""),
            y: linear(label, series.iter().flat_map(|series| &series.points).map(|point| point.1), ""),
            series,
            markers: false,
        };
        let mut table = Table::new("Working set", ["First access", "Time, in s", "Accessed", "Written", "New"]);
        for part in &self.working_sets {
            let blocks = kinds.map(|(_, of)| bytes(of(part) * block_bytes));
            let cells = [shortest(part.time_us as f64 / 1e6, 3)].into_iter().chain(blocks).collect();
            table.push(count(part.first_access + 1), cells);
        }
        let caption =
            "Different blocks in each part of the trace: accessed, written, and not accessed before.".to_owned();
        Figure { caption, open: false, ..figure(&chart, table) }
    }

    fn sizes(&self) -> SizeAxis {
        SizeAxis::new(self.points.iter().map(|point| point.capacity_bytes))
    }

    /// Returns a table with a row for each size and the cells of each policy.
    fn by_size(&self, caption: &str, names: &[&str], cells: &[impl Fn(&CurvePoint) -> String]) -> Table {
        let mut table = Table::new(caption, ["Cache size"].into_iter().chain(names.iter().copied()));
        let policies = self.policies();
        let mut sizes: Vec<u64> = self.points.iter().map(|point| point.capacity_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            let of_policy = |policy: &&str| {
                let point = self.of(policy).find(|point| point.capacity_bytes == size);
                cells.iter().map(|cell| point.map(cell).unwrap_or_default()).collect::<Vec<_>>()
            };
            table.push(bytes(size), policies.iter().flat_map(of_policy).collect());
        }
        table
    }
}

fn at(x: &SizeAxis, point: &CurvePoint, share: f64) -> (f64, f64) {
    (x.place(point.capacity_bytes), 100.0 * share)
}

fn mark(look: Look, place: (f64, f64)) -> Series {
    Series { name: KNEE.to_owned(), look, points: vec![place] }
}

fn chart(id: String, title: &str, label: &str, suffix: &'static str, x: SizeAxis, series: Vec<Series>) -> Chart {
    let description = format!("A line for each policy. {NUMBERS_FOLLOW}");
    let y = linear(label, series.iter().flat_map(|series| &series.points).map(|point| point.1), suffix);
    Chart { id, title: title.to_owned(), description, x: x.axis, y, series, markers: false }
}
