//! The live data of an open page: the status of each second, and events.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flashwise_storage::status::{ServerStatus, VolumeState};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::Managed;
use super::alarms::Alarms;
use super::clock::seconds;
use super::history::{Event, History, Severity};
use super::news::News;
use super::notify::Notifier;

/// Time between two looks at the volumes.
const PERIOD: Duration = Duration::from_secs(1);
/// Time between two looks at the disks; the pools are checked less often.
const NEWS_PERIOD: Duration = Duration::from_secs(5);
/// Maximum time between two writes of the history, so a killed process loses at most this. Events are written sooner.
const KEPT_SECONDS: u64 = 60;

/// The current status, and the history.
pub struct Live {
    /// The history of figures and events.
    pub history: History,
    now: watch::Sender<Arc<ServerStatus>>,
    /// Sends alerts.
    pub notifier: Arc<Notifier>,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Live {
    /// With a history that is kept in a file, if there is one.
    pub fn new(history: Option<&Path>, notifier: Arc<Notifier>) -> Live {
        let of = |history| Live { history, now: watch::Sender::new(Arc::default()), notifier };
        let Some(path) = history else { return of(History::default()) };
        let (history, told) = History::kept_in(path, seconds());
        let live = of(history);
        if let Some(told) = told {
            tracing::warn!(event = "history-not-saved", "{told}");
            live.happened(None, Severity::Warning, told);
        }
        // Separates the events of earlier runs.
        live.happened(None, Severity::Info, "The server was started");
        live
    }

    /// Records an event, and sends it if it is an alert.
    pub fn happened(&self, volume: Option<&str>, severity: Severity, text: impl Into<String>) {
        self.add(volume, severity, text.into(), None);
    }

    /// Records news for operators, in the log too.
    pub fn record(&self, about: Option<&str>, severity: Severity, text: impl Into<String>) {
        let text = text.into();
        log(about, &text);
        self.add(about, severity, text, None);
    }

    /// Records a change and its author, in the log too.
    pub fn done(&self, about: Option<&str>, text: String, by: &str) {
        log(about, &format!("{text}, by {by}"));
        self.add(about, Severity::Info, text, Some(by.to_owned()));
    }

    fn add(&self, volume: Option<&str>, severity: Severity, text: String, by: Option<String>) {
        let volume = volume.map(str::to_owned);
        let event = Event { number: 0, time_seconds: seconds(), volume, text, by, severity };
        self.notifier.notify(&self.history.happened(event));
    }

    /// Returns the events after the event with this number, oldest first.
    pub fn events_after(&self, number: u64) -> Vec<Event> {
        self.history.events_after(number)
    }

    /// Returns the number after which a client needs events, if it has received those up to `number`. That is 0 if
    /// `number` comes from another run of the server.
    pub fn resume_after(&self, number: u64) -> u64 {
        let last = self.events_after(0).last().map_or(0, |event| event.number);
        if number > last { 0 } else { number }
    }

    /// The status once a second.
    pub fn watch(&self) -> watch::Receiver<Arc<ServerStatus>> {
        self.now.subscribe()
    }

    /// Records the status of all volumes once a second, as long as the runtime runs this.
    pub async fn look(self: Arc<Live>, server: Arc<dyn Managed>) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut states, mut kept_at) = (HashMap::new(), seconds());
        let (mut news, mut news_at) = (News::default(), Instant::now());
        let mut alarms = Alarms::new(self.notifier.options().clone());
        loop {
            ticks.tick().await;
            if news_at.elapsed() >= NEWS_PERIOD {
                news_at = Instant::now();
                let (asked, live) = (Arc::clone(&server), Arc::clone(&self));
                let looked = tokio::task::spawn_blocking(move || {
                    news.look(asked.pools(), |about, severity, text| live.record(about, severity, text));
                    news
                });
                news = looked.await.unwrap_or_default();
                self.history.set_used(news.used());
            }
            let asked = Arc::clone(&server);
            // Requests for the status report a panic, too; the next second may succeed.
            let Ok(status) = tokio::task::spawn_blocking(move || asked.status()).await else { continue };
            self.history.look(seconds(), &status.volumes);
            for volume in &status.volumes {
                let before = states.insert(volume.name.clone(), volume.state);
                if before.unwrap_or_default() != volume.state {
                    let reason = volume.state_reason.iter().map(|reason| format!(": {reason}"));
                    self.happened(
                        Some(&volume.name),
                        severity_of(volume.state),
                        format!("The state is {}{}", volume.state, reason.collect::<String>()),
                    );
                }
            }
            alarms.look(seconds(), &status.volumes, |volume, severity, text| {
                self.record(Some(volume), severity, text);
            });
            self.now.send_replace(Arc::new(status));
            if seconds() >= kept_at + KEPT_SECONDS || self.history.has_new_events() {
                kept_at = seconds();
                let live = Arc::clone(&self);
                // A failed write must not affect the next second.
                let _ = tokio::task::spawn_blocking(move || live.history.keep(seconds())).await;
            }
        }
    }
}

fn log(about: Option<&str>, text: &str) {
    match about {
        Some(volume) => tracing::info!(event = "changed", volume, "{text}"),
        None => tracing::info!(event = "changed", "{text}"),
    }
}

/// A state that an operator requested is no fault.
fn severity_of(state: VolumeState) -> Severity {
    match state {
        VolumeState::Ok | VolumeState::Detaching | VolumeState::Detached => Severity::Info,
        _ => Severity::Fault,
    }
}
