//! The position of `auto` between the best and the worst of its candidate policies.

use flashwise_core::admission::Spec;

use crate::draw::charts::{Chart, Series};
use crate::draw::look::Looks;
use crate::draw::scales::{categories, linear};
use crate::figures::{NOT_RUN, NUMBERS_FOLLOW, figure};
use crate::numbers::{self, percent};
use crate::rows::{file_name, rule};
use crate::table::{Figure, Table};
use flashwise_sim::array::ArrayFigures;
use flashwise_sim::columns::{About, about};
use flashwise_sim::results::{ResultRow, SpecText};

/// The objective of `auto`, by its option: a column of the rows.
struct Objective {
    option: &'static str,
    about: About,
    /// Sign for a cost: negative if more is better.
    sign: f64,
}

const OBJECTIVES: [Objective; 4] = [
    Objective {
        option: "latency-over-lifetime",
        about: about(ArrayFigures::COLUMNS, "latency_over_lifetime"),
        sign: 1.0,
    },
    Objective { option: "latency", about: about(ArrayFigures::COLUMNS, "latency_mean_us"), sign: 1.0 },
    Objective { option: "lifetime", about: about(ArrayFigures::COLUMNS, "lifetime_years"), sign: -1.0 },
    Objective { option: "hit-ratio", about: about(ResultRow::COLUMNS, "hit_ratio"), sign: -1.0 },
];

impl Objective {
    fn name(&self) -> String {
        let (title, unit) = (self.about.title().to_lowercase(), self.about.unit);
        if unit == "share" { title } else { format!("{title}, in {unit}") }
    }

    fn cost(&self, row: &ResultRow) -> Option<f64> {
        Some(self.sign * row.figure(self.about.name)?)
    }

    fn write(&self, cost: f64) -> String {
        let value = self.sign * cost;
        match self.about.unit {
            "share" => percent(value),
            "years" => numbers::years(value),
            _ => numbers::number(value),
        }
    }
}

fn objective(rule: &SpecText) -> &'static Objective {
    let given = rule.value("objective");
    OBJECTIVES.iter().find(|objective| Some(objective.option) == given).unwrap_or(&OBJECTIVES[0])
}

/// A run of `auto`, and the costs of its candidates.
struct Standing {
    own: f64,
    best: (String, f64),
    worst: (String, f64),
}

impl Standing {
    fn of(rows: &[ResultRow], row: &ResultRow) -> Option<Standing> {
        // If a rule cannot be parsed here, for example because its timeframe is a share, its option `policies` gives
        // the candidates.
        let policies = rule(row).value("policies");
        let spec = policies.map_or_else(|| "auto".to_owned(), |policies| format!("auto:policies={policies}"));
        let spec = Spec::parse(&spec).ok()?;
        let objective = objective(rule(row));
        let mut names: Vec<String> = spec.candidates().iter().map(ToString::to_string).collect();
        if names.iter().all(|name| row.policy != *name) {
            names.push(row.policy.to_string());
        }
        let of = |name: String| {
            let same = |other: &&ResultRow| {
                rule(other).is_empty() && other.policy == name && other.capacity_blocks == row.capacity_blocks
            };
            let cost = objective.cost(rows.iter().find(same)?)?;
            Some((name, cost))
        };
        let costs = names.into_iter().map(of).collect::<Option<Vec<_>>>()?;
        let best = costs.iter().min_by(|a, b| a.1.total_cmp(&b.1))?.clone();
        let worst = costs.iter().max_by(|a, b| a.1.total_cmp(&b.1))?.clone();
        Some(Standing { own: objective.cost(row)?, best, worst })
    }

    /// How many times worse it is than the best: 1 is equal. If more is better, how many times more the best has.
    fn times_worse(&self) -> Option<f64> {
        let ratio = if self.best.1 < 0.0 { self.best.1 / self.own } else { self.own / self.best.1 };
        (ratio.is_finite() && ratio > 0.0).then_some(ratio)
    }

    /// Its position: 0 is the best, 1 the worst.
    fn share(&self) -> Option<f64> {
        let share = (self.own - self.best.1) / (self.worst.1 - self.best.1);
        share.is_finite().then_some(share)
    }
}

