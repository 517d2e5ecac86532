//! The connected browsers and proxies, and what waits to be said to each after the commit.

use super::outbox::{Item, Outbox};
use protocol::connection::PeerRole;
use protocol::error::CloseCode;
use protocol::ids::{ConnectionId, MachineId, Sequence, SessionId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Names one socket inside this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PeerKey(pub u64);

/// One connected browser or proxy.
pub(super) struct Peer {
    pub role: PeerRole,
    pub connection_id: ConnectionId,
    pub token_id: String,
    /// The token's label: the paired device's name.
    pub device_name: String,
    pub outbox: Arc<Outbox>,
    /// A proxy's machine.
    pub machine: Option<Machine>,
    /// A browser's chosen sessions; `None` is all of them.
    interest: Option<Vec<SessionId>>,
    /// Where a slow browser fell behind in each session (by its key in the ledger), if it did.
    behind: Option<BTreeMap<i64, Sequence>>,
    /// To be said after the commit.
    pending: Vec<Item>,
}

/// What a proxy speaks for.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub machine_id: MachineId,
    pub machine_label: Option<String>,
}

/// Which browsers an event is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Audience<'a> {
    Everyone,
    /// Those who want this session's transcript.
    Interested(&'a SessionId),
    /// Those, and the device whose send it is.
    InterestedOr(&'a SessionId, &'a str),
}

impl Peer {
    pub(super) fn new(role: PeerRole, connection_id: ConnectionId, token: (&str, &str), outbox: Arc<Outbox>) -> Self {
        Self {
            role,
            connection_id,
            token_id: token.0.to_owned(),
            device_name: token.1.to_owned(),
            outbox,
            machine: None,
            interest: None,
            behind: None,
            pending: Vec::new(),
        }
    }

    /// From now on only these transcripts.
    pub(super) fn choose(&mut self, mut sessions: Vec<SessionId>) {
        // Sorted, to be searched: mostly there is one, and comparing it is quicker than hashing.
        sessions.sort_unstable();
        self.interest = Some(sessions);
    }

    pub(super) fn is_interested(&self, session_id: &SessionId) -> bool {
        self.interest.as_ref().is_none_or(|sessions| sessions.binary_search(session_id).is_ok())
    }

    fn hears(&self, audience: Audience) -> bool {
        match audience {
            Audience::Everyone => true,
            Audience::Interested(session_id) => self.is_interested(session_id),
            Audience::InterestedOr(session_id, token_id) => self.token_id == token_id || self.is_interested(session_id),
        }
    }

    /// Hands over what is pending. Returns how many frames were dropped.
    fn flush(&mut self) -> usize {
        let bytes = self.pending.iter().map(Item::bytes).sum();
        if self.behind.is_none() && self.outbox.has_room(bytes) {
            self.outbox.push(std::mem::take(&mut self.pending), bytes);
            return 0;
        }
        if self.role == PeerRole::Proxy {
            // Commands wait in the ledger; the proxy gets them again when it comes back.
            self.outbox.close(CloseCode::TooSlow);
            return std::mem::take(&mut self.pending).len();
        }
        let dropped = self.drop_news();
        // The socket reads no further requests while its queue is full, so answers cannot pile up.
        let bytes = self.pending.iter().map(Item::bytes).sum();
        self.outbox.push(std::mem::take(&mut self.pending), bytes);
        self.outbox.fall_behind();
        dropped
    }

    /// Drops what is pending but answers, and notes where the peer falls behind. Returns how many.
    fn drop_news(&mut self) -> usize {
        let behind = self.behind.get_or_insert_default();
        let before = self.pending.len();
        self.pending.retain(|item| match item {
            Item::Answer(_) | Item::History(_) => true,
            Item::Event(session_key, sequence, _) => {
                behind.entry(*session_key).or_insert(Sequence(sequence.0 - 1));
                false
            }
            Item::State(_) => false,
        });
        before - self.pending.len()
    }

    /// Where the peer fell behind, if it did; from here on it is up to date again. What is pending
    /// will be in what it is told now.
    pub(crate) fn take_behind(&mut self) -> Option<BTreeMap<i64, Sequence>> {
        self.behind.as_ref()?;
        self.drop_news();
        self.behind.take()
    }
}

/// All connected peers.
#[derive(Default)]
pub(super) struct Peers {
    all: HashMap<PeerKey, Peer>,
    /// Those with something pending.
    touched: HashSet<PeerKey>,
}

impl Peers {
    pub(super) fn get(&self, key: PeerKey) -> Option<&Peer> {
        self.all.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: PeerKey) -> Option<&mut Peer> {
        self.all.get_mut(&key)
    }

    pub(super) fn insert(&mut self, key: PeerKey, peer: Peer) {
        self.all.insert(key, peer);
    }

    pub(super) fn remove(&mut self, key: PeerKey) -> Option<Peer> {
        self.touched.remove(&key);
        self.all.remove(&key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PeerKey, &Peer)> {
        self.all.iter().map(|(key, peer)| (*key, peer))
    }

    /// The connected proxies with their machines.
    pub(super) fn proxies(&self) -> impl Iterator<Item = (PeerKey, &Machine)> {
        self.iter().filter_map(|(key, peer)| Some((key, peer.machine.as_ref()?)))
    }

    /// To one peer, if it is still there.
    pub(super) fn tell(&mut self, key: PeerKey, item: Item) {
        if let Some(peer) = self.all.get_mut(&key) {
            peer.pending.push(item);
            self.touched.insert(key);
        }
    }

    /// To every browser in the audience.
    pub(super) fn broadcast(&mut self, audience: Audience, item: &Item) {
        for (key, peer) in &mut self.all {
            if peer.role == PeerRole::Browser && peer.hears(audience) {
                if peer.pending.is_empty() {
                    self.touched.insert(*key);
                }
                peer.pending.push(item.clone());
            }
        }
    }

    /// Hands everything pending to the sockets: the commit has succeeded. Returns what was dropped.
    pub(super) fn flush(&mut self) -> usize {
        let all = &mut self.all;
        self.touched.drain().filter_map(|key| all.get_mut(&key).map(Peer::flush)).sum()
    }

    /// Forgets everything pending: the commit has failed.
    pub(super) fn discard(&mut self) {
        for key in self.touched.drain() {
            if let Some(peer) = self.all.get_mut(&key) {
                peer.pending.clear();
            }
        }
    }
}
