//! Recognises a CSV with a complete header, and explains why one cannot be read.

use flashwise_core::options::Options;

use super::header::Role;
use super::{Csv, FORMAT};
use crate::formats::{Fit, Malformed, ParseLine, Sample};
use crate::request::Volumes;

/// Returns the CSV that the header of `sample` describes, if its words name all required columns: only this is enough
/// evidence.
fn described(sample: &Sample) -> Option<Csv> {
    let csv = Csv::new(&Options::default_of(FORMAT.parameters), sample).ok()?;
    let all = [Role::Time, Role::Op, Role::Offset, Role::Length];
    let named = csv.header.is_some() && all.iter().all(|role| csv.columns.contains(&Some(*role)));
    named.then_some(csv)
}

pub fn recognise(sample: &Sample) -> Fit {
    match described(sample) {
        Some(csv) if sample.fit_lines(&csv) == Fit::Yes => Fit::Generic,
        _ => Fit::No,
    }
}

/// Returns the first line, from 1, that does not match the complete header of `sample`. Returns `Ok` if all lines
/// match.
pub fn first_refused(sample: &Sample) -> Option<Result<(), (u64, Malformed)>> {
    let csv = described(sample)?;
    let mut volumes = Volumes::default();
    for line in sample.lines() {
        if let Err(malformed) = csv.line(line, &mut volumes) {
            let before = &sample.bytes[..line.as_ptr().addr() - sample.bytes.as_ptr().addr()];
            let number = 1 + memchr::memchr_iter(b'\n', before).count() as u64;
            return Some(Err((number, malformed)));
        }
    }
    Some(Ok(()))
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::recognised;

    /// A complete header, and lines that do not match it: typical output of spreadsheets, other tools and other
    /// languages.
    #[test]
    fn a_line_that_its_header_does_not_fit_is_named_and_not_the_format() {
        let header = "time_us,offset,length,op";
        let cases = [
            ("0,0x10G0,4096,R", r#"found "0x10G0", expected a whole number in column 1 (offset)"#),
            ("-5,0,4096,R", r#"found "-5", expected a time in column 0 (time)"#),
            ("31.01.2024,0,4096,R", r#"found "31.01.2024", expected a time in column 0 (time)"#),
            (
                "12:00:00,0,4096,R",
                r#"found "12:00:00", expected a time in column 0 (time): a number, or in all lines a date such as 2024-01-31T23:59:59.5Z or, by time-unit=date-dmy or date-mdy, 31.01.2024 or 01/31/2024 23:59:59"#,
            ),
            ("0,0,-4096,R", r#"found "-4096", expected a whole number in column 2 (length)"#),
            ("0,0,4096,lesen", r#"found "lesen", expected R or W (other words can be given with read= and write=)"#),
            ("0,0,4096,R,9", r#"found "0,0,4096,R,9", expected a line of 4 fields"#),
        ];
        for (line, error) in cases {
            let found = recognised(format!("{header}\n\n{line}\n{line}\n").as_bytes());
            assert_eq!(found, Err(format!("trace, line 3: {error}")), "{line}");
        }
        let decimal_commas = recognised(b"time_s;offset;length;op\n0,001;0;4096;R\n");
        assert_eq!(
            decimal_commas,
            Err(r#"trace, line 2: found "0,001", expected a time in column 0 (time); decimal=comma in --format reads commas before decimals"#
                .to_owned())
        );
        assert_eq!(recognised(b"time_us,offset,length,op\r\n"), Err("trace: it holds no requests".to_owned()));
        // A header with unknown words does not describe the columns.
        assert!(recognised(b"Zeit,Adresse,Bytes,Art\n0,4096,4096,R\n").unwrap_err().contains("not recognised"));
    }
}
