//! A peer as somebody else would write it: plain JSON over a WebSocket, from the protocol's text
//! alone. It checks on every frame what holds for all frames, and loses none: what a test did not
//! wait for stays in the inbox.

use crate::relay::{PATIENCE, Relay, Role};
use crate::tls::Stream;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

/// One socket to the relay, and everything heard on it.
pub(crate) struct Peer {
    socket: WebSocketStream<Box<dyn Stream>>,
    inbox: VecDeque<Value>,
    closed: Option<(u16, String)>,
    sequences: HashMap<String, (u64, HashMap<u64, Value>)>,
    /// The sends it made: the answer to a retry repeats an old event.
    sends: HashSet<String>,
    /// How long it waits for a frame.
    pub(crate) patience: Duration,
    /// What it authenticated with.
    pub(crate) token: String,
    /// Browser or proxy.
    pub(crate) role: Role,
    /// The `connection_ack`.
    pub(crate) ack: Value,
    /// A browser's first `session_snapshot`.
    pub(crate) sessions: Value,
}

/// What the next read brought.
enum Heard {
    Frame,
    Closed,
    Nothing,
}

impl Peer {
    /// A browser of its own device, after `connection_ack` and `session_snapshot`.
    pub(crate) async fn browser(relay: &Relay) -> Self {
        Self::as_device(relay, Role::Browser, &relay.token(Role::Browser, "phone")).await
    }

    /// A proxy of its own machine, after `connection_ack`.
    pub(crate) async fn proxy(relay: &Relay) -> Self {
        Self::as_device(relay, Role::Proxy, &relay.token(Role::Proxy, "desk")).await
    }

    /// A peer with a token that exists already.
    pub(crate) async fn as_device(relay: &Relay, role: Role, token: &str) -> Self {
        Self::with_hello(relay, role, token, json!({})).await
    }

    /// A second socket of the same device or machine.
    pub(crate) async fn again(&self, relay: &Relay) -> Self {
        Self::as_device(relay, self.role, &self.token).await
    }

    /// A browser that comes back with cursors.
    pub(crate) async fn resume(&self, relay: &Relay, cursors: Value) -> Self {
        Self::with_hello(relay, self.role, &self.token, json!({"resume": {"sessions": cursors}})).await
    }

    /// A peer that says more than it must in its hello.
    pub(crate) async fn with_hello(relay: &Relay, role: Role, token: &str, more: Value) -> Self {
        let mut peer = Self::open(relay, role, token).await;
        peer.greet(more).await;
        peer
    }

    /// A socket on which nothing was said yet.
    pub(crate) async fn open(relay: &Relay, role: Role, token: &str) -> Self {
        let stream = TcpStream::connect(relay.address()).await.expect("the relay listens");
        let headers = [("Authorization", format!("Bearer {token}"))];
        let mut peer = Self::over(Box::new(stream), relay.address(), role, &headers).await;
        token.clone_into(&mut peer.token);
        peer
    }

    /// A socket over a given stream, with given headers.
    pub(crate) async fn over(stream: Box<dyn Stream>, host: &str, role: Role, headers: &[(&str, String)]) -> Self {
        Self::try_over(stream, host, role, headers).await.expect("the upgrade succeeds")
    }

