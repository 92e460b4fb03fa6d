//! The README's picture is what the bundled trace gives.
//! `UPDATE_PICTURE=1 cargo test -p flashwise-report --test report readme_picture::` draws it anew.

use std::path::Path;

use flashwise_core::policy::Spec;
use flashwise_report::hit_ratio_chart;
use flashwise_sim::experiment::Case;
use flashwise_sim::results::{ResultRow, WearLimits};
use flashwise_sim::simulate::{Counting, Warmup, simulate};
use flashwise_sim::size::Size;
use flashwise_trace::normalised::{self, Settings};
use flashwise_trace::progress::Silent;

const POLICIES: [&str; 7] = ["lru", "lfu", "2q", "arc", "larc", "s3-fifo", "min"];

#[test]
fn the_picture_in_the_readme_is_up_to_date() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = project.join("traces/netsfs.csv.zst");
    let trace = normalised::open(path.to_str().unwrap(), &Settings::default(), &Silent).unwrap();
    let sizes = Size::parse_list("1%,2%,5%,10%,20%,50%").unwrap();
    let case = |policy: &str, size: &Size| {
        let capacity_blocks = size.capacity_blocks(trace.unique_blocks(), trace.block_size_bytes()).unwrap();
        Case::of(policy.parse::<Spec>().unwrap(), size, capacity_blocks)
    };
    let cases = POLICIES.iter().flat_map(|policy| sizes.iter().map(|size| case(policy, size))).collect();
    let counting = Counting { warmup: Warmup::Accesses(0), epoch: None };
    let traces = [trace];
    let runs = simulate(&traces, cases, counting, &Silent).unwrap();
    let rows: Vec<_> = runs.iter().map(|run| ResultRow::of(&traces[0], run, None, &WearLimits::default())).collect();
    let drawn = hit_ratio_chart(&rows);
    let picture = project.join("docs/hit-ratio.svg");
    if std::env::var_os("UPDATE_PICTURE").is_some() {
        std::fs::write(&picture, &drawn).unwrap();
    }
    assert!(drawn == std::fs::read_to_string(picture).unwrap(), "docs/hit-ratio.svg shows something else");
}
