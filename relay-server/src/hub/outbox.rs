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
const MOST_BROWSER_BYTES: usize = 384 * 1024;

/// Frames that may wait whatever their size: a peer that reads is not slow because two long texts
/// came at once.
const FEW_ITEMS: usize = 8;

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
    items_in_flight: usize,
    behind: bool,
    close: Option<CloseCode>,
    is_cut: bool,
}

/// See the module's documentation.
pub(crate) struct Outbox {
    most_bytes: usize,
    queue: Mutex<Queue>,
    wake: Notify,
    drained: Notify,
}

impl Outbox {
    pub(crate) fn new(role: PeerRole) -> Self {
        let most_bytes = match role {
            PeerRole::Browser => MOST_BROWSER_BYTES,
            PeerRole::Proxy => MOST_PROXY_BYTES,
        };
        Self { most_bytes, queue: Mutex::default(), wake: Notify::new(), drained: Notify::new() }
    }

    /// How many of these may be queued. A few always may, so that none is ever too large.
    pub(crate) fn fitting(&self, items: &[Item]) -> usize {
        let queue = self.lock();
        let few = FEW_ITEMS.saturating_sub(queue.items.len() + queue.items_in_flight);
        let mut bytes = queue.bytes + queue.in_flight;
        let fits = |(index, item): &(usize, &Item)| {
            bytes += item.bytes();
            *index < few || bytes <= self.most_bytes
        };
        items.iter().enumerate().take_while(fits).count()
    }

    /// Queues, full or not: the hub has asked before, or must not drop these.
    pub(crate) fn push(&self, mut items: Vec<Item>) {
        let bytes: usize = items.iter().map(Item::bytes).sum();
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

    /// Why what is still being written is no longer wanted, if so.
    pub(crate) fn cut_code(&self) -> Option<CloseCode> {
        let queue = self.lock();
        queue.close.filter(|_| queue.is_cut)
    }

    /// Waits until the peer may ask for more: first it should be served what it asked for.
    pub(crate) async fn room(&self) {
        while self.is_full() {
            self.drained.notified().await;
        }
    }

    fn is_full(&self) -> bool {
        let queue = self.lock();
        queue.bytes + queue.in_flight >= self.most_bytes
    }

    /// What was handed out has been written.
    pub(crate) fn written(&self) {
        let mut queue = self.lock();
        (queue.in_flight, queue.items_in_flight) = (0, 0);
        drop(queue);
        self.drained.notify_one();
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
            queue.items_in_flight = queue.items.len();
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

    fn item(bytes: usize) -> Item {
        let item = Item::State("x".repeat(bytes - size_of::<Item>()).into());
        assert_eq!(item.bytes(), bytes);
        item
    }

    /// As many items as always fit, of next to no size.
    fn few() -> Vec<Item> {
        (0..FEW_ITEMS).map(|_| item(100)).collect()
    }

    #[test]
    fn a_full_queue_has_no_room_until_it_was_written() {
        let outbox = Outbox::new(PeerRole::Browser);
        outbox.push(few());
        let large = [item(MOST_BYTES)];
        assert_eq!(outbox.fitting(&large), 0);
        assert!(matches!(outbox.take_now(), Some(Next::Write(_))));
        assert_eq!(outbox.fitting(&large), 0, "handed out is not yet written");
        outbox.written();
        assert_eq!(outbox.fitting(&large), 1);
    }

    #[test]
    fn a_few_items_of_any_size_fit_and_then_only_what_there_is_room_for() {
        let outbox = Outbox::new(PeerRole::Browser);
        let mut items = few();
        items.extend([item(100), item(MOST_BYTES), item(100)]);
        assert_eq!(outbox.fitting(&items), FEW_ITEMS + 1, "order is kept");
        items[0] = item(MOST_BYTES * 3);
        assert_eq!(outbox.fitting(&items), FEW_ITEMS);
        outbox.push(items);
        assert!(outbox.is_full());
    }

    #[test]
    fn catching_up_waits_for_what_is_queued_and_closing_for_both() {
        let outbox = Outbox::new(PeerRole::Browser);
        outbox.push(vec![item(100)]);
        outbox.fall_behind();
        assert!(matches!(outbox.take_now(), Some(Next::Write(items)) if items.len() == 1));
        assert!(matches!(outbox.take_now(), Some(Next::CatchUp)));
        assert!(outbox.take_now().is_none());
        outbox.push(vec![item(100)]);
        outbox.close(CloseCode::Restarting);
        assert!(matches!(outbox.take_now(), Some(Next::Write(_))));
        assert!(matches!(outbox.take_now(), Some(Next::Close(CloseCode::Restarting))));
    }
}
