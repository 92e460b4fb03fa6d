//! Sends alerts: to a webhook, and by mail.
//!
//! Mail is sent by a program such as the sendmail of postfix, exim or msmtp. These programs know the mail server and
//! the credentials, and they queue and retry. So this server's configuration needs no password. A webhook receives JSON
//! with a field `text`, which chat programs show.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::AlertOptions;
use super::clock::seconds;
use super::history::{Event, Severity};

/// Alerts within this time are sent together.
const TOGETHER: Duration = Duration::from_secs(2);
/// Most alerts that wait; later ones are not sent, and are among the events.
const WAITING_MAX: usize = 1000;
/// Time for a webhook or a mail.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Time between two checks of a running program.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How the last message to a receiver went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Sent {
    /// The receiver: the webhook's host, or the addresses of the mail.
    pub to: String,
    /// When something was sent last, in seconds since 1970; absent before the first time.
    pub time_seconds: Option<u64>,
    /// Why that failed; absent if it did not.
    pub error: Option<String>,
}

/// Where alerts go, and how that went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct AlertStatus {
    /// The webhook; absent without one.
    pub webhook: Option<Sent>,
    /// Mail; absent without addresses.
    pub mail: Option<Sent>,
    /// How long a detach may take before it raises an alert, in seconds.
    pub detach_seconds_max: f64,
    /// The p99 of reads that miss above which an alert is raised, in microseconds; absent for none.
    pub miss_p99_us_max: Option<u64>,
}

/// Sends alerts.
#[derive(Debug)]
pub struct Notifier {
    options: AlertOptions,
    status: Mutex<AlertStatus>,
    waiting: mpsc::Sender<Event>,
}

impl Notifier {
    /// Creates a notifier, and the queue for its [`run`](Self::run).
    pub fn new(options: AlertOptions) -> (Arc<Notifier>, mpsc::Receiver<Event>) {
        let (waiting, queue) = mpsc::channel(WAITING_MAX);
        let sent = |to: String| Sent { to, ..Sent::default() };
        let status = AlertStatus {
            webhook: options.webhook.as_deref().map(|url| sent(host_of(url).to_owned())),
            mail: (!options.mail.is_empty()).then(|| sent(options.mail.join(", "))),
            detach_seconds_max: options.detach_us_max as f64 / 1e6,
            miss_p99_us_max: options.miss_p99_us_max,
        };
        (Arc::new(Notifier { options, status: Mutex::new(status), waiting }), queue)
    }

    /// Returns the destinations and thresholds.
    pub fn options(&self) -> &AlertOptions {
        &self.options
    }

    /// Where alerts go, and how that went.
    pub fn status(&self) -> AlertStatus {
        self.status.lock().clone()
    }

    /// Sends an event soon if it is an alert.
    pub fn notify(&self, event: &Event) {
        let goes_anywhere = self.options.webhook.is_some() || !self.options.mail.is_empty();
        if event.severity != Severity::Info && goes_anywhere && self.waiting.try_send(event.clone()).is_err() {
            tracing::warn!(event = "alerts-waiting", "too many alerts wait to be sent; the page lists all of them");
        }
    }

    /// Sends queued alerts, as long as the runtime runs this.
    pub async fn run(self: Arc<Notifier>, mut queue: mpsc::Receiver<Event>) {
        while let Some(first) = queue.recv().await {
            tokio::time::sleep(TOGETHER).await;
            let mut events = vec![first];
            while let Ok(event) = queue.try_recv() {
                events.push(event);
            }
            let notifier = Arc::clone(&self);
            // After a panic, the alerts are still listed as events.
            let _ = tokio::task::spawn_blocking(move || notifier.send(&events)).await;
        }
    }

    /// Sends events now, and returns the result. Can take some seconds.
    pub fn send(&self, events: &[Event]) -> AlertStatus {
        let text = text_of(events);
        let webhook = self.options.webhook.as_deref().map(|url| post(url, &text, events));
        let mail = (!self.options.mail.is_empty()).then(|| self.mail(&text, events));
        let mut status = self.status.lock();
        let AlertStatus { webhook: of_webhook, mail: of_mail, .. } = &mut *status;
        for (result, sent) in [(webhook, of_webhook), (mail, of_mail)] {
            if let (Some(result), Some(sent)) = (result, sent) {
                sent.time_seconds = Some(seconds());
                sent.error = result.err();
                if let Some(error) = &sent.error {
                    tracing::warn!(event = "alert-not-sent", receiver = sent.to, error, "an alert could not be sent");
                }
            }
        }
        status.clone()
    }