    /// As `over`, for relays that may die at any moment.
    pub(crate) async fn try_over(
        stream: Box<dyn Stream>,
        host: &str,
        role: Role,
        headers: &[(&str, String)],
    ) -> Result<Self, Error> {
        let mut request = format!("ws://{host}{}", role.path()).into_client_request()?;
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            request.headers_mut().insert(name, HeaderValue::from_str(value).expect("a header value"));
        }
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let upgrade = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
        let (socket, _) = tokio::time::timeout(PATIENCE, upgrade).await.expect("an upgrade in time")?;
        Ok(Self {
            socket,
            inbox: VecDeque::new(),
            closed: None,
            sequences: HashMap::new(),
            sends: HashSet::new(),
            patience: PATIENCE,
            token: String::new(),
            role,
            ack: Value::Null,
            sessions: Value::Null,
        })
    }

    /// Says hello and waits for the welcome.
    pub(crate) async fn greet(&mut self, more: Value) {
        let mut hello = json!({"type": "connection_hello", "peer_role": self.role.word(), "client_name": "e2e"});
        merge(&mut hello, more);
        self.send(hello).await;
        self.ack = self.next().await;
        assert_eq!(self.ack["type"], "connection_ack", "{}", self.ack);
        if self.role == Role::Browser {
            self.sessions = self.next().await;
            assert_eq!(self.sessions["type"], "session_snapshot", "{}", self.sessions);
        }
    }

    /// Says a frame; the protocol version is added where the test does not set it.
    pub(crate) async fn send(&mut self, frame: Value) {
        assert!(self.try_send(frame).await, "the socket takes the frame; it is {:?}", self.closed);
    }

    /// As `send`; false when the socket is gone.
    pub(crate) async fn try_send(&mut self, frame: Value) -> bool {
        let message = self.encode(frame);
        self.send_raw(message).await.is_ok()
    }

    fn encode(&mut self, mut frame: Value) -> Message {
        if frame.get("protocol_version").is_none() {
            frame["protocol_version"] = json!(1);
        }
        if let (Some("send_message"), Some(id)) = (frame["type"].as_str(), frame["client_message_id"].as_str()) {
            self.sends.insert(id.to_owned());
        }
        Message::text(frame.to_string())
    }

    /// Says any WebSocket message at all.
    pub(crate) async fn send_raw(&mut self, message: Message) -> Result<(), Error> {
        self.socket.send(message).await
    }

    /// Says many frames in one go.
    pub(crate) async fn send_all(&mut self, frames: impl IntoIterator<Item = Value>) {
        for frame in frames {
            let message = self.encode(frame);
            self.socket.feed(message).await.expect("the socket takes the frame");
        }
        self.socket.flush().await.expect("the socket takes the frames");
    }

    /// The next frame, whatever it is.
    pub(crate) async fn next(&mut self) -> Value {
        self.expect_where("any frame", |_| true).await
    }

    /// The next frame of a type.
    pub(crate) async fn expect(&mut self, frame_type: &str) -> Value {
        self.expect_where(frame_type, |frame| frame["type"] == frame_type).await
    }

    /// The next frame that has at least these fields; null stands for absent.
    pub(crate) async fn expect_like(&mut self, pattern: Value) -> Value {
        self.expect_where(&pattern.to_string(), |frame| is_like(frame, &pattern)).await
    }

    /// The next frame that fits.
    pub(crate) async fn expect_where(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        match self.wait_where(fits).await {
            Some(frame) => frame,
            None => panic!("no {what}; closed: {:?}; heard instead: {:#?}", self.closed, self.inbox),
        }
    }

    /// The next frame that fits, or nothing when the socket closes or time runs out first.
    pub(crate) async fn wait_where(&mut self, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        let deadline = Instant::now() + self.patience;
        let mut seen = 0;
        loop {
            if let Some(at) = self.inbox.range(seen..).position(&fits) {
                return self.inbox.remove(seen + at);
            }
            seen = self.inbox.len();
            match self.hear(deadline).await {
                Heard::Frame => {}
                Heard::Closed | Heard::Nothing => return None,
            }
        }
    }

    /// As `expect_like`, and says now and then that it is still there.
    pub(crate) async fn expect_while_beating(&mut self, pattern: Value) -> Value {
        let deadline = Instant::now() + self.patience;
        while Instant::now() < deadline {
            self.send(json!({"type": "heartbeat"})).await;
            let beat = Duration::from_millis(100);
            if let Ok(frame) = tokio::time::timeout(beat, self.expect_like(pattern.clone())).await {
                return frame;
            }
        }
        panic!("no {pattern} while beating; heard instead: {:#?}", self.inbox);
    }

    /// Everything heard and not yet waited for, up to now.
    pub(crate) async fn heard(&mut self) -> Vec<Value> {
        self.settle().await;
        self.inbox.drain(..).collect()
    }

    /// Asserts that no such frame has come, and that none is under way from what was done before.
    pub(crate) async fn heard_nothing_like(&mut self, pattern: Value) {
        self.settle().await;
        let found = self.inbox.iter().find(|frame| is_like(frame, &pattern));
        assert!(found.is_none(), "nothing like {pattern} is due, but {found:?} came");
    }

    /// A question and its answer through the relay's whole inside: what was caused before it has
    /// arrived when this returns.
    pub(crate) async fn settle(&mut self) {
        let request_id = format!("marker-{}", rand::random::<u64>());
        let frame_type = match self.role {
            Role::Browser => "agent_interrupt",
            Role::Proxy => "proxy_status",
        };
        self.send(json!({"type": frame_type, "request_id": request_id, "session_id": "no-such-session"})).await;
        self.expect_like(json!({"request_id": request_id})).await;
    }

    /// Waits for the end of the socket. A broken connection is 1006.
    pub(crate) async fn expect_close(&mut self) -> (u16, String) {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.hear(deadline).await {
                Heard::Frame => {}
                Heard::Closed => return self.closed.clone().expect("closed sockets have a code"),
                Heard::Nothing => panic!("the socket stays open; heard: {:#?}", self.inbox),
            }
        }
    }

    /// Says goodbye and waits until the relay has, too.
    pub(crate) async fn hang_up(mut self) {
        self.socket.close(None).await.ok();
        self.expect_close().await;
    }

    async fn hear(&mut self, deadline: Instant) -> Heard {
        if self.closed.is_some() {
            return Heard::Closed;
        }
        let (code, reason) = match timeout_at(deadline, self.socket.next()).await {
            Err(_) => return Heard::Nothing,
            Ok(Some(Ok(Message::Text(text)))) => {
                let frame = serde_json::from_str(&text).expect("the relay speaks JSON");
                self.check(&frame);
                self.inbox.push_back(frame);
                return Heard::Frame;
            }
            Ok(Some(Ok(Message::Close(Some(close))))) => (close.code.into(), close.reason.to_string()),
            Ok(Some(Ok(Message::Close(None)))) => (1005, String::new()),
            Ok(Some(Ok(Message::Binary(_)))) => panic!("the relay speaks text"),
            Ok(Some(Ok(_))) => return Heard::Frame,
            Ok(Some(Err(_)) | None) => (1006, String::new()),
        };
        self.closed = Some((code, reason));
        Heard::Closed
    }

    /// What holds for every frame of the relay.
    fn check(&mut self, frame: &Value) {
        assert!(frame["type"].is_string(), "every frame has a type: {frame}");
        assert_eq!(frame["protocol_version"], 1, "every frame has its version: {frame}");
        assert!(is_utc_time(&frame["server_ts"]), "every frame of the relay has its time: {frame}");
        let Some(sequence) = frame["sequence"].as_u64() else { return };
        let session = frame["session_id"].as_str().or(frame["session"]["session_id"].as_str());
        let (last, seen) = self.sequences.entry(session.expect("events have a session").into()).or_default();
        let event_id = &frame["event_id"];
        assert!(event_id.is_string(), "every event has its id: {frame}");
        let first = seen.insert(sequence, event_id.clone());
        assert!(first.as_ref().is_none_or(|first| first == event_id), "two events, one sequence: {frame}");
        let repeated = first.is_some() || frame["client_message_id"].as_str().is_some_and(|id| self.sends.contains(id));
        assert!(repeated || sequence > *last, "sequences grow, last was {last}: {frame}");
        *last = sequence.max(*last);
    }
}

