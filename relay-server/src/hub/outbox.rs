//! The bounded queue between the hub and one socket.
//!
//! The hub never waits for a socket. What does not fit is not queued: the peer falls behind and is
//! caught up from the ledger once it has read what it was given.

use crate::ledger::replay::Progress;
use protocol::error::CloseCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// What may wait for one peer. A stalled browser costs this much and no more.
const MOST_BYTES: usize = 512 * 1024;

/// Something to be written to a socket.
#[derive(Clone, Debug)]
pub enum Item {
    /// A frame, encoded once and shared by everyone who gets it.
    Frame(Utf8Bytes),
    /// A history, read from the ledger only when its turn has come.
    History(Box<History>),
}

/// A history answer: what stands before and after the rows.
#[derive(Clone, Debug)]
pub struct History {
    /// Up to and including the bracket that opens the list.
    pub opening: String,
    pub progress: Progress,
    /// Whether the answer tells where its oldest row stands.
    pub paged: bool,
}

impl Item {
    /// What it costs to keep.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Frame(text) => text.len() + size_of::<Self>(),
            Self::History(history) => history.opening.len() + size_of::<History>(),
        }
    }
}

/// What a socket is to do next.
#[derive(Debug)]
pub enum Next {
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
#[derive(Default)]
pub struct Outbox {
    queue: Mutex<Queue>,
    wake: Notify,
}

impl Outbox {
    /// Whether so much more may be queued. An empty queue takes any one batch, so that a single
    /// large answer can never be too large.
    pub fn has_room(&self, bytes: usize) -> bool {
        let queue = self.lock();
        let waiting = queue.bytes + queue.in_flight;
        waiting == 0 || waiting + bytes <= MOST_BYTES
    }

    /// Queues, full or not: the hub has asked before, or must not drop these.
    pub fn push(&self, items: impl IntoIterator<Item = Item>, bytes: usize) {
        let mut queue = self.lock();
        if queue.close.is_some() {
            return;
        }
        queue.bytes += bytes;
        queue.items.extend(items);
        self.wake.notify_one();
    }

    /// The peer misses something from now on.
    pub fn fall_behind(&self) {
        self.lock().behind = true;
        self.wake.notify_one();
    }

    /// Writes what is queued, then closes.
    pub fn close(&self, code: CloseCode) {
        self.lock().close.get_or_insert(code);
        self.wake.notify_one();
    }

    /// Says one last thing instead of what is queued, then closes.
    pub fn cut(&self, last: Item, code: CloseCode) {
        let mut queue = self.lock();
        queue.bytes = last.bytes();
        queue.items = vec![last];
        queue.close = Some(code);
        queue.is_cut = true;
        self.wake.notify_one();
    }

    /// Whether what is still being written is no longer wanted.
    pub fn is_cut(&self) -> bool {
        self.lock().is_cut
    }

    /// Whether the peer should be served before it may ask for more.
    pub fn is_full(&self) -> bool {
        let queue = self.lock();
        queue.bytes + queue.in_flight >= MOST_BYTES
    }

    /// What to do next; what was handed out before counts as written.
    pub async fn next(&self) -> Next {
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            self.wake.notified().await;
        }
    }

    fn take(&self) -> Option<Next> {
        let mut queue = self.lock();
        queue.in_flight = 0;
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

    fn push(outbox: &Outbox, bytes: usize) {
        let item = Item::Frame("x".repeat(bytes - size_of::<Item>()).into());
        assert_eq!(item.bytes(), bytes);
        outbox.push([item], bytes);
    }

    #[test]
    fn a_full_queue_has_no_room_until_it_was_written() {
        let outbox = Outbox::default();
        push(&outbox, MOST_BYTES / 2);
        assert!(outbox.has_room(MOST_BYTES / 2));
        assert!(!outbox.has_room(MOST_BYTES / 2 + 1));
        assert!(matches!(outbox.take(), Some(Next::Write(_))));
        assert!(!outbox.has_room(MOST_BYTES / 2 + 1), "handed out is not yet written");
        assert!(outbox.take().is_none());
        assert!(outbox.has_room(MOST_BYTES / 2 + 1));
    }

    #[test]
    fn an_empty_queue_takes_a_batch_of_any_size() {
        let outbox = Outbox::default();
        assert!(outbox.has_room(MOST_BYTES * 3));
        push(&outbox, MOST_BYTES * 3);
        assert!(outbox.is_full());
    }

    #[test]
    fn catching_up_waits_for_what_is_queued_and_closing_for_both() {
        let outbox = Outbox::default();
        push(&outbox, 100);
        outbox.fall_behind();
        assert!(matches!(outbox.take(), Some(Next::Write(items)) if items.len() == 1));
        assert!(matches!(outbox.take(), Some(Next::CatchUp)));
        assert!(outbox.take().is_none());
        push(&outbox, 100);
        outbox.close(CloseCode::Restarting);
        assert!(matches!(outbox.take(), Some(Next::Write(_))));
        assert!(matches!(outbox.take(), Some(Next::Close(CloseCode::Restarting))));
    }
}
