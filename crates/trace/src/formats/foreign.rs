//! Files that are not traces in a supported format, recognised by their first bytes: their names, and tools that
//! convert them.

const BPFTRACE: &str = "sectors and sizes (as bcc's biosnoop prints them)";

const JSON: &str = "JSON in another form than that of iotrace or of mooncake";
const LINES_OR_TABLE: &str = "one of their objects per line (as jq -c writes it), or CSV (as jq -r '[.time, .op, \
    .offset, .length] | @csv' makes it)";

/// The first bytes, the name of the format, and the expected replacement.
const BEGINNINGS: [(&[u8], &str, &str); 17] = [
    (b"\xff\xfe", "text in UTF-16", "UTF-8 (as iconv -f UTF-16 -t UTF-8 makes it)"),
    (b"\xfe\xff", "text in UTF-16", "UTF-8 (as iconv -f UTF-16 -t UTF-8 makes it)"),
    (b"PERFILE2", "data of perf", "its events as text (as perf script prints them)"),
    (b"\x17\x08Dtracing", "data of trace-cmd", "its events as text (as trace-cmd report prints them)"),
    (b"Attaching ", "output of bpftrace", BPFTRACE),
    (b"Attached ", "output of bpftrace", BPFTRACE),
    (b"TIME(ms)     ", "output of bpftrace's biosnoop.bt, which has no sectors", BPFTRACE),
    (b"{", JSON, LINES_OR_TABLE),
    (b"[{", JSON, LINES_OR_TABLE),
    (b"[\n", JSON, LINES_OR_TABLE),
    (b"PAR1", "a Parquet file", "its rows as CSV (as duckdb -csv or pandas' to_csv writes them)"),
    (b"SQLite format 3\0", "an SQLite database", "a table as CSV (as sqlite3 -csv -header writes it)"),
    (b"\xd0\xcf\x11\xe0", "an office document", "its table as CSV"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "the file in it (as 7z x takes it out), or a tar or zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive", "the file in it (as unrar x takes it out), or a tar or zip archive"),
    (b"\x1f\x9d", "data of compress (.Z)", "its contents (as uncompress writes them), or gzip, zstd, xz, bzip2 or lz4"),
    (b"LZIP", "data of lzip", "its contents (as lzip -d writes them), or gzip, zstd, xz, bzip2 or lz4"),
];

/// Returns the name of a file that begins with `bytes`, and the expected replacement.
pub fn named(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let known = BEGINNINGS.iter().find(|(begins, ..)| bytes.starts_with(begins));
    known.map(|(_, found, expected)| (*found, *expected))
}

#[cfg(test)]
mod tests {
    use crate::formats::testing::recognised;

    #[test]
    fn unknown_formats_are_named_with_the_known_ones() {
        let text = "\u{feff}time_us,offset,length,op\n0,0,4096,R\n";
        let utf_16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let cases: [(&[u8], &str); 8] = [
            (&utf_16, "found text in UTF-16, expected UTF-8 (as iconv -f UTF-16 -t UTF-8 makes it)"),
            (b"PERFILE2\x68\0\0\0", "found data of perf, expected its events as text (as perf script prints them)"),
            (
                b"Attaching 4 probes...\nTIME(ms)     DISK    COMM             PID    LAT(ms)\n",
                "found output of bpftrace, expected sectors and sizes (as bcc's biosnoop prints them)",
            ),
            (
                b"Attached 4 probes\nTIME(ms)     DISK ID        COMM             PID    LAT(ms)\n",
                "found output of bpftrace, expected sectors and sizes (as bcc's biosnoop prints them)",
            ),
            (
                b"{\n  \"timestamp\": 27482,\n  \"hash_ids\": [46]\n}\n",
                "found JSON in another form than that of iotrace or of mooncake, expected one of their objects per \
                 line (as jq -c writes it), or CSV (as jq -r '[.time, .op, .offset, .length] | @csv' makes it)",
            ),
            (
                b"PAR1\x15\x04\x15\x10",
                "found a Parquet file, expected its rows as CSV (as duckdb -csv or pandas' to_csv writes them)",
            ),
            (
                b"7z\xbc\xaf\x27\x1c\0\x04",
                "found a 7z archive, expected the file in it (as 7z x takes it out), or a tar or zip archive",
            ),
            (
                b"\x1f\x9d\x90\x61",
                "found data of compress (.Z), expected its contents (as uncompress writes them), or gzip, zstd, xz, \
                 bzip2 or lz4",
            ),
        ];
        for (bytes, message) in cases {
            assert_eq!(recognised(bytes), Err(format!("trace: {message}")));
        }
    }
}
