//! The web page that manages a server. Its files are part of the program; it loads nothing from elsewhere.
//!
//! Third-party code is in `page/vendor`, unmodified and with its licence; a test checks each file's checksum.

use std::collections::HashMap;
use std::io::Write;
use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! files {
    ($($path:literal: $kind:expr),+ $(,)?) => {
        &[$(($path, $kind, include_bytes!(concat!("page/", $path)))),+]
    };
}

/// The files: path, media type and contents.
const FILES: &[(&str, &str, &[u8])] = files! {
    "index.html": HTML,
    "style.css": CSS,
    "app.mjs": SCRIPT,
    "server.mjs": SCRIPT,
    "numbers.mjs": SCRIPT,
    "parts.mjs": SCRIPT,
    "charts.mjs": SCRIPT,
    "comparison.mjs": SCRIPT,
    "connect.mjs": SCRIPT,
    "health.mjs": SCRIPT,
    "lists.mjs": SCRIPT,
    "overview.mjs": SCRIPT,
    "ticks.mjs": SCRIPT,
    "volume.mjs": SCRIPT,
    "clients.mjs": SCRIPT,
    "events.mjs": SCRIPT,
    "disks.mjs": SCRIPT,
    "pool.mjs": SCRIPT,
    "make_pool.mjs": SCRIPT,
    "make_volume.mjs": SCRIPT,
    "what_if.mjs": SCRIPT,
    "vendor/preact.mjs": SCRIPT,
    "vendor/preact-hooks.mjs": SCRIPT,
    "vendor/htm.mjs": SCRIPT,
    "vendor/uPlot.js": SCRIPT,
    "vendor/uPlot.css": CSS,
    "vendor/LICENSE-preact": "text/plain; charset=utf-8",
    "vendor/LICENSE-htm": "text/plain; charset=utf-8",
    "vendor/LICENSE-uplot": "text/plain; charset=utf-8",
};

/// A file of the page.
struct File {
    kind: &'static str,
    plain: &'static [u8],
    gzipped: Vec<u8>,
    etag: String,
}

impl File {
    fn of(kind: &'static str, plain: &'static [u8]) -> File {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory does not fail.
        let gzipped = encoder.write_all(plain).and_then(|()| encoder.finish()).unwrap_or_default();
        let digest = crate::hex(&Sha256::digest(plain)[..16]);
        File { kind, plain, gzipped, etag: format!("\"{digest}\"") }
    }
}

static BY_PATH: LazyLock<HashMap<&str, File>> =
    LazyLock::new(|| FILES.iter().map(|&(path, kind, plain)| (path, File::of(kind, plain))).collect());

