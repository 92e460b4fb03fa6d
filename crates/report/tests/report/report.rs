//! The report, rendered from real runs over small traces.

use std::collections::BTreeSet;

use crate::reports::{Runs, report, wear_report};
use flashwise_core::human::{number, percent};
use flashwise_report::{Report, hit_ratio_chart, render};

const THREE: Runs = Runs { policies: &["lru", "larc:fill=ghost", "min"], sizes: "5%,10%,20%,50%", epoch: Some(100) };

fn small() -> Report {
    report(&[("small.csv", 1000)], &THREE)
}

/// Names of elements and their attributes, in order. Stops the test where the page is not well-formed XML after its
/// first line.
fn elements(page: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut rest = page.trim_start().strip_prefix("<!DOCTYPE html>").unwrap_or(page);
    let (mut open, mut found) = (Vec::new(), Vec::new());
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>') || open.last().is_some_and(|name| name == "style"), "{}", &rest[..at]);
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            continue;
        }
        let whole = tag.strip_suffix('/').unwrap_or(tag).trim_end();
        let (name, mut attributes) = whole.split_once(char::is_whitespace).unwrap_or((whole, ""));
        let mut list = Vec::new();
        while let Some((attribute, value)) = attributes.trim_start().split_once("=\"") {
            let (value, after) = value.split_once('"').expect("a value ends");
            list.push((attribute.to_owned(), value.to_owned()));
            attributes = after;
        }
        // Only HTML's `open` has no value.
        assert!(["", "open"].contains(&attributes.trim()), "{tag}");
        found.push((name.to_owned(), list));
        if !tag.ends_with('/') {
            open.push(name.to_owned());
        }
    }
    assert_eq!(open, [""; 0], "every element is closed");
    found
}

fn values<'a>(elements: &'a [(String, Vec<(String, String)>)], attribute: &str) -> Vec<&'a str> {
    let attributes = elements.iter().flat_map(|(_, attributes)| attributes);
    attributes.filter(|(name, _)| name == attribute).map(|(_, value)| value.as_str()).collect()
}

#[test]
fn the_page_is_well_formed_and_its_ids_are_unique_and_resolve() {
    let page = render(&report(&[("a.csv", 600), ("b.csv", 600)], &THREE)).unwrap();
    let elements = elements(&page);
    let ids = values(&elements, "id");
    let unique: BTreeSet<_> = ids.iter().copied().collect();
    assert_eq!(unique.len(), ids.len());
    for reference in values(&elements, "aria-labelledby").iter().flat_map(|value| value.split(' ')) {
        assert!(unique.contains(reference), "{reference}");
    }
    for link in elements.iter().filter(|(name, _)| name == "a").flat_map(|(_, attributes)| attributes) {
        if link.0 == "href" {
            assert!(unique.contains(link.1.strip_prefix('#').unwrap()), "{}", link.1);
        }
    }
    let count = |name: &str| elements.iter().filter(|(element, _)| element == name).count();
    // For each trace there are the answer, hits, writes, write traffic, two charts of MIN, reuse distances and four of
    // the workload. Each of four sizes has two over time. Both traces share one answer. Each chart is drawn for wide
    // and for narrow screens.
    let charts = elements.iter().filter(|(name, own)| name == "svg" && own.iter().any(|own| own.0 == "role")).count();
    // All traces, each trace, how it was made.
    assert_eq!((charts, count("figure"), count("h1"), count("h2")), (2 * 39, 39, 1, 4));
    assert_eq!(count("table"), count("caption"));
}

#[test]
fn the_page_refers_to_nothing_outside_of_it() {
    let page = render(&small()).unwrap();
    let without_namespace = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for outside in ["http:", "https:", "//", "<script", "@import", "url(", "<img", "<iframe", "<object", "src="] {
        assert!(!without_namespace.contains(outside), "{outside}");
    }
    let links = elements(&page).into_iter().filter(|(name, _)| name == "link");
    assert_eq!(values(&links.collect::<Vec<_>>(), "href"), ["data:,"]);
}

