//! The report in a real browser: headless Chromium, in light and in dark, on a wide and on a narrow window.
//!
//! `$CHROMIUM`, or the first of chromium, chromium-browser and google-chrome in `$PATH`; no browser is a failure.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use crate::reports::{Runs, msr_text, report, wear_report};
use flashwise_core::admission;
use flashwise_core::policy::POLICIES;
use flashwise_device::ArrayModel;
use flashwise_report::{Report, Section, hit_ratio_chart, render};
use flashwise_sim::array::{Arrivals, TraceRule};
use flashwise_sim::cache_settings::Ram;
use flashwise_sim::endurance::Algorithm;
use flashwise_sim::experiment::{self, Devices, Experiment, Layout};
use flashwise_sim::results::{ResultRow, WearLimits};
use flashwise_sim::simulate::{Counting, Warmup};
use flashwise_sim::size::Size;
use flashwise_trace::normalised::{self, Settings};
use flashwise_trace::progress::Silent;
use flashwise_trace::tools::info::Info;
use flashwise_trace::tools::reuse::{Distance, ReuseDistances};
use serde_json::Value;

const RUN_SECONDS_MAX: u64 = 120;
const WIDE: &str = "--window-size=1280,2400";
/// As narrow as a headless window can be.
const NARROW: &str = "--window-size=500,2400";
/// As narrow as a phone.
const PHONE_PIXELS: u32 = 360;
const DARK: &str = "--blink-settings=preferredColorScheme=0";

/// Runs in a copy of the page, opens everything and measures it; the page itself has no scripts, and forbids them.
const PROBE: &str = r#"<script>
addEventListener("load", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  const overlapping = [], outside = [];
  for (const svg of document.querySelectorAll("svg[role]")) {
    const frame = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()])
      .filter(([, box]) => box.width > 0);
    texts.forEach(([name, a], at) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 1 || a.top < frame.top - 1 || a.bottom > frame.bottom + 1) {
        outside.push(name);
      }
      for (const [other, b] of texts.slice(at + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 3) overlapping.push(name + " and " + other);
      }
    });
  }
  const cut = [...document.querySelectorAll(".chart, .stacked, .pair > .scroll")].filter(region => region.scrollWidth > region.clientWidth + 1)
    .map(region => region.getAttribute("aria-label") || region.querySelector("title").textContent);
  const count = selector => document.querySelectorAll(selector).length;
  const style = getComputedStyle(document.body);
  const line = document.querySelector("svg[role] g.s path[stroke]");
  const found = {
    overlapping, outside, cut, background: style.backgroundColor, ink: style.color, stroke: getComputedStyle(line).stroke,
    svgs: count("svg[role]"), tables: count("table"), figures: count("figure"), headings: count("h1, h2, h3"),
    unnamed_charts: count("svg:not([role=img][aria-labelledby]):not([aria-hidden])"), heads_without_scope: count("th:not([scope])"),
    width: document.documentElement.scrollWidth, window: innerWidth, resources: performance.getEntriesByType("resource").length,
  };
  document.body.insertAdjacentHTML("beforeend", "<pre id=probe></pre>");
  document.getElementById("probe").textContent = JSON.stringify(found);
});
</script></head>"#;

