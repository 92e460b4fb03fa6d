//! The routes of the management API, and their description in OpenAPI 3.1.

mod alerts;
mod clients;
mod description;
mod entrance;
mod following;
mod pools;
mod volumes;

use std::fmt;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRef, FromRequestParts, Path, Query, Request, State};
use axum::http::header::{CONTENT_TYPE, ETAG, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use utoipa::{IntoParams, OpenApi, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

pub use self::description::openapi;
use self::description::{Description, grouped};
pub use self::following::Page;
use super::changes::{self, Changes};
use super::guard::Caller;
use super::live::Live;
use super::plan::{self, DryRun};
use super::{DetachProgress, ManageError, Managed, SettingStatus, metrics, page, tag};
use flashwise_storage::pool::status::PoolState;
use flashwise_storage::status::{ServerStatus, VolumeState, VolumeStatus};
use flashwise_storage::what_if::WhatIfStatus;

/// Why a request failed: a status and `{"error": text}`.
#[derive(Debug)]
pub struct Failure {
    status: StatusCode,
    error: String,
}

/// The error of a failure, which its answer carries for the log.
#[derive(Clone, Debug)]
struct Reason(String);

/// The body of failures.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    /// The error message.
    error: String,
}

impl Failure {
    pub fn new(status: StatusCode, error: String) -> Failure {
        Failure { status, error }
    }
}

impl From<ManageError> for Failure {
    fn from(error: ManageError) -> Failure {
        let status = match error {
            ManageError::NoSuchVolume { .. } | ManageError::NotFound(_) => StatusCode::NOT_FOUND,
            ManageError::Invalid(_) => StatusCode::BAD_REQUEST,
            ManageError::Conflict(_) => StatusCode::CONFLICT,
            ManageError::Changed => StatusCode::PRECONDITION_FAILED,
            ManageError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Failure { status, error: error.to_string() }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let reason = Reason(self.error.clone());
        let mut response = (self.status, Json(ErrorBody { error: self.error })).into_response();
        response.extensions_mut().insert(reason);
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

pub type Answer<T> = Result<T, Failure>;
type Server = State<Arc<dyn Managed>>;

/// The state of the routes.
#[derive(Clone)]
struct Routed {
    server: Arc<dyn Managed>,
    live: Arc<Live>,
    changing: Changing,
}

/// Serialises changes, so that an object stays the same between the check of its tag and the change.
type Changing = Arc<Mutex<()>>;

/// The condition of a change: the object must be unchanged since the client read it.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
struct IfMatch {
    /// The `ETag` of the object; a request with an outdated one is refused.
    #[param(rename = "If-Match")]
    _if_match: Option<String>,
}

/// The log of changes, with the client that makes them.
struct AuthoredLog {
    live: Arc<Live>,
    client: Caller,
}

impl AuthoredLog {
    /// Records a change with its author.
    fn record(&self, about: Option<&str>, text: impl fmt::Display) {
        self.live.done(about, text.to_string(), &self.client.to_string());
    }
}

/// The common parts of all requests for a change.
struct ChangeRequest {
    server: Arc<dyn Managed>,
    live: AuthoredLog,
    changing: Changing,
    /// True for a dry run.
    dry: bool,
    /// The accepted tags; `None` accepts all.
    wanted: Option<Vec<String>>,
}

impl ChangeRequest {
    fn of(parts: &Parts, routed: &Routed, dry: bool) -> Answer<ChangeRequest> {
        let Routed { server, live, changing } = routed.clone();
        let client = parts.extensions.get::<Caller>().cloned().ok_or_else(unknown_client)?;
        Ok(ChangeRequest {
            server,
            live: AuthoredLog { live, client },
            changing,
            dry,
            wanted: tag::wanted(&parts.headers),
        })
    }
}

impl FromRequestParts<Routed> for ChangeRequest {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, routed: &Routed) -> Answer<ChangeRequest> {
        ChangeRequest::of(parts, routed, asked(Query::<DryRun>::try_from_uri(&parts.uri))?.dry_run)
    }
}

/// Query of a deletion.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Deletion {
    /// Repeats the name, to prevent mistakes. Optional in a dry run.
    confirm: Option<String>,
    /// Returns the plan, and changes nothing.
    #[serde(default, rename = "dry-run")]
    dry_run: bool,
}

/// A request for a deletion.
struct Deleting {
    asked: ChangeRequest,
    confirm: Option<String>,
}

impl Deleting {
    /// Returns the request if it repeats the name; otherwise fails with the effect of the deletion.
    fn confirmed(self, name: &str, effect: impl fmt::Display) -> Answer<ChangeRequest> {
        check_confirmed(self.asked.dry, self.confirm.as_deref(), name, effect)?;
        Ok(self.asked)
    }
}

impl FromRequestParts<Routed> for Deleting {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, routed: &Routed) -> Answer<Deleting> {
        let Deletion { confirm, dry_run } = asked(Query::try_from_uri(&parts.uri))?;
        Ok(Deleting { asked: ChangeRequest::of(parts, routed, dry_run)?, confirm })
    }
}

/// Fails unless the name was repeated correctly; a dry run may omit it.
fn check_confirmed(dry: bool, confirm: Option<&str>, name: &str, effect: impl fmt::Display) -> Answer<()> {
    match confirm.map_or(dry, |confirm| confirm == name) {
        true => Ok(()),
        false => Err(bad(format!("{effect}; to confirm it, repeat '{name}' as confirm"))),
    }
}

impl FromRef<Routed> for Arc<dyn Managed> {
    fn from_ref(routed: &Routed) -> Self {
        Arc::clone(&routed.server)
    }
}

impl FromRef<Routed> for Arc<Live> {
    fn from_ref(routed: &Routed) -> Self {
        Arc::clone(&routed.live)
    }
}
pub type Name = Result<Path<String>, PathRejection>;

/// Runs a function that can wait for locks and devices on a thread of its own.
async fn blocking<T: Send + 'static>(
    server: Arc<dyn Managed>,
    work: impl FnOnce(&dyn Managed) -> Result<T, ManageError> + Send + 'static,
) -> Answer<T> {
    let done = tokio::task::spawn_blocking(move || work(&*server)).await;
    let failed = |_| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed to do this".to_owned());
    Ok(done.map_err(failed)??)
}

