//! The bounded queue between the hub and one socket.
//!
//! The hub never waits for a socket. What does not fit is not queued: the peer falls behind and is
//! caught up from the ledger once it has read what it was given.

use crate::ledger::replay::Progress;
use protocol::connection::PeerRole;
use protocol::error::CloseCode;
use protocol::ids::Sequence;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// What may wait for one browser. A stalled one costs this much and no more.
const MOST_BROWSER_BYTES: usize = 256 * 1024;

/// What may wait for one proxy: commands are few, but a person may send several large texts in a row.
const MOST_PROXY_BYTES: usize = 64 * 1024 * 1024;

/// Something to be written to a socket. Its kind says what may happen when the queue is full. A
/// frame is encoded once and shared by everyone who gets it.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// An answer to the peer itself: never dropped.
    Answer(Utf8Bytes),
    /// An event of the session with this key: dropped, and read from the ledger later.
    Event(i64, Sequence, Utf8Bytes),
    /// Present state: dropped, and said anew later.
    State(Utf8Bytes),
    /// A history, read from the ledger only when its turn has come: never dropped.
    History(Box<History>),
}

/// A history answer: what stands before and after the rows.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// Up to and including the bracket that opens the list.
    pub opening: String,
    pub progress: Progress,
    /// Whether the answer tells where its oldest row stands.
    pub paged: bool,
}

impl Item {
    /// What it costs to keep.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Answer(text) | Self::Event(_, _, text) | Self::State(text) => text.len() + size_of::<Self>(),
            Self::History(history) => history.opening.len() + size_of::<History>(),
        }
    }
}

/// What a socket is to do next.
#[derive(Debug)]
pub(crate) enum Next {
    Write(Vec<Item>),
    /// All was written, but some was never queued: ask the hub to be caught up.
    CatchUp,
    Close(CloseCode),
}

#[derive(Default)]
struct Queue {
    items: Vec<Item>,
    bytes: usize,
    /// Taken by the socket and not yet written.
    in_flight: usize,
    behind: bool,
    close: Option<CloseCode>,
    is_cut: bool,
}

/// See the module's documentation.
pub(crate) struct Outbox {
    most_bytes: usize,
    queue: Mutex<Queue>,
    wake: Notify,
}

impl Outbox {
    pub(crate) fn new(role: PeerRole) -> Self {
        let most_bytes = match role {
            PeerRole::Browser => MOST_BROWSER_BYTES,
            PeerRole::Proxy => MOST_PROXY_BYTES,
        };
        Self { most_bytes, queue: Mutex::default(), wake: Notify::new() }
    }

    /// Whether so much more may be queued. An empty queue takes any one batch, so that a single
    /// large answer can never be too large.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let queue = self.lock();
        let waiting = queue.bytes + queue.in_flight;
        waiting == 0 || waiting + bytes <= self.most_bytes
    }

    /// Queues, full or not: the hub has asked before, or must not drop these.
    pub(crate) fn push(&self, mut items: Vec<Item>, bytes: usize) {
        let mut queue = self.lock();
        if queue.close.is_some() {
            return;
        }
        queue.bytes += bytes;
        if queue.items.is_empty() {
            queue.items = items;
        } else {
            queue.items.append(&mut items);
        }
        self.wake.notify_one();
    }

    /// The peer misses something from now on.
    pub(crate) fn fall_behind(&self) {
        self.lock().behind = true;
        self.wake.notify_one();
    }

    /// Writes what is queued, then closes.
    pub(crate) fn close(&self, code: CloseCode) {
        self.lock().close.get_or_insert(code);
        self.wake.notify_one();
    }

    /// Says one last thing instead of what is queued, then closes.
    pub(crate) fn cut(&self, last: Item, code: CloseCode) {
        let mut queue = self.lock();
        queue.bytes = last.bytes();
        queue.items = vec![last];
        queue.close = Some(code);
        queue.is_cut = true;
        self.wake.notify_one();
    }

    /// Whether what is still being written is no longer wanted.
    pub(crate) fn is_cut(&self) -> bool {
        self.lock().is_cut
    }

    /// Whether the peer should be served before it may ask for more.
    pub(crate) fn is_full(&self) -> bool {
        let queue = self.lock();
        queue.bytes + queue.in_flight >= self.most_bytes
    }

    /// What was handed out has been written.
    pub(crate) fn written(&self) {
        self.lock().in_flight = 0;
    }

    /// What to do next.
    pub(crate) async fn next(&self) -> Next {
        loop {
            if let Some(next) = self.take_now() {
                return next;
            }
            self.wake.notified().await;
        }
    }

    /// What to do now, if anything.
    pub(crate) fn take_now(&self) -> Option<Next> {
        let mut queue = self.lock();
        if !queue.items.is_empty() {
            queue.in_flight = std::mem::take(&mut queue.bytes);
            return Some(Next::Write(std::mem::take(&mut queue.items)));
        }
        if let Some(code) = queue.close {
            return Some(Next::Close(code));
        }
        std::mem::take(&mut queue.behind).then_some(Next::CatchUp)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_BYTES: usize = MOST_BROWSER_BYTES;

    fn push(outbox: &Outbox, bytes: usize) {
        let item = Item::State("x".repeat(bytes - size_of::<Item>()).into());
        assert_eq!(item.bytes(), bytes);
        outbox.push(vec![item], bytes);
    }

    #[test]
    fn a_full_queue_has_no_room_until_it_was_written() {
        let outbox = Outbox::new(PeerRole::Browser);
        push(&outbox, MOST_BYTES / 2);
        assert!(outbox.has_room(MOST_BYTES / 2));
        assert!(!outbox.has_room(MOST_BYTES / 2 + 1));
        assert!(matches!(outbox.take_now(), Some(Next::Write(_))));
        assert!(!outbox.has_room(MOST_BYTES / 2 + 1), "handed out is not yet written");
        outbox.written();
        assert!(outbox.has_room(MOST_BYTES / 2 + 1));
    }

    #[test]
    fn an_empty_queue_takes_a_batch_of_any_size() {
        let outbox = Outbox::new(PeerRole::Browser);
        assert!(outbox.has_room(MOST_BYTES * 3));
        push(&outbox, MOST_BYTES * 3);
        assert!(outbox.is_full());
    }

    #[test]
    fn catching_up_waits_for_what_is_queued_and_closing_for_both() {
        let outbox = Outbox::new(PeerRole::Browser);
        push(&outbox, 100);
        outbox.fall_behind();
        assert!(matches!(outbox.take_now(), Some(Next::Write(items)) if items.len() == 1));
        assert!(matches!(outbox.take_now(), Some(Next::CatchUp)));
        assert!(outbox.take_now().is_none());
        push(&outbox, 100);
        outbox.close(CloseCode::Restarting);
        assert!(matches!(outbox.take_now(), Some(Next::Write(_))));
        assert!(matches!(outbox.take_now(), Some(Next::Close(CloseCode::Restarting))));
    }
}