fn browser() -> PathBuf {
    if let Some(path) = std::env::var_os("CHROMIUM") {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = ["chromium", "chromium-browser", "google-chrome"];
    let mut found = candidates.iter().flat_map(|name| std::env::split_paths(&path).map(move |place| place.join(name)));
    found.find(|candidate| candidate.is_file()).expect("a browser: install chromium, or name one in $CHROMIUM")
}

/// Runs the browser on a page; what it wrote to standard output. A message on the page's console is a failure.
fn browse(directory: &Path, page: &Path, arguments: &[&str]) -> String {
    let log = directory.join("stderr");
    let mut browser = Command::new(browser())
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"])
        .args(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=2000"])
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let stdout = browser.stdout.take().unwrap();
    let (sender, output) = mpsc::channel();
    // The output ends with the browser.
    let reader = thread::spawn(move || sender.send(std::io::read_to_string(stdout)));
    let Ok(output) = output.recv_timeout(Duration::from_secs(RUN_SECONDS_MAX)) else {
        browser.kill().unwrap();
        panic!("the browser took more than {RUN_SECONDS_MAX} s: {}", fs::read_to_string(&log).unwrap());
    };
    browser.wait().unwrap();
    reader.join().unwrap().unwrap();
    let log = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
    let message = log.lines().find(|line| line.contains("CONSOLE"));
    assert_eq!(message, None, "messages on the page's console");
    output.unwrap()
}

/// A report of simulations, rendered once for all tests.
fn page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(render_page)
}

fn render_page() -> String {
    let policies = &["lru", "larc", "lirs", "sieve", "s3-fifo", "w-tinylfu", "min", "larc:fill=ghost,writes=admit"];
    let runs = Runs { policies, sizes: "1%,2%,5%,10%,20%,50%", epoch: Some(500) };
    render(&report(&[("first.csv", 3000), ("a path/to the <second> & last.csv", 500)], &runs)).unwrap()
}

fn probed(window: &str, more: &[&str]) -> Value {
    probed_page(page(), window, more)
}

fn probed_page(page: &str, window: &str, more: &[&str]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.html");
    let policy = page.split_once("<meta http-equiv=\"Content-Security-Policy\"").unwrap().1.split_once("/>").unwrap().0;
    let policy = format!("<meta http-equiv=\"Content-Security-Policy\"{policy}/>");
    fs::write(&path, page.replace(&policy, "").replace("</head>", PROBE)).unwrap();
    let dom = browse(directory.path(), &path, &[&["--dump-dom", window], more].concat());
    let found = dom.split_once("<pre id=\"probe\">").expect("the probe ran").1.split_once("</pre>").unwrap().0;
    serde_json::from_str(&found.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")).unwrap()
}

/// A report of LRU behind these rules, and of the policies that `auto` chooses among, over traces of these names and
/// numbers of requests.
fn array_report(traces: &[(&str, u64)], rules: &[&str], sizes: &str, epoch: Option<u64>) -> Report {
    let directory = tempfile::tempdir().unwrap();
    let counting = Counting { warmup: Warmup::Accesses(0), epoch };
    let section = |(name, requests): &(&str, u64)| {
        let path = directory.path().join("trace.csv");
        std::fs::write(&path, msr_text(*requests)).unwrap();
        let trace = normalised::open(path.to_str().unwrap(), &Settings::default(), &Silent).unwrap();
        let mut runs: Vec<(&str, Option<admission::Spec>)> = vec![("lru", None)];
        for rule in rules {
            runs.extend(TraceRule::parse_list(rule).unwrap().iter().map(|rule| ("lru", Some(rule.of(&trace)))));
        }
        runs.extend(["larc", "larc:writes=admit", "2q", "s3-fifo"].map(|policy| (policy, None)));
        let mut cases = Vec::new();
        for (policy, admission) in runs {
            for size in Size::parse_list(sizes).unwrap() {
                let capacity_blocks = size.capacity_blocks(trace.unique_blocks(), trace.block_size_bytes()).unwrap();
                let (algorithm, admission) = (Algorithm::parse(policy).unwrap(), admission.clone());
                cases.push(experiment::Case {
                    trace: 0,
                    algorithm,
                    admission,
                    size: size.to_string(),
                    capacity_blocks,
                });
            }
        }
        let traces = [trace];
        let devices = Devices { model: ArrayModel::paper(), storage_bytes: None, arrivals: Arrivals::None };
        let layout = Layout::None { ram: Ram::Bytes(0) };
        let experiment = Experiment { layout, devices: Some(devices), counting };
        let runs = experiment::run(&traces, cases, &experiment, &Silent).unwrap();
        let limits = WearLimits::default();
        let row = |run| ResultRow { trace: (*name).to_owned(), ..ResultRow::of(&traces[0], run, None, &limits) };
        let rows = runs.iter().map(row).collect();
        let reuse = ReuseDistances::of(&traces[0], Distance::Unique, &Silent);
        let mut info = Info::of(&traces[0]);
        info.trace = (*name).to_owned();
        Section { info, reuse, workload: None, rows, checks: None }
    };
    Report {
        command: "flashwise simulate".to_owned(),
        title: None,
        date: None,
        counting,
        sections: traces.iter().map(section).collect(),
    }
}

fn check_layout(found: &Value) {
    assert_eq!(found["overlapping"], Value::Array(Vec::new()), "no text of a chart lies on another");
    assert_eq!(found["outside"], Value::Array(Vec::new()), "no text of a chart is cut off");
    assert_eq!(found["width"], found["window"], "only tables of numbers scroll sideways");
    assert_eq!(found["cut"], Value::Array(Vec::new()), "charts and the tables of the answer fit");
    // For each trace there are its answer, hits, writes, W, two charts of MIN, reuse distances and four of the
    // workload. Each of six sizes has two over time. Both traces share one answer. Each chart is drawn twice, for wide
    // and for narrow screens.
    assert_eq!((&found["svgs"], &found["figures"]), (&Value::from(2 * 47), &Value::from(47)));
    // A table for each figure but the answers', for each trace, all its counts, its steps and drives, and of the
    // policies and the traces.
    assert_eq!(found["tables"], 44 + 8 + 2);
    // The page, its contents, all traces, how it was made; for each trace its name and five parts.
    assert_eq!(found["headings"], 4 + 2 * 6);
    assert_eq!((&found["unnamed_charts"], &found["heads_without_scope"]), (&Value::from(0), &Value::from(0)));
    assert_eq!(found["resources"], 0);
}

/// The report in a wide window, measured once for all tests.
fn probed_wide() -> &'static Value {
    static FOUND: OnceLock<Value> = OnceLock::new();
    FOUND.get_or_init(|| probed(WIDE, &[]))
}

#[test]
fn nothing_overlaps_or_is_cut_off_in_a_wide_window() {
    let found = probed_wide();
    check_layout(found);
    assert_eq!(
        (&found["background"], &found["ink"]),
        (&Value::from("rgb(255, 255, 255)"), &Value::from("rgb(27, 31, 36)"))
    );
}

#[test]
fn nothing_overlaps_or_is_cut_off_in_a_narrow_window() {
    check_layout(&probed(NARROW, &[]));
}

#[test]
fn figures_of_wear_are_whole_in_wide_and_narrow_windows() {
    let algorithms = [
        "lru",
        "ripq+",
        "m",
        "m+",
        "c",
        "c:buffers=1",
        "c:buffers=2",
        "m_t:share=25%",
        "m_t:share=50%",
        "m_n:n=1",
        "m_n:n=2",
    ];
    let report = wear_report(&[("first.csv", 6000), ("second.csv", 4000)], &algorithms, "10%,40%", &[0.25, 0.5]);
    let page = render(&report).unwrap();
    for window in [WIDE, NARROW] {
        let found = probed_page(&page, window, &[]);
        assert_eq!(found["overlapping"], Value::Array(Vec::new()), "no text of a chart lies on another");
        assert_eq!(found["outside"], Value::Array(Vec::new()), "no text of a chart is cut off");
        assert_eq!(found["width"], found["window"], "only tables of numbers scroll sideways");
        // Over traces: the answer, five measures and hits against erasures; by parameter: buffers, spare, four of
        // budgets and of least hits. Of each trace: its answer, four measures, hits against erasures, savings, reuse
        // distances.
        assert_eq!(found["figures"], 1 + 6 + 2 + 2 * 4 + 2 * 8);
        assert_eq!((&found["unnamed_charts"], &found["resources"]), (&Value::from(0), &Value::from(0)));
    }
}

#[test]
fn figures_of_arrays_are_whole_in_wide_and_narrow_windows() {
    let rules = [
        "size:max=4KiB,8KiB,1MiB",
        "probability:p=0.1..0.9:0.4",
        "hotness:min=2,4",
        "adaptive:kind=probability,size,hotness,timeframe=5%,sampling=100%",
        "adaptive:target=200us,400us,1ms,timeframe=5%,sampling=50%",
        "auto:timeframe=5%,sampling=100%",
    ];
    let traces = [("first.csv", 3000), ("a/long path/to a/trace with a name that is cut off.csv", 2000)];
    let many = array_report(&traces, &rules, "10%", None);
    let one = array_report(&traces[..1], &rules, "5%,10%", Some(500));
    // Figures over several traces: three measures; sweeps of size, probability, hotness and target; auto and its
    // candidates. For each trace: the rules, the same four sweeps, and reuse distances. For one trace: auto at each of
    // two sizes, hits and three measures by size, the rules, the four sweeps at each size, reuse distances. Over time,
    // at each size: hits, replacements, latency, two for each of six adaptive rules, and the policies of auto.
    for (report, figures) in [(many, 3 + 4 + 1 + 2 * (1 + 4 + 1)), (one, 2 + 4 + 1 + 4 * 2 + 1 + 2 * (3 + 2 * 6 + 1))] {
        let page = render(&report).unwrap();
        for window in [WIDE, NARROW] {
            let found = probed_page(&page, window, &[]);
            assert_eq!(found["overlapping"], Value::Array(Vec::new()), "no text of a chart lies on another");
            assert_eq!(found["outside"], Value::Array(Vec::new()), "no text of a chart is cut off");
            assert_eq!(found["width"], found["window"], "only tables of numbers scroll sideways");
            assert_eq!(found["figures"], figures);
            assert_eq!((&found["unnamed_charts"], &found["resources"]), (&Value::from(0), &Value::from(0)));
        }
    }
}

/// On a phone the page is in a frame, because a window cannot be as narrow; nothing but charts and tables scrolls
/// sideways there.
#[test]
fn the_answer_is_whole_on_a_phone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.html");
    let page = page();
    let policy = page.split_once("<meta http-equiv=\"Content-Security-Policy\"").unwrap().1.split_once("/>").unwrap().0;
    let policy = format!("<meta http-equiv=\"Content-Security-Policy\"{policy}/>");
    let probe = PROBE.replace("<script>", "<script>if (parent !== window) ").replace(
        "document.body.insertAdjacentHTML(\"beforeend\", \"<pre \
         id=probe></pre>\");\n  document.getElementById(\"probe\").textContent = JSON.stringify(found);",
        "parent.postMessage(JSON.stringify(found), \"*\");",
    );
    fs::write(&path, page.replace(&policy, "").replace("</head>", &probe)).unwrap();
    let frame = format!(
        "<!DOCTYPE html><script>addEventListener(\"message\", event => document.getElementById(\"probe\").textContent \
         = event.data)</script>\
         <pre id=\"probe\"></pre><iframe src=\"report.html\" \
         style=\"width:{PHONE_PIXELS}px;height:2000px;border:0\"></iframe>"
    );
    let outer = directory.path().join("phone.html");
    fs::write(&outer, frame).unwrap();
    let dom = browse(directory.path(), &outer, &["--dump-dom", WIDE]);
    let found = dom.split_once("<pre id=\"probe\">").unwrap().1.split_once("</pre>").unwrap().0;
    let found: Value =
        serde_json::from_str(&found.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")).unwrap();
    assert_eq!(found["window"], PHONE_PIXELS);
    check_layout(&found);
}

/// The pages of a PDF that a browser prints.
fn printed_pages(page: &str) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let (path, printed) = (directory.path().join("report.html"), directory.path().join("report.pdf"));
    fs::write(&path, page).unwrap();
    browse(directory.path(), &path, &[&format!("--print-to-pdf={}", printed.display()), "--no-pdf-header-footer"]);
    let bytes = fs::read(printed).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    text.split("/Type /Page").skip(1).filter(|rest| !rest.starts_with('s')).count()
}

