//! `flashwise advise`: which cache to buy and how to set it.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use flashwise_core::cache::WriteBackOrder;
use flashwise_core::human;
use flashwise_core::options::OptionError;
use flashwise_core::policy::Spec;
use flashwise_core::quantity::{Duration, Share};
use flashwise_device::offers::{Catalogue, EXAMPLE};
use flashwise_report::render_advice;
use flashwise_sim::advise::{
    Advice, AdviseError, AdvisedCache, Paths, Question, Stages, Targets, Verdict, Ways, Workload, YEARS_MAX, advise,
    configuration, mode_of, over_provision_of, policy_of,
};
use flashwise_sim::job::Admission;
use flashwise_sim::simulate::Warmup;
use flashwise_trace::error::TraceError;
use flashwise_trace::output::write_whole;
use flashwise_trace::progress::Progress;
use flashwise_trace::tools::info::Info;

use crate::failure::Misuse;
use crate::fit;
use crate::input::{InputOptions, parse_time};
use crate::list::{List, ListError, distinct};
use crate::log::note;
use crate::outputs::Outputs;
use crate::progress::Bar;
use crate::replace::Replace;
use crate::simulate::{command, misuse};
use crate::table;

/// Find the cheapest cache that is fast enough and lasts long enough
///
/// Candidates of a catalogue are tried by price. Their hits are estimated from policies without devices, for long
/// traces from a sample. Candidates that may meet the targets are run exactly as `flashwise serve` would run them.
#[derive(Debug, Args)]
pub struct Advise {
    /// Trace in any format; - is standard input
    #[arg(required_unless_present = "print_catalogue")]
    trace: Option<PathBuf>,
    /// Catalogue in TOML: devices, sizes, prices [default: an example with assumed prices]
    #[arg(long, value_name = "FILE")]
    devices: Option<PathBuf>,
    /// Print the example catalogue and exit
    #[arg(long)]
    print_catalogue: bool,
    /// Target for the mean wait of a request, such as 1ms
    #[arg(long, value_name = "DURATION", value_parser = parse_time)]
    latency: Option<Duration>,
    /// Target for the lifetime of the flash; 0 for any
    #[arg(long, value_name = "YEARS", default_value = "5", value_parser = parse_years)]
    years: f64,
    /// Policies to try; repeatable [default: larc, larc:writes=admit, lru, s3-fifo]
    #[arg(long = "policy", value_name = "POLICY", value_parser = parse_policies)]
    policies: Vec<List<Spec>>,
    /// Admission rule to try; repeatable [default: none, and probability:p=0.3,writes=admit]
    #[arg(long = "admission", value_name = "RULE", value_parser = Admission::parse_list)]
    admissions: Vec<Vec<Admission>>,
    /// Write modes to try; repeatable [default: write-back, write-through]
    ///
    /// The modes are write-back, write-through and write-around.
    #[arg(long = "write-mode", value_name = "MODE", value_parser = parse_modes)]
    modes: Vec<List<&'static str>>,
    /// Required order of write-back: none, barriers or journal
    ///
    /// With an order, the backend is a consistent older state if the flash is lost; with journal, once a start has
    /// completed it. The answer has the cost of that.
    #[arg(
        long = "write-back-order",
        value_name = "ORDER",
        default_value = "none",
        value_parser = str::parse::<WriteBackOrder>,
        hide_short_help = true
    )]
    order: WriteBackOrder,
    /// Free shares of the flash to try; repeatable [default: 10%,25%]
    #[arg(long = "over-provision", value_name = "SHARE", value_parser = parse_shares, hide_short_help = true)]
    over_provisions: Vec<List<Share>>,
    /// Accesses at the start that are not counted: a number, or a share such as 10%
    #[arg(long, value_name = "ACCESSES", default_value = "0", hide_short_help = true)]
    warmup: Warmup,
    /// Run every cache exactly instead of searching; slow, to check the search
    #[arg(long, hide_short_help = true)]
    exhaustive: bool,
    /// Write the cache's configuration for `flashwise serve`
    #[arg(long, value_name = "FILE")]
    write_config: Option<PathBuf>,
    /// Slow storage, for --write-config
    #[arg(long, value_name = "PATH", requires = "write_config")]
    backend: Option<String>,
    /// Flash, for --write-config
    #[arg(long, value_name = "PATH", requires = "write_config")]
    flash: Option<String>,
    #[command(flatten)]
    replace: Replace,
    /// Write the advice to one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the advice and all runs as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    input: InputOptions,
}

