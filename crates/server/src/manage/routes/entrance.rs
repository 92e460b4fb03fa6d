//! Admits requests to the API: checks credential, connection limit, body and concurrency. Logs refused requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::super::guard::{self, Guard, Peer};
use super::super::places::{ConnectionPlace, KNOWN_MAX};
use super::{Answer, Failure, Reason};

/// Time that a request with a wrong token waits.
pub const WRONG_TOKEN_PAUSE: Duration = Duration::from_millis(500);
/// The largest body of a request.
const BODY_BYTES_MAX: usize = 64 << 10;
/// A request's body must arrive within this time.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers a request if its sender has permission.
pub async fn guarded(
    State(guard): State<Arc<Guard>>,
    Extension(peer): Extension<Peer>,
    Extension(place): Extension<ConnectionPlace>,
    request: Request,
    next: Next,
) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let is_health = guard::is_health(uri.path());
    let sender = guard.client(&peer, request.headers());
    let is_known = !is_health && sender.is_some();
    // Health checks stay among the connections without a credential, so no client can block them.
    let answering = if is_known { place.admit() } else { is_health.then(|| place.answer()) };
    let response = match guard.check(&peer, &method, &uri, request.headers()) {
        Ok(_) if is_known && answering.is_none() => {
            let error = format!("{KNOWN_MAX} connections are being answered already, which is the most");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, error).into_response()
        }
        Ok(client) => match received(request).await {
            Ok(mut request) => {
                client.map(|client| request.extensions_mut().insert(client));
                let _turn = if is_known { Some(place.turn().await) } else { None };
                next.run(request).await
            }
            Err(failure) => failure.into_response(),
        },
        Err(refusal) => {
            let is_wrong = refusal.status == StatusCode::UNAUTHORIZED && request.headers().contains_key(AUTHORIZATION);
            let _ = received(request).await;
            if is_wrong {
                tokio::time::sleep(WRONG_TOKEN_PAUSE).await;
            }
            Failure::new(refusal.status, refusal.error).into_response()
        }
    };
    let status = response.status();
    tracing::debug!(event = "api-request", %peer, %method, path = uri.path(), status = status.as_u16(), "the API was \
        asked");
    if !method.is_safe()
        && !is_dry_run(&uri)
        && let Some(Reason(error)) = response.extensions().get()
        && let Some(times) = guard.refused.lock().count(Instant::now())
    {
        let sender = sender.map_or_else(|| peer.to_string(), |client| client.to_string());
        tracing::warn!(
            event = "api-request-failed",
            %method,
            path = uri.path(),
            status = status.as_u16(),
            error,
            client = sender,
            times,
            "a request to the API failed"
        );
    }
    response
}

fn is_dry_run(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|part| part == "dry-run=true"))
}

/// Reads the body into memory. A client that is still sending might not read an answer, so this comes before every
/// answer except refusals.
async fn received(request: Request) -> Answer<Request> {
    let (parts, body) = request.into_parts();
    let read = tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, BODY_BYTES_MAX)).await;
    let late = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned());
    let large = |_| {
        let error = format!("the body broke off or is too large, expected at most {BODY_BYTES_MAX} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    };
    Ok(Request::from_parts(parts, read.map_err(late)?.map_err(large)?.into()))
}
