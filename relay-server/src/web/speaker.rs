//! The half of a socket's task that speaks: frames and histories from the outbox.

use super::counted::Counted;
use super::pump::{End, Socket};
use crate::hub::Input;
use crate::hub::outbox::{History, Item, Next};
use crate::ledger::LedgerError;
use futures_util::SinkExt;
use futures_util::stream::SplitSink;
use protocol::error::CloseCode;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame as WireFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

/// So much is written before the socket is made to swallow it. A socket keeps a buffer as large as
/// it ever needed, so this is what a burst costs per browser for ever.
const FLUSH_BYTES: usize = 32 * 1024;

/// See the module's documentation.
pub(super) struct Speaker<'a, S> {
    socket: &'a Socket,
    sink: SplitSink<WebSocketStream<Counted<S>>, Message>,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Speaker<'a, S> {
    pub(super) fn new(socket: &'a Socket, sink: SplitSink<WebSocketStream<Counted<S>>, Message>) -> Self {
        Self { socket, sink }
    }

    pub(super) fn into_sink(self) -> SplitSink<WebSocketStream<Counted<S>>, Message> {
        self.sink
    }

    /// Says whatever the outbox holds, until it says that enough was said.
    pub(super) async fn speak(&mut self) -> End {
        loop {
            match self.socket.outbox.next().await {
                Next::Write(items) => {
                    if let Err(end) = self.write(items).await {
                        return end;
                    }
                    self.socket.outbox.written();
                }
                Next::CatchUp => {
                    self.socket.app.hub.send(Input::CatchUp { peer: self.socket.peer }).await;
                }
                Next::Close(code) => return End::Code(code),
            }
        }
    }

    async fn write(&mut self, items: Vec<Item>) -> Result<(), End> {
        let mut waiting = 0;
        for item in items {
            match item {
                Item::Answer(text) | Item::Event(_, _, text) | Item::State(text) => {
                    waiting += text.len();
                    self.feed(Message::Text(text)).await?;
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
            let readers = self.socket.app.readers.clone();
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
            self.feed(Message::Frame(fragment)).await?;
            self.flush().await?;
            if done {
                return Ok(());
            }
            if let Some(code) = self.socket.outbox.cut_code() {
                return Err(End::Code(code));
            }
            opcode = OpCode::Data(Data::Continue);
        }
    }

    async fn feed(&mut self, message: Message) -> Result<(), End> {
        self.sink.feed(message).await.map_err(|error| End::broken(&error))
    }

    /// Waits until the peer's side has taken what was written, as long as it takes anything at all.
    async fn flush(&mut self) -> Result<(), End> {
        loop {
            let before = self.socket.traffic.written();
            match timeout(self.socket.timeout, self.sink.flush()).await {
                Ok(flushed) => return flushed.map_err(|error| End::broken(&error)),
                Err(_) if self.socket.traffic.written() != before => {}
                Err(_) => return Err(End::Code(CloseCode::TooSlow)),
            }
        }
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
