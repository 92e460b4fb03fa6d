use super::*;
use crate::formats::FormatSpec;
use crate::formats::testing::{read, recognised, refuses, requests};

fn refused(spec: &str, contents: &str) -> String {
    let sample = Sample { bytes: contents.as_bytes(), whole: true };
    spec.parse::<FormatSpec>().unwrap().parser(&sample, 4096).unwrap_err().to_string()
}

fn sample(contents: &[u8]) -> Sample<'_> {
    Sample { bytes: contents, whole: true }
}

#[test]
fn columns_are_named_by_number() {
    let spec = "csv:time=0,op=3,offset=1,length=2,volume=4,time-unit=s,offset-unit=512,length-unit=512,read=0";
    let trace = b"1538323200,8,16,0,1063\n1538323201,16,8,1,1107\n";
    let expected = ["1538323200000000 R 1063 4096 8192", "1538323201000000 W 1107 8192 4096"];
    assert_eq!(requests(spec, trace), expected);
}

#[test]
fn columns_are_named_by_the_header() {
    let trace = b"when;Where;\"how much\";what\n7;4096;512;put\n9;0;4096;get\n";
    let spec = "csv:time=when,offset=where,length=how much,op=what,time-unit=ms,read=get";
    assert_eq!(requests(spec, trace), ["7000 W 0 4096 512", "9000 R 0 0 4096"]);
}

#[test]
fn a_complete_header_needs_no_mapping() {
    let trace =
        b"# ts_ms,offset_bytes,length_bytes,op(R/W)  (sorted)\n0.5,4923392,4096,R\n1.25,0,512,W\n2,0,512,discard\n";
    assert_eq!(requests("csv", trace), ["500 R 0 4923392 4096", "1250 W 0 0 512"]);
    assert_eq!(read("csv", trace).skipped, 1);
    assert_eq!(recognised(trace), Ok("csv"));
    let trace = b"Time_s\tDevice\tLBA\tSectors\tOp\n1.5\tsda\t8\t16\tread\n";
    assert_eq!(requests("csv", trace), ["1500000 R sda 4096 8192"]);
    assert_eq!(recognised(trace), Ok("csv"));
}

#[test]
fn comments_before_the_header_further_headers_and_fsyncs_are_passed_over() {
    let expected = ["5 R 0 4096 512", "6 W 0 8192 512"];
    let header = "ts_us,op,offset,length";
    for (text, said) in [
        (format!("# made by fio, 2 disks\n{header}\n5,R,4096,512\n6,W,8192,512\n"), "1 line was skipped: 1 comment"),
        (format!("# by fio\n# {header}\n5,R,4096,512\n6,W,8192,512\n"), "1 line was skipped: 1 comment"),
        (
            format!(
                "{header}\n5,R,4096,512\n5,fsync,0,0\n{header}\n6,W,8192,512\n\u{feff}\"TS_us\", op,offset,length\n# \
                 end\n"
            ),
            "4 lines were skipped: 1 comment, 2 repeated headers, 1 operation without data",
        ),
    ] {
        assert_eq!(recognised(text.as_bytes()), Ok("csv"), "{text}");
        assert_eq!(requests("csv", text.as_bytes()), expected, "{text}");
        assert_eq!(read("csv", text.as_bytes()).passed_over.described().as_deref(), Some(said));
    }
    let named = b"# by fio\nwhen,what,where,long\n5,R,4096,512\n6,W,8192,512\n";
    assert_eq!(requests("csv:time=when,op=what,offset=where,length=long", named), expected);
    assert_eq!(requests("csv:time=0,op=1,offset=2,length=3", named), expected);
    assert_eq!(requests("csv:time=0,op=1,offset=2,length=3", b"# by fio\n5,R,4096,512\n6,W,8192,512\n"), expected);
    // A line with other columns is not a repeated header.
    let other = read("csv", format!("{header}\n5,R,4096,512\nts_us,op,length,offset\n6,W,512,8192\n").as_bytes());
    assert_eq!(other.malformed[0].0, 2);
}

