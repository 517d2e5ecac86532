//! One task per socket: the hello, then frames in to the hub and frames out from its outbox.

use super::App;
use super::socket::Incoming;
use crate::clock;
use crate::hub::outbox::{History, Item, Next, Outbox};
use crate::hub::{Door, Frame, Input, PeerKey};
use crate::ledger::LedgerError;
use futures_util::{SinkExt, StreamExt};
use protocol::browser::{BrowserToRelay, RelayToBrowser};
use protocol::connection::{ConnectionError, ConnectionHello};
use protocol::envelope::{Decoded, Ids, Refused, decode, encode};
use protocol::error::{CloseCode, ErrorCode, WireError};
use protocol::proxy::ProxyToRelay;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::frame::Frame as WireFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode as WireCloseCode};
use tokio_tungstenite::tungstenite::{Error, Message};

/// Frames refused in a row before the socket is closed as abuse.
const MOST_REFUSED: u32 = 10_000;

/// So much is written before the socket is made to swallow it.
const FLUSH_BYTES: usize = 64 * 1024;

/// How long a peer may take to answer our goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// Why a socket ended.
enum End {
    /// With a code of ours.
    Code(CloseCode),
    /// With a code of the WebSocket standard.
    Standard(WireCloseCode, &'static str),
    /// The peer closed, or the connection broke.
    Gone,
}

/// Serves one socket until it ends.
pub(super) async fn run<T: Incoming, S: AsyncRead + AsyncWrite + Unpin>(
    app: Arc<App>,
    door: Door,
    stream: WebSocketStream<S>,
) {
    let peer = app.hub.new_peer();
    let mut pump = Pump {
        timeout: Duration::from_millis(app.limits.heartbeat_timeout_ms),
        allowance: Allowance::new(app.limits.max_frames_per_second),
        outbox: Arc::new(Outbox::new(door.role)),
        refused_in_a_row: 0,
        refused: 0,
        app,
        peer,
        stream,
    };
    tracing::debug!(role = door.role.as_str(), token_id = door.token_id, peer = peer.0, "a socket opened");
    let end = match pump.hello::<T>(door).await {
        Err(end) => end,
        Ok(()) => {
            let end = pump.exchange::<T>().await;
            pump.app.hub.send(Input::Gone { peer }).await;
            end
        }
    };
    if pump.refused > 0 {
        tracing::warn!(peer = peer.0, refused = pump.refused, "frames of a socket were refused");
    }
    pump.close(end).await;
}

struct Pump<S> {
    app: Arc<App>,
    peer: PeerKey,
    stream: WebSocketStream<S>,
    outbox: Arc<Outbox>,
    timeout: Duration,
    allowance: Allowance,
    refused_in_a_row: u32,
    refused: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Pump<S> {
    /// The first frame must be a hello that fits the door.
    async fn hello<T: Incoming>(&mut self, door: Door) -> Result<(), End> {
        let first =
            timeout(self.timeout, self.stream.next()).await.map_err(|_| End::Code(CloseCode::HandshakeTimeout))?;
        let refusal = match first {
            Some(Ok(Message::Text(text))) => match decode::<T>(&text) {
                Ok(decoded) => match hello_of(decoded.body.into_frame()) {
                    Some(hello) if hello.peer_role == door.role => {
                        let input = Input::Hello { peer: self.peer, door, hello, outbox: self.outbox.clone() };
                        return if self.app.hub.send(input).await {
                            Ok(())
                        } else {
                            Err(End::Code(CloseCode::Restarting))
                        };
                    }
                    Some(_) => {
                        let message = format!("this door is for peer_role `{}`", door.role.as_str());
                        refusal(ErrorCode::Unauthorized, message)
                    }
                    None => refusal(ErrorCode::InvalidMessage, "the first frame must be connection_hello".into()),
                },
                Err(refused) => refused,
            },
            Some(Ok(_)) => {
                refusal(ErrorCode::InvalidMessage, "the first frame must be connection_hello, as text".into())
            }
            Some(Err(error)) => return Err(broken(&error)),
            None => return Err(End::Gone),
        };
        let code = if refusal.wrong_version { CloseCode::VersionUnsupported } else { CloseCode::HandshakeInvalid };
        self.refuse(refusal);
        let Next::Write(items) = self.outbox.next().await else { return Err(End::Code(code)) };
        self.write(items).await?;
        Err(End::Code(code))
    }

    /// Frames both ways, until one side ends it.
    async fn exchange<T: Incoming>(&mut self) -> End {
        let mut heard = Instant::now();
        let stale = tokio::time::sleep_until(heard + self.timeout);
        tokio::pin!(stale);
        loop {
            // A peer that does not read its answers gets no further questions in.
            let listening = !self.outbox.is_full();
            let outcome = tokio::select! {
                message = self.stream.next(), if listening => {
                    heard = Instant::now();
                    self.incoming::<T>(message).await
                }
                next = self.outbox.next() => {
                    let began = Instant::now();
                    let outcome = self.outgoing(next).await;
                    // While we wrote we did not listen: that time does not count as silence.
                    heard += began.elapsed();
                    outcome
                }
                () = &mut stale => {
                    if heard.elapsed() >= self.timeout {
                        return End::Code(CloseCode::Stale);
                    }
                    stale.as_mut().reset(heard + self.timeout);
                    Ok(())
                }
            };
            if let Err(end) = outcome {
                return end;
            }
        }
    }

    async fn incoming<T: Incoming>(&mut self, message: Option<Result<Message, Error>>) -> Result<(), End> {
        let text = match message {
            Some(Ok(Message::Text(text))) => text,
            Some(Ok(Message::Binary(_))) => {
                return self
                    .count_refusal(refusal(ErrorCode::InvalidMessage, "frames are JSON text, not binary".into()));
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => return Ok(()),
            Some(Ok(Message::Close(_))) | None => return Err(End::Gone),
            Some(Err(error)) => return Err(broken(&error)),
        };
        let decoded = decode::<T>(&text);
        if !self.allowance.take() {
            let ids = match decoded {
                Ok(decoded) => decoded.ids,
                Err(refused) => refused.ids,
            };
            let most = self.app.limits.max_frames_per_second;
            let message = format!("more than {most} frames in a second: slow down and send this one again");
            return self.count_refusal(Refused { ids, ..refusal(ErrorCode::RateLimited, message) });
        }
        match decoded {
            Ok(Decoded { ids, body }) => {
                self.refused_in_a_row = 0;
                let input = Input::Frame { peer: self.peer, ids, frame: body.into_frame() };
                if self.app.hub.send(input).await { Ok(()) } else { Err(End::Code(CloseCode::Restarting)) }
            }
            Err(refused) if refused.wrong_version => {
                self.refuse(refused);
                self.outbox.close(CloseCode::VersionUnsupported);
                Ok(())
            }
            Err(refused) => self.count_refusal(refused),
        }
    }

    fn count_refusal(&mut self, refused: Refused) -> Result<(), End> {
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
            tracing::warn!(peer = self.peer.0, code = refused.error.code, "a frame was refused");
        }
        self.refused += 1;
        self.app.metrics.frames_refused.inc();
        let Refused { error, ids, .. } = refused;
        let error = RelayToBrowser::ConnectionError(ConnectionError { error, ids });
        let item = Item::Answer(encode(&error, Some(&clock::timestamp(clock::now()))).into());
        let bytes = item.bytes();
        self.outbox.push(vec![item], bytes);
    }

    async fn outgoing(&mut self, next: Next) -> Result<(), End> {
        match next {
            Next::Write(items) => {
                self.write(items).await?;
                self.outbox.written();
                Ok(())
            }
            Next::CatchUp => {
                self.app.hub.send(Input::CatchUp { peer: self.peer }).await;
                Ok(())
            }
            Next::Close(code) => Err(End::Code(code)),
        }
    }

    async fn write(&mut self, items: Vec<Item>) -> Result<(), End> {
        let mut waiting = 0;
        for item in items {
            match item {
                Item::Answer(text) | Item::Event(_, _, text) | Item::State(text) => {
                    waiting += text.len();
                    self.stream.feed(Message::Text(text)).await.map_err(|error| broken(&error))?;
                }
                Item::History(history) => self.write_history(*history).await?,
            }
            if waiting >= FLUSH_BYTES {
                waiting = 0;
                self.flush().await?;
            }
        }
        self.flush().await
    }

    /// A history goes out as one message in as many fragments as it has pages, each read only when
    /// the one before is on its way.
    async fn write_history(&mut self, mut history: History) -> Result<(), End> {
        let mut page = std::mem::take(&mut history.opening).into_bytes();
        let mut opcode = OpCode::Data(Data::Text);
        loop {
            let readers = self.app.readers.clone();
            let read = tokio::task::spawn_blocking(move || {
                readers.read(&mut history.progress, &mut page)?;
                Ok::<_, LedgerError>((history, page))
            });
            (history, page) = match read.await {
                Ok(Ok(read)) => read,
                Ok(Err(error)) => {
                    tracing::error!(%error, "a history could not be read");
                    return Err(End::Code(CloseCode::Restarting));
                }
                Err(_) => return Err(End::Code(CloseCode::Restarting)),
            };
            let done = history.progress.done;
            if done {
                page.extend_from_slice(closing(&history).as_bytes());
            }
            let fragment = WireFrame::message(std::mem::take(&mut page), opcode, done);
            self.stream.feed(Message::Frame(fragment)).await.map_err(|error| broken(&error))?;
            self.flush().await?;
            if done {
                return Ok(());
            }
            if self.outbox.is_cut() {
                return Err(End::Gone);
            }
            opcode = OpCode::Data(Data::Continue);
        }
    }

    /// Waits until the peer's side has taken what was written; not for ever.
    async fn flush(&mut self) -> Result<(), End> {
        match timeout(self.timeout, self.stream.flush()).await {
            Ok(flushed) => flushed.map_err(|error| broken(&error)),
            Err(_) => Err(End::Code(CloseCode::TooSlow)),
        }
    }

    /// Says goodbye with the reason, and waits a little for the peer to hear it.
    async fn close(mut self, end: End) {
        let frame = match end {
            End::Gone => None,
            End::Code(code) => Some(CloseFrame { code: code.number().into(), reason: code.reason().into() }),
            End::Standard(code, reason) => Some(CloseFrame { code, reason: reason.into() }),
        };
        let goodbye = async {
            let Some(frame) = frame else {
                // The answer to the peer's own goodbye is ready; it only has to go out.
                let _ = self.stream.flush().await;
                return;
            };
            let _ = self.stream.close(Some(frame)).await;
            // What still comes is thrown away: a connection that is dropped with bytes unread is
            // reset, and the peer would never see the reason.
            // (Boxed: an array would sit in the task of every socket from its first day.)
            let mut waste = vec![0; 16 * 1024];
            while matches!(self.stream.get_mut().read(&mut waste).await, Ok(count) if count > 0) {}
        };
        let _ = timeout(GOODBYE, goodbye).await;
    }
}

/// What stands after the rows.
fn closing(history: &History) -> String {
    match (history.paged, history.progress.first) {
        (false, _) => "]}".to_owned(),
        (true, None) => format!("],\"has_more\":{}}}", history.progress.has_more),
        (true, Some(first)) => format!("],\"first_sequence\":{first},\"has_more\":{}}}", history.progress.has_more),
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

/// What a broken read means for the peer.
fn broken(error: &Error) -> End {
    if matches!(error, Error::Capacity(CapacityError::MessageTooLong { .. })) {
        return End::Standard(WireCloseCode::Size, "the frame is larger than max_frame_bytes");
    }
    if matches!(error, Error::Utf8(_)) {
        return End::Standard(WireCloseCode::Invalid, "text frames are UTF-8");
    }
    if matches!(error, Error::Protocol(_)) {
        return End::Standard(WireCloseCode::Protocol, "not a valid WebSocket frame");
    }
    End::Gone
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
