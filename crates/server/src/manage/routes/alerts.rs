//! The routes of events and alerts.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Answer, ChangeRequest, ErrorBody, Failure, Routed, asked};
use crate::manage::clock::seconds;
use crate::manage::history::{Event, Severity};
use crate::manage::notify::AlertStatus;

/// How events are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    /// A list.
    #[default]
    Json,
    /// A table; its first line has the column names.
    Csv,
}

/// Which events are asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// `json` (the default) or `csv`.
    #[serde(default)]
    format: Format,
    /// The least severity: `info` (the default), `warning` or `fault`.
    #[serde(default)]
    severity: Severity,
    /// Only events of this volume or pool.
    #[serde(default)]
    about: Option<String>,
}

/// The last events, oldest first.
#[utoipa::path(
    get,
    path = "/v1/events/export",
    params(Wanted),
    responses((status = 200, description = "The events", body = Vec<Event>))
)]
pub(super) async fn export(
    State(routed): State<Routed>,
    query: Result<Query<Wanted>, QueryRejection>,
) -> Answer<Response> {
    let Wanted { format, severity, about } = asked(query)?;
    let is_wanted = |event: &Event| {
        event.severity >= severity && about.as_deref().is_none_or(|about| event.volume.as_deref() == Some(about))
    };
    let events: Vec<Event> = routed.live.events_after(0).into_iter().filter(is_wanted).collect();
    let saved = |name: &str| (CONTENT_DISPOSITION, format!("attachment; filename=\"{name}\""));
    Ok(match format {
        Format::Json => ([saved("events.json")], Json(events)).into_response(),
        Format::Csv => {
            let kind = (CONTENT_TYPE, "text/csv; charset=utf-8".to_owned());
            ([saved("events.csv"), kind], csv(&events)).into_response()
        }
    })
}

fn csv(events: &[Event]) -> String {
    // A spreadsheet takes a leading sign for a formula.
    let cell = |text: &str| {
        let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.to_owned() };
        if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
    };
    let line = |event: &Event| {
        let of = |text: &Option<String>| cell(text.as_deref().unwrap_or_default());
        let (number, time) = (event.number, event.time_seconds);
        format!("{number},{time},{},{},{},{}\n", event.severity, of(&event.volume), cell(&event.text), of(&event.by))
    };
    "number,time_seconds,severity,volume,text,by\n".to_owned() + &events.iter().map(line).collect::<String>()
}

/// Destinations and thresholds of alerts, and the results of the last deliveries.
#[utoipa::path(
    get,
    path = "/v1/alerts",
    responses((status = 200, description = "The receivers and the limits", body = AlertStatus))
)]
pub(super) async fn alerts(State(routed): State<Routed>) -> Json<AlertStatus> {
    Json(routed.live.notifier.status())
}

/// Sends a test message to all receivers of alerts, and returns the results.
#[utoipa::path(
    post,
    path = "/v1/alerts/test",
    responses(
        (status = 200, description = "How it went, per receiver", body = AlertStatus),
        (status = 409, description = "Alerts go nowhere", body = ErrorBody),
    )
)]
pub(super) async fn test(ChangeRequest { live, .. }: ChangeRequest) -> Answer<Json<AlertStatus>> {
    let notifier = std::sync::Arc::clone(&live.live.notifier);
    let status = notifier.status();
    if status.webhook.is_none() && status.mail.is_none() {
        let error = "alerts go nowhere: set webhook or mail in [alerts] of the configuration".to_owned();
        return Err(Failure::new(StatusCode::CONFLICT, error));
    }
    let event = Event {
        number: 0,
        time_seconds: seconds(),
        volume: None,
        text: "This is a test of the alerts".to_owned(),
        by: Some(live.client.to_string()),
        severity: Severity::Info,
    };
    let sent = tokio::task::spawn_blocking(move || notifier.send(&[event])).await;
    let failed = |_| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed to do this".to_owned());
    sent.map(Json).map_err(failed)
}

pub(super) fn router() -> OpenApiRouter<Routed> {
    OpenApiRouter::default().routes(routes!(export)).routes(routes!(alerts)).routes(routes!(test))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_lines_that_spreadsheets_read_as_text() {
        let event = Event {
            number: 3,
            time_seconds: 7,
            volume: Some("one".to_owned()),
            text: "=HYPERLINK(\"x\"), y".to_owned(),
            by: None,
            severity: Severity::Warning,
        };
        let expected = "number,time_seconds,severity,volume,text,by\n3,7,warning,one,\"'=HYPERLINK(\"\"x\"\"), y\",\n";
        assert_eq!(csv(&[event]), expected);
    }
}
