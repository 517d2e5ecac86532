//! The half of a socket's task that listens: the hello, then frames to the hub.

use super::counted::Counted;
use super::pump::{End, Socket};
use super::socket::Incoming;
use crate::clock;
use crate::hub::outbox::Item;
use crate::hub::{Door, Frame, Input};
use futures_util::StreamExt;
use futures_util::stream::SplitStream;
use protocol::browser::{BrowserToRelay, RelayToBrowser};
use protocol::connection::{ConnectionError, ConnectionHello};
use protocol::envelope::{Decoded, Ids, Refused, decode, encode};
use protocol::error::{CloseCode, ErrorCode, WireError};
use protocol::proxy::ProxyToRelay;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// Frames refused in a row before the socket is closed as abuse.
const MOST_REFUSED: u32 = 10_000;

/// See the module's documentation.
pub(super) struct Listener<'a, S> {
    socket: &'a Socket,
    source: SplitStream<WebSocketStream<Counted<S>>>,
    allowance: Allowance,
    refused_in_a_row: u32,
    pub(super) refused: u64,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Listener<'a, S> {
    pub(super) fn new(socket: &'a Socket, source: SplitStream<WebSocketStream<Counted<S>>>) -> Self {
        let allowance = Allowance::new(socket.app.limits.max_frames_per_second);
        Self { socket, source, allowance, refused_in_a_row: 0, refused: 0 }
    }

    pub(super) fn into_source(self) -> SplitStream<WebSocketStream<Counted<S>>> {
        self.source
    }

    /// The first frame must be a hello that fits the door.
    pub(super) async fn hello<T: Incoming>(&mut self, door: Door) -> Result<(), End> {
        let message = loop {
            let next = self.next().await.map_err(|end| match end {
                End::Code(CloseCode::Stale) => End::Code(CloseCode::HandshakeTimeout),
                end @ (End::Code(_) | End::Standard(..) | End::Gone) => end,
            });
            match next? {
                Message::Ping(_) | Message::Pong(_) => {}
                message @ (Message::Text(_) | Message::Binary(_) | Message::Close(_) | Message::Frame(_)) => {
                    break message;
                }
            }
        };
        let refusal = match message {
            Message::Close(_) => return Err(End::Gone),
            Message::Text(text) => match decode::<T>(&text) {
                Ok(decoded) => match hello_of(decoded.body.into_frame()) {
                    Some(hello) if hello.peer_role == door.role => {
                        let outbox = self.socket.outbox.clone();
                        return self.tell_hub(Input::Hello { peer: self.socket.peer, door, hello, outbox }).await;
                    }
                    Some(_) => {
                        let message = format!("this door is for peer_role `{}`", door.role.as_str());
                        refusal(ErrorCode::Unauthorized, message)
                    }
                    None => refusal(ErrorCode::InvalidMessage, "the first frame must be connection_hello".into()),
                },
                Err(refused) => refused,
            },
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {
                refusal(ErrorCode::InvalidMessage, "the first frame must be connection_hello, as text".into())
            }
        };
        let code = if refusal.wrong_version { CloseCode::VersionUnsupported } else { CloseCode::HandshakeInvalid };
        self.refuse(refusal);
        Err(End::Code(code))
    }

    /// Frames to the hub, until the peer ends it, breaks a rule, or falls silent.
    pub(super) async fn listen<T: Incoming>(&mut self) -> End {
        loop {
            // A peer that does not read its answers gets no further questions in.
            self.socket.outbox.room().await;
            let heard = match self.next().await {
                Ok(message) => self.heard::<T>(message).await,
                Err(end) => Err(end),
            };
            if let Err(end) = heard {
                return end;
            }
        }
    }

    /// The next message. Silence ends the socket; a long message that is still arriving is not silence.
    async fn next(&mut self) -> Result<Message, End> {
        loop {
            let before = self.socket.traffic.read();
            match timeout(self.socket.timeout, self.source.next()).await {
                Ok(Some(Ok(message))) => return Ok(message),
                Ok(Some(Err(error))) => return Err(End::broken(&error)),
                Ok(None) => return Err(End::Gone),
                Err(_) if self.socket.traffic.read() != before => {}
                Err(_) => return Err(End::Code(CloseCode::Stale)),
            }
        }
    }

    async fn heard<T: Incoming>(&mut self, message: Message) -> Result<(), End> {
        let text = match message {
            Message::Text(text) => text,
            Message::Binary(_) => {
                return self.count(refusal(ErrorCode::InvalidMessage, "frames are JSON text, not binary".into()));
            }
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => return Ok(()),
            Message::Close(_) => return Err(End::Gone),
        };
        let decoded = decode::<T>(&text);
        if !self.allowance.take() {
            let ids = match decoded {
                Ok(decoded) => decoded.ids,
                Err(refused) => refused.ids,
            };
            let most = self.socket.app.limits.max_frames_per_second;
            let message = format!("more than {most} frames in a second: slow down and send this one again");
            return self.count(Refused { ids, ..refusal(ErrorCode::RateLimited, message) });
        }
        match decoded {
            Ok(Decoded { ids, body }) => {
                self.refused_in_a_row = 0;
                self.tell_hub(Input::Frame { peer: self.socket.peer, ids, frame: body.into_frame() }).await
            }
            Err(refused) if refused.wrong_version => {
                self.refuse(refused);
                self.socket.outbox.close(CloseCode::VersionUnsupported);
                // Nothing more is heard; the other half closes when it has said why.
                std::future::pending().await
            }
            Err(refused) => self.count(refused),
        }
    }

    async fn tell_hub(&self, input: Input) -> Result<(), End> {
        if self.socket.app.hub.send(input).await { Ok(()) } else { Err(End::Code(CloseCode::Restarting)) }
    }

    fn count(&mut self, refused: Refused) -> Result<(), End> {
        self.refused_in_a_row += 1;
        if self.refused_in_a_row > MOST_REFUSED {
            return Err(End::Code(CloseCode::Abuse));
        }
        self.refuse(refused);
        Ok(())
    }

    /// Tells the peer what was wrong. The log hears of the first; the rest are counted.
    fn refuse(&mut self, refused: Refused) {
        if self.refused == 0 {
            tracing::warn!(peer = self.socket.peer.0, code = refused.error.code, "a frame was refused");
        }
        self.refused += 1;
        self.socket.app.metrics.frames_refused.inc();
        let Refused { error, ids, .. } = refused;
        let error = RelayToBrowser::ConnectionError(ConnectionError { error, ids });
        let item = Item::Answer(encode(&error, Some(&clock::timestamp(clock::now()))).into());
        self.socket.outbox.push(vec![item]);
    }
}

fn hello_of(frame: Frame) -> Option<ConnectionHello> {
    if let Frame::FromBrowser(BrowserToRelay::ConnectionHello(hello))
    | Frame::FromProxy(ProxyToRelay::ConnectionHello(hello)) = frame
    {
        return Some(hello);
    }
    None
}

fn refusal(code: ErrorCode, message: String) -> Refused {
    Refused { error: WireError::new(code, message), ids: Ids::default(), wrong_version: false }
}

/// How many frames a socket may still say: a second's worth may come at once.
struct Allowance {
    per_second: f64,
    left: f64,
    counted: Instant,
}

impl Allowance {
    fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, left: per_second, counted: Instant::now() }
    }

    /// Takes one, if there is one. 0 per second is no limit.
    fn take(&mut self) -> bool {
        if self.per_second == 0.0 {
            return true;
        }
        let now = Instant::now();
        let gained = now.duration_since(self.counted).as_secs_f64() * self.per_second;
        self.left = (self.left + gained).min(self.per_second);
        self.counted = now;
        if self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }
}