#[test]
fn the_same_results_make_the_same_bytes() {
    let (first, second) = (small(), small());
    assert_eq!(render(&first).unwrap(), render(&second).unwrap());
    assert_eq!(hit_ratio_chart(&first.sections[0].rows), hit_ratio_chart(&second.sections[0].rows));
}

#[test]
fn every_figure_of_every_row_stands_in_the_tables() {
    let report = small();
    let page = render(&report).unwrap();
    let between = |start: &str, end: &str| page.split_once(start).unwrap().1.split_once(end).unwrap().0;
    let table_row = |caption: &str, head: &str| {
        let table = between(&format!("<caption>{caption}"), "</table>");
        let row = table.split_once(&format!("<th scope=\"row\">{head}</th>")).unwrap().1.split_once("</tr>").unwrap().0;
        row.split("</td>").map(|cell| cell.trim_start_matches("<td>").to_owned()).collect::<Vec<_>>()
    };
    let rows = &report.sections[0].rows;
    assert_eq!(rows.len(), 12);
    for (at, row) in rows.iter().enumerate() {
        let size = at % 4;
        assert_eq!(table_row("Hit ratio by policy", &row.policy)[size], percent(row.hit_ratio));
        let writes = table_row("Flash writes by policy", &row.policy)[size].clone();
        assert_eq!(writes.split('\n').next().unwrap(), grouped(row.flash_writes_blocks));
        let traffic = &table_row("Write traffic W by policy", &row.policy)[size];
        assert_eq!(*traffic, grouped(row.write_hits + row.replacements.unwrap()));
        let counts = between("<caption>All figures", "</table>");
        let cells = [
            row.admissions,
            row.read_admissions,
            row.write_admissions,
            row.replacements.unwrap(),
            row.evictions.unwrap(),
            row.write_traffic_blocks.unwrap(),
            row.bypasses,
        ];
        let cells: String = cells.map(|count| format!("<td>{}</td>", grouped(count))).concat();
        assert!(counts.contains(&cells), "{cells}");
        assert!(page.contains(&format!("({} blocks)</summary>", grouped(row.capacity_blocks))));
        for epoch in &row.epochs {
            let last = epoch.first_access + epoch.accesses;
            let head = format!("{} to {}", grouped(epoch.first_access + 1), grouped(last));
            assert!(page.contains(&format!("<th scope=\"row\">{head}</th>")), "{head}");
            assert!(page.contains(&format!("<td>{}</td>", percent(epoch.hit_ratio))));
            assert!(page.contains(&format!("<td>{}</td>", percent(epoch.replacement_rate))));
        }
    }
    let (lru, bound) = (&rows[1], &rows[9]);
    let points = (lru.hit_ratio - bound.hit_ratio) * 100.0;
    assert_eq!(table_row("Hit ratio minus that of MIN", "lru")[1], number(points).replace('-', "\u{2212}"));
    let info = &report.sections[0].info;
    assert_eq!(table_row("The trace", "Block accesses")[0], grouped(info.accesses));
    assert_eq!(table_row("The trace", "Different blocks (working set)")[0], grouped(info.unique_blocks));
}

#[test]
fn names_are_escaped_wherever_they_stand() {
    let name = "a<b>&\"quoted\"'$x$.csv";
    let mut hostile = report(&[(name, 300)], &THREE);
    for row in &mut hostile.sections[0].rows {
        if row.policy == "lru" {
            row.policy = "<script>&\"".into();
        }
    }
    hostile.command = format!("flashwise simulate '{name}'");
    let page = render(&hostile).unwrap();
    assert!(!page.contains("a<b>") && !page.contains("<script"));
    assert!(page.contains("a&lt;b&gt;&amp;"));
    elements(&page);
    elements(&hit_ratio_chart(&hostile.sections[0].rows));
}