/// The guard names the client of each request that needs a credential.
fn unknown_client() -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the client is not known".to_owned())
}

/// The answer to an invalid request.
fn bad(error: String) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, error)
}

/// Returns the name in a path.
fn named<T>(name: Result<Path<T>, PathRejection>) -> Answer<T> {
    name.map(|Path(name)| name).map_err(|error| bad(error.body_text()))
}

/// Returns the query of a request.
fn asked<T>(query: Result<Query<T>, QueryRejection>) -> Answer<T> {
    query.map(|Query(query)| query).map_err(|error| bad(error.body_text()))
}

/// The server and all of its volumes.
#[utoipa::path(
    get,
    path = "/v1/status",
    responses((status = 200, description = "Success", body = ServerStatus))
)]
async fn status(State(server): Server) -> Answer<Json<ServerStatus>> {
    blocking(server, |server| Ok(server.status())).await.map(Json)
}

/// One volume.
#[utoipa::path(
    get,
    path = "/v1/volumes/{name}",
    responses((status = 200, description = "Success", body = VolumeStatus))
)]
async fn volume_status(State(server): Server, name: Name) -> Answer<Json<VolumeStatus>> {
    let name = named(name)?;
    blocking(server, move |server| server.volume(&name)).await.map(Json)
}

/// Changes settings of a volume while it runs.
#[utoipa::path(
    patch,
    path = "/v1/volumes/{name}",
    params(DryRun, IfMatch),
    request_body = Changes,
    responses(
        (status = 200, description = "The volume; with `dry-run=true`: the plan", body = VolumeStatus),
        (status = 409, description = "It cannot be done now", body = ErrorBody),
    )
)]
async fn change(
    ChangeRequest { server, live, changing, dry, wanted }: ChangeRequest,
    name: Name,
    body: Bytes,
) -> Answer<Response> {
    let name = named(name)?;
    let changes = changes::parse(&body).map_err(bad)?;
    let work = move |server: &dyn Managed| {
        let _one = changing.lock();
        let settings = server.settings(&name)?;
        tag::check(wanted.as_deref(), &tag::of_settings(&settings))?;
        if dry {
            server.check_set(&name, &changes)?;
            return Ok(Json(plan::of_change(&server.volume(&name)?, &settings, &changes)).into_response());
        }
        server.set(&name, &changes)?;
        let values = changes.names().map(|key| format!("{key} = {}", plan::shown(&changes, key)));
        live.record(Some(&name), format!("Settings were changed: {}", values.collect::<Vec<_>>().join(", ")));
        let tag = tag::of_settings(&server.settings(&name)?);
        Ok(([(ETAG, tag)], Json(server.volume(&name)?)).into_response())
    };
    blocking(server, work).await
}

