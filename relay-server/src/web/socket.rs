//! The upgrade from HTTP to WebSocket.
//!
//! Done by hand rather than by axum's extractor, because a long history is sent as one message in
//! many fragments, and only tungstenite itself can send fragments.

use super::App;
use super::access::ApiError;
use super::counted::Counted;
use super::pump;
use crate::hub::{Door, Frame};
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use protocol::browser::BrowserToRelay;
use protocol::connection::PeerRole;
use protocol::envelope::Frames;
use protocol::error::ErrorCode;
use protocol::proxy::ProxyToRelay;
use std::sync::Arc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Where a socket reads into: small, because most sockets say little and there may be thousands.
const READ_BUFFER_BYTES: usize = 4 * 1024;

/// Frames gather here and go out in one write.
const WRITE_BUFFER_BYTES: usize = 128 * 1024;

/// What is said in one direction, and which frame is the hello.
pub(super) trait Incoming: Frames + Send + 'static {
    fn into_frame(self) -> Frame;
}

impl Incoming for BrowserToRelay {
    fn into_frame(self) -> Frame {
        Frame::FromBrowser(self)
    }
}

impl Incoming for ProxyToRelay {
    fn into_frame(self) -> Frame {
        Frame::FromProxy(self)
    }
}

/// A browser's door.
pub(super) async fn client_ws(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let door = app.door_for(PeerRole::Browser, request.headers()).await?;
    upgrade::<BrowserToRelay>(app, door, request)
}

/// A proxy's door.
pub(super) async fn proxy_ws(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let door = app.door_for(PeerRole::Proxy, request.headers()).await?;
    upgrade::<ProxyToRelay>(app, door, request)
}

fn upgrade<T: Incoming>(app: Arc<App>, door: Door, mut request: Request) -> Result<Response, ApiError> {
    let headers = request.headers();
    let names = |name: HeaderName, word: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    let asked = names(CONNECTION, "upgrade") && names(UPGRADE, "websocket") && names(SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let (Some(accept), true) = (key, asked) else {
        return Err(ApiError::new(
            StatusCode::UPGRADE_REQUIRED,
            ErrorCode::InvalidMessage,
            "this is a WebSocket (version 13): connect with a WebSocket client",
        ));
    };
    let Ok(permit) = app.sockets.clone().try_acquire_owned() else {
        let message = format!("{} sockets are open already: close some, or come back later", app.limits.max_sockets);
        return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::LimitReached, message));
    };
    let Some(upgraded) = request.extensions_mut().remove::<OnUpgrade>() else {
        let message = "this connection cannot become a WebSocket";
        return Err(ApiError::new(StatusCode::UPGRADE_REQUIRED, ErrorCode::InvalidMessage, message));
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(Some(app.limits.max_frame_bytes))
        .max_frame_size(Some(app.limits.max_frame_bytes));
    tokio::spawn(async move {
        match upgraded.await {
            Ok(upgraded) => {
                let stream = Counted::new(TokioIo::new(upgraded));
                let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
                pump::run::<T, _>(app, door, socket).await;
            }
            Err(error) => tracing::debug!(%error, "the upgrade did not happen"),
        }
        drop(permit);
    });
    Ok((StatusCode::SWITCHING_PROTOCOLS, switching(&accept)).into_response())
}

fn switching(accept: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [(CONNECTION, "upgrade"), (UPGRADE, "websocket"), (SEC_WEBSOCKET_ACCEPT, accept)] {
        headers.insert(name, value.parse().expect("these are plain ASCII"));
    }
    headers
}
