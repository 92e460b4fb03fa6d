//! The page and what it lives on: its files, signing in, events, history, and what a change would do.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use flashwise_server::manage::Tokens;
use flashwise_testing::waiting::wait_for;
use serde_json::{Value, json};

use super::client::{ask, request};
use super::{error_of, json_of, local, start};

#[test]
fn the_page_is_served_whole_and_may_load_nothing_else() {
    let (api, _) = local();
    let page = ask(&api, "GET", "/", "");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self' 'sha256-") && !policy.contains("unsafe"),
        "{policy}"
    );
    for path in page.body.split('"').filter(|text| text.starts_with("/page/")) {
        assert_eq!(ask(&api, "GET", path, "").status, 200, "{path}");
    }
    assert_eq!(ask(&api, "GET", "/page/nothing.mjs", "").status, 404);
    let tag = page.header("etag").unwrap();
    let again = request(&api, &format!("GET / HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n"));
    assert_eq!((again.status, again.body.as_str()), (304, ""));
}

#[test]
fn a_token_is_given_once_and_a_cookie_stands_for_it() {
    let (api, _) = start("127.0.0.1:0", Some("sesame")).unwrap();
    assert_eq!(ask(&api, "GET", "/", "").status, 200);
    let seen = ask(&api, "GET", "/v1/session", "");
    assert_eq!(json_of(&seen), json!({"token_needed": true, "signed_in": false, "may_change": false}));
    let given = |token: &str| {
        let body = json!({ "token": token }).to_string();
        let length = body.len();
        let head = format!(
            "POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        request(&api, &format!("{head}{body}"))
    };
    assert_eq!(error_of(&given("open")).0, 401);
    assert_eq!(error_of(&given(&"open".repeat(20_000))).0, 413);
    let signed_in = given("sesame");
    assert_eq!(signed_in.status, 204);
    let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let with = |method: &str, path: &str, more: &str| {
        request(&api, &format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n{more}\r\n"))
    };
    assert_eq!(with("GET", "/v1/status", "").status, 200);
    assert_eq!(json_of(&with("GET", "/v1/session", ""))["signed_in"], true);
    assert_eq!(with("POST", "/v1/flush", "").status, 403);
    assert_eq!(with("POST", "/v1/flush", "Sec-Fetch-Site: same-origin\r\n").status, 204);
    assert_eq!(with("DELETE", "/v1/session", "Sec-Fetch-Site: same-origin\r\n").status, 204);
    assert_eq!(with("GET", "/v1/status", "").status, 401);
}

#[test]
fn another_token_signs_everybody_out() {
    let (api, _) = start("127.0.0.1:0", Some("sesame")).unwrap();
    let body = r#"{"token": "sesame"}"#;
    let head =
        "POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 19\r\n\r\n";
    let answer = request(&api, &format!("{head}{body}"));
    let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let ask =
        || request(&api, &format!("GET /v1/status HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n")).status;
    assert_eq!(ask(), 200);
    let mut follower = TcpStream::connect(api.address().to_string()).unwrap();
    let head = format!("GET /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: {cookie}\r\n\r\n");
    follower.write_all(head.as_bytes()).unwrap();
    follower.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let mut lines = BufReader::new(follower).lines();
    assert!(lines.any(|line| line.unwrap() == "event: status"));
    api.set_tokens(Tokens { change: Some("abracadabra".to_owned()), ..Tokens::default() }).unwrap();
    assert_eq!(ask(), 401);
    // Who follows the server is not told any more.
    assert!(lines.filter(|line| line.as_ref().unwrap() == "event: status").count() <= 1);
}

/// Events of a stream until this many of `status` were seen: their names and data.
fn events(api: &flashwise_server::manage::Api, statuses: usize) -> Vec<(String, Value)> {
    events_after(api, statuses, "")
}

/// As [`events`], asked for with this header.
fn events_after(api: &flashwise_server::manage::Api, statuses: usize, header: &str) -> Vec<(String, Value)> {
    let mut stream = TcpStream::connect(api.address().to_string()).unwrap();
    stream.write_all(format!("GET /v1/events HTTP/1.1\r\nHost: localhost\r\n{header}\r\n").as_bytes()).unwrap();
    let (mut name, mut found, mut ids) = (String::new(), Vec::new(), Vec::new());
    for line in BufReader::new(stream).lines() {
        let line = line.unwrap();
        if let Some(event) = line.strip_prefix("event: ") {
            name = event.to_owned();
        } else if let Some(data) = line.strip_prefix("data: ") {
            found.push((name.clone(), serde_json::from_str::<Value>(data).unwrap()));
        } else if let Some(id) = line.strip_prefix("id: ") {
            ids.push(id.to_owned());
        }
        if found.iter().filter(|(name, _)| name == "status").count() == statuses && line.is_empty() {
            break;
        }
    }
    let numbers = found.iter().filter(|(name, _)| name == "happened").map(|(_, event)| event["number"].to_string());
    assert_eq!(ids, numbers.collect::<Vec<_>>(), "what happened has its number as its id");
    found
}

#[test]
fn who_follows_sees_the_status_each_second_and_what_happened() {
    let (api, _) = local();
    ask(&api, "PATCH", "/v1/volumes/one", r#"{"policy": "lru"}"#);
    ask(&api, "POST", "/v1/volumes/one/detach", "");
    let seen = events(&api, 2);
    let status = &seen.iter().find(|(name, _)| name == "status").unwrap().1;
    assert_eq!(status["volumes"][0]["policy"], "lru");
    let happened: Vec<_> = seen.iter().filter(|(name, _)| name == "happened").map(|(_, event)| event).collect();
    assert_eq!(happened[0]["text"], "Settings were changed: policy = lru");
    assert_eq!((&happened[1]["volume"], &happened[1]["number"]), (&json!("one"), &json!(2)));
    // Who comes again is told what is new, and of a server that was started anew all.
    for (header, told) in [("1", vec![2]), ("2", vec![]), ("0", vec![1, 2]), ("999", vec![1, 2]), ("abc", vec![1, 2])] {
        let seen = events_after(&api, 2, &format!("Last-Event-ID: {header}\r\n"));
        let numbers: Vec<_> = seen.iter().filter_map(|(_, event)| event["number"].as_u64()).collect();
        assert_eq!(numbers, told, "{header}");
    }
    // Those who follow do not hold up the end.
    let mut follower = TcpStream::connect(api.address().to_string()).unwrap();
    follower.write_all(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    BufReader::new(&follower).read_line(&mut String::new()).unwrap();
    api.stop();
}

#[test]
fn the_history_is_of_one_volume_and_range() {
    let (api, _) = local();
    let past = wait_for("there is a past", || {
        let past = json_of(&ask(&api, "GET", "/v1/volumes/one/history?range=15min", ""));
        (!past["points"].as_array().unwrap().is_empty()).then_some(past)
    });
    // The figures of this server stand still.
    assert_eq!((&past["step_seconds"], &past["points"][0]["reads_per_second"]), (&json!(1), &json!(0.0)));
    assert_eq!(past["points"][0]["read_hit_ratio"], Value::Null);
    assert_eq!(json_of(&ask(&api, "GET", "/v1/volumes/one/history?range=30d", ""))["step_seconds"], 1800);
    assert_eq!(error_of(&ask(&api, "GET", "/v1/volumes/one/history?range=1y", "")).0, 400);
}

#[test]
fn a_dry_run_says_what_would_happen_and_does_nothing() {
    let (api, fake) = local();
    let plan = json_of(&ask(&api, "PATCH", "/v1/volumes/one?dry-run=true", r#"{"policy": "lru"}"#));
    assert_eq!(plan["does"][0], "policy changes from larc to lru.");
    assert_eq!(fake.changes().names().count(), 0);
    let plan = json_of(&ask(&api, "POST", "/v1/volumes/one/detach?dry-run=true", ""));
    assert_eq!(plan["destroys"], true);
    assert_eq!(json_of(&ask(&api, "GET", "/v1/volumes/one/detach", ""))["state"], "attached");
    assert_eq!(error_of(&ask(&api, "PATCH", "/v1/volumes/one?dry-run=true", r#"{"policy": "lur"}"#)).0, 400);
    assert_eq!(error_of(&ask(&api, "PATCH", "/v1/volumes/one?dryrun=1", r#"{"policy": "lru"}"#)).0, 400);
    let settings = json_of(&ask(&api, "GET", "/v1/volumes/one/settings", ""));
    assert!(settings.as_array().unwrap().iter().any(|setting| setting["name"] == "dirty-high"));
}