/// The settings of a volume that can change while it runs.
#[utoipa::path(
    get,
    path = "/v1/volumes/{name}/settings",
    responses((status = 200, description = "Success", body = Vec<SettingStatus>))
)]
async fn settings(State(server): Server, name: Name) -> Answer<Response> {
    let name = named(name)?;
    let settings = blocking(server, move |server| server.settings(&name)).await?;
    Ok(([(ETAG, tag::of_settings(&settings))], Json(settings)).into_response())
}

/// Predictions for the volume's cache with another policy or size, from a sample of its accesses since it was opened.
#[utoipa::path(
    get,
    path = "/v1/volumes/{name}/what-if",
    responses(
        (status = 200, description = "Success", body = WhatIfStatus),
        (status = 404, description = "There is no such volume, or it has no flash", body = ErrorBody),
    )
)]
async fn what_if(State(server): Server, name: Name) -> Answer<Json<WhatIfStatus>> {
    let name = named(name)?;
    blocking(server, move |server| server.what_if(&name)).await.map(Json)
}

/// Parses the body of a request.
fn json<T: DeserializeOwned>(body: &Bytes) -> Answer<T> {
    serde_json::from_slice(body).map_err(|error| bad(format!("the body is invalid: {error}")))
}

/// Flushes all volumes.
#[utoipa::path(
    post,
    path = "/v1/flush",
    responses(
        (status = 204, description = "It is done"),
        (status = 500, description = "It failed", body = ErrorBody),
    )
)]
async fn flush_all(State(server): Server) -> Answer<StatusCode> {
    blocking(server, |server| server.flush(None)).await.map(|()| StatusCode::NO_CONTENT)
}

/// Flushes a volume.
#[utoipa::path(
    post,
    path = "/v1/volumes/{name}/flush",
    responses(
        (status = 204, description = "It is done"),
        (status = 500, description = "It failed", body = ErrorBody),
    )
)]
async fn flush(State(server): Server, name: Name) -> Answer<StatusCode> {
    let name = named(name)?;
    blocking(server, move |server| server.flush(Some(&name))).await.map(|()| StatusCode::NO_CONTENT)
}

/// Starts to write back all dirty blocks of a volume. Afterwards its backend is complete without the cache.
#[utoipa::path(
    post,
    path = "/v1/volumes/{name}/detach",
    params(DryRun, IfMatch),
    responses(
        (status = 202, description = "It began", body = DetachProgress),
        (status = 409, description = "It cannot be done now", body = ErrorBody),
    )
)]
async fn detach(ChangeRequest { server, live, changing, dry, wanted }: ChangeRequest, name: Name) -> Answer<Response> {
    let name = named(name)?;
    let work = move |server: &dyn Managed| {
        let _one = changing.lock();
        tag::check(wanted.as_deref(), &tag::of_settings(&server.settings(&name)?))?;
        server.check_detach(&name)?;
        if dry {
            return Ok(Json(plan::of_detach(&server.volume(&name)?)).into_response());
        }
        server.detach(&name)?;
        live.record(Some(&name), "Detaching the flash began");
        Ok((StatusCode::ACCEPTED, Json(server.detach_progress(&name)?)).into_response())
    };
    blocking(server, work).await
}

/// Ends a detach: the next start of the server uses the volume's flash again.
#[utoipa::path(
    post,
    path = "/v1/volumes/{name}/attach",
    params(DryRun, IfMatch),
    responses(
        (status = 204, description = "The next start uses the flash"),
        (status = 409, description = "It is not detached", body = ErrorBody),
        (status = 500, description = "It failed", body = ErrorBody),
    )
)]
async fn attach(ChangeRequest { server, live, changing, dry, wanted }: ChangeRequest, name: Name) -> Answer<Response> {
    let name = named(name)?;
    let work = move |server: &dyn Managed| {
        let _one = changing.lock();
        tag::check(wanted.as_deref(), &tag::of_settings(&server.settings(&name)?))?;
        server.check_attach(&name)?;
        if dry {
            return Ok(Json(plan::of_attach(&server.volume(&name)?)).into_response());
        }
        server.attach(&name)?;
        live.record(Some(&name), "The next start uses the flash again");
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    blocking(server, work).await
}

/// The progress of detaching a volume.
#[utoipa::path(
    get,
    path = "/v1/volumes/{name}/detach",
    responses(
        (status = 200, description = "Success", body = DetachProgress),
        (status = 500, description = "It failed", body = ErrorBody),
    )
)]
async fn detach_progress(State(server): Server, name: Name) -> Answer<Json<DetachProgress>> {
    let name = named(name)?;
    blocking(server, move |server| server.detach_progress(&name)).await.map(Json)
}

