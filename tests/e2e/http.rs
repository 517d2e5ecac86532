//! A small HTTP/1.1 client: one request, one connection, nothing hidden.

use crate::relay::{PATIENCE, Relay};
use crate::tls::Stream;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A request to build up and send.
pub(crate) struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A `GET`.
pub(crate) fn get(path: &str) -> Request {
    Request { method: "GET", path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
}

/// A `DELETE`.
pub(crate) fn delete(path: &str) -> Request {
    Request { method: "DELETE", ..get(path) }
}

/// A `POST` of raw bytes.
pub(crate) fn post(path: &str, body: impl Into<Vec<u8>>) -> Request {
    Request { method: "POST", body: body.into(), ..get(path) }
}

/// A `POST` of JSON.
pub(crate) fn post_json(path: &str, body: &Value) -> Request {
    post(path, body.to_string()).header("Content-Type", "application/json")
}

/// What a WebSocket client says first; for doors that stay shut.
pub(crate) fn upgrade(path: &str) -> Request {
    get(path)
        .header("Connection", "Upgrade")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
}

impl Request {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    /// Sends it to a relay and reads the answer.
    pub(crate) async fn send(self, relay: &Relay) -> Response {
        let stream = TcpStream::connect(relay.address()).await.expect("the relay listens");
        self.send_over(relay.address(), stream).await
    }

    /// Sends it over a given stream.
    pub(crate) async fn send_over(self, host: &str, mut stream: impl Stream) -> Response {
        let request = self.encode(host);
        let exchange = async {
            stream.write_all(&request).await.ok();
            Response::read(&mut stream).await
        };
        timeout(PATIENCE, exchange).await.expect("an answer in time")
    }

    fn encode(&self, host: &str) -> Vec<u8> {
        let named = |wanted: &str| self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !named("Host") {
            head += &format!("Host: {host}\r\n");
        }
        if !named("Connection") {
            head += "Connection: close\r\n";
        }
        if !self.body.is_empty() && !named("Content-Length") {
            head += &format!("Content-Length: {}\r\n", self.body.len());
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        [head.as_bytes(), b"\r\n", &self.body].concat()
    }
}

impl Response {
    /// The value of a header, or nothing.
    pub(crate) fn header(&self, wanted: &str) -> &str {
        let found = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map_or("", |(_, value)| value)
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    async fn read(stream: &mut impl Stream) -> Self {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = find(&bytes, b"\r\n\r\n") {
                break at;
            }
            assert!(read_some(stream, &mut bytes).await, "no whole answer: {}", String::from_utf8_lossy(&bytes));
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut response = Self::parse_head(&head);
        response.body = bytes.split_off(end + 4);
        response.read_body(stream).await;
        response
    }

    fn parse_head(head: &str) -> Self {
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|word| word.parse().ok());
        let headers = lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.into(), value.into()));
        Self { status: status.expect("a status line"), headers: headers.collect(), body: Vec::new() }
    }

    async fn read_body(&mut self, stream: &mut impl Stream) {
        if self.status == 101 {
            return;
        }
        if let Ok(length) = self.header("Content-Length").parse::<usize>() {
            while self.body.len() < length && read_some(stream, &mut self.body).await {}
        } else {
            while !self.body.ends_with(b"0\r\n\r\n") && read_some(stream, &mut self.body).await {}
        }
        if self.header("Transfer-Encoding").eq_ignore_ascii_case("chunked") {
            self.body = unchunked(&self.body);
        }
    }
}

async fn read_some(stream: &mut impl Stream, bytes: &mut Vec<u8>) -> bool {
    stream.read_buf(bytes).await.is_ok_and(|count| count > 0)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = find(bytes, b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).ok().and_then(|word| usize::from_str_radix(word, 16).ok());
        let Some(size) = size.filter(|&size| size > 0) else { break };
        body.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 2 + size + 2..];
    }
    body
}
