//! The routes of the page: sessions, events, and past figures.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, Query as UrlQuery, Request, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json};
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::entrance::WRONG_TOKEN_PAUSE;
use super::{Answer, ErrorBody, Failure, Name, Server, asked, bad, blocking, grouped, named};
use crate::limits::{Limit, Limits};
use crate::manage::guard::{Caller, Guard, Peer};
use crate::manage::history::{Event, Past, Query};
use crate::manage::live::Live;
use crate::manage::places::{Answering, ConnectionPlace};
use crate::manage::sessions::Right;
use flashwise_storage::status::ServerStatus;

/// Maximum number of clients that follow the server. Each holds a connection, and some must remain for others.
const FOLLOWERS_MAX: usize = 32;
/// Where the address of the page leads.
const ENTER: &str = "/page/enter";

/// The state of these routes.
#[derive(Clone)]
pub struct Page {
    pub live: Arc<Live>,
    pub guard: Arc<Guard>,
    pub stopping: watch::Receiver<bool>,
    followers: Arc<Semaphore>,
    loopback: Arc<Loopback>,
    limits: Arc<Limits>,
}

impl Page {
    /// Creates the state. The first request for the page's address sends its socket to `listeners`.
    pub fn new(
        live: Arc<Live>,
        guard: Arc<Guard>,
        stopping: watch::Receiver<bool>,
        listeners: mpsc::Sender<TcpListener>,
        limits: Arc<Limits>,
    ) -> Page {
        let loopback = Arc::new(Loopback { port: OnceCell::new(), listeners });
        Page { live, guard, stopping, followers: Arc::new(Semaphore::new(FOLLOWERS_MAX)), loopback, limits }
    }
}

/// The loopback port of the page. The API listens there after the first request for the page's address.
struct Loopback {
    port: OnceCell<u16>,
    listeners: mpsc::Sender<TcpListener>,
}

impl Loopback {
    async fn port(&self) -> io::Result<u16> {
        let open = async || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let port = listener.local_addr()?.port();
            self.listeners.send(listener).await.map_err(|_| io::Error::other("the server ends"))?;
            Ok(port)
        };
        self.port.get_or_try_init(open).await.copied()
    }
}

/// The address of the page.
#[derive(Debug, Serialize, ToSchema)]
pub struct PageAddress {
    /// Opens the page once, within five minutes, with the right of the request that asked for it.
    url: String,
}

/// A code that opens the page.
#[derive(Deserialize)]
struct Code {
    code: String,
}

/// The state of a session.
#[derive(Debug, Serialize, ToSchema)]
pub struct Session {
    /// True if the API requires a token.
    token_needed: bool,
    /// True if this request may see the server: it has a token or a session, or needs none.
    signed_in: bool,
    /// True if it may change something, too.
    may_change: bool,
}

/// A token or a code to sign in with.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// A token of the management API: that for changes, or that for looking.
    token: String,
}

/// The session of this request; needs no token.
#[utoipa::path(
    get,
    path = "/v1/session",
    security(()),
    responses((status = 200, description = "Success", body = Session))
)]
pub async fn session(State(page): State<Page>, Extension(peer): Extension<Peer>, headers: HeaderMap) -> Json<Session> {
    let token_needed = page.guard.token.is_some();
    let right = page.guard.client(&peer, &headers).map(|client| client.right);
    Json(Session { token_needed, signed_in: right.is_some(), may_change: right == Some(Right::Change) })
}

/// Signs in for twelve hours: the answer's cookie stands for the token. Needs no other token.
#[utoipa::path(
    post,
    path = "/v1/session",
    security(()),
    request_body = SignIn,
    responses(
        (status = 204, description = "The cookie is in `Set-Cookie`"),
        (status = 401, description = "The token is wrong", body = ErrorBody),
    )
)]
pub async fn sign_in(State(page): State<Page>, request: Request) -> Answer<Response> {
    let given = Json::<SignIn>::from_request(request, &()).await;
    let Json(SignIn { token }) = given.map_err(|error| bad(error.body_text()))?;
    let Some(right) = page.guard.right_of_token(token.as_bytes()) else {
        tokio::time::sleep(WRONG_TOKEN_PAUSE).await;
        return Err(Failure::new(StatusCode::UNAUTHORIZED, "this is not the token of the management API".to_owned()));
    };
    let cookie = page.guard.sessions.begin(right, right.token_owner()).map_err(no_random)?;
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response())
}

fn no_random(error: io::Error) -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the system gives no random numbers: {error}"))
}

/// Gives an address on loopback that opens the page once, signed in with the right of this request.
#[utoipa::path(
    post,
    path = "/v1/page",
    responses(
        (status = 200, description = "Success", body = PageAddress),
        (status = 500, description = "The server cannot listen on loopback", body = ErrorBody),
    )
)]
pub async fn page_address(State(page): State<Page>, Extension(client): Extension<Caller>) -> Answer<Json<PageAddress>> {
    let port = page.loopback.port().await.map_err(|error| {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the page cannot listen on loopback: {error}"))
    })?;
    let code = page.guard.sessions.invite(client.right, &client.owner).map_err(no_random)?;
    Ok(Json(PageAddress { url: format!("http://127.0.0.1:{port}{ENTER}?code={code}") }))
}