#[test]
fn any_mixture_of_policies_and_sizes_makes_a_report() {
    let mixtures: &[(&[&str], &str)] = &[
        (&["lru"], "10%"),
        (&["min"], "10%"),
        (&["larc"], "1,2,3,4,5,6,7,8,9,10,11,12"),
        (&["larc", "min"], "100%"),
        (&["lru", "lru"], "10%,10%"),
        (
            &[
                "lru",
                "larc",
                "lirs",
                "sieve",
                "s3-fifo",
                "w-tinylfu",
                "larc:fill=ghost",
                "larc:writes=admit",
                "larc:cr=0.2",
            ],
            "1,1000000",
        ),
    ];
    for &(policies, sizes) in mixtures {
        for requests in [1, 200] {
            let report = report(&[("t.csv", requests)], &Runs { policies, sizes, epoch: None });
            let page = render(&report).unwrap();
            elements(&page);
            assert!(!page.contains("NaN") && !page.contains("inf\""), "{policies:?} {sizes}");
            assert!(policies.iter().all(|policy| page.contains(policy)));
            let without = "MIN was not simulated";
            assert_eq!(page.contains(without), !policies.contains(&"min"));
        }
    }
    let mut empty = small();
    empty.sections[0].rows.clear();
    elements(&render(&empty).unwrap());
    empty.sections.clear();
    elements(&render(&empty).unwrap());
}

#[test]
fn the_chart_for_a_page_of_its_own_holds_its_colours() {
    let chart = hit_ratio_chart(&small().sections[0].rows);
    let elements = elements(&chart);
    assert_eq!(elements[0].0, "svg");
    assert!(chart.contains("prefers-color-scheme:dark"));
    for used in chart.split("var(").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        // A group sets its own colour to one of the picture's.
        let set = if used == "--c" { "--c:var(--fw-".to_owned() } else { format!("{used}:#") };
        assert!(chart.contains(&set), "{used}");
    }
}

#[test]
fn a_report_of_wear_has_the_figures_of_the_paper_and_the_numbers_of_its_rows() {
    let algorithms =
        ["lru", "m", "m+", "c", "c:buffers=1", "c:buffers=2", "c_t:share=25%", "c_t:share=50%", "c_n:n=1", "c_n:n=2"];
    let report = wear_report(&[("first.csv", 6000), ("second.csv", 4000)], &algorithms, "10%,40%", &[0.25, 0.5]);
    let page = render(&report).unwrap();
    let figures = [
        "Hits against wear:",
        "Read hit ratio: reads that",
        "Erasures per erase unit and day.",
        "Flash usage effectiveness: blocks that hits read",
        "Weighted flash usage effectiveness: hits",
        "erasures that each algorithm saves; m is MIN",
        "Write buffer: a larger one",
        "Spare flash: with more",
        "Budgets of erasures:",
        "Least read hits: insertions",
    ];
    for caption in figures {
        assert!(page.contains(caption), "{caption}");
    }
    for row in report.sections.iter().flat_map(|section| &section.rows) {
        let wear = row.endurance.as_ref().unwrap();
        let first = wear.spare == 0.25;
        let written = format!("<td>{}</td>", grouped(row.tiers.as_ref().unwrap().erasures));
        assert!(!first || page.contains(&written), "{} erases {written}", row.policy);
    }
    assert!(page.contains(", which knows the future, has ") && page.contains("fewer than m and"), "the sentences");
    assert!(!page.contains("MIN was not simulated"));
}

#[test]
fn the_answer_comes_before_everything_else() {
    for report in [small(), report(&[("a.csv", 600), ("b.csv", 600)], &THREE)] {
        let page = render(&report).unwrap();
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is on the page"));
        let first = at("<div class=\"answer\">");
        for later in ["id=\"contents\"", "-results\">", "-workload\">", "How this was made", "class=\"certainty\""] {
            assert!(first < at(later), "{later}");
        }
    }
}

