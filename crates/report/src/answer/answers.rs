//! The answer for many traces: three sentences, a picture with a row for each trace, and a table.

use crate::answer::{Answer, Recommended};
use crate::draw::charts::{Chart, Series};
use crate::draw::look::Looks;
use crate::draw::scales::{categories, linear};
use crate::numbers::{bytes, count, counted, lifetime, percent, years};
use crate::rows::file_name;
use crate::table::{Picture, Table};
use flashwise_trace::tools::info::Info;

/// The points of the picture.
const ROLES: [&str; 4] = ["recommended", "lru", "larc", "min"];

/// Returns the traces with a recommendation.
fn recommendations<'a>(traces: &[(&'a Info, &'a Answer)]) -> Vec<(&'a Info, &'a Recommended)> {
    traces.iter().filter_map(|(info, answer)| Some((*info, answer.recommended.as_ref()?))).collect()
}

/// Returns three sentences, or none without a recommendation.
pub fn sentences(traces: &[(&Info, &Answer)]) -> Vec<String> {
    let told = recommendations(traces);
    let worth: Vec<_> = told.iter().filter(|(_, recommended)| recommended.is_worthwhile).collect();
    let Some(((_, first), _)) = worth.split_first() else {
        return if told.is_empty() {
            Vec::new()
        } else {
            vec!["A cache is not worth its price on any of these traces.".to_owned()]
        };
    };
    let often = |policy: &str| worth.iter().filter(|(_, own)| own.policy == policy).count();
    let most = worth
        .iter()
        .map(|(_, own)| &own.policy)
        .fold(&first.policy, |most, own| if often(own) > often(most) { own } else { most });
    let sizes = || worth.iter().map(|(_, own)| own.size_bytes);
    let (least, largest, all) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0), sizes().sum::<u64>());
    let policies = match often(most) {
        1 if worth.len() > 1 => "no policy is recommended twice".to_owned(),
        times => format!("{most} is recommended most often, on {}", count(times as u64)),
    };
    let what = format!(
        "A cache is worth buying on {} of {}, of {} to {}, {} in all; {policies}.",
        count(worth.len() as u64),
        counted(traces.len() as u64, "trace", "traces"),
        bytes(least),
        bytes(largest),
        bytes(all),
    );
    let mean = |of: fn(&Recommended) -> Option<f64>| {
        let values: Option<Vec<f64>> = worth.iter().map(|(_, own)| of(own)).collect();
        values.map(|values| percent(values.iter().sum::<f64>() / values.len() as f64))
    };
    let beside = [("lru", mean(|own| own.lru)), ("the best possible", mean(|own| own.bound))];
    let beside: Vec<_> = beside.into_iter().filter_map(|(name, mean)| Some(format!("{name} {}", mean?))).collect();
    let beside = if beside.is_empty() { String::new() } else { format!(", where {}", beside.join(" and ")) };
    let why = format!(
        "There it serves {} of the accesses of a trace on average{beside}.",
        mean(|own| Some(own.hit_ratio)).unwrap_or_default()
    );
    let worn = worth.iter().filter_map(|(info, own)| Some((own.years?, file_name(&info.trace))));
    let worn = worn.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(years, name)| {
        format!(
            "The flash wears out fastest on {name}: a drive of 1 TB that is rated for 1,380 TB lasts {} there.",
            lifetime(years)
        )
    });
    [Some(what), Some(why), worn].into_iter().flatten().collect()
}

/// Draws a row for each trace: the recommended policy, LRU, LARC and MIN at the same size.
pub fn picture(traces: &[(&Info, &Answer)]) -> Option<Picture> {
    let told = recommendations(traces);
    if told.is_empty() {
        return None;
    }
    let looks = Looks::few(&ROLES[..1], ROLES);
    let names: Vec<String> = told.iter().map(|(info, _)| file_name(&info.trace)).collect();
    let mut series = Vec::new();
    // Points drawn later cover others, so the recommended one comes last.
    for role in ROLES.iter().rev() {
        for (at, (_, own)) in told.iter().enumerate() {
            let hits = match *role {
                "recommended" => Some(own.hit_ratio),
                "lru" => own.lru,
                "larc" => own.larc,
                _ => own.bound,
            };
            let point = hits.map(|hits| (hits * 100.0, (told.len() - 1 - at) as f64));
            let one = |point| Series { name: (*role).to_owned(), look: looks.of(role), points: vec![point] };
            series.extend(point.map(one));
        }
    }
    let chart = Chart {
        id: "all-answer".to_owned(),
        title: "Hit ratio of the recommended cache for each trace".to_owned(),
        description: "A row for each trace; further right is better. The table after it has the numbers.".to_owned(),
        x: linear(
            "Hit ratio at the recommended size",
            series.iter().flat_map(|series| &series.points).map(|point| point.0),
            "%",
        ),
        y: categories("", &names),
        series,
        markers: true,
    };
    let caption = "Share of the accesses that a cache of the recommended size serves, by trace.".to_owned();
    let (wide, narrow) = chart.inline_told(None, &[]);
    Some(Picture { caption, wide, narrow, legend: chart.legend() })
}

/// A column of the table: its head, and its value for a recommendation, if known.
type Column = (&'static str, fn(&Recommended) -> Option<String>);

const COLUMNS: [Column; 8] = [
    ("Buy", |own| {
        let size = bytes(own.size_bytes);
        Some(if own.is_worthwhile { size } else { format!("hardly\n{size}") })
    }),
    ("Run", |own| Some(own.policy.clone())),
    ("Hit\nratio", |own| Some(percent(own.hit_ratio))),
    ("lru", |own| own.lru.map(percent)),
    ("larc", |own| own.larc.map(percent)),
    ("MIN", |own| own.bound.map(percent)),
    ("Flash writes\na day", |own| own.flash_bytes_per_day.map(|day| bytes(day as u64))),
    ("P4500\nyears", |own| own.years.map(years)),
];

/// Returns a table of all traces. Columns without any value are omitted.
pub fn table(traces: &[(&Info, &Answer)]) -> Table {
    let told = recommendations(traces);
    let known = |(_, cell): &&Column| told.iter().any(|(_, own)| cell(own).is_some());
    let columns: Vec<&Column> = COLUMNS.iter().filter(known).collect();
    let heads = ["Trace", "Block\naccesses", "Working\nset", "Accessed\nbefore"].into_iter();
    let heads = heads.chain(columns.iter().map(|column| column.0)).chain(["Certainty"]);
    let caption = if told.is_empty() { "All traces" } else { "All traces: recommended caches and their results" };
    let mut table = Table::new(caption, heads);
    for (info, answer) in traces {
        let working_set = bytes(info.unique_blocks.saturating_mul(info.block_size_bytes));
        let mut cells = vec![count(info.accesses), working_set, percent(info.reaccess_ratio)];
        let own = |column: &&Column| match &answer.recommended {
            Some(own) => (column.1)(own).unwrap_or_else(|| "unknown".to_owned()),
            None => String::new(),
        };
        cells.extend(columns.iter().map(own));
        cells.push(answer.certainty.verdict.to_owned());
        table.push(info.trace.clone(), cells);
    }
    table
}