#[test]
fn other_delimiters_and_spellings_of_numbers_are_read() {
    let expected = ["1706702400500000 R 0 4096 512", "1706702401000000 W 0 8192 1024"];
    let piped = b"time|op|lba|sectors\n2024-01-31T12:00:00.5Z|R|0x8|1\n2024-01-31T13:00:01+01:00|W|16|2.0\n";
    assert_eq!(requests("csv", piped), expected);
    assert_eq!(recognised(piped), Ok("csv"));
    let quoted = b"ts_ms;op;lba;sectors\n\"2024-01-31 12:00:00.5\";R;8;1\n2024/01/31 12:00:01;W;16.0;2\n";
    assert_eq!(requests("csv", quoted), expected);
    let commas = b"time_s;op;lba;sectors\n1706702400,5;R;8;1\n1706702401;W;16;2\n";
    assert_eq!(requests("csv:decimal=comma", commas), expected);
}

#[test]
fn colons_part_fields_where_nothing_else_does() {
    let trace = b"time_us:op:lba:sectors\n5:R:8:1\n6:W:16:2\n";
    assert_eq!(requests("csv", trace), ["5 R 0 4096 512", "6 W 0 8192 1024"]);
    assert_eq!(recognised(trace), Ok("csv"));
    assert_eq!(requests("csv:delimiter=colon,offset=1", b"1:512 \n"), ["0 R 0 512 1"]);
}

#[test]
fn numbers_with_exponents_and_sizes_with_units_are_read() {
    let trace = b"ts_s,offset,size,op\n1.7067024005e9,8.192E+3,4KiB,R\n1.706702401e9,1.6384e4,512,W\n";
    assert_eq!(requests("csv", trace), ["1706702400500000 R 0 8192 4096", "1706702401000000 W 0 16384 512"]);
    assert_eq!(recognised(trace), Ok("csv"));
    let reading = Csv::new(&Options::parse("csv", FORMAT.parameters, "").unwrap(), &sample(trace)).unwrap();
    let doubts = reading.reading(&sample(trace)).unwrap().unwrap().doubts;
    assert_eq!(
        doubts,
        ["it has numbers with exponents, such as 1.7067024005e9, which may have lost digits where they were written"]
    );
    let kilo = b"ts_us,offset,size,op\n0,0,4K,R\n";
    assert_eq!(requests("csv:kilo=1024", kilo), ["0 R 0 0 4096"]);
    assert!(recognised(kilo).unwrap_err().contains("kilo=1024 or kilo=1000 in --format, which decides"));
    let refused = Options::parse("csv", FORMAT.parameters, "kilo=4096").unwrap_err();
    assert_eq!(refused.to_string(), "csv: kilo: found '4096', expected 1000 or 1024");
}

#[test]
fn the_order_of_dates_comes_from_their_values_or_an_option() {
    let trace = |dates: [&str; 2]| format!("time,op,lba,sectors\n{},R,8,1\n{},W,16,2\n", dates[0], dates[1]);
    let expected = ["1706702400000000 R 0 4096 512", "1706875200000000 W 0 8192 1024"];
    let days = trace(["31.01.2024 12:00:00", "02.02.2024 12:00:00"]);
    let months = trace(["1/31/2024 12:00:00 PM", "2/2/2024 12:00:00 PM"]);
    for dates in [&days, &months] {
        assert_eq!(requests("csv", dates.as_bytes()), expected);
        assert_eq!(recognised(dates.as_bytes()), Ok("csv"));
    }
    let either = trace(["01.02.2024 12:00:00", "02.02.2024 12:00:00"]);
    let sample = sample(either.as_bytes());
    let csv = Csv::new(&Options::parse("csv", FORMAT.parameters, "").unwrap(), &sample).unwrap();
    let refused = csv.reading(&sample).unwrap_err();
    assert_eq!(refused.found, "dates such as \"01.02.2024 12:00:00\", whose day and month may be either");
    assert_eq!(
        refused.expected,
        "their order: time-unit=date-dmy or time-unit=date-mdy in --format csv:time=0,op=1,offset=2,length=3"
    );
    // 2024-02-01 and 2024-01-02, both at noon, by date -u.
    assert!(requests("csv:time-unit=date-dmy", either.as_bytes())[0].starts_with("1706788800000000 R"));
    assert!(requests("csv:time-unit=date-mdy", either.as_bytes())[0].starts_with("1704196800000000 R"));
}

