//! Traces of the key-value caches of language models: one JSON object per line, with the blocks of the prompt as
//! `hash_ids`.
//!
//! Source: the traces published with Mooncake (Qin et al.: Mooncake. FAST 2025), `{"timestamp": 27482, "input_length":
//! 6955, "output_length": 52, "hash_ids": [46, 47, 2354]}`. Those of Qwen-Bailian (Wang et al.: KVCache cache in the
//! wild. ATC 2025) also have `chat_id` and other fields. Each id is one block of the cache, of a number of tokens that
//! the trace defines; equal ids are equal blocks.
//!
//! Each id is a read of one block (`objects.rs`), in the order of the prompt. Times are milliseconds in Mooncake's
//! traces, seconds in those with a `chat_id`. The first lines are checked for another unit. A prompt without ids counts
//! as skipped.

use flashwise_core::access::Op;
use flashwise_core::options::{Kind, Parameter};
use serde::Deserialize;

use super::fields::{TimeUnit, time_us};
use super::json::Number;
use super::objects::Objects;
use super::plausible::{Fitting, Habits, Moment, Origin, epoch_of, moment, time_doubt, time_fault};
use super::{Batch, Fit, Format, Framing, Malformed, Parse, Reading, Record, Sample, lone_return};

/// The row of Mooncake in the table of formats.
pub static FORMAT: Format = Format {
    name: "mooncake",
    title: "KV cache of a language model, JSON lines",
    source: "{\"timestamp\": ms, \"input_length\": tokens, \"hash_ids\": [block, ...]}; each id reads a block; Qin et \
        al., FAST 2025",
    parameters: &[Parameter::of("time-unit", Kind::Choice(&["auto", "s", "ms", "us", "ns", "filetime"]), "auto")
        .means("unit of timestamp (filetime: 100 ns); auto takes s if the first line has a chat_id, otherwise ms")],
    recognise,
    parser: |options, sample, block_size_bytes| {
        let has_chats = || sample.lines().next().is_some_and(|line| names(line, "chat_id"));
        let (unit, origin) = match TimeUnit::of_word(options.text("time-unit")) {
            Some(unit) => (unit, Origin::Option),
            None if has_chats() => (TimeUnit::Seconds, Origin::Format),
            None => (TimeUnit::Milliseconds, Origin::Format),
        };
        Ok(Box::new(Mooncake { unit, origin, objects: Objects::new(block_size_bytes) }))
    },
};

/// The parsed fields of a line.
#[derive(Debug, Deserialize)]
struct Prompt<'a> {
    #[serde(borrow)]
    timestamp: Number<'a>,
    hash_ids: Vec<u64>,
}

/// True if a line, or its beginning, has a field of this name.
fn names(line: &[u8], field: &str) -> bool {
    line.starts_with(b"{") && memchr::memmem::find(line, format!("\"{field}\"").as_bytes()).is_some()
}

/// The first line must be a prompt, and so must half of the others. If the first line is longer than the sample, its
/// field names decide.
fn recognise(sample: &Sample) -> Fit {
    const LINES_MAX: usize = 100;
    if !sample.whole && memchr::memchr(b'\n', sample.bytes).is_none() {
        let is_prompt = ["timestamp", "hash_ids"].into_iter().all(|field| names(sample.bytes, field));
        return if is_prompt { Fit::Yes } else { Fit::No };
    }
    let is_prompt = |line: &[u8]| names(line, "hash_ids") && serde_json::from_slice::<Prompt>(line).is_ok();
    let mut prompts = sample.lines().take(LINES_MAX).map(is_prompt);
    if prompts.next() != Some(true) {
        return Fit::No;
    }
    let (good, bad): (Vec<bool>, Vec<bool>) = prompts.partition(|is_prompt| *is_prompt);
    if bad.len() <= good.len() + 1 { Fit::Yes } else { Fit::No }
}

#[derive(Debug)]
struct Mooncake {
    unit: TimeUnit,
    origin: Origin,
    objects: Objects,
}

impl Mooncake {
    /// Parses the ids of a line into `batch`.
    fn line(&self, line: &[u8], batch: &mut Batch) -> Result<Record, Malformed> {
        if line.trim_ascii().is_empty() {
            return Ok(Record::Ignored);
        }
        let prompt: Prompt = serde_json::from_slice(line).map_err(|error| {
            Malformed::new(line, format!("a JSON object with a timestamp and a list of hash_ids ({error})"))
        })?;
        let time_us = time_us(prompt.timestamp.0.as_bytes(), self.unit, "a timestamp of 0 or more")?;
        let Batch { requests, volumes, .. } = batch;
        let reads = prompt.hash_ids.iter().map(|&id| self.objects.request(time_us, Op::Read, id, volumes));
        requests.extend(reads);
        Ok(if prompt.hash_ids.is_empty() { Record::Skipped } else { Record::Ignored })
    }
}

/// Prompts per second that a unit of time may give without a note; those of the published traces are 1 to 10.
const PROMPTS_PER_S: std::ops::RangeInclusive<f64> = 0.5..=300.0;