    fn mail(&self, text: &str, events: &[Event]) -> Result<(), String> {
        let subject = match events {
            [one] => format!("{}: {}", one.about(), one.text),
            many => format!("{} alerts", many.len()),
        };
        // A header is one line of ASCII.
        let subject: String =
            subject.chars().map(|letter| if letter.is_ascii_graphic() { letter } else { ' ' }).collect();
        let message = format!(
            "To: {}\nSubject: [flashwise {}] {subject:.200}\nContent-Type: text/plain; charset=utf-8\n\n{text}\n",
            self.options.mail.join(", "),
            host(),
        );
        let program = self.options.mail_command.display().to_string();
        let failed = |error: io::Error| format!("{program}: {error}");
        let mut child = Command::new(&self.options.mail_command)
            .arg("-i")
            .arg("--")
            .args(&self.options.mail)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            // If a program ends early, its exit status shows why.
            let _ = input.write_all(message.as_bytes());
        }
        let started = Instant::now();
        loop {
            match child.try_wait().map_err(failed)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("{program} failed: {status}")),
                None if started.elapsed() > TIME_MAX => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("{program} did not end within {} s", TIME_MAX.as_secs()));
                }
                None => std::thread::sleep(LOOK_INTERVAL),
            }
        }
    }
}

/// The name of this machine.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The host of a URL. The rest may be a secret.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

fn text_of(events: &[Event]) -> String {
    let lines = events.iter().map(|event| {
        let by = event.by.iter().map(|by| format!(", by {by}")).collect::<String>();
        format!("{}: {}: {}{by}", event.severity, event.about(), event.text)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The body for a webhook.
#[derive(Serialize)]
struct Message<'a> {
    text: String,
    host: String,
    events: &'a [Event],
}

fn post(url: &str, text: &str, events: &[Event]) -> Result<(), String> {
    let message = Message { text: format!("flashwise on {}\n{text}", host()), host: host(), events };
    let body = serde_json::to_string(&message).map_err(|error| error.to_string())?;
    let config = ureq::Agent::config_builder().timeout_global(Some(TIME_MAX)).max_redirects(0);
    #[cfg(feature = "tls")]
    let config = config.tls_config(
        ureq::tls::TlsConfig::builder()
            .provider(ureq::tls::TlsProvider::Rustls)
            .root_certs(ureq::tls::RootCerts::PlatformVerifier)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build(),
    );
    let agent = config.build().new_agent();
    // The error has no URL, which may be a secret.
    agent.post(url).header("Content-Type", "application/json").send(&body).map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn event() -> Event {
        Event {
            number: 3,
            time_seconds: 7,
            volume: Some("one".to_owned()),
            text: "The state is flash-failed".to_owned(),
            by: Some("uid 0".to_owned()),
            severity: Severity::Fault,
        }
    }

    #[test]
    fn a_webhook_gets_the_events_and_its_answer_counts() {
        for (answer, error) in [("200 OK", None), ("503 Service Unavailable", Some("http status: 503"))] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/hook?secret=1", listener.local_addr().unwrap());
            let receiver = std::thread::spawn(move || {
                let mut input = BufReader::new(listener.accept().unwrap().0);
                let (mut head, mut length) = (String::new(), 0);
                while !head.ends_with("\r\n\r\n") {
                    let at = head.len();
                    input.read_line(&mut head).unwrap();
                    if let Some(value) = head[at..].to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                input.read_exact(&mut body).unwrap();
                write!(input.get_mut(), "HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n").unwrap();
                (head, serde_json::from_slice::<serde_json::Value>(&body).unwrap())
            });
            let options = AlertOptions { webhook: Some(url), ..AlertOptions::default() };
            let (notifier, _queue) = Notifier::new(options);
            let sent = notifier.send(&[event()]).webhook.unwrap();
            let (head, body) = receiver.join().unwrap();
            assert!(head.starts_with("POST /hook?secret=1 HTTP/1.1\r\n"), "{head}");
            let text = body["text"].as_str().unwrap();
            assert!(text.ends_with("\nfault: one: The state is flash-failed, by uid 0"), "{text}");
            assert_eq!(body["events"][0]["number"], 3);
            assert_eq!(sent.error.as_deref(), error);
            assert!(sent.time_seconds.is_some() && sent.to.starts_with("127.0.0.1:") && !sent.to.contains("secret"));
        }
    }

    #[test]
    fn a_mail_goes_through_a_program() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("sendmail");
        let written = folder.path().join("mail");
        std::fs::write(&program, format!("#!/bin/sh\necho \"$@\" > {0}\ncat >> {0}\n", written.display())).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let options = AlertOptions {
            mail: vec!["ops@example.com".to_owned()],
            mail_command: program.clone(),
            ..AlertOptions::default()
        };
        let (notifier, _queue) = Notifier::new(options.clone());
        assert_eq!(notifier.send(&[event()]).mail.unwrap().error, None);
        let mail = std::fs::read_to_string(&written).unwrap();
        assert!(mail.starts_with("-i -- ops@example.com\nTo: ops@example.com\nSubject: [flashwise "), "{mail}");
        assert!(mail.contains("] one: The state is flash-failed\n"), "{mail}");
        assert!(mail.ends_with("\n\nfault: one: The state is flash-failed, by uid 0\n"), "{mail}");
        std::fs::write(&program, "#!/bin/sh\nexit 3\n").unwrap();
        let error = notifier.send(&[event()]).mail.unwrap().error.unwrap();
        assert!(error.ends_with("failed: exit status: 3"), "{error}");
        let missing = AlertOptions { mail_command: folder.path().join("none"), ..options };
        assert!(Notifier::new(missing).0.send(&[event()]).mail.unwrap().error.unwrap().contains("No such file"));
    }
}
