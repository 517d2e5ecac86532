//! The baseline of the fan-out: the barest WebSocket broadcaster that tokio-tungstenite allows.
//!
//! It runs as a process of its own (this binary, started again), as the relay does. What comes in
//! at `/push` goes out at every other socket: no ledger, no JSON, no sessions, no doors.

use crate::process::Process;
use crate::relay::{end, first_address};
use crate::report::say;
use crate::socket::Door;
use anyhow::{Context, Result};
use futures_util::{SinkExt, StreamExt};
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// The word that makes this binary a broadcaster.
pub(crate) const SUBCOMMAND: &str = "--broadcaster";

/// More than the pusher ever has under way, so that no receiver is told it lagged.
const QUEUE_EVENTS: usize = 4096;

/// How a socket's waiting frames are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Each frame by itself: one system call per frame.
    Plain,
    /// All that wait, then one flush.
    Batched,
}

impl Style {
    fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Batched => "batched",
        }
    }
}

/// A running broadcaster; ended when it is dropped.
pub(crate) struct Broadcaster {
    child: Child,
    address: SocketAddr,
}

impl Broadcaster {
    pub(crate) fn start(style: Style) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([SUBCOMMAND, style.word()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the broadcaster")?;
        let address = first_address(child.stdout.take().context("stdout is piped")?)?;
        Ok(Self { child, address })
    }

    pub(crate) fn process(&self) -> Process {
        Process::new(self.child.id())
    }

    pub(crate) fn browser_door(&self) -> Door {
        self.door("/")
    }

    pub(crate) fn pusher_door(&self) -> Door {
        self.door("/push")
    }

    fn door(&self, path: &'static str) -> Door {
        Door { address: self.address, path, token: "none".into(), receive_buffer_bytes: None }
    }
}

impl Drop for Broadcaster {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// The broadcaster's own main: serves until its parent goes away.
pub(crate) fn serve(style: &str) -> Result<()> {
    std::thread::spawn(|| {
        // The parent holds the other end and writes nothing: this returns when the parent is gone.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let style = if style == Style::Plain.word() { Style::Plain } else { Style::Batched };
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(listen(style))
}

async fn listen(style: Style) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(&format!("listening on http://{}", listener.local_addr()?));
    let (sender, _) = broadcast::channel(QUEUE_EVENTS);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(welcome(stream, sender.clone(), style));
    }
}

async fn welcome(stream: TcpStream, sender: Sender<Utf8Bytes>, style: Style) {
    let receiver = sender.subscribe();
    let mut pushes = false;
    #[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
    let note_path = |request: &Request, response: Response| {
        pushes = request.uri().path() == "/push";
        Ok(response)
    };
    let Ok(socket) = tokio_tungstenite::accept_hdr_async(stream, note_path).await else { return };
    // A socket that ends is a browser that left: nothing to do about it.
    let _ = match (pushes, style) {
        (true, _) => take_in(socket, sender).await,
        (false, Style::Plain) => give_out_plain(socket, receiver).await,
        (false, Style::Batched) => give_out_batched(socket, receiver).await,
    };
}

async fn take_in(mut socket: WebSocketStream<TcpStream>, sender: Sender<Utf8Bytes>) -> Result<()> {
    while let Some(message) = socket.next().await {
        if let Message::Text(text) = message? {
            // An error means that nobody listens yet.
            let _ = sender.send(text);
        }
    }
    Ok(())
}

async fn give_out_plain(mut socket: WebSocketStream<TcpStream>, mut receiver: Receiver<Utf8Bytes>) -> Result<()> {
    loop {
        let text = receiver.recv().await?;
        socket.send(Message::Text(text)).await?;
    }
}

async fn give_out_batched(mut socket: WebSocketStream<TcpStream>, mut receiver: Receiver<Utf8Bytes>) -> Result<()> {
    loop {
        socket.feed(Message::Text(receiver.recv().await?)).await?;
        while let Ok(text) = receiver.try_recv() {
            socket.feed(Message::Text(text)).await?;
        }
        socket.flush().await?;
    }
}
