//! One task per socket: it listens and speaks at the same time, until one of the two ends it.

use super::App;
use super::counted::{Counted, Traffic};
use super::listener::Listener;
use super::socket::Incoming;
use super::speaker::Speaker;
use crate::hub::outbox::Outbox;
use crate::hub::{Door, Input, PeerKey};
use futures_util::{SinkExt, StreamExt};
use protocol::error::CloseCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode as WireCloseCode};

/// How long a peer may take to answer our goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// What both halves of a socket's task use.
pub(super) struct Socket {
    pub(super) app: Arc<App>,
    pub(super) peer: PeerKey,
    pub(super) outbox: Arc<Outbox>,
    pub(super) traffic: Arc<Traffic>,
    /// So long may nothing move before the peer counts as gone.
    pub(super) timeout: Duration,
}

/// Why a socket ended.
pub(super) enum End {
    /// With a code of ours.
    Code(CloseCode),
    /// With a code of the WebSocket standard.
    Standard(WireCloseCode, &'static str),
    /// The peer closed, or the connection broke.
    Gone,
}

impl End {
    /// What a broken read or write means for the peer.
    pub(super) fn broken(error: &Error) -> Self {
        if matches!(error, Error::Capacity(CapacityError::MessageTooLong { .. })) {
            return Self::Standard(WireCloseCode::Size, "the frame is larger than max_frame_bytes");
        }
        if matches!(error, Error::Utf8(_)) {
            return Self::Standard(WireCloseCode::Invalid, "text frames are UTF-8");
        }
        if matches!(error, Error::Protocol(_)) {
            return Self::Standard(WireCloseCode::Protocol, "not a valid WebSocket frame");
        }
        Self::Gone
    }
}

/// Serves one socket until it ends.
pub(super) async fn run<T: Incoming, S: AsyncRead + AsyncWrite + Unpin>(
    app: Arc<App>,
    door: Door,
    stream: WebSocketStream<Counted<S>>,
) {
    let socket = Socket {
        peer: app.hub.new_peer(),
        outbox: Arc::new(Outbox::new(door.role)),
        traffic: stream.get_ref().traffic(),
        timeout: Duration::from_millis(app.limits.heartbeat_timeout_ms),
        app,
    };
    let (peer, role) = (socket.peer, door.role);
    tracing::debug!(role = door.role.as_str(), token_id = door.token_id, peer = peer.0, "a socket opened");
    let (sink, source) = stream.split();
    let mut listener = Listener::new(&socket, source);
    let mut speaker = Speaker::new(&socket, sink);
    let end = match listener.hello::<T>(door).await {
        Ok(()) => {
            socket.app.metrics.connected(role);
            let end = tokio::select! {
                end = listener.listen::<T>() => end,
                end = speaker.speak() => end,
            };
            socket.app.metrics.disconnected(role);
            socket.app.hub.send(Input::Gone { peer }).await;
            end
        }
        // The refusal is queued; it goes out before the close.
        Err(End::Code(code)) => {
            socket.outbox.close(code);
            speaker.speak().await
        }
        Err(end) => end,
    };
    if listener.refused > 0 {
        tracing::warn!(peer = peer.0, refused = listener.refused, "frames of a socket were refused");
    }
    let halves = speaker.into_sink().reunite(listener.into_source());
    if let Ok(stream) = halves {
        let _ = timeout(GOODBYE, goodbye(stream, end)).await;
    }
}

/// Says goodbye with the reason, and waits a little for the peer to hear it.
async fn goodbye<S: AsyncRead + AsyncWrite + Unpin>(mut stream: WebSocketStream<S>, end: End) {
    let frame = match end {
        End::Code(code) => CloseFrame { code: code.number().into(), reason: code.reason().into() },
        End::Standard(code, reason) => CloseFrame { code, reason: reason.into() },
        End::Gone => {
            // The answer to the peer's own goodbye is ready; it only has to go out.
            let _ = stream.flush().await;
            return;
        }
    };
    let _ = stream.close(Some(frame)).await;
    // What still comes is thrown away: a connection that is dropped with bytes unread is reset, and
    // the peer would never see the reason. (On the heap: an array would sit in the task of every
    // socket from its first day.)
    let mut waste = vec![0; 16 * 1024];
    while matches!(stream.get_mut().read(&mut waste).await, Ok(count) if count > 0) {}
}
