//! Many browsers that only count what they get.
//!
//! All of them live on one thread and share one read buffer: the cheaper they are, the more of the
//! machine is left to what is measured. Events are counted frame by frame and never parsed; that
//! nothing was lost or changed is seen from the counts and the bytes, which must agree everywhere.

use crate::numbers::Samples;
use crate::socket::{Door, READ_BYTES, Socket};
use anyhow::{Result, anyhow, ensure};
use futures_util::{StreamExt, TryStreamExt};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};

/// Events are pushed, and progress is told, in chunks of this many.
pub(crate) const CHUNK: u64 = 64;

/// How many browsers shake hands at once.
const CONNECTING_AT_ONCE: usize = 32;

/// Longer than anything here takes: after it, something is lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// The browsers of one server.
pub(crate) struct Crowd {
    tally: Rc<Tally>,
    listeners: Vec<JoinHandle<()>>,
}

/// What the browsers have got so far.
#[derive(Default)]
struct Tally {
    received: RefCell<Vec<Received>>,
    /// How many browsers have passed the end of each chunk.
    passed: RefCell<Vec<usize>>,
    /// Chunks that every browser has passed.
    chunks_everywhere: Cell<u64>,
    changed: Notify,
    failure: RefCell<Option<anyhow::Error>>,
    /// When each event since `timed_from` was pushed.
    pushed_at: RefCell<Vec<Instant>>,
    timed_from: Cell<Option<u64>>,
    latencies: RefCell<Samples>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Received {
    events: u64,
    bytes: u64,
}

impl Crowd {
    /// Connects `count` browsers, each by `connect`, and lets them listen.
    pub(crate) async fn gather<F>(count: usize, door: &Door, connect: impl Fn(Door) -> F) -> Result<Self>
    where
        F: Future<Output = Result<Socket>>,
    {
        let sockets: Vec<Socket> = futures_util::stream::iter(0..count)
            .map(|_| connect(door.clone()))
            .buffer_unordered(CONNECTING_AT_ONCE)
            .try_collect()
            .await?;
        let tally = Rc::new(Tally::default());
        tally.received.replace(vec![Received::default(); count]);
        let scratch = Rc::new(RefCell::new(vec![0; READ_BYTES]));
        let listeners = sockets
            .into_iter()
            .enumerate()
            .map(|(browser, socket)| spawn_local(listen(socket, browser, Rc::clone(&tally), Rc::clone(&scratch))))
            .collect();
        Ok(Self { tally, listeners })
    }

    pub(crate) fn browsers(&self) -> usize {
        self.listeners.len()
    }

    /// Events that every browser has got, in whole chunks.
    pub(crate) fn events_everywhere(&self) -> u64 {
        self.tally.chunks_everywhere.get() * CHUNK
    }

    /// Waits until every browser has got this many events.
    pub(crate) async fn reach(&self, events: u64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.events_everywhere() < events {
            if let Some(error) = self.tally.failure.take() {
                return Err(error.context("a browser broke"));
            }
            let waited = tokio::time::timeout_at(deadline.into(), self.tally.changed.notified()).await;
            ensure!(waited.is_ok(), "lost events: {events} were pushed, browsers have {}", self.extremes());
        }
        Ok(())
    }

    /// Fails unless every browser has got exactly `events` events, and all of them the same bytes.
    pub(crate) fn check(&self, events: u64) -> Result<()> {
        let received = self.tally.received.borrow();
        let first = received[0];
        ensure!(first.events == events, "{events} events were pushed, the first browser has {}", first.events);
        ensure!(received.iter().all(|other| *other == first), "browsers differ: {}", self.extremes());
        Ok(())
    }

    /// From now on, notes when events were pushed and how long each takes to each browser.
    pub(crate) fn begin_timing(&self, pushed_so_far: u64) {
        self.tally.pushed_at.borrow_mut().clear();
        self.tally.latencies.replace(Samples::default());
        self.tally.timed_from.set(Some(pushed_so_far));
    }

    pub(crate) fn note_pushes(&self, count: u64) {
        let now = Instant::now();
        self.tally.pushed_at.borrow_mut().extend((0..count).map(|_| now));
    }

    pub(crate) fn end_timing(&self) -> Samples {
        self.tally.timed_from.set(None);
        self.tally.latencies.take()
    }

    /// Reports a failure from elsewhere to whoever waits for progress.
    pub(crate) fn alarm(&self) -> impl Fn(String) + use<> {
        let tally = Rc::clone(&self.tally);
        move |text| tally.fail(anyhow!(text))
    }

    fn extremes(&self) -> String {
        let received = self.tally.received.borrow();
        let fewest = received.iter().min_by_key(|browser| browser.events);
        let most = received.iter().max_by_key(|browser| browser.events);
        format!("fewest {fewest:?}, most {most:?}")
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for listener in &self.listeners {
            listener.abort();
        }
    }
}

impl Tally {
    fn fail(&self, error: anyhow::Error) {
        self.failure.replace(Some(error));
        self.changed.notify_one();
    }

    fn pass_chunk(&self, chunk: u64) {
        let mut passed = self.passed.borrow_mut();
        let chunk = chunk as usize;
        if passed.len() <= chunk {
            passed.resize(chunk + 1, 0);
        }
        passed[chunk] += 1;
        if passed[chunk] == self.received.borrow().len() {
            self.chunks_everywhere.set(chunk as u64);
            self.changed.notify_one();
        }
    }

    fn take_latency(&self, event: u64, now: Instant) {
        if let Some(first) = self.timed_from.get()
            && let Some(pushed) = self.pushed_at.borrow().get((event - first) as usize)
        {
            self.latencies.borrow_mut().add(now - *pushed);
        }
    }
}

async fn listen(mut socket: Socket, browser: usize, tally: Rc<Tally>, scratch: Rc<RefCell<Vec<u8>>>) {
    loop {
        let heard = match socket.readable().await {
            Ok(()) => count_events(&mut socket, browser, &tally, &mut scratch.borrow_mut()),
            Err(error) => Err(error),
        };
        if let Err(error) = heard {
            return tally.fail(error);
        }
    }
}

fn count_events(socket: &mut Socket, browser: usize, tally: &Tally, scratch: &mut [u8]) -> Result<()> {
    let mut mine = tally.received.borrow()[browser];
    let now = Instant::now();
    socket.try_read_pieces(scratch, |piece| {
        mine.bytes += piece.payload.len() as u64;
        if piece.ends {
            tally.take_latency(mine.events, now);
            mine.events += 1;
            if mine.events.is_multiple_of(CHUNK) {
                tally.pass_chunk(mine.events / CHUNK);
            }
        }
    })?;
    tally.received.borrow_mut()[browser] = mine;
    Ok(())
}