/// Signs the page in by the code of its address.
async fn enter(State(page): State<Page>, query: Result<UrlQuery<Code>, QueryRejection>) -> Answer<Response> {
    let Code { code } = asked(query)?;
    match page.guard.sessions.accept(&code).map_err(no_random)? {
        Some(cookie) => Ok((StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (LOCATION, "/".to_owned())]).into_response()),
        None => {
            let error = "this address was used, or is older than 5 minutes: run `flashwise page` again".to_owned();
            Err(Failure::new(StatusCode::UNAUTHORIZED, error))
        }
    }
}

/// Signs out.
#[utoipa::path(
    delete,
    path = "/v1/session",
    responses((status = 204, description = "It is done"))
)]
pub async fn sign_out(State(page): State<Page>, headers: HeaderMap) -> Response {
    (StatusCode::NO_CONTENT, [(SET_COOKIE, page.guard.sessions.end(&headers))]).into_response()
}

/// How a volume's figures were lately.
#[utoipa::path(
    get,
    path = "/v1/volumes/{name}/history",
    tag = "following",
    params(Query),
    responses((status = 200, description = "Success", body = Past))
)]
pub async fn history(
    State(server): Server,
    State(live): State<Arc<Live>>,
    name: Name,
    query: Result<UrlQuery<Query>, QueryRejection>,
) -> Answer<Json<Past>> {
    let (name, range) = (named(name)?, asked(query)?.range);
    blocking(server, move |server| server.volume(&name).map(|volume| live.history.of(&volume.name, range)))
        .await
        .map(Json)
}

/// Follows the server. An event `status` each second has the contents of `/v1/status`. An event `happened` reports each
/// event: first the recent ones, or those after the number in `Last-Event-ID`, then new ones. The id of an event is its
/// number.
#[utoipa::path(
    get,
    path = "/v1/events",
    responses(
        (status = 200, description = "A stream of events, until the client or the server ends it, or the token that it \
            bears counts no more", content_type = "text/event-stream", body = Event),
        (status = 503, description = "Too many follow the server", body = ErrorBody),
    )
)]
pub async fn events(
    State(page): State<Page>,
    Extension(peer): Extension<Peer>,
    Extension(place): Extension<ConnectionPlace>,
    headers: HeaderMap,
) -> Answer<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>> {
    let permit = Arc::clone(&page.followers).try_acquire_owned().map_err(|_| {
        page.limits.reached(Limit::ApiStreams);
        let error = format!("{FOLLOWERS_MAX} clients follow the server already, which is the most");
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, error)
    })?;
    let follower = Follower {
        guard: page.guard,
        status: page.live.watch(),
        stopping: page.stopping,
        sent: page.live.resume_after(last_event_id(&headers)),
        peer,
        headers,
        live: page.live,
        waiting: Vec::new(),
        _permit: permit,
        _answering: place.answer(),
    };
    Ok(Sse::new(stream::unfold(follower, Follower::next)))
}

/// A client that follows the server.
struct Follower {
    /// Checks before each event that the client still has permission.
    guard: Arc<Guard>,
    peer: Peer,
    headers: HeaderMap,
    live: Arc<Live>,
    status: watch::Receiver<Arc<ServerStatus>>,
    stopping: watch::Receiver<bool>,
    /// The number of the last event that was sent.
    sent: u64,
    /// Unsent events, the newest first.
    waiting: Vec<Event>,
    _permit: OwnedSemaphorePermit,
    _answering: Answering,
}

impl Follower {
    /// Returns the next event. Returns `None` if the server stops or the client has lost its permission.
    async fn next(mut self) -> Option<(Result<sse::Event, Infallible>, Follower)> {
        if let Some(event) = self.waiting.pop() {
            self.sent = event.number;
            return Some((Ok(written("happened", &event).id(event.number.to_string())), self));
        }
        tokio::select! {
            changed = self.status.changed() => changed.ok()?,
            _ = self.stopping.wait_for(|stopping| *stopping) => return None,
        }
        // The token can change and the session can end meanwhile.
        self.guard.client(&self.peer, &self.headers)?;
        self.waiting = self.live.events_after(self.sent);
        self.waiting.reverse();
        let status = Arc::clone(&self.status.borrow_and_update());
        Some((Ok(written("status", &*status)), self))
    }
}

/// Returns the number of the last event that a returning client received; 0 for a new client.
fn last_event_id(headers: &HeaderMap) -> u64 {
    let text = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn written(name: &str, value: &impl Serialize) -> sse::Event {
    // These are structures of numbers and text, which JSON has.
    sse::Event::default().event(name).json_data(value).unwrap_or_default()
}

/// The routes.
pub fn routes() -> OpenApiRouter<Page> {
    let router = OpenApiRouter::default().routes(routes!(session, sign_in, sign_out));
    let router = router.routes(routes!(page_address)).routes(routes!(events)).route(ENTER, get(enter));
    grouped("following", router)
}