impl Parse for Mooncake {
    fn reading(&self, sample: &Sample) -> Result<Option<Reading>, Malformed> {
        let time = |line| moment(serde_json::from_slice::<Prompt>(line).ok()?.timestamp.0.as_bytes());
        let moments: Vec<Moment> = sample.lines().filter_map(time).collect();
        let whole: Vec<i64> = moments.iter().map(|moment| moment.whole).collect();
        if let Some(fault) = time_fault(&moments, self.unit, self.origin, Habits::default()) {
            let is_time_guessed = epoch_of(&whole).is_none();
            let (spec, time) = (FORMAT.name.to_owned(), Some(fault.unit));
            let fitting = Fitting { spec, time, offset_bytes: None, length_bytes: None, is_time_guessed };
            return Err(fitting.refusal(fault.found));
        }
        let (Some(first), Some(last)) = (moments.first(), moments.last()) else { return Ok(None) };
        let us = |moment: &Moment| {
            let text = format!("{}.{:06}", moment.whole, moment.millionths);
            time_us(text.as_bytes(), self.unit, "").unwrap_or_default()
        };
        let per_s = (moments.len() - 1) as f64 / ((us(last) - us(first)) as f64 / 1e6);
        let doubt = time_doubt(&moments, self.unit, self.origin, Habits::default(), FORMAT.name);
        let doubts: Vec<String> = doubt.into_iter().filter(|_| !PROMPTS_PER_S.contains(&per_s)).collect();
        Ok((!doubts.is_empty()).then(|| Reading { columns: String::new(), doubts }))
    }

    fn framing(&self) -> Framing {
        Framing::Lines
    }

    fn parse(&self, records: &[u8], batch: &mut Batch) {
        for line in records.split_inclusive(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let record = match line.strip_suffix(b"\r").unwrap_or(line) {
                line if line.contains(&b'\r') => Err(lone_return(line)),
                line => self.line(line, batch),
            };
            batch.push(record, u64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::{read, recognised, requests};

    const TRACE: &[u8] = b"{\"timestamp\": 0, \"input_length\": 655, \"output_length\": 52, \"hash_ids\": [46, 47]}\r\n\
        {\"timestamp\": 3052.5, \"input_length\": 0, \"output_length\": 26, \"hash_ids\": []}\r\n\
        {\"timestamp\": 6100, \"input_length\": 1000, \"output_length\": 52, \"hash_ids\": [46, 2354, 18446744073709551615]}\r\n";

    /// Counted by `jq '.hash_ids | length' | paste -sd+ | bc`: 5.
    #[test]
    fn each_id_reads_a_block() {
        // 46 * 4096 = 188416, 2354 * 4096 = 9641984.
        let found = requests("mooncake", TRACE);
        let expected =
            ["0 R 0 188416 4096", "0 R 0 192512 4096", "6100000 R 0 188416 4096", "6100000 R 0 9641984 4096"];
        assert_eq!((&found[..4], found.len()), (&expected.map(str::to_owned)[..], 5));
        let batch = read("mooncake", TRACE);
        assert_eq!((batch.records, batch.skipped), (3, 1));
        assert_eq!(recognised(TRACE), Ok("mooncake"));
    }

    #[test]
    fn traces_with_a_chat_id_have_seconds() {
        let bailian = b"{\"chat_id\": 0, \"parent_chat_id\": -1, \"timestamp\": 1.25, \"input_length\": 502, \"output_length\": 1494, \
            \"type\": \"thinking\", \"turn\": 1, \"hash_ids\": [1]}";
        assert_eq!(requests("mooncake", bailian), ["1250000 R 0 4096 4096"]);
        assert_eq!(requests("mooncake:time-unit=ms", bailian), ["1250 R 0 4096 4096"]);
        assert_eq!(recognised(bailian), Ok("mooncake"));
    }

    #[test]
    fn a_line_that_is_longer_than_the_sample_is_recognised() {
        let line =
            format!("{{\"timestamp\": 0, \"input_length\": 1, \"hash_ids\": [{}7]}}\n", "1234567, ".repeat(20_000));
        let sample = crate::formats::Sample { bytes: &line.as_bytes()[..64 << 10], whole: false };
        let spec = crate::formats::FormatSpec::recognise("trace", &sample).unwrap();
        assert_eq!(spec.format().name, "mooncake");
        assert_eq!(read("mooncake", line.as_bytes()).requests.len(), 20_001);
    }

    #[test]
    fn refuses_malformed_input() {
        for (line, expected) in [
            (
                r#"{"timestamp": 1, "hash_ids": [1, "#,
                "a JSON object with a timestamp and a list of hash_ids (EOF while",
            ),
            (r#"{"timestamp": 1}"#, "a JSON object with a timestamp and a list of hash_ids (missing field `hash_ids`"),
            (
                r#"{"timestamp": 1, "hash_ids": [-1]}"#,
                "a JSON object with a timestamp and a list of hash_ids (invalid value",
            ),
            (r#"{"timestamp": -1, "hash_ids": [1]}"#, "a timestamp of 0 or more"),
            ("7", "a JSON object with a timestamp and a list of hash_ids (invalid type"),
        ] {
            let batch = read("mooncake", line.as_bytes());
            let [(0, malformed)] = &batch.malformed[..] else { panic!("{line}: {:?}", batch.malformed) };
            assert!(malformed.expected.starts_with(expected), "{malformed}");
            assert_eq!(batch.requests.len(), 0);
        }
    }
}