#[test]
fn a_date_is_recognised_regardless_of_the_other_fields() {
    let sizes = b"time,op,offset,size\n31.01.2024 12:00:00,R,0,4K\n02.02.2024 12:00:00,W,8,4K\n";
    let refused = recognised(sizes).unwrap_err();
    assert!(
        refused.starts_with("trace, line 2: found \"4K\", expected a whole number in column 3 (length); kilo=1024 or"),
        "{refused}"
    );
    let ops = b"time,op,offset,size\n31.01.2024 12:00:00,lesen,0,4096\n";
    assert!(recognised(ops).unwrap_err().starts_with("trace, line 2: found \"lesen\""));
}

#[test]
fn blanks_part_fields_however_many_there_are() {
    let spec = "csv:delimiter=space,offset=0,length=2,op=3,time=4,offset-unit=512,time-unit=s,read=0/4";
    let trace = b"4043872\t\t96\t\t49152\t\t5\t\t1398396860.168065791\n 8 8 4096 4 1398396861\n";
    // 4043872 * 512 = 2070462464.
    let expected = ["1398396860168065 W 0 2070462464 49152", "1398396861000000 R 0 4096 4096"];
    assert_eq!(requests(spec, trace), expected);
}

#[test]
fn fields_may_be_quoted() {
    let trace = b"\"a \"\"b\"\", c\",\"1\",512\n\"a \"\"b\"\", c\",2,512\n";
    let spec = "csv:volume=0,offset=1,length=2,offset-unit=512";
    assert_eq!(requests(spec, trace), ["0 R a \"b\", c 512 512", "0 R a \"b\", c 1024 512"]);
}

#[test]
fn without_a_length_a_request_is_one_unit_long() {
    assert_eq!(requests("csv:offset=1,offset-unit=4096,header=no", b"x,3\n"), ["0 R 0 12288 4096"]);
}

#[test]
fn reads_and_writes_can_be_named() {
    let ops = |spec: &str| {
        let batch = read(spec, b"1,512\n2,512\n3,512\n");
        let ops = batch.requests.iter().map(|request| if request.op == Op::Read { 'R' } else { 'W' });
        (ops.collect::<String>(), batch.skipped)
    };
    assert_eq!(ops("csv:op=0,offset=1,read=1"), ("RWW".to_owned(), 0));
    assert_eq!(ops("csv:op=0,offset=1,write=1"), ("WRR".to_owned(), 0));
    assert_eq!(ops("csv:op=0,offset=1,read=1,write=2"), ("RW".to_owned(), 1));
}

#[test]
fn mappings_that_cannot_be_are_refused() {
    assert_eq!(
        refused("csv", "1,2,3\n"),
        "csv: offset: found '', expected a column number, from 0 (the trace has no header)"
    );
    assert_eq!(
        refused("csv:offset=lba", "when,where\n1,2\n"),
        "csv: offset: found 'lba', expected a column number, from 0, or a name of the header: when, where"
    );
    assert_eq!(
        refused("csv:offset=1,length=1", "1,2\n"),
        "csv: length: found '1', expected a column that no other option names"
    );
    assert_eq!(refused("csv:offset=1000", "1,2\n"), "csv: offset: found '1000', expected a column number below 1000");
    assert!("csv:time-unit=h".parse::<FormatSpec>().is_err());
    assert!("csv:offset-unit=0".parse::<FormatSpec>().is_err());
}

#[test]
fn refuses_malformed_input() {
    refuses(
        "csv:time=0,offset=1,length=2,op=3,offset-unit=512,header=no",
        &[
            ("x,1,2,R", r#"found "x", expected a time in column 0 (time)"#),
            ("1,-1,2,R", r#"found "-1", expected a whole number in column 1 (offset)"#),
            ("1,1,,R", r#"found "", expected a whole number in column 2 (length)"#),
            ("1,1,2,0", r#"found "0", expected R or W (other words can be given with read= and write=)"#),
            ("1,1,2", r#"found "1,1,2", expected a line with one more field: column 3 (op)"#),
            (
                "1,36028797018963968,2,R",
                r#"found "36028797018963968", expected a whole number in column 1 (offset), in units of 512 bytes, below 2^64"#,
            ),
        ],
    );
}
