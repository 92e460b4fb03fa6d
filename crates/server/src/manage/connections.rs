//! The connections of the management API: HTTP/1.1 (RFC 9112). None may send or take slowly; [`places`](super::places)
//! limits their number.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::{JoinSet, yield_now};
use tokio_io_timeout::TimeoutStream;

use super::address::{Listener, SocketFile};
use super::guard::{Peer, Process};
use super::places::{ConnectionPlace, Places};
use crate::files;
use crate::front::is_exhausted;

/// A request's head must arrive within this time, from when the connection is ready for it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// A client that takes nothing of its answer for this time is closed.
const TAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// After an accept fails, which it does where files run out, it is tried again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener that the runtime knows.
pub enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener, SocketFile),
}

impl Accepting {
    /// Registers a listener with the runtime. Must be called in the runtime's context.
    pub fn new(listener: Listener) -> io::Result<Accepting> {
        Ok(match listener {
            Listener::Tcp(listener) => Accepting::Tcp(tokio::net::TcpListener::from_std(listener)?),
            Listener::Unix(listener, file) => Accepting::Unix(tokio::net::UnixListener::from_std(listener)?, file),
        })
    }
}

/// Serves connections until `stopping` changes; then until the open connections have their answers.
pub async fn serve(accepting: Accepting, router: Router, stopping: watch::Receiver<bool>, places: Arc<Places>) {
    match accepting {
        Accepting::Tcp(listener) => {
            let accept = async || listener.accept().await.map(|(stream, address)| (stream, Peer::Tcp(address)));
            serve_streams(accept, router, stopping, places).await;
        }
        Accepting::Unix(listener, _file) => {
            let accept = async || {
                let (stream, _) = listener.accept().await?;
                let process = stream.peer_cred().ok().map(|found| Process { uid: found.uid(), pid: found.pid() });
                Ok((stream, Peer::Unix(process)))
            };
            serve_streams(accept, router, stopping, places).await;
        }
    }
}

async fn serve_streams<S, F>(
    accept: impl Fn() -> F,
    router: Router,
    mut stopping: watch::Receiver<bool>,
    places: Arc<Places>,
) where
    S: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static,
    F: Future<Output = io::Result<(S, Peer)>>,
{
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept() => accepted,
            _ = stopping.changed() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                if files::is_for_devices(&stream) {
                    places.make_room();
                }
                let router = router.clone().layer(Extension(peer));
                connections.spawn(serve_stream(stream, router, stopping.clone(), places.enter()));
                // It reads its request before the next one comes, which may have the oldest one closed.
                yield_now().await;
            }
            Err(error) => {
                if is_exhausted(&error) {
                    places.make_room();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    while connections.join_next().await.is_some() {}
}

async fn serve_stream<S>(stream: S, router: Router, mut stopping: watch::Receiver<bool>, place: ConnectionPlace)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
    let (routes, of_requests) = (TowerToHyperService::new(router), place.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(of_requests.clone());
        routes.call(request)
    });
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(TAKE_TIMEOUT));
    let connection = server.serve_connection(TokioIo::new(Box::pin(stream)), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // Errors of a connection concern only its client.
        _ = connection.as_mut() => {}
        () = place.closed() => {}
        _ = stopping.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
