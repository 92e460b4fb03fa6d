//! What a page that is open sees: the status of each second and what happened, as a stream of events.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flashwise_engine::status::ServerStatus;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::Managed;
use super::history::{Event, History};
use super::news::News;

/// How often the volumes are looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// How often disks are looked at, and pools now and then.
const NEWS_PERIOD: Duration = Duration::from_secs(5);
/// How often the history is written to its file, unless something happened: who is killed loses so much of it.
const KEPT_SECONDS: u64 = 60;

/// What is known of the last days.
pub struct Live {
    /// The figures of each volume over time, and what happened.
    pub history: History,
    now: watch::Sender<Arc<ServerStatus>>,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Default for Live {
    fn default() -> Live {
        Live { history: History::default(), now: watch::Sender::new(Arc::default()) }
    }
}

impl Live {
    /// With a history that is kept in a file, if there is one.
    pub fn new(history: Option<&Path>) -> Live {
        let Some(path) = history else { return Live::default() };
        let (history, told) = History::kept_in(path, seconds());
        let live = Live { history, ..Live::default() };
        if let Some(told) = told {
            tracing::warn!("{told}");
            live.happened(None, told);
        }
        // What is told of earlier runs as well needs to be told apart.
        live.happened(None, "The server was started");
        live
    }

    /// Takes down what happened.
    pub fn happened(&self, volume: Option<&str>, text: impl Into<String>) {
        self.history.happened(seconds(), volume, text.into());
    }

    /// Takes down what somebody did or should know, in the log too.
    pub fn told(&self, about: Option<&str>, text: impl Into<String>) {
        let text = text.into();
        match about {
            Some(about) => tracing::info!("{about}: {text}"),
            None => tracing::info!("{text}"),
        }
        self.happened(about, text);
    }

    /// What happened after the event of that number, oldest first.
    pub fn events_after(&self, number: u64) -> Vec<Event> {
        self.history.events_after(number)
    }

    /// From which number on somebody is told what happened who was told up to `number`: from the beginning if that number was not given
    /// yet, since it is then one of another start.
    pub fn number_told(&self, number: u64) -> u64 {
        let last = self.events_after(0).last().map_or(0, |event| event.number);
        if number > last { 0 } else { number }
    }

    /// The status once a second.
    pub fn watch(&self) -> watch::Receiver<Arc<ServerStatus>> {
        self.now.subscribe()
    }

    /// Looks at what is managed once a second, for as long as the runtime runs this.
    pub async fn look(self: Arc<Live>, server: Arc<dyn Managed>) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut states, mut kept_at) = (HashMap::new(), seconds());
        let (mut news, mut news_at) = (News::default(), Instant::now());
        loop {
            ticks.tick().await;
            if news_at.elapsed() >= NEWS_PERIOD {
                news_at = Instant::now();
                let (asked, live) = (Arc::clone(&server), Arc::clone(&self));
                let looked = tokio::task::spawn_blocking(move || {
                    news.look(asked.pools(), |about, text| live.told(about, text));
                    news
                });
                news = looked.await.unwrap_or_default();
            }
            let asked = Arc::clone(&server);
            // A panic is in the answers of those who ask as well; the next second may be better.
            let Ok(status) = tokio::task::spawn_blocking(move || asked.status()).await else { continue };
            self.history.look(seconds(), &status.volumes);
            for volume in &status.volumes {
                let before = states.insert(volume.name.clone(), volume.state);
                if before.unwrap_or_default() != volume.state {
                    let reason = volume.state_reason.iter().map(|reason| format!(": {reason}"));
                    self.happened(
                        Some(&volume.name),
                        format!("The state is {}{}", volume.state, reason.collect::<String>()),
                    );
                }
            }
            self.now.send_replace(Arc::new(status));
            if seconds() >= kept_at + KEPT_SECONDS || self.history.has_new_events() {
                kept_at = seconds();
                let live = Arc::clone(&self);
                // Whether this second's figures are kept does not change the next one's.
                let _ = tokio::task::spawn_blocking(move || live.history.keep(seconds())).await;
            }
        }
    }
}

/// Now, since 1970.
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
