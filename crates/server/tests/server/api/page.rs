//! The page and its API: files, sign-in, events, history, and plans of changes.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use flashwise_server::manage::{Address, Api, Tokens};
use flashwise_testing::waiting::wait_for;
use serde_json::{Value, json};

use super::client::{ask, request, send};
use super::{error_of, json_of, local, over_tcp};

/// Opens a page; returns its address and path.
pub fn address(api: &Api) -> (Address, String) {
    let url = json_of(&ask(api, "POST", "/v1/page", ""))["url"].as_str().unwrap().to_owned();
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{url}");
    (address.parse().unwrap(), format!("/{path}"))
}

/// `flashwise page` prints an address on loopback, where every user of the machine can connect. It opens once, and
/// everything there needs the cookie.
#[test]
fn an_address_opens_the_page_once_and_nothing_is_there_without_its_cookie() {
    let (api, fake) = local();
    let (page, path) = address(&api);
    let get = |method: &str, path: &str, headers: &str| {
        send(
            &page,
            format!("{method} {path} HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n{headers}\r\n").as_bytes(),
        )
    };
    let is = |answer: String, status: u16| assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    for path in ["/", "/healthz", "/readyz", "/v1/session"] {
        is(get("GET", path, ""), 200);
    }
    let refused = get("GET", "/v1/status", "");
    assert!(refused.contains("open the page by the address that `flashwise page` prints"), "{refused}");
    is(get("POST", "/v1/page", ""), 401);
    is(get("POST", "/v1/flush", "Authorization: Bearer sesame\r\n"), 401);
    is(get("GET", "/page/enter?code=0123", ""), 401);
    let opened = get("GET", &path, "");
    assert!(opened.starts_with("HTTP/1.1 303 ") && opened.contains("\r\nlocation: /\r\n"), "{opened}");
    let cookie = opened.split_once("set-cookie: ").unwrap().1.split_once(';').unwrap().0;
    let with = format!("Cookie: {cookie}\r\n");
    is(get("GET", "/v1/status", &with), 200);
    is(get("POST", "/v1/flush", &with), 403);
    is(get("POST", "/v1/flush", &format!("{with}Sec-Fetch-Site: same-origin\r\n")), 204);
    assert_eq!(fake.calls(), ["flush all"]);
    is(get("GET", &path, ""), 401);
    assert_eq!(address(&api).0, page, "there is one port for all pages");
    api.stop();
}

/// A client with read-only access opens a read-only page.
#[test]
fn a_page_has_the_permission_of_its_client() {
    let (api, _) = over_tcp();
    let bearer = |token: &str| {
        let head = format!("POST /v1/page HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
        json_of(&request(&api, &head))["url"].as_str().map(str::to_owned)
    };
    assert_eq!(bearer("open"), None);
    for (token, may_change) in [("sesame", true), ("peep-peep-peep-peep", false)] {
        let url = bearer(token).unwrap();
        let (page, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let get = |path: &str, cookie: &str| {
            let head = format!("GET /{path} HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\nCookie: {cookie}\r\n\r\n");
            send(&page.parse().unwrap(), head.as_bytes())
        };
        let opened = get(path, "");
        let cookie = opened.split_once("set-cookie: ").unwrap().1.split_once(';').unwrap().0;
        let seen = get("v1/session", cookie);
        assert!(seen.ends_with(&format!("\"signed_in\":true,\"may_change\":{may_change}}}")), "{seen}");
    }
}

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
    let (api, _) = over_tcp();
    assert_eq!(ask(&api, "GET", "/", "").status, 200);
    let seen = ask(&api, "GET", "/v1/session", "");
    assert_eq!(json_of(&seen), json!({"token_needed": true, "signed_in": false, "may_change": false}));
    let given = |token: &str| {
        let body = json!({ "token": token }).to_string();
        let length = body.len();
        let head = format!(
            "POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: \
             {length}\r\n\r\n"
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
    let (api, _) = over_tcp();
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
    // The session's event stream ends.
    assert!(lines.filter(|line| line.as_ref().unwrap() == "event: status").count() <= 1);
}

fn connect(api: &Api) -> UnixStream {
    let Address::Unix(path) = api.address() else { panic!("a Unix socket") };
    UnixStream::connect(path).unwrap()
}

/// Returns the names and data of a stream's events, until `statuses` of them were `status`.
fn events(api: &Api, statuses: usize) -> Vec<(String, Value)> {
    events_after(api, statuses, "")
}

/// Returns the same for a request with this header.
fn events_after(api: &Api, statuses: usize, header: &str) -> Vec<(String, Value)> {
    let mut stream = connect(api);
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
fn an_event_stream_has_the_status_each_second_and_the_events() {
    let (api, _) = local();
    ask(&api, "PATCH", "/v1/volumes/one", r#"{"policy": "lru"}"#);
    ask(&api, "POST", "/v1/volumes/one/detach", "");
    let seen = events(&api, 2);
    let status = &seen.iter().find(|(name, _)| name == "status").unwrap().1;
    assert_eq!(status["volumes"][0]["policy"], "lru");
    let happened: Vec<_> = seen.iter().filter(|(name, _)| name == "happened").map(|(_, event)| event).collect();
    let told = happened[0]["text"].as_str().unwrap();
    let me = format!("uid {} (pid {})", rustix::process::geteuid().as_raw(), std::process::id());
    assert_eq!(told, "Settings were changed: policy = lru");
    assert_eq!((&happened[0]["by"], &happened[0]["severity"]), (&json!(me), &json!("info")));
    let exported = json_of(&ask(&api, "GET", "/v1/events/export?about=one", ""));
    assert_eq!(&exported[0], *happened.first().unwrap());
    assert_eq!(json_of(&ask(&api, "GET", "/v1/events/export?severity=fault", "")), json!([]));
    assert_eq!(error_of(&ask(&api, "GET", "/v1/events/export?severity=bad", "")).0, 400);
    // Without a receiver there is nothing to test.
    assert_eq!(error_of(&ask(&api, "POST", "/v1/alerts/test", "")).0, 409);
    assert_eq!(json_of(&ask(&api, "GET", "/v1/alerts", ""))["webhook"], Value::Null);
    assert_eq!((&happened[1]["volume"], &happened[1]["number"]), (&json!("one"), &json!(2)));
    // A client that reconnects gets only new events; after a restart of the server, all of them.
    for (header, told) in [("1", vec![2]), ("2", vec![]), ("0", vec![1, 2]), ("999", vec![1, 2]), ("abc", vec![1, 2])] {
        let seen = events_after(&api, 2, &format!("Last-Event-ID: {header}\r\n"));
        let numbers: Vec<_> = seen.iter().filter_map(|(_, event)| event["number"].as_u64()).collect();
        assert_eq!(numbers, told, "{header}");
    }
    // Open streams do not delay the shutdown.
    let mut follower = connect(&api);
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
    // The figures of this server do not change.
    assert_eq!((&past["step_seconds"], &past["points"][0]["reads_per_second"]), (&json!(1), &json!(0.0)));
    assert_eq!(past["points"][0]["read_hit_ratio"], Value::Null);
    assert_eq!(json_of(&ask(&api, "GET", "/v1/volumes/one/history?range=30d", ""))["step_seconds"], 1800);
    assert_eq!(error_of(&ask(&api, "GET", "/v1/volumes/one/history?range=1y", "")).0, 400);
}

#[test]
fn a_dry_run_reports_the_plan_without_effect() {
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