#[test]
fn a_report_is_printed_on_four_pages_at_most() {
    let policies = &["lru", "larc", "lirs", "sieve", "s3-fifo", "w-tinylfu", "min", "larc:fill=ghost,writes=admit"];
    let runs = Runs { policies, sizes: "1%,2%,5%,10%,20%,50%", epoch: Some(500) };
    let few = Runs { policies: &policies[..3], sizes: "1%,10%", epoch: None };
    let names: Vec<String> = (1..=20).map(|number| format!("traces/server {number}.csv")).collect();
    for (traces, runs) in [(1, &runs), (20, &few)] {
        let traces: Vec<(&str, u64)> = names[..traces].iter().map(|name| (name.as_str(), 600)).collect();
        let pages = printed_pages(&render(&report(&traces, runs)).unwrap());
        assert!((1..=4).contains(&pages), "{pages} pages for {} traces", traces.len());
    }
    // With every policy, as simulate runs them if none is named.
    let every: Vec<&str> = POLICIES.iter().map(|info| info.name).collect();
    let runs = Runs { policies: &every, ..runs };
    let pages =
        printed_pages(&render(&report(&[("/a/path/of/some/length/traces/server.csv.zst", 3000)], &runs)).unwrap());
    assert!((1..=4).contains(&pages), "{pages} pages for every policy");
}

