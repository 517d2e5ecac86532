//! What the hub is told, and the thread that tells it.

use super::access::Door;
use super::outbox::Outbox;
use super::{AccessError, Hub, NewFile, Paired, PeerKey};
use crate::clock;
use crate::ledger::{StoredAttachment, Token};
use protocol::browser::BrowserToRelay;
use protocol::connection::ConnectionHello;
use protocol::envelope::Ids;
use protocol::ids::{AttachmentId, ConnectionId};
use protocol::proxy::ProxyToRelay;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Inputs that may wait. When it is full, sockets stop reading until the hub has caught up.
const MOST_WAITING: usize = 1024;

/// Inputs that share a commit: enough that the disk is never the limit, few enough that the first
/// does not wait long for the last.
const MOST_IN_A_STEP: usize = 256;

/// How long the hub looks for more before it sleeps.
const LONGEST_LOOK: Duration = Duration::from_micros(100);

/// How long the hub sleeps at most.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// Everything that can happen to the hub.
#[derive(Clone)]
pub(crate) enum Input {
    /// A socket has passed its door and said hello.
    Hello { peer: PeerKey, door: Door, hello: ConnectionHello, outbox: Arc<Outbox> },
    /// A frame from a peer that has said hello.
    Frame { peer: PeerKey, ids: Ids, frame: Frame },
    /// A slow browser has read all it was given.
    CatchUp { peer: PeerKey },
    /// A socket is closed.
    Gone { peer: PeerKey },
    /// The HTTP side wants to know or change something.
    Question(Question),
    /// Time has passed.
    Tick,
    /// The relay is stopping: everybody is sent away.
    Shutdown,
    /// Nothing comes after this.
    Finish,
}

/// A frame from either side.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "an input lives for one step")]
pub(crate) enum Frame {
    FromBrowser(BrowserToRelay),
    FromProxy(ProxyToRelay),
}

/// What the HTTP side asks.
#[derive(Clone)]
pub(crate) enum Question {
    Authorize {
        token: String,
        reply: Reply<Result<Door, AccessError>>,
    },
    Pair {
        code: String,
        device_name: String,
        from: IpAddr,
        reply: Reply<Result<Paired, AccessError>>,
    },
    Devices {
        reply: Reply<Vec<Token>>,
    },
    Revoke {
        token_id: String,
        by: Door,
        reply: Reply<bool>,
    },
    /// How many files there are, and their bytes.
    FileTotals {
        reply: Reply<(u64, u64)>,
    },
    /// The file as it is known from now on, or nothing if there is no room for it.
    KeepFile {
        file: NewFile,
        reply: Reply<Option<StoredAttachment>>,
    },
    /// A file that this door may fetch.
    File {
        attachment_id: AttachmentId,
        by: Door,
        reply: Reply<Option<StoredAttachment>>,
    },
}

/// Where an answer goes, at most once. Clonable, because a step may be tried twice.
pub(crate) struct Reply<T>(Arc<Mutex<Option<oneshot::Sender<T>>>>);

impl<T> Clone for Reply<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Reply<T> {
    pub(super) fn give(self, answer: T) {
        if let Some(sender) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // An asker that has gone away needs no answer.
            let _ = sender.send(answer);
        }
    }
}

impl Hub {
    /// Gives an answer after the commit.
    pub(super) fn answer<T: Send + 'static>(&mut self, reply: &Reply<T>, answer: T) {
        let reply = reply.clone();
        self.answers.push(Box::new(move || reply.give(answer)));
    }
}

/// The way to the hub, for sockets and HTTP handlers.
#[derive(Clone)]
pub(crate) struct HubHandle {
    inputs: mpsc::Sender<Input>,
    next_peer: Arc<AtomicU64>,
}

/// The hub could not answer: it is stopping, or its disk refused.
#[derive(Debug, thiserror::Error)]
#[error("the relay cannot write to its ledger now; try again later")]
pub(crate) struct NoAnswer;

impl HubHandle {
    /// A name for a new socket.
    pub(crate) fn new_peer(&self) -> PeerKey {
        PeerKey(self.next_peer.fetch_add(1, Ordering::Relaxed))
    }

    /// Completes when the hub has ended, which it does by itself only if it has panicked.
    pub(crate) async fn ended(&self) {
        self.inputs.closed().await;
    }

    /// Waits for room, then hands the input over. False when the hub has stopped.
    pub(crate) async fn send(&self, input: Input) -> bool {
        self.inputs.send(input).await.is_ok()
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask<T>(&self, question: impl FnOnce(Reply<T>) -> Question) -> Result<T, NoAnswer> {
        let (sender, answer) = oneshot::channel();
        let question = question(Reply(Arc::new(Mutex::new(Some(sender)))));
        if !self.send(Input::Question(question)).await {
            return Err(NoAnswer);
        }
        answer.await.map_err(|_| NoAnswer)
    }
}

/// Starts the hub's thread. It ends with [`Input::Finish`].
pub(crate) fn start(mut hub: Hub) -> std::io::Result<(HubHandle, JoinHandle<()>)> {
    let (sender, mut inputs) = mpsc::channel(MOST_WAITING);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let thread = std::thread::Builder::new().name("hub".into()).spawn(move || {
        runtime.block_on(async {
            let mut group = Vec::with_capacity(MOST_IN_A_STEP);
            loop {
                // Never long: the clock may be set back, and then nothing would be due for ages.
                let nap =
                    Duration::from_millis(u64::try_from(hub.wake_at() - clock::now()).unwrap_or(0)).min(LONGEST_NAP);
                // A nap that ends with nothing received is a step with no inputs: only timers run.
                if let Ok(0) = tokio::time::timeout(nap, inputs.recv_many(&mut group, MOST_IN_A_STEP)).await {
                    break;
                }
                hub.step(clock::now(), &group);
                if group.iter().any(|input| matches!(input, Input::Finish)) {
                    break;
                }
                if !group.is_empty() {
                    group.clear();
                    look_for_more(&inputs);
                }
            }
        });
        hub.finish();
    })?;
    Ok((HubHandle { inputs: sender, next_peer: Arc::default() }, thread))
}

/// Answers tend to come at once. To be woken from sleep takes a fifth of a small commit, so the hub
/// looks a little longer before it sleeps; when nothing goes on, it does not look at all.
fn look_for_more(inputs: &mpsc::Receiver<Input>) {
    let began = Instant::now();
    while inputs.is_empty() && began.elapsed() < LONGEST_LOOK {
        std::thread::yield_now();
    }
}

/// The connection id of a socket, for its peer to quote.
pub(super) fn connection_id(peer: PeerKey) -> ConnectionId {
    ConnectionId::new(super::fresh_id(&format!("conn_{}", peer.0)))
}