/// Returns a figure for each `auto` and size, over the traces where it and its candidates ran.
pub fn of_auto(names: &[&str], sections: &[&[ResultRow]], labelled: &[Vec<ResultRow>], looks: &Looks) -> Vec<Figure> {
    let mut runs: Vec<(&str, &str, &SpecText)> = Vec::new();
    for (row, label) in sections.iter().copied().flatten().zip(labelled.iter().flatten()) {
        let run = (&label.policy[..], &row.size[..], rule(row));
        if run.2.name() == "auto" && !runs.contains(&run) {
            runs.push(run);
        }
    }
    let figures = runs.iter().enumerate().filter_map(|(number, &(label, size, rule))| {
        let standing = |trace: usize| {
            let at = labelled[trace].iter().position(|row| row.policy == label && row.size == size)?;
            Standing::of(sections[trace], &sections[trace][at])
        };
        let standings: Vec<Option<Standing>> = (0..sections.len()).map(standing).collect();
        let objective = objective(rule);
        let points: Vec<(f64, f64)> = standings
            .iter()
            .enumerate()
            .filter_map(|(at, standing)| Some((standing.as_ref()?.share()? * 100.0, (names.len() - 1 - at) as f64)))
            .collect();
        if points.is_empty() {
            return None;
        }
        let title = format!("{label} among its candidates with a cache of {size}");
        let heads = ["Trace", "From best to worst", "Times worse\nthan the best", "Own", "Best", "", "Worst", ""];
        let mut table = Table::new(format!("{title}: {}", objective.name()), heads);
        for (name, standing) in names.iter().zip(&standings) {
            let Some(standing) = standing else {
                table.push(*name, vec![NOT_RUN.to_owned(); 7]);
                continue;
            };
            let share = standing.share().map_or_else(|| "all alike".to_owned(), percent);
            let (best, worst) = (&standing.best, &standing.worst);
            let [own, best_cost, worst_cost] = [standing.own, best.1, worst.1].map(|cost| objective.write(cost));
            let times = standing.times_worse().map_or_else(|| "-".to_owned(), numbers::number);
            table.push(*name, vec![share, times, own, best.0.clone(), best_cost, worst.0.clone(), worst_cost]);
        }
        let worst = standings.iter().flatten().filter_map(Standing::times_worse).reduce(f64::max);
        let x = linear(
            "0% is the best candidate, 100% the \
            worst",
            points.iter().map(|point| point.0).chain([100.0]),
            "%",
        );
        let one = |point: (f64, f64)| Series { name: label.to_owned(), look: looks.of(label), points: vec![point] };
        let rows: Vec<String> = names.iter().map(|name| file_name(name)).collect();
        let chart = Chart {
            id: format!("all-auto-{number}"),
            title,
            description: format!("A row for each trace; further left is better. {NUMBERS_FOLLOW}"),
            x,
            y: categories("", &rows),
            series: points.into_iter().map(one).collect(),
            markers: true,
        };
        let caption = format!(
            "The position of {label} between the best and the worst of its candidate policies, in {}. Similar \
             candidates make small differences \
             look large, and one very bad candidate makes large ones look small. The table has how many times worse \
             than the best it is{}.",
            objective.name(),
            worst.map_or_else(String::new, |worst| format!(", {} at most", numbers::number(worst)))
        );
        Some(Figure { caption, ..figure(&chart, table) })
    });
    figures.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &str, rule: &str, hit_ratio: f64, latency_over_lifetime: f64) -> ResultRow {
        let array = ArrayFigures { latency_over_lifetime, ..ArrayFigures::default() };
        ResultRow {
            policy: policy.into(),
            capacity_blocks: 10,
            hit_ratio,
            admission: Some(rule.into()),
            array: Some(array),
            ..ResultRow::default()
        }
    }

    #[test]
    fn auto_stands_by_its_objective_between_the_best_and_the_worst_of_its_candidates() {
        let by_cost = row("lru", "auto:timeframe=1%,policies=lru+larc", 0.2, 25.0);
        let by_hits = row("lru", "auto:policies=lru+larc,objective=hit-ratio", 0.2, 25.0);
        let alone = [("lru", 0.1, 20.0), ("larc", 0.3, 30.0), ("sieve", 0.9, 1.0)];
        let rows = alone.map(|(policy, hit_ratio, cost)| row(policy, "", hit_ratio, cost));
        let standing = Standing::of(&rows, &by_cost).unwrap();
        assert_eq!((standing.share(), &standing.best.0[..], &standing.worst.0[..]), (Some(0.5), "lru", "larc"));
        assert_eq!(standing.times_worse(), Some(1.25));
        let standing = Standing::of(&rows, &by_hits).unwrap();
        // The best hits 30 %, and it hits 20 %.
        assert!((standing.times_worse().unwrap() - 1.5).abs() < 1e-12);
        assert!((standing.share().unwrap() - 0.5).abs() < 1e-12);
        assert_eq!((&standing.best.0[..], &standing.worst.0[..]), ("larc", "lru"));
        assert!(Standing::of(&rows[1..], &by_cost).is_none(), "a candidate did not run");
        let alike = [row("lru", "", 0.1, 20.0), row("larc", "", 0.1, 20.0)];
        assert_eq!(Standing::of(&alike, &by_cost).unwrap().share(), None);
    }
}
