//! Helpers for tests of formats: they parse a few bytes and return the requests, the errors or the format.

use super::*;

/// Parses `contents` in the format `spec`, in blocks of 4 KiB.
pub(super) fn read(spec: &str, contents: &[u8]) -> Batch {
    let sample = Sample { bytes: contents, whole: true };
    let spec: FormatSpec = spec.parse().unwrap();
    let mut batch = Batch::default();
    spec.parser(&sample, 4096).unwrap().parse(contents, &mut batch);
    batch
}

/// Parses the requests, each as `time op volume offset length`.
pub(super) fn requests(spec: &str, contents: &[u8]) -> Vec<String> {
    let batch = read(spec, contents);
    assert_eq!(batch.malformed, []);
    let one = |request: &Request| {
        let volume = String::from_utf8_lossy(&batch.volumes.names()[request.volume as usize]).into_owned();
        let Request { time_us, op, offset_bytes, length_bytes, .. } = request;
        let op = if *op == flashwise_core::access::Op::Read { 'R' } else { 'W' };
        format!("{time_us} {op} {volume} {offset_bytes} {length_bytes}")
    };
    batch.requests.iter().map(one).collect()
}

/// Returns the decision of `filter` for each request of `contents` in the format `spec`; none if the format has no
/// processes.
pub(super) fn filtered(spec: &str, filter: &Filter, contents: &[u8]) -> Option<Vec<Caching>> {
    let sample = Sample { bytes: contents, whole: true };
    let spec: FormatSpec = spec.parse().unwrap();
    let mut batch = Batch::default();
    spec.parser(&sample, 4096).unwrap().filtered(filter.clone())?.parse(contents, &mut batch);
    assert_eq!(batch.requests.len(), batch.caching.len());
    Some(batch.caching)
}

/// Asserts that each line by itself is rejected with `found FOUND, expected EXPECTED`.
pub(super) fn refuses(spec: &str, cases: &[(&str, &str)]) {
    for (line, error) in cases {
        let batch = read(spec, line.as_bytes());
        let messages: Vec<_> =
            batch.malformed.iter().map(|(record, malformed)| (*record, malformed.to_string())).collect();
        assert_eq!(messages, [(0, (*error).to_owned())], "{line}");
        assert_eq!((batch.records, batch.requests.len()), (1, 0), "{line}");
    }
}

/// Returns the name of the recognised format, or the error.
pub(super) fn recognised(contents: &[u8]) -> Result<&'static str, String> {
    let spec = FormatSpec::recognise("trace", &Sample { bytes: contents, whole: true });
    spec.map(|spec| spec.format().name).map_err(|error| error.to_string())
}
