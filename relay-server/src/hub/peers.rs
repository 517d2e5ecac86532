//! The connected browsers and proxies, and what waits to be said to each after the commit.

use super::outbox::{Item, Outbox};
use protocol::connection::PeerRole;
use protocol::error::CloseCode;
use protocol::ids::{ConnectionId, MachineId, Sequence, SessionId};
use std::collections::{BTreeMap, HashMap};
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

/// Which browsers hear of something in a session.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Audience<'a> {
    Everyone,
    /// Those who want this session's transcript.
    Interested,
    /// Those, and the device whose send it is.
    InterestedOr(&'a str),
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

    /// The item as this peer should get it, if it should. What happens in sessions it is not
    /// interested in is no history to be caught up on: it is restated, or is the peer's own affair.
    fn share(&self, session_id: &SessionId, audience: Audience, item: &Item) -> Option<Item> {
        if self.is_interested(session_id) {
            return Some(item.clone());
        }
        let own = matches!(audience, Audience::InterestedOr(token_id) if token_id == self.token_id);
        match (audience, item) {
            (_, Item::Event(_, _, text)) if own => Some(Item::Answer(text.clone())),
            (Audience::Everyone, Item::Event(_, _, text)) => Some(Item::State(text.clone())),
            (Audience::Everyone, item) => Some(item.clone()),
            (Audience::Interested | Audience::InterestedOr(_), _) => None,
        }
    }

    /// Hands over what is pending. Returns how many frames were dropped.
    fn flush(&mut self) -> usize {
        let fitting = if self.behind.is_none() { self.outbox.fitting(&self.pending) } else { 0 };
        if fitting == self.pending.len() {
            self.outbox.push(std::mem::take(&mut self.pending));
            return 0;
        }
        if self.role == PeerRole::Proxy {
            // Sends wait in the ledger, and the proxy gets them again when it comes back; whoever
            // gave another command hears that the machine went away.
            self.outbox.close(CloseCode::TooSlow);
            return std::mem::take(&mut self.pending).len();
        }
        let rest = self.pending.split_off(fitting);
        self.outbox.push(std::mem::replace(&mut self.pending, rest));
        let dropped = self.drop_news();
        // The socket reads no further requests while its queue is full, so answers cannot pile up.
        self.outbox.push(std::mem::take(&mut self.pending));
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
}

/// All connected peers. What a step does to them is undone if the step fails.
#[derive(Default)]
pub(crate) struct Peers {
    all: HashMap<PeerKey, Peer>,
    /// Those with something pending, in the order in which they were told.
    touched: Vec<PeerKey>,
    /// Those that the step under way sends away, with the last word to them.
    leaving: Vec<(PeerKey, Item, CloseCode)>,
    /// Where those were behind that the step under way catches up.
    caught_up: Vec<(PeerKey, BTreeMap<i64, Sequence>)>,
}

impl Peers {
    pub(crate) fn get(&self, key: PeerKey) -> Option<&Peer> {
        self.all.get(&key).filter(|_| !self.is_leaving(key))
    }

    pub(crate) fn get_mut(&mut self, key: PeerKey) -> Option<&mut Peer> {
        let leaving = self.is_leaving(key);
        self.all.get_mut(&key).filter(|_| !leaving)
    }

    fn is_leaving(&self, key: PeerKey) -> bool {
        self.leaving.iter().any(|(leaving, ..)| *leaving == key)
    }

    pub(crate) fn insert(&mut self, key: PeerKey, peer: Peer) {
        self.all.insert(key, peer);
    }

    /// The socket is closed: there is nothing to be undone about that.
    pub(crate) fn remove(&mut self, key: PeerKey) -> Option<Peer> {
        self.all.remove(&key)
    }

    /// Sends a peer away once the step has succeeded; until then it is already not heard any more.
    pub(crate) fn send_away(&mut self, key: PeerKey, last: Item, code: CloseCode) {
        self.leaving.push((key, last, code));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PeerKey, &Peer)> {
        self.all.iter().map(|(key, peer)| (*key, peer)).filter(|(key, _)| !self.is_leaving(*key))
    }

    /// The connected proxies with their machines.
    pub(crate) fn proxies(&self) -> impl Iterator<Item = (PeerKey, &Machine)> {
        self.iter().filter_map(|(key, peer)| Some((key, peer.machine.as_ref()?)))
    }

    /// To one peer, if it is still there.
    pub(crate) fn tell(&mut self, key: PeerKey, item: Item) {
        if let Some(peer) = self.all.get_mut(&key) {
            if peer.pending.is_empty() {
                self.touched.push(key);
            }
            peer.pending.push(item);
        }
    }

    /// To every browser that should hear of something in this session.
    pub(crate) fn broadcast(&mut self, session_id: &SessionId, audience: Audience, item: &Item) {
        for (key, peer) in self.all.iter_mut().filter(|(_, peer)| peer.role == PeerRole::Browser) {
            if let Some(item) = peer.share(session_id, audience, item) {
                if peer.pending.is_empty() {
                    self.touched.push(*key);
                }
                peer.pending.push(item);
            }
        }
    }

    /// Where a browser fell behind, if it did; from here on it is up to date again. What is pending
    /// will be in what it is told now.
    pub(crate) fn take_behind(&mut self, key: PeerKey) -> Option<BTreeMap<i64, Sequence>> {
        let peer = self.all.get_mut(&key)?;
        peer.behind.as_ref()?;
        peer.drop_news();
        let behind = peer.behind.take()?;
        self.caught_up.push((key, behind.clone()));
        Some(behind)
    }

    /// Hands everything pending to the sockets: the commit has succeeded. Returns what was dropped.
    pub(crate) fn flush(&mut self) -> usize {
        self.caught_up.clear();
        for (key, last, code) in self.leaving.drain(..) {
            if let Some(peer) = self.all.remove(&key) {
                peer.outbox.cut(last, code);
            }
        }
        let all = &mut self.all;
        self.touched.drain(..).filter_map(|key| all.get_mut(&key).map(Peer::flush)).sum()
    }

    /// Forgets everything pending: the commit has failed.
    pub(crate) fn discard(&mut self) {
        self.leaving.clear();
        for key in self.touched.drain(..) {
            if let Some(peer) = self.all.get_mut(&key) {
                peer.pending.clear();
            }
        }
        for (key, behind) in self.caught_up.drain(..) {
            if let Some(peer) = self.all.get_mut(&key) {
                peer.behind = Some(behind);
            }
        }
    }
}