/// The content security policy: the page loads only its own files, and one inline script, which maps module names to
/// files.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let html = FILES.iter().find(|(path, ..)| *path == "index.html").map_or(&[][..], |(.., plain)| plain);
    let html = String::from_utf8_lossy(html);
    let map = html.split_once("<script type=\"importmap\">").and_then(|(_, rest)| rest.split_once("</script>"));
    let hash = BASE64.encode(Sha256::digest(map.map_or("", |(map, _)| map)));
    format!(
        "default-src 'none'; script-src 'self' 'sha256-{hash}'; style-src 'self'; img-src 'self' data:; connect-src \
         'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

fn answer(path: &str, headers: &HeaderMap) -> Response {
    let Some(file) = BY_PATH.get(path) else {
        return (StatusCode::NOT_FOUND, "no such file\n").into_response();
    };
    let of_all: [(HeaderName, &str); 7] = [
        (CONTENT_TYPE, file.kind),
        (CONTENT_SECURITY_POLICY, &POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // It may be kept, and is asked for again with its tag.
        (CACHE_CONTROL, "no-cache"),
        (VARY, "Accept-Encoding"),
        (ETAG, &file.etag),
    ];
    let given = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if given(IF_NONE_MATCH).split(',').any(|tag| tag.trim() == file.etag) {
        return (StatusCode::NOT_MODIFIED, of_all).into_response();
    }
    if given(ACCEPT_ENCODING).split(',').any(|coding| coding.trim() == "gzip") {
        return (of_all, [(CONTENT_ENCODING, "gzip")], Body::from(file.gzipped.as_slice())).into_response();
    }
    (of_all, file.plain).into_response()
}

/// True if this path belongs to the page. These files need no token, because they contain only the program.
pub fn is_of_page(path: &str) -> bool {
    path == "/" || path.starts_with("/page/")
}

/// The routes of the page.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/", get(async |headers: HeaderMap| answer("index.html", &headers)))
        .route("/page/{*path}", get(async |Path(path): Path<String>, headers: HeaderMap| answer(&path, &headers)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As published in the npm registry: preact 11.2.0 (`dist/preact.mjs`, `hooks/dist/hooks.mjs`), htm 3.1.1
    /// (`dist/htm.mjs`) and uPlot 1.6.32 (`dist/uPlot.iife.min.js`, `dist/uPlot.min.css`).
    const CHECKSUMS: [(&str, &str); 8] = [
        ("vendor/preact.mjs", "bdcbd9abdf2c77c5c45326eab42191e949222d479d0d5f69467387a77040cb55"),
        ("vendor/preact-hooks.mjs", "e862ab2973aa6455eaa0f77c5d832d2157d6be59a17c8ba546550a575b58c6b4"),
        ("vendor/htm.mjs", "ab33dd3f38059b9be4d5f5350128eefb2356639c4e0bbe9d9e8b3ba75847e9e4"),
        ("vendor/uPlot.js", "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"),
        ("vendor/uPlot.css", "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"),
        ("vendor/LICENSE-preact", "1fe6958409c8c257a70c587a18b6f7f412b179b456630790d30b2ec9a8e4b7d4"),
        ("vendor/LICENSE-htm", "740725f7252e750af735d0028cc534970772f513331e9f68150fede8fb3ce00f"),
        ("vendor/LICENSE-uplot", "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd"),
    ];

    #[test]
    fn third_party_files_are_unmodified() {
        let vendored = FILES.iter().filter(|(path, ..)| path.starts_with("vendor/"));
        assert_eq!(vendored.clone().count(), CHECKSUMS.len());
        for (path, _, plain) in vendored {
            let found = crate::hex(&Sha256::digest(plain));
            assert!(CHECKSUMS.contains(&(*path, found.as_str())), "{path}: {found}");
        }
    }

    #[test]
    fn the_page_is_small_and_loads_nothing_from_elsewhere() {
        let sent = BY_PATH.iter().filter(|(path, _)| !path.contains("LICENSE")).map(|(_, file)| file.gzipped.len());
        assert!(sent.sum::<usize>() < 85_000);
        for (path, _, plain) in FILES.iter().filter(|(path, ..)| !path.starts_with("vendor/")) {
            let text = std::str::from_utf8(plain).unwrap();
            assert!(
                !text.contains("://") || text.matches("://").count() == text.matches("http://www.w3.org/").count(),
                "{path}"
            );
        }
    }

    #[test]
    fn each_file_is_there_and_each_module_is_named() {
        let html = std::str::from_utf8(BY_PATH["index.html"].plain).unwrap();
        for name in html.split('"').filter_map(|text| text.strip_prefix("/page/")) {
            assert!(BY_PATH.contains_key(name), "{name}");
        }
        for (path, kind, plain) in FILES.iter().filter(|(path, ..)| !path.starts_with("vendor/")) {
            let text = std::str::from_utf8(plain).unwrap();
            for name in text.split("from \"./").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(BY_PATH.contains_key(name), "{path} of {kind} imports {name}");
            }
        }
        assert!(POLICY.len() > 200 && !POLICY.contains("unsafe"));
    }
}