/// Whether a value has at least the fields of a pattern. Null stands for absent.
pub(crate) fn is_like(value: &Value, pattern: &Value) -> bool {
    match pattern {
        Value::Object(fields) => fields.iter().all(|(name, field)| is_like(&value[name], field)),
        Value::Array(items) => value.as_array().is_some_and(|values| {
            values.len() == items.len() && values.iter().zip(items).all(|(value, item)| is_like(value, item))
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value == pattern,
    }
}

/// Asserts that a value has at least the fields of a pattern. Null stands for absent.
#[track_caller]
pub(crate) fn assert_like(value: &Value, pattern: &Value) {
    assert!(is_like(value, pattern), "expected at least {pattern:#}, got {value:#}");
}

/// Whether this is an ISO 8601 UTC time with milliseconds, as in the protocol's examples.
pub(crate) fn is_utc_time(value: &Value) -> bool {
    let shape = |byte: u8| if byte.is_ascii_digit() { b'0' } else { byte };
    let Some(text) = value.as_str() else { return false };
    text.bytes().map(shape).eq(*b"0000-00-00T00:00:00.000Z")
}

fn merge(into: &mut Value, more: Value) {
    let Value::Object(more) = more else { panic!("more fields are an object") };
    into.as_object_mut().expect("a frame is an object").extend(more);
}