/// All figures for Prometheus, in the OpenMetrics text format.
#[utoipa::path(
    get,
    path = "/metrics",
    responses(
        (status = 200, description = "Success", body = String, content_type = "application/openmetrics-text"),
    )
)]
async fn all_metrics(State(server): Server) -> Answer<Response> {
    let figures =
        |server: &dyn Managed| Ok((server.status(), server.pools().map(|pools| pools.status()).unwrap_or_default()));
    let (status, pools) = blocking(server, figures).await?;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(CONTENT_TYPE, content_type)], metrics::encode(&status, &pools)).into_response())
}

/// Answers if the server runs; needs no token.
#[utoipa::path(
    get,
    path = "/healthz",
    security(()),
    responses((status = 200, description = "Success", body = String))
)]
async fn health() -> &'static str {
    "ok\n"
}

/// Succeeds if every volume serves reads and writes; needs no token.
#[utoipa::path(
    get,
    path = "/readyz",
    security(()),
    responses(
        (status = 200, description = "All of them do", body = String),
        (status = 503, description = "Some do not", body = ErrorBody),
    )
)]
async fn ready(State(server): Server) -> Answer<&'static str> {
    let look =
        |server: &dyn Managed| Ok((server.status(), server.pools().map(|pools| pools.status()).unwrap_or_default()));
    let (status, pools) = blocking(server, look).await?;
    // Requests for the data of a missing disk fail.
    let lacks_disks = |name: &str| pools.iter().any(|pool| pool.name == name && pool.state == PoolState::Degraded);
    // While lost blocks are recorded without a flash, or blocks wait in memory, no flush succeeds.
    let has_lost = |volume: &VolumeStatus| volume.flash.is_empty() && !volume.lost_blocks.is_empty();
    let serves = |volume: &&VolumeStatus| {
        let has_failed = matches!(volume.state, VolumeState::FlashFailed | VolumeState::BackendFailed);
        !has_failed && !has_lost(volume) && volume.unwritten_blocks == 0 && !lacks_disks(&volume.name)
    };
    let all = status.volumes.len() + status.unserved_volumes.len() + status.unserved_pools.len();
    let serving = status.volumes.iter().filter(serves).count();
    if serving == all {
        return Ok("ok\n");
    }
    // Only clients with a token may see names.
    let error =
        format!("{} of {all} volumes and pools do not serve reads and writes; /v1/status names them", all - serving);
    Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, error))
}

/// This description.
#[utoipa::path(
    get,
    path = "/openapi.json",
    responses((status = 200, description = "Success", body = Object))
)]
async fn description() -> Json<utoipa::openapi::OpenApi> {
    Json(openapi())
}

async fn no_such_route() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "no such path; /openapi.json lists all paths".to_owned())
}

async fn wrong_method(request: Request) -> Failure {
    let error = format!("{} is not supported by this path; /openapi.json lists its methods", request.method());
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, error)
}

/// The routes that answer from the server, and their description.
fn described() -> OpenApiRouter<Routed> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(status))
        .routes(routes!(flush_all))
        .routes(routes!(volume_status, change))
        .routes(routes!(settings))
        .routes(routes!(what_if))
        .routes(routes!(following::history))
        .routes(routes!(flush))
        .routes(routes!(detach_progress, detach))
        .routes(routes!(attach))
        .merge(volumes::router())
        .merge(pools::router())
        .merge(clients::router())
        .merge(alerts::router())
        .routes(routes!(all_metrics))
        .routes(routes!(description))
        .routes(routes!(health))
        .routes(routes!(ready))
}

/// All routes.
pub fn router(server: Arc<dyn Managed>, page: Page) -> Router {
    let (guard, live) = (Arc::clone(&page.guard), Arc::clone(&page.live));
    Router::from(described())
        .merge(page::routes())
        .with_state(Routed { server, live, changing: Changing::default() })
        .merge(Router::from(following::routes()).with_state(page))
        .fallback(no_such_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(guard, entrance::guarded))
}
