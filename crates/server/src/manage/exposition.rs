//! In which of the two text formats metrics are answered: the one that was asked for.
//!
//! Source: Prometheus, exposition formats 0.0.4; OpenMetrics 1.0; RFC 9110, section 12.5.1 (Accept).

use super::metrics;
use flashwise_engine::pool::status::PoolStatus;
use flashwise_engine::status::ServerStatus;

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4, which everything reads: for whoever asks for nothing else.
    Text,
}

impl Exposition {
    /// The format that the values of the `Accept` header ask for.
    pub fn asked_for<'a>(accept: impl Iterator<Item = &'a str>) -> Exposition {
        let (mut open_metrics, mut text) = (0.0, 0.0);
        for range in accept.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts.find_map(|part| part.strip_prefix("q=")).map_or(1.0, |q| q.parse().unwrap_or(0.0));
            match media_type.as_str() {
                "application/openmetrics-text" => open_metrics = f64::max(open_metrics, quality),
                "text/plain" => text = f64::max(text, quality),
                _ => {}
            }
        }
        if open_metrics > 0.0 && open_metrics >= text { Exposition::OpenMetrics } else { Exposition::Text }
    }

    /// What the header `Content-Type` says of it.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The metrics of a server.
    pub fn encode(self, status: &ServerStatus, pools: &[PoolStatus]) -> String {
        let text = metrics::encode(status, pools);
        match self {
            Exposition::OpenMetrics => text,
            Exposition::Text => plain(&text),
        }
    }
}

/// OpenMetrics as text 0.0.4: families are called as their samples are, an `info` is a gauge, and there are neither units nor an end.
fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // A description comes before the type that says how its family is called.
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|typed| typed.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            if let Some((_, meaning)) = help.take().filter(|(of, _)| *of == name) {
                text += &format!("# HELP {name}{suffix} {meaning}\n");
            }
            text += &format!("# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            text += line;
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_the_one_that_was_asked_for() {
        // What Prometheus 2.42 sends, and what it sends where it is told not to ask for OpenMetrics.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, expected) in [
            (&[prometheus][..], Exposition::OpenMetrics),
            (&["text/plain;version=0.0.4;q=0.5,*/*;q=0.1"], Exposition::Text),
            (&["application/openmetrics-text"], Exposition::OpenMetrics),
            (&["text/plain", "Application/OpenMetrics-Text; q=0.9"], Exposition::Text),
            (&["text/plain;q=0.1", "application/openmetrics-text; q=0.9"], Exposition::OpenMetrics),
            (&["application/openmetrics-text;q=0"], Exposition::Text),
            (&["*/*"], Exposition::Text),
            (&["text/html,application/xml;q=0.9"], Exposition::Text),
            (&[], Exposition::Text),
        ] {
            assert_eq!(Exposition::asked_for(accept.iter().copied()), expected, "{accept:?}");
        }
    }

    /// Worked out by hand from the two formats.
    #[test]
    fn text_names_families_as_their_samples() {
        let open_metrics = "# HELP a_bytes What a is.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total{volume=\"# x\"} 5\n\
                            # HELP b What b is.\n# TYPE b info\nb_info{version=\"1\"} 1\n\
                            # HELP c_seconds What c is.\n# TYPE c_seconds histogram\n# UNIT c_seconds seconds\nc_seconds_sum 1.5\n\
                            c_seconds_count 2\nc_seconds_bucket{le=\"+Inf\"} 2\n# EOF\n";
        let text = "# HELP a_bytes_total What a is.\n# TYPE a_bytes_total counter\na_bytes_total{volume=\"# x\"} 5\n\
                    # HELP b_info What b is.\n# TYPE b_info gauge\nb_info{version=\"1\"} 1\n\
                    # HELP c_seconds What c is.\n# TYPE c_seconds histogram\nc_seconds_sum 1.5\nc_seconds_count 2\n\
                    c_seconds_bucket{le=\"+Inf\"} 2\n";
        assert_eq!(plain(open_metrics), text);
    }
}