/// Each series of a chart is a group that a switch hides. It is in the legend of its figure, or twice in the legend of
/// all figures of policies. At most four are in colour.
#[test]
fn every_line_has_its_switch_and_at_most_four_are_in_colour() {
    let policies = &["lru", "fifo", "lfu", "2q", "arc", "larc", "lirs", "sieve", "min"];
    let page = render(&report(&[("small.csv", 1000)], &Runs { policies, sizes: "5%,10%,50%", epoch: None })).unwrap();
    let between = |start: &str| page.split_once(start).unwrap().1.split_once("</ul>").unwrap().0;
    let (all, none) = (between("<ul class=\"legend of-all\">"), between("<ul class=\"legend of-none\">"));
    let checked = [all, none].map(|list| (list.matches("<li ").count(), list.matches("checked=").count()));
    assert_eq!(checked, [(9, 9), (9, 0)]);
    let mut of_policies = 0;
    for figure in page.split("<figure").skip(1) {
        let (svg, rest) = figure.split_once("</svg>").unwrap();
        let rest = rest.split("</figure>").next().unwrap();
        let groups: Vec<Vec<&str>> = svg
            .split("<g class=\"s s")
            .skip(1)
            .map(|group| group.split('"').next().unwrap().split(' ').collect())
            .collect();
        if rest.contains("<ul class=\"legend\">") {
            let switches = rest.split("</ul>").next().unwrap().matches("type=\"checkbox\"").count();
            let lines: BTreeSet<&str> = groups.iter().map(|group| group[0]).collect();
            let expected: Vec<String> = (1..=switches).map(|number| number.to_string()).collect();
            assert_eq!(lines, expected.iter().map(String::as_str).collect(), "the numbers of switches");
        } else if !groups.is_empty() {
            of_policies += 1;
            for class in groups.iter().map(|group| group[1]) {
                assert!([all, none].iter().all(|list| list.contains(&format!("<li class=\"k{class}"))), "{class}");
                assert!(page.contains(&format!(".of-none .k{class} input:not(:checked)) .{class}{{display:none}}")));
            }
        }
        let colours: BTreeSet<&str> =
            svg.split("--c:var(").skip(1).map(|colour| colour.split(')').next().unwrap()).collect();
        assert!(colours.iter().filter(|colour| **colour != "--fw-other").count() <= 4, "{colours:?}");
    }
    // The decision, hits, writes, write traffic, and two beside MIN.
    assert_eq!(of_policies, 6);
    for number in 1..=9 {
        assert!(page.contains(&format!("li:nth-child({number}) input:not(:checked)) .s{number}{{display:none}}")));
    }
}

/// A policy has one colour in all sections, although another is recommended in each.
#[test]
fn a_title_and_a_date_head_the_page_and_a_policy_has_one_colour_everywhere() {
    let runs = Runs { policies: &["fifo", "2q", "s3-fifo", "lru", "larc", "min"], sizes: "5%,20%", epoch: None };
    let plain = report(&[("a.csv", 300), ("b.csv", 3000)], &runs);
    let page = render(&Report { title: Some("My <server>".to_owned()), date: Some("2026-11-29".to_owned()), ..plain });
    let page = page.unwrap();
    assert!(page.contains("<title>My &lt;server&gt;</title>") && page.contains("<h1>My &lt;server&gt;</h1>"));
    assert!(page.contains("<p class=\"date\">2026-11-29</p>"));
    let mut colours = std::collections::BTreeMap::<&str, BTreeSet<&str>>::new();
    for item in page.split("<li class=\"kn").skip(1) {
        let class = item.split(['"', ' ']).next().unwrap();
        colours.entry(class).or_default().insert(item.split_once("--c:var(").unwrap().1.split(')').next().unwrap());
    }
    let several: Vec<_> = colours.iter().filter(|(_, colours)| colours.len() > 1).collect();
    assert!(colours.len() >= 6 && several.is_empty(), "{colours:?}");
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}