fn parse_years(text: &str) -> Result<f64, String> {
    let years = text.parse().ok().filter(|years: &f64| (0.0..=YEARS_MAX).contains(years));
    years.ok_or_else(|| format!("found '{text}', expected a number of years from 0 to {YEARS_MAX}"))
}

fn parse_policies(text: &str) -> Result<List<Spec>, ListError<OptionError>> {
    List::read(text, policy_of)
}

fn parse_modes(text: &str) -> Result<List<&'static str>, ListError<String>> {
    List::read(text, mode_of)
}

fn parse_shares(text: &str) -> Result<List<Share>, ListError<String>> {
    List::read(text, over_provision_of)
}

/// Shows each stage by a bar.
struct Bars;

impl Stages for Bars {
    fn begin(&self, what: String, accesses: u64) -> Box<dyn Progress + '_> {
        Box::new(Bar::accesses(what, accesses))
    }
}

impl Advise {
    pub fn run(&self) -> anyhow::Result<()> {
        if self.print_catalogue {
            return Ok(std::io::stdout().lock().write_all(EXAMPLE.as_bytes())?);
        }
        let path = self.trace.as_ref().expect("it is required without --print-catalogue");
        let inputs: Vec<PathBuf> = std::iter::once(path).chain(&self.devices).cloned().collect();
        self.outputs().check(&inputs)?;
        if let Some(path) = &self.write_config {
            self.replace.check(path, &inputs)?;
        }
        let catalogue = match &self.devices {
            Some(path) => Catalogue::read(&path.to_string_lossy())?,
            None => Catalogue::example(),
        };
        let question = Question {
            catalogue: &catalogue,
            targets: Targets { latency_us: self.latency.map(|latency| latency.us() as f64), years: self.years },
            ways: self.ways()?,
            order: self.order,
            warmup: self.warmup,
            exhaustive: self.exhaustive,
        };
        let workload = self.open(path)?;
        let mut advice = advise(&workload, &question, &Bars).map_err(|error| match error {
            AdviseError::Job(error) => misuse(error),
            error => Misuse(error.to_string()).into(),
        })?;
        if self.devices.is_none() {
            let caution = "Prices come from the example catalogue and are assumptions: --print-catalogue prints it, \
                --devices reads yours.";
            advice.cautions.push(caution.to_owned());
        }
        // Print first and fail last: a file that cannot be written does not lose the advice, nor a closed output the
        // files.
        let printed = self.print(&advice);
        if let Some(html) = &self.html {
            let page = render_advice(&command()?, &Info::of(workload.trace()), &advice)?;
            write_whole(html, &inputs, |file| anyhow::Ok(file.write_all(page.as_bytes())?))?;
        }
        let is_bought = advice.verdict == Verdict::Buy;
        let written = match (&self.write_config, &advice.cache) {
            (Some(path), Some(cache)) if is_bought => {
                let text = configuration(
                    &command()?,
                    cache,
                    &catalogue,
                    Paths { backend: self.backend.as_deref(), flash: self.flash.as_deref() },
                );
                write_whole(path, &inputs, |file| anyhow::Ok(file.write_all(text.as_bytes())?))?;
                true
            }
            _ => false,
        };
        printed?;
        self.print_names_of_files(written, advice.verdict)?;
        match advice.verdict {
            Verdict::NothingMeets => anyhow::bail!("no cache here meets {}", advice.targets.words()),
            _ => Ok(()),
        }
    }

    /// The given ways to set a cache, or the defaults.
    fn ways(&self) -> anyhow::Result<Ways> {
        let ways = Ways {
            policies: distinct(&self.policies),
            admissions: self.admissions.iter().flatten().cloned().collect(),
            modes: self.modes.iter().flatten().copied().collect(),
            over_provisions: self.over_provisions.iter().flatten().copied().collect(),
        };
        Ok(ways.or_defaults().map_err(Misuse)?)
    }

    /// Opens the trace with its requests, and a sample of it if it is long and can be read twice.
    fn open(&self, path: &Path) -> Result<Workload, TraceError> {
        let opened = self.input.open_all_with_requests(&[path.to_owned()], false, false, &None)?;
        let (trace, requests) = opened.into_iter().next().expect("one trace was opened");
        let workload = Workload::new(trace, requests);
        match workload.sampling() {
            Some((share, sampling)) if path != Path::new("-") => {
                let sample = self.input.open_sampled(path, sampling)?;
                Ok(workload.with_sample(share, sample))
            }
            _ => Ok(workload),
        }
    }

