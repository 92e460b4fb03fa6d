//! The connections of the management API: HTTP/1.1 (RFC 9112), a limited number at a time, none of which may send slowly.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::address::{Listener, SocketFile};
use super::guard::{Peer, Process};

/// Connections at a time; more wait.
pub const CONNECTIONS_MAX: usize = 64;
/// A request's head must arrive within this time, from when the connection is ready for it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// After an accept fails, which it does where files run out, it is tried again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener that the runtime knows.
pub enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener, SocketFile),
}

impl Accepting {
    /// Hands a listener to the runtime, in whose context this is called.
    pub fn new(listener: Listener) -> io::Result<Accepting> {
        Ok(match listener {
            Listener::Tcp(listener) => Accepting::Tcp(tokio::net::TcpListener::from_std(listener)?),
            Listener::Unix(listener, file) => Accepting::Unix(tokio::net::UnixListener::from_std(listener)?, file),
        })
    }
}

/// Serves connections until `stopping` changes; then until those that are open have their answers.
pub async fn serve(accepting: Accepting, router: Router, stopping: watch::Receiver<bool>) {
    match accepting {
        Accepting::Tcp(listener) => {
            let accept = async || listener.accept().await.map(|(stream, address)| (stream, Peer::Tcp(address)));
            serve_streams(accept, router, stopping).await;
        }
        Accepting::Unix(listener, _file) => {
            let accept = async || {
                let (stream, _) = listener.accept().await?;
                let process = stream.peer_cred().ok().map(|found| Process { uid: found.uid(), pid: found.pid() });
                Ok((stream, Peer::Unix(process)))
            };
            serve_streams(accept, router, stopping).await;
        }
    }
}

async fn serve_streams<S, F>(accept: impl Fn() -> F, router: Router, mut stopping: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<(S, Peer)>>,
{
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await.expect("the semaphore is never closed");
            (permit, accept().await)
        };
        let (permit, accepted) = tokio::select! {
            next = next => next,
            _ = stopping.changed() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let router = router.clone().layer(Extension(peer));
                connections.spawn(serve_stream(stream, router, stopping.clone(), permit));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
        while connections.try_join_next().is_some() {}
    }
    while connections.join_next().await.is_some() {}
}

async fn serve_stream<S>(stream: S, router: Router, mut stopping: watch::Receiver<bool>, _permit: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
    let service = TowerToHyperService::new(router);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // An error is the client's: there is nobody else to tell.
        _ = connection.as_mut() => {}
        _ = stopping.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