/// Only the tables that a reader has opened are printed, because they are long.
#[test]
fn the_numbers_that_are_open_are_printed() {
    let runs = Runs { policies: &["lru", "larc", "min"], sizes: "1%,10%,50%", epoch: None };
    let page = render(&report(&[("server.csv", 3000)], &runs)).unwrap();
    let open = page.replace("<details>", "<details open>");
    assert!(open != page);
    let [closed, open] = [&page, &open].map(|page| printed_pages(page));
    assert!(closed < open, "{closed} and {open} pages");
}

/// The first page has the whole answer: sentences, picture, certainty, gain of each step, lifetimes of drives.
#[test]
fn the_answer_is_printed_on_one_page() {
    let policies = &["lru", "larc", "lirs", "sieve", "s3-fifo", "w-tinylfu", "min", "larc:fill=ghost,writes=admit"];
    let runs = Runs { policies, sizes: "1%,2%,5%,10%,20%,50%", epoch: None };
    let page = render(&report(&[("/a/path/of/some/length/traces/server.csv.zst", 3000)], &runs)).unwrap();
    let answer = page.split_once("<div class=\"answer\">").unwrap().1.split_once("<nav").unwrap().0;
    for part in ["Gain of each step of size", "Wear of drives", "Certainty: "] {
        assert!(answer.contains(part), "{part}");
    }
    let alone = "<style>@media print { .answer ~ *, .made, footer { display: none !important; } }</style></head>";
    assert_eq!(printed_pages(&page.replace("</head>", alone)), 1);
}

