//! The management API over real sockets, in front of a simulated server.

pub mod client;
mod connections;
pub mod fake;
mod page;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use client::{Answer, ask, request};
use fake::{Fake, volume};
use flashwise_core::cache::Mode;
use flashwise_core::cache::settings::Setting;
use flashwise_core::options::Parameter;
use flashwise_server::manage::{Address, Api, ApiError, ApiOptions, Tokens, encode_metrics, metric_names, openapi};
use flashwise_storage::status::{
    BackendStatus, RecordingState, RecordingStatus, ServerStatus, VolumeState, VolumeStatus, WriteBudgetStatus,
};
use serde_json::{Value, json};

pub fn start(address: &str, token: Option<&str>) -> Result<(Api, Arc<Fake>), ApiError> {
    let fake = Arc::new(Fake::default());
    let tokens = Tokens { change: token.map(str::to_owned), read: token.map(|_| "peep-peep-peep-peep".to_owned()) };
    let options = ApiOptions { tokens, ..ApiOptions::default() };
    let api = Api::start(&address.parse().unwrap(), options, Arc::clone(&fake) as _)?;
    Ok((api, fake))
}

/// Starts an API on a Unix socket, for this user.
fn local() -> (Api, Arc<Fake>) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("flashwise-api-{}-{number}.sock", std::process::id());
    start(&format!("unix:{}", std::env::temp_dir().join(name).display()), None).unwrap()
}

/// Starts an API over TCP, where only the token `sesame` is valid.
fn over_tcp() -> (Api, Arc<Fake>) {
    start("127.0.0.1:0", Some("sesame")).unwrap()
}

fn json_of(answer: &Answer) -> Value {
    assert_eq!(answer.header("content-type"), Some("application/json"));
    serde_json::from_str(&answer.body).unwrap()
}

fn error_of(answer: &Answer) -> (u16, String) {
    (answer.status, json_of(answer)["error"].as_str().unwrap().to_owned())
}

