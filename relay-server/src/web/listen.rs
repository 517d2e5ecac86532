//! Accepting connections, with or without TLS, and stopping cleanly.

use super::tls::Acceptor;
use super::{App, router};
use crate::hub::Input;
use axum::Router;
use axum::extract::Request;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A request's head must be here by then: slow ones cannot hold connections open.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long sockets may take to say goodbye.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a request came from and arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub peer: SocketAddr,
    pub local: IpAddr,
}

/// Serves until `stop` completes; then sockets are closed with a "come back" code.
pub(crate) async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    acceptor: Option<Acceptor>,
    stop: impl Future<Output = ()>,
) {
    let router = router(app.clone());
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    tokio::spawn(connection(router.clone(), acceptor.clone(), stream, peer));
                }
                Err(error) => {
                    // Out of file descriptors, say: wait for some to be freed.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            () = &mut stop => break,
        }
    }
    drop(listener);
    app.hub.send(Input::Shutdown).await;
    let all = u32::try_from(app.limits.max_sockets).unwrap_or(u32::MAX);
    if tokio::time::timeout(GOODBYE_TIMEOUT, app.sockets.acquire_many(all)).await.is_err() {
        tracing::warn!("some sockets did not close in time");
    }
}

async fn connection(router: Router, acceptor: Option<Acceptor>, stream: TcpStream, peer: SocketAddr) {
    // Frames are small and wanted at once.
    let _ = stream.set_nodelay(true);
    let Ok(local) = stream.local_addr() else { return };
    let ends = Ends { peer, local: local.ip() };
    match acceptor {
        None => http(router, stream, ends).await,
        Some(acceptor) => match tokio::time::timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => http(router, stream, ends).await,
            Ok(Err(error)) => tracing::debug!(%error, %peer, "no TLS handshake"),
            Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
        },
    }
}

async fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(router: Router, stream: S, ends: Ends) {
    let service = tower::ServiceBuilder::new()
        .map_request(move |mut request: Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(ends);
            request
        })
        .service(router);
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, peer = %ends.peer, "the connection ended early");
    }
}