#[test]
fn dark_is_followed_by_page_and_charts() {
    let (light, dark) = (probed_wide(), probed(WIDE, &[DARK]));
    check_layout(&dark);
    assert_eq!(dark["background"], "rgb(20, 23, 28)");
    assert_ne!(light["stroke"], dark["stroke"]);
    assert!(dark["stroke"].as_str().unwrap().starts_with("rgb("));
}

/// The page's document and the addresses that it asks for; what the browser asks for by itself has no origin.
fn requests(page: &str) -> (String, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let (path, net) = (directory.path().join("page.html"), directory.path().join("net.json"));
    fs::write(&path, page).unwrap();
    let net_log = format!("--log-net-log={}", net.display());
    let dom = browse(directory.path(), &path, &["--dump-dom", WIDE, &net_log]);
    let net: Value = serde_json::from_str(&fs::read_to_string(net).unwrap()).unwrap();
    let asked = net["events"].as_array().unwrap().iter().map(|event| &event["params"]);
    let asked = asked.filter(|params| params["initiator"].as_str().is_some_and(|origin| origin != "not an origin"));
    let urls = asked.filter_map(|params| params["url"].as_str());
    (dom, urls.filter(|url| !url.starts_with("file:") && !url.starts_with("data:")).map(str::to_owned).collect())
}

#[test]
fn the_page_itself_renders_without_console_messages_or_requests() {
    let (dom, asked) = requests(page());
    assert!(dom.contains("<h1>Flash cache simulation</h1>"));
    assert_eq!(asked, [""; 0]);
    // Where there is a request it is seen.
    let (_, asked) =
        requests("<!DOCTYPE html><title>t</title><style>body { background: url(http://127.0.0.1:9/x) }</style>");
    assert_eq!(asked, ["http://127.0.0.1:9/x"]);
}

#[test]
fn screenshots_in_light_and_dark_are_drawn_and_differ() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.html");
    fs::write(&path, page()).unwrap();
    let runs = Runs { policies: &["lru", "larc", "min"], sizes: "1%,10%,50%", epoch: None };
    let chart = directory.path().join("chart.svg");
    fs::write(&chart, hit_ratio_chart(&report(&[("t.csv", 1000)], &runs).sections[0].rows)).unwrap();
    for (page, bytes_min) in [(&path, 50_000), (&chart, 5_000)] {
        let picture = directory.path().join("picture.png");
        let screenshot = format!("--screenshot={}", picture.display());
        let take = |more: &[&str]| {
            browse(directory.path(), page, &[&[screenshot.as_str(), WIDE], more].concat());
            let bytes = fs::read(&picture).unwrap();
            fs::remove_file(&picture).unwrap();
            bytes
        };
        let (light, dark) = (take(&[]), take(&[DARK]));
        for picture in [&light, &dark] {
            assert!(picture.starts_with(b"\x89PNG") && picture.len() > bytes_min, "{} bytes", picture.len());
        }
        assert_ne!(light, dark);
    }
}