#[test]
fn status_has_the_values_of_the_server() {
    let (api, fake) = local();
    let answer = ask(&api, "GET", "/v1/status", "");
    assert_eq!(answer.status, 200);
    assert_eq!(serde_json::from_str::<ServerStatus>(&answer.body).unwrap(), fake.status_now());
    let answer = ask(&api, "GET", "/v1/volumes/two%20%2F%20three", "");
    assert_eq!(serde_json::from_str::<VolumeStatus>(&answer.body).unwrap(), volume("two / three", 1000));
    let error = "no volume 'four', expected one of: one, two / three".to_owned();
    for path in ["/v1/volumes/four", "/v1/volumes/four/detach", "/v1/volumes/four/what-if"] {
        assert_eq!(error_of(&ask(&api, "GET", path, "")), (404, error.clone()));
    }
    for path in ["/v1/volumes/four/flush", "/v1/volumes/four/detach", "/v1/volumes/four/attach"] {
        assert_eq!(error_of(&ask(&api, "POST", path, "")), (404, error.clone()));
    }
    assert_eq!(error_of(&ask(&api, "PATCH", "/v1/volumes/four", r#"{"policy": "lru"}"#)), (404, error));
    api.stop();
}

#[test]
fn flushes_reach_one_volume_or_all_and_failures_are_reported() {
    let (api, fake) = local();
    assert_eq!(ask(&api, "POST", "/v1/flush", "").status, 204);
    assert_eq!(ask(&api, "POST", "/v1/volumes/one/flush", "").status, 204);
    assert_eq!(fake.calls(), ["flush all", "flush one"]);
    fake.break_flush();
    let failed = error_of(&ask(&api, "POST", "/v1/flush", ""));
    assert_eq!(failed, (500, "volume one: the flash failed".to_owned()));
}

#[test]
fn detaching_is_accepted_followed_and_not_begun_twice() {
    let (api, _) = local();
    let path = "/v1/volumes/one/detach";
    assert_eq!(json_of(&ask(&api, "GET", path, ""))["state"], "attached");
    let begun = ask(&api, "POST", path, "");
    let progress = json!({"state": "detaching", "dirty_blocks": 7, "destaged_blocks": 3, "remaining_seconds": 4.5});
    assert_eq!((begun.status, json_of(&begun)), (202, progress.clone()));
    let seen = ask(&api, "GET", path, "");
    assert_eq!((seen.status, json_of(&seen)), (200, progress));
    assert_eq!(error_of(&ask(&api, "POST", path, "")), (409, "volume one is being detached".to_owned()));
    let path = "/v1/volumes/one/attach";
    let plan = ask(&api, "POST", &format!("{path}?dry-run=true"), "");
    let does = json_of(&plan)["does"][0].as_str().unwrap().to_owned();
    assert!(plan.status == 200 && does.ends_with(" for one again."), "{does}");
    assert_eq!(ask(&api, "POST", path, "").status, 204);
    assert_eq!(error_of(&ask(&api, "POST", path, "")), (409, "volume one is not detached".to_owned()));
}

#[test]
fn settings_are_changed_and_wrong_ones_refused() {
    let (api, fake) = local();
    let json = r#"{"policy": "lru", "write-mode": "write-around", "dirty-age": "5s"}"#;
    let answer = ask(&api, "PATCH", "/v1/volumes/one", json);
    assert_eq!((answer.status, json_of(&answer)["policy"].clone()), (200, json!("lru")));
    {
        let changes = fake.changes();
        assert!(changes.names().eq(["policy", "write-mode", "dirty-age"]));
        let age = changes.given(Setting::named("dirty-age")).map(ToString::to_string);
        assert_eq!((changes.mode(), age.as_deref()), (Mode::WriteAround, Some("5s")));
    }
    let (status, error) = error_of(&ask(&api, "PATCH", "/v1/volumes/one", r#"{"polcy": "lru"}"#));
    assert_eq!(status, 400);
    assert!(error.starts_with("polcy: unknown setting (did you mean 'policy'?)"), "{error}");
    // Only the volume knows the other limit, and rejects the change early.
    for path in ["/v1/volumes/one", "/v1/volumes/one?dry-run=true"] {
        let (status, error) = error_of(&ask(&api, "PATCH", path, r#"{"dirty-low": 0.9}"#));
        assert_eq!((status, error.as_str()), (400, "dirty-low: found 90%, expected at most dirty-high, which is 50%"));
    }
    let large = format!("{{\"policy\": \"{}\"}}", "x".repeat(64 << 10));
    let (status, error) = error_of(&ask(&api, "PATCH", "/v1/volumes/one", &large));
    assert_eq!((status, error.as_str()), (413, "the body broke off or is too large, expected at most 65536 bytes"));
}

#[test]
fn unknown_paths_and_methods_are_answered_as_json() {
    let (api, _) = local();
    let unknown = "no such path; /openapi.json lists all paths".to_owned();
    for path in ["/nothing", "/v1", "/v1/volumes/", "/v1/status/x"] {
        assert_eq!(error_of(&ask(&api, "GET", path, "")), (404, unknown.clone()), "{path}");
    }
    for (method, path, allowed) in [
        ("DELETE", "/v1/volumes/one/detach", "GET,HEAD,POST"),
        ("GET", "/v1/flush", "POST"),
        ("POST", "/v1/status", "GET,HEAD"),
        ("PUT", "/metrics", "GET,HEAD"),
    ] {
        let answer = ask(&api, method, path, "");
        let error = format!("{method} is not supported by this path; /openapi.json lists its methods");
        assert_eq!(error_of(&answer), (405, error));
        assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
    }
    assert_eq!(error_of(&ask(&api, "GET", "/v1/volumes/%FF", "")).0, 400);
}

#[test]
fn tcp_needs_a_valid_token() {
    for address in ["0.0.0.0:0", "127.0.0.1:0", "localhost:0", "[::1]:0"] {
        let refused = start(address, None).unwrap_err();
        assert!(matches!(&refused, ApiError::TokenNeeded { address: found } if found == address), "{refused}");
    }
    for token in ["", "two words", "t\u{e4}"] {
        assert!(matches!(start("127.0.0.1:0", Some(token)), Err(ApiError::BadToken { .. })), "{token}");
    }
    let short = start("0.0.0.0:0", Some("0123456789abcde"));
    assert!(matches!(short, Err(ApiError::ShortToken { found: 15, .. })));
    let (api, fake) = start("0.0.0.0:0", Some("open-sesame-01234")).unwrap();
    let get = |path: &str, headers: &str| {
        request(&api, &format!("GET {path} HTTP/1.1\r\nHost: any.example\r\n{headers}\r\n"))
    };
    for headers in ["", "Authorization: Bearer open-sesame-0123\r\n", "Authorization: Basic open-sesame-01234\r\n"] {
        for path in ["/v1/status", "/metrics", "/openapi.json", "/nowhere"] {
            let answer = get(path, headers);
            assert_eq!((answer.status, answer.header("www-authenticate")), (401, Some("Bearer")), "{path} {headers}");
            assert!(error_of(&answer).1.starts_with("a token is needed"));
        }
    }
    assert_eq!(get("/v1/status", "Authorization: Bearer open-sesame-01234\r\n").status, 200);
    assert_eq!((get("/healthz", "").status, get("/healthz", "").body), (200, "ok\n".to_owned()));
    assert_eq!(fake.calls(), [] as [&str; 0]);
}

#[test]
fn a_server_is_ready_where_all_volumes_serve_reads_and_writes() {
    let (api, fake) = local();
    for state in VolumeState::ALL {
        fake.set_state(state);
        let answer = ask(&api, "GET", "/readyz", "");
        // Health checks are independent of the volumes.
        assert_eq!(ask(&api, "GET", "/healthz", "").status, 200);
        if matches!(state, VolumeState::FlashFailed | VolumeState::BackendFailed) {
            let expected = "1 of 2 volumes and pools do not serve reads and writes; /v1/status names them".to_owned();
            assert_eq!(error_of(&answer), (503, expected), "{state}");
        } else {
            assert_eq!((answer.status, answer.body.as_str()), (200, "ok\n"), "{state}");
        }
    }
}

#[test]
fn metrics_are_open_metrics() {
    let (api, _) = local();
    let answer = ask(&api, "GET", "/metrics", "");
    let content_type = answer.header("content-type");
    assert_eq!(content_type, Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    assert_eq!(answer.body, encode_metrics(&Fake::default().status_with_buckets(), &[]));
}

#[test]
fn web_pages_of_others_do_not_reach_loopback() {
    let (api, fake) = local();
    let (page, _) = page::address(&api);
    let rebound = client::send(&page, b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    let expected = "Host header: found 'evil.example', expected localhost or a loopback address";
    assert!(rebound.starts_with("HTTP/1.1 403 ") && rebound.contains(expected), "{rebound}");
    let forged = request(&api, "POST /v1/flush HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n");
    assert_eq!(error_of(&forged), (403, "requests from other web pages are refused".to_owned()));
    assert_eq!(fake.calls(), [] as [&str; 0]);
}

#[test]
fn a_unix_socket_serves_and_goes_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let (api, _) = start(&format!("unix:{}", path.display()), None).unwrap();
    assert_eq!(ask(&api, "GET", "/v1/status", "").status, 200);
    api.stop();
    assert!(!path.exists());
}

#[test]
fn a_port_in_use_is_named() {
    let (api, _) = over_tcp();
    let error = start(&api.address().to_string(), Some("sesame")).unwrap_err().to_string();
    assert!(error.starts_with(&format!("the management API cannot listen on {}: ", api.address())), "{error}");
}

/// The body of a request is read before any reply. Otherwise a client that is still sending would find the connection
/// closed, and never read the reply.
#[test]
fn the_body_of_a_request_is_read_before_any_reply() {
    let (api, _) = local();
    let Address::Unix(path) = api.address() else { panic!("a Unix socket") };
    let mut stream = UnixStream::connect(path).unwrap();
    let body = "x".repeat(60_000);
    for (request, status) in [
        ("POST /nothing", 404),
        ("DELETE /metrics", 405),
        ("PATCH /v1/volumes/one", 400),
        ("POST /v1/volumes/none/flush", 404),
        ("POST /v1/flush", 204),
    ] {
        let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
        let early = stream.read(&mut [0; 1]).unwrap_err();
        assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock, "{request}: answered before its body came");
        stream.set_read_timeout(None).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = [0; 4096];
        let length = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
}

#[test]
fn stopping_completes_requests_in_progress() {
    let (api, fake) = local();
    fake.hold_flush();
    let address = api.address().clone();
    let asking = std::thread::spawn(move || client::ask_at(&address, "POST", "/v1/flush", ""));
    fake.wait_for("flush all");
    let stopping = std::thread::spawn(move || api.stop());
    fake.release_flush();
    assert_eq!(asking.join().unwrap().status, 204);
    stopping.join().unwrap();
}

#[test]
fn invalid_http_does_no_harm() {
    let (api, _) = local();
    for bytes in
        [&b"\0\0\0\0\r\n\r\n"[..], b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n"]
    {
        assert_eq!(client::send(api.address(), bytes).split(' ').nth(1), Some("400"));
    }
    let endless = [&b"GET / HTTP/1.1\r\nX: "[..], &[b'x'; 64 << 10]].concat();
    assert_eq!(client::send(api.address(), &endless).split(' ').nth(1), Some("431"));
    assert_eq!(ask(&api, "GET", "/healthz", "").status, 200);
}

/// Every number of a volume, set to a unique value, changes the metrics.
#[test]
fn every_figure_of_a_volume_is_a_metric() {
    let plain = serde_json::to_value(VolumeStatus { name: "one".to_owned(), ..VolumeStatus::default() }).unwrap();
    let encode = |volume: Value| {
        let volume = serde_json::from_value(volume).unwrap();
        encode_metrics(&ServerStatus { volumes: vec![volume], ..ServerStatus::default() }, &[])
    };
    let before = encode(plain.clone());
    let mut figures = 0;
    // Clients, their rules of caching, and the origin and the next start of the volume are not figures. The order of
    // write-back has those of `backend_state`.
    let others =
        ["clients", "cache_clients", "allow_clients", "deny_clients", "made", "attaches_at_start", "write_back_order"];
    for (key, value) in plain.as_object().unwrap().iter().filter(|(key, _)| !others.contains(&key.as_str())) {
        let changed = match value {
            Value::Null if key == "admission_choice" => vec![json!("other")],
            Value::Null if key == "write_budget" => {
                let budget = WriteBudgetStatus { bytes_per_day: 1e9, today_used: 0.25, ..WriteBudgetStatus::default() };
                vec![serde_json::to_value(budget).unwrap()]
            }
            Value::Null if key == "backend_state" => {
                vec![serde_json::to_value(BackendStatus { is_consistent: true, ..BackendStatus::default() }).unwrap()]
            }
            Value::Null if key == "state_reason" => vec![json!("flash: it is gone")],
            Value::Number(_) | Value::Null => vec![json!(1)],
            Value::Array(_) if key == "lost_blocks" => vec![json!([5])],
            Value::Array(_) if key == "changed_settings" => vec![json!(["policy"])],
            Value::Array(_) => {
                vec![
                    json!([{"operation": "read", "count": 1, "mean_us": 1.0, "p50_us": 1, "p99_us": 1, "p999_us": 1, "max_us": 1}]),
                ]
            }
            Value::String(_) => vec![json!("other")],
            Value::Object(faults) => {
                let one = |fault: &String| {
                    let mut faults = faults.clone();
                    faults.insert(fault.clone(), json!(1));
                    Value::Object(faults)
                };
                faults.keys().map(one).collect()
            }
            Value::Bool(_) => panic!("{key}"),
        };
        for changed in changed {
            let mut volume = plain.clone();
            volume[key] = changed;
            if key == "state" {
                volume[key] = json!("detaching");
            }
            assert_ne!(encode(volume), before, "{key}");
            figures += 1;
        }
    }
    assert!(figures > 40, "{figures}");
}

#[test]
fn metrics_have_units_labels_and_values() {
    let fake = Fake::default();
    // Three reads, of 20 us, 100 us and 20 s.
    let text = encode_metrics(&fake.status_with_buckets(), &[]);
    for line in [
        "# TYPE flashwise_client_read_bytes counter",
        "# UNIT flashwise_client_read_bytes bytes",
        "flashwise_client_read_bytes_total{volume=\"one\"} 40960",
        "flashwise_read_hit_bytes_total{volume=\"two / three\",tier=\"flash\"} 4108288",
        "flashwise_flash_written_by_cause_bytes_total{volume=\"one\",cause=\"copy-forward\"} 8192",
        "flashwise_volume_state{volume=\"one\",state=\"ok\"} 1",
        "flashwise_volume_state{volume=\"one\",state=\"detached\"} 0",
        "flashwise_request_duration_seconds_count{volume=\"one\",operation=\"read\"} 3",
        "flashwise_request_duration_seconds_sum{volume=\"one\",operation=\"read\"} 20.00012",
        "flashwise_request_duration_seconds_bucket{le=\"0.0001\",volume=\"one\",operation=\"read\"} 2",
        "flashwise_request_duration_seconds_bucket{le=\"10.0\",volume=\"one\",operation=\"read\"} 2",
        "flashwise_request_duration_seconds_bucket{le=\"+Inf\",volume=\"one\",operation=\"read\"} 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    // Years are unknown without a rating: no value rather than a wrong one.
    assert!(!text.contains("\nflashwise_flash_lifetime_seconds{volume=\"one\""));
    assert!(text.contains("\nflashwise_flash_lifetime_seconds{volume=\"two / three\"} 31536000"));
}

#[test]
fn a_budget_of_flash_writes_has_metrics_for_today_and_for_the_life() {
    let write_budget = WriteBudgetStatus {
        source: "drive".to_owned(),
        bytes_per_day: 1e9,
        today_bytes: 250_000_000,
        today_used: 0.25,
        life_days: 10.0,
        life_bytes: 9_000_000_000,
        life_used: 0.9,
        drive_bytes: Some(77_000_000_000),
    };
    let volume = VolumeStatus { name: "v".to_owned(), write_budget: Some(write_budget), ..VolumeStatus::default() };
    let text = encode_metrics(&ServerStatus { volumes: vec![volume], ..ServerStatus::default() }, &[]);
    for line in [
        "flashwise_write_budget_bytes_per_day{volume=\"v\"} 1000000000.0",
        "flashwise_write_budget_used_today_ratio{volume=\"v\"} 0.25",
        "flashwise_write_budget_used_life_ratio{volume=\"v\"} 0.9",
        "flashwise_flash_life_written_bytes{volume=\"v\"} 9000000000.0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

#[test]
fn names_with_quotes_cannot_forge_metrics() {
    let volume = VolumeStatus { name: "a\"} 1\nb\\".to_owned(), ..VolumeStatus::default() };
    let text = encode_metrics(&ServerStatus { volumes: vec![volume], ..ServerStatus::default() }, &[]);
    assert!(text.contains("flashwise_erasures_total{volume=\"a\\\"} 1\\nb\\\\\"} 0\n"), "{text}");
}

#[test]
fn every_route_and_metric_is_documented() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let documentation = std::fs::read_to_string(path).unwrap();
    let description = serde_json::to_value(openapi()).unwrap();
    let mut found = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "parameters") {
            let route = format!("| `{} {path}` |", method.to_uppercase());
            assert!(documentation.contains(&route), "{route}");
            found += 1;
        }
    }
    let rows = |method: &str| documentation.matches(&format!("| `{method} /")).count();
    assert_eq!(["GET", "POST", "PUT", "PATCH", "DELETE"].map(rows).iter().sum::<usize>(), found);
    let names = metric_names();
    for name in &names {
        assert!(documentation.contains(&format!("| `{name}` |")), "{name}");
    }
    assert_eq!(documentation.matches("| `flashwise_").count(), names.len());
    for setting in Setting::settable() {
        let Parameter { name, default, meaning, .. } = setting.parameter;
        let row = format!("| `{name}` | `{default}` | {meaning} |");
        assert!(documentation.contains(&row), "{row}");
    }
}

#[test]
fn every_described_route_is_there() {
    let (api, _) = local();
    let description = json_of(&ask(&api, "GET", "/openapi.json", ""));
    let paths = description["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 35);
    // One stream of events does not end.
    for (path, methods) in paths.iter().filter(|(path, _)| *path != "/v1/events") {
        for method in methods.as_object().unwrap().keys() {
            let path = path.replace("{name}", "one").replace("{number}", "1").replace("{disk}", "data");
            let status = ask(&api, &method.to_uppercase(), &path, "{\"policy\": \"lru\"}").status;
            let none = ["/v1/pools/", "/v1/disks", "/v1/clients/", "/v1/iscsi"];
            let of_pools = none.iter().any(|start| path.starts_with(start));
            match (method.as_str(), path.as_str()) {
                // This server has no pools and no clients, and the token is invalid.
                _ if of_pools => assert!([400, 404].contains(&status), "{method} {path}: {status}"),
                ("post", "/v1/session" | "/v1/pools" | "/v1/volumes") => assert_eq!(status, 400),
                // Not confirmed.
                ("delete", "/v1/volumes/one") => assert_eq!(status, 400),
                // It has no receivers.
                ("post", "/v1/alerts/test") => assert_eq!(status, 409),
                // Its volume may be attached.
                ("post", "/v1/volumes/one/attach") => assert!([204, 409].contains(&status), "{status}"),
                _ => assert!((200..300).contains(&status), "{method} {path}: {status}"),
            }
        }
    }
}

/// Every route that changes something rejects a read-only client; all others reply.
#[test]
fn a_read_only_client_sees_everything_and_changes_nothing() {
    let (api, fake) = start("127.0.0.1:0", Some("sesame")).unwrap();
    let description = serde_json::to_value(openapi()).unwrap();
    let mut refused = 0;
    for (path, methods) in description["paths"].as_object().unwrap().iter().filter(|(path, _)| *path != "/v1/events") {
        for method in methods.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let path = path.replace("{name}", "one").replace("{number}", "1").replace("{disk}", "data");
            let head =
                format!("{method} {path} HTTP/1.1\r\nHost: any\r\nAuthorization: Bearer peep-peep-peep-peep\r\n\r\n");
            let answer = request(&api, &head);
            match method.as_str() {
                "GET" => assert!([200, 404].contains(&answer.status), "{method} {path}: {}", answer.status),
                _ if ["/v1/session", "/v1/page"].contains(&path.as_str()) => assert_ne!(answer.status, 403),
                _ => {
                    let error = "this token is read-only; a change needs the token for changes".to_owned();
                    assert_eq!(error_of(&answer), (403, error), "{method} {path}");
                    refused += 1;
                }
            }
        }
    }
    assert_eq!(refused, 21);
    assert_eq!((fake.calls().len(), fake.changes().names().count()), (0, 0));
    let session = "GET /v1/session HTTP/1.1\r\nHost: any\r\nAuthorization: Bearer peep-peep-peep-peep\r\n\r\n";
    let expected = json!({"token_needed": true, "signed_in": true, "may_change": false});
    assert_eq!(json_of(&request(&api, session)), expected);
    let same = Tokens { change: Some("one".to_owned()), read: Some("one".to_owned()) };
    let alone = Tokens { read: Some("one".to_owned()), ..Tokens::default() };
    for tokens in [same, alone] {
        assert!(matches!(api.set_tokens(tokens), Err(ApiError::NoOtherToken)));
    }
}

#[test]
fn a_change_of_an_outdated_state_is_refused() {
    let (api, fake) = local();
    let tag = ask(&api, "GET", "/v1/volumes/one/settings", "").header("etag").unwrap().to_owned();
    let change = |tag: &str, path: &str| {
        let body = r#"{"policy": "lru"}"#;
        let head =
            format!("PATCH {path} HTTP/1.1\r\nHost: localhost\r\nIf-Match: {tag}\r\nContent-Length: 17\r\n\r\n{body}");
        request(&api, &head)
    };
    let error = "it has changed since you read it; read it again".to_owned();
    for path in ["/v1/volumes/one?dry-run=true", "/v1/volumes/one"] {
        assert_eq!(error_of(&change("\"other\"", path)), (412, error.clone()));
    }
    assert_eq!(fake.changes().names().count(), 0);
    assert_eq!(change(&tag, "/v1/volumes/one?dry-run=true").status, 200);
    let changed = change(&tag, "/v1/volumes/one");
    assert_eq!((changed.status, changed.header("etag").is_some()), (200, true));
    assert_eq!(fake.changes().names().collect::<Vec<_>>(), ["policy"]);
    let detach = |query: &str| {
        request(
            &api,
            &format!("POST /v1/volumes/one/detach{query} HTTP/1.1\r\nHost: localhost\r\nIf-Match: \"other\"\r\n\r\n"),
        )
    };
    assert_eq!(error_of(&detach("?dry-run=true")), (412, error.clone()));
    assert_eq!(error_of(&detach("")), (412, error));
    assert_eq!(json_of(&ask(&api, "GET", "/v1/volumes/one/detach", ""))["state"], "attached");
}

#[test]
fn the_history_of_an_unknown_volume_is_not_found() {
    let (api, _) = local();
    assert_eq!(error_of(&ask(&api, "GET", "/v1/volumes/four/history", "")).0, 404);
}

#[test]
fn a_recording_is_in_status_and_metrics() {
    let recording = RecordingStatus {
        path: "trace.zst".to_owned(),
        state: RecordingState::Recording,
        size_bytes: 1000,
        size_bytes_max: 9000,
        recorded_requests: 5,
        dropped_requests: 2,
        ..RecordingStatus::default()
    };
    let text = encode_metrics(&ServerStatus { recording: Some(recording), ..ServerStatus::default() }, &[]);
    assert!(text.contains("\nflashwise_recorded_requests_total 5\n"), "{text}");
    assert!(text.contains("\nflashwise_dropped_requests_total 2\n"), "{text}");
    assert!(text.contains("\nflashwise_recording_active 1\n"), "{text}");
    assert!(text.contains("\nflashwise_recording_size_bytes 1000\n"), "{text}");
    assert!(text.contains("\nflashwise_recording_size_max_bytes 9000\n"), "{text}");
}