    fn outputs(&self) -> Outputs<'_> {
        let files = [("--html", self.html.as_deref()), ("--write-config", self.write_config.as_deref())];
        Outputs::new(files, self.json)
    }

    fn print(&self, advice: &Advice) -> anyhow::Result<()> {
        let mut out = self.outputs().screen();
        if self.json {
            serde_json::to_writer_pretty(&mut out, advice).map_err(std::io::Error::from)?;
            writeln!(out)?;
            return Ok(());
        }
        let mut line = |indent: usize, text: &str| writeln!(out, "{}", fit::sentences(text, indent, fit::width()));
        for sentence in &advice.sentences {
            line(0, sentence)?;
        }
        if let Some(cache) = &advice.cache {
            let first = match advice.verdict {
                Verdict::Buy | Verdict::RamOnly => "this",
                _ if cache.meets == 1 => "best cache",
                _ => "nearest",
            };
            let others = advice.alternatives.iter().filter(|told| told.cache != *cache);
            let others = others.map(|told| (told.kind, &told.cache));
            line(0, &format!("\n{}", caches(std::iter::once((first, cache)).chain(others), &advice.currency)))?;
        }
        let buts: Vec<String> = advice.alternatives.iter().map(|told| format!("{}: {}", told.kind, told.but)).collect();
        if !buts.is_empty() {
            line(0, &format!("\n{}.", buts.join("; ")))?;
        }
        line(0, &format!("\nCertainty: {}", advice.certainty.verdict))?;
        for (name, reason) in &advice.certainty.reasons {
            line(4, &format!("  {name}: {reason}"))?;
        }
        if !advice.cautions.is_empty() {
            line(0, "\nBefore you buy:")?;
            for caution in &advice.cautions {
                line(2, &format!("- {caution}"))?;
            }
        }
        Ok(())
    }

    /// Names the written files.
    fn print_names_of_files(&self, config_written: bool, verdict: Verdict) -> anyhow::Result<()> {
        if let Some(path) = self.write_config.as_ref().filter(|_| !config_written) {
            let why = match verdict {
                Verdict::NothingMeets => "no cache meets the targets",
                Verdict::RamOnly => "the advice is to buy RAM only",
                _ => "the advice is to buy no cache",
            };
            note!("{}: no configuration was written, since {why}", path.display());
        }
        if self.json {
            return Ok(());
        }
        let mut out = self.outputs().screen();
        if let Some(path) = self.write_config.as_ref().filter(|_| config_written) {
            writeln!(out, "\nConfiguration: {}", path.display())?;
        }
        if let Some(html) = &self.html {
            writeln!(out, "\nPage: {}", html.display())?;
        }
        Ok(())
    }
}

/// A line for each cache.
fn caches<'a>(rows: impl Iterator<Item = (&'a str, &'a AdvisedCache)>, currency: &str) -> String {
    let price = if currency.is_empty() { "price".to_owned() } else { currency.to_owned() };
    let header = vec![
        "",
        "device",
        "flash",
        "RAM",
        "policy",
        "admission",
        "writes",
        "free",
        &price,
        "mean wait",
        "worst",
        "years",
        "hits",
    ];
    let row = |(kind, cache): (&str, &AdvisedCache)| {
        let number = if cache.devices > 1 { format!("{} x ", cache.devices) } else { String::new() };
        let years = cache.cache_lifetime_years.map_or_else(|| "-".to_owned(), human::years);
        let wait = |us: f64| if us < 0.5 { "< 1 us".to_owned() } else { human::duration(us) };
        vec![
            kind.to_owned(),
            format!("{number}{}", cache.device),
            human::bytes(cache.size_bytes as f64),
            human::bytes(cache.ram_bytes as f64),
            cache.policy.clone(),
            cache.admission.clone(),
            cache.writes().trim_start_matches("write-").to_owned(),
            human::percent(cache.over_provision),
            human::number(cache.cost),
            wait(cache.latency_mean_us),
            cache.latency_worst_us.map_or_else(|| "-".to_owned(), wait),
            years,
            human::percent(cache.hit_ratio),
        ]
    };
    table::fitting(header, 2, rows.map(row).collect())
}
