//! One client socket: connect, upgrade, say hello, speak and listen.

use crate::wire::{Assembler, FrameWalker, Piece, push_text_frame};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::net::{TcpSocket, TcpStream};

/// How much one read may take. Large, so that a reader that fell behind catches up in few calls.
pub(crate) const READ_BYTES: usize = 256 * 1024;

/// What is sent is written through a shared stream, so that one task can speak while another listens.
pub(crate) struct Socket {
    pub(crate) stream: Rc<TcpStream>,
    walker: FrameWalker,
    assembler: Assembler,
    heard: VecDeque<String>,
}

/// Where and as whom to connect.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    pub(crate) path: &'static str,
    pub(crate) token: String,
    /// Size of the kernel's receive buffer, where the kernel's own choice is too generous.
    pub(crate) receive_buffer_bytes: Option<u32>,
}

impl Socket {
    /// Opens the TCP connection and upgrades it.
    pub(crate) async fn connect(door: &Door) -> Result<Self> {
        let tcp = TcpSocket::new_v4()?;
        if let Some(bytes) = door.receive_buffer_bytes {
            tcp.set_recv_buffer_size(bytes)?;
        }
        let stream = tcp.connect(door.address).await?;
        stream.set_nodelay(true)?;
        let mut socket = Self {
            stream: Rc::new(stream),
            walker: FrameWalker::default(),
            assembler: Assembler::default(),
            heard: VecDeque::new(),
        };
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            door.path, door.address, door.token
        );
        write_all(&socket.stream, request.as_bytes()).await?;
        socket.read_upgrade().await.with_context(|| format!("upgrading {}", door.path))?;
        Ok(socket)
    }

    async fn read_upgrade(&mut self) -> Result<()> {
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let count = read_some(&self.stream, &mut chunk).await?;
            answer.extend_from_slice(&chunk[..count]);
            if let Some(end) = memchr::memmem::find(&answer, b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&answer[..end]).into_owned();
                ensure!(head.starts_with("HTTP/1.1 101"), "the upgrade was refused: {head}");
                return self.take(&answer[end + 4..]);
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        let Self { walker, assembler, heard, .. } = self;
        walker.walk(bytes, |piece| {
            assembler.take(&piece, |message| heard.push_back(String::from_utf8_lossy(message).into_owned()));
        })
    }

    /// Sends one text frame.
    pub(crate) async fn say(&self, text: &str) -> Result<()> {
        let mut frame = Vec::with_capacity(text.len() + 14);
        push_text_frame(&mut frame, text);
        write_all(&self.stream, &frame).await
    }

    /// The next whole message.
    pub(crate) async fn hear(&mut self) -> Result<Value> {
        let mut chunk = vec![0; 64 * 1024];
        while self.heard.is_empty() {
            let count = read_some(&self.stream, &mut chunk).await?;
            self.take(&chunk[..count])?;
        }
        let text = self.heard.pop_front().context("just looked")?;
        serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
    }

    /// The next message of this type; others before it are skipped, but an error is an error.
    pub(crate) async fn hear_type(&mut self, wanted: &str) -> Result<Value> {
        loop {
            let frame = self.hear().await?;
            match frame["type"].as_str() {
                Some(found) if found == wanted => return Ok(frame),
                Some("connection_error") => bail!("waiting for {wanted}: {frame}"),
                _ => {}
            }
        }
    }

    /// Reads what has come into `scratch` and hands out its pieces: the cheap way to listen.
    pub(crate) async fn read_pieces(&mut self, scratch: &mut [u8], each: impl FnMut(Piece)) -> Result<()> {
        debug_assert!(self.heard.is_empty(), "messages heard but not taken would be missed");
        let count = read_some(&self.stream, scratch).await?;
        self.walker.walk(&scratch[..count], each)
    }

    /// Like [`Self::read_pieces`], but whole messages.
    pub(crate) async fn read_messages(&mut self, scratch: &mut [u8], mut each: impl FnMut(&[u8])) -> Result<()> {
        let count = read_some(&self.stream, scratch).await?;
        let Self { walker, assembler, .. } = self;
        walker.walk(&scratch[..count], |piece| assembler.take(&piece, &mut each))
    }

    /// Waits for something to read, so that many sockets can share one scratch buffer.
    pub(crate) async fn readable(&self) -> Result<()> {
        Ok(self.stream.readable().await?)
    }

    /// Reads at most once, without waiting. False: there was nothing.
    pub(crate) fn try_read_pieces(&mut self, scratch: &mut [u8], each: impl FnMut(Piece)) -> Result<bool> {
        match self.stream.try_read(scratch) {
            Ok(0) => bail!("the peer hung up"),
            Ok(count) => self.walker.walk(&scratch[..count], each).map(|()| true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Connects a browser and waits until it has been told everything.
pub(crate) async fn browser(door: &Door) -> Result<Socket> {
    let mut socket = Socket::connect(door).await?;
    socket.say(&hello("browser")).await?;
    socket.hear_type("connection_ack").await?;
    socket.hear_type("session_snapshot").await?;
    Ok(socket)
}

/// Connects a proxy that shows these sessions.
pub(crate) async fn proxy(door: &Door, sessions: &[String]) -> Result<Socket> {
    let mut socket = Socket::connect(door).await?;
    socket.say(&hello("proxy")).await?;
    socket.hear_type("connection_ack").await?;
    let sessions: Vec<Value> = sessions
        .iter()
        .map(|session_id| json!({ "session_id": session_id, "agent_type": "claude", "status": "healthy" }))
        .collect();
    let snapshot = json!({
        "type": "proxy_session_snapshot", "protocol_version": 1, "request_id": "snapshot", "sessions": sessions,
    });
    socket.say(&snapshot.to_string()).await?;
    socket.hear_type("proxy_ack").await?;
    Ok(socket)
}

fn hello(role: &str) -> String {
    json!({ "type": "connection_hello", "protocol_version": 1, "peer_role": role, "client_name": "bench" }).to_string()
}

/// Writes all of it, through a shared stream.
pub(crate) async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn read_some(stream: &TcpStream, buffer: &mut [u8]) -> Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read(buffer) {
            Ok(0) => bail!("the peer hung up"),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}
