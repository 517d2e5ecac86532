//! Sessions going up, changing, going down and being closed.

use super::peers::{Audience, PeerKey};
use super::prompts::OpenPrompt;
use super::{Hub, Stop, refuse};
use crate::clock::Millis;
use crate::ledger::{LedgerError, StoredSession};
use protocol::browser::RelayToBrowser;
use protocol::config::{AgentConfig, AgentSettings};
use protocol::envelope::Ids;
use protocol::error::{ErrorCode, WireError};
use protocol::event::SessionEvent;
use protocol::ids::{MachineId, PromptId, Sequence, SessionId};
use protocol::proxy::{ProxySessionSnapshot, ProxyStatus};
use protocol::session::{Session, SessionClosed, SessionDown, SessionStatusChange, SessionUp};
use protocol::words::{DownReason, SessionStatus};
use std::collections::{BTreeMap, HashSet};

/// What is told of a session or its settings, every time somebody connects, must be short.
const LONGEST_DESCRIPTION: usize = 64 * 1024;

/// A session that is not closed.
#[derive(Clone, Debug)]
pub(super) struct LiveSession {
    /// Its key in the ledger.
    pub key: i64,
    pub machine_id: MachineId,
    pub session: Session,
    pub settings: Option<AgentSettings>,
    pub last_sequence: Sequence,
    /// Events up to here are no longer kept.
    pub pruned_sequence: Sequence,
    /// The proxy that speaks for it now.
    pub owner: Option<PeerKey>,
    pub prompts: BTreeMap<PromptId, OpenPrompt>,
}

impl Hub {
    /// Everything the ledger knows of sessions that are not closed. Nobody is connected yet, so
    /// those that were up when the relay died are now noted as down.
    pub(super) fn load_sessions(&mut self) -> Result<(), LedgerError> {
        for stored in self.ledger.live_sessions()? {
            let session_id = stored.session.session_id.clone();
            let was_up = stored.session.status != SessionStatus::DISCONNECTED;
            let live = self.load_session(stored)?;
            self.sessions.insert(session_id.clone(), live);
            if was_up {
                self.take_down(&session_id, DownReason::PROXY_DISCONNECTED)?;
            }
        }
        Ok(())
    }

    fn load_session(&mut self, stored: StoredSession) -> Result<LiveSession, LedgerError> {
        let prompts = self.ledger.prompts(stored.session_key)?;
        let prompts: BTreeMap<_, _> = prompts
            .into_iter()
            .map(|(prompt, expires_at)| (prompt.prompt_id.clone(), OpenPrompt { prompt, expires_at, answer: None }))
            .collect();
        if let Some(first) = prompts.values().filter_map(|prompt| prompt.expires_at).min() {
            self.wake_by(first);
        }
        for send in self.ledger.unsettled_sends(stored.session_key)? {
            self.wait_for_result(&stored, &send);
        }
        Ok(LiveSession {
            key: stored.session_key,
            machine_id: stored.machine_id,
            session: stored.session,
            settings: stored.settings,
            last_sequence: stored.last_sequence,
            pruned_sequence: stored.pruned_sequence,
            owner: None,
            prompts,
        })
    }

    /// What a proxy sees now: these are up, its others are down.
    pub(super) fn session_snapshot(
        &mut self,
        peer: PeerKey,
        ids: &Ids,
        snapshot: &ProxySessionSnapshot,
    ) -> Result<(), Stop> {
        let machine_id = self.machine_of(peer)?;
        for session in &snapshot.sessions {
            match self.bring_up(peer, session) {
                Err(Stop::Refused(error)) => {
                    let ids = Ids { session_id: Some(session.session_id.clone()), ..ids.clone() };
                    self.refused(peer, error, &ids);
                }
                other => other?,
            }
        }
        let listed: HashSet<&SessionId> = snapshot.sessions.iter().map(|session| &session.session_id).collect();
        let missing = self
            .sessions
            .keys_where(|id, live| live.machine_id == machine_id && live.owner.is_some() && !listed.contains(id));
        for session_id in missing {
            self.take_down(&session_id, DownReason::NOT_IN_SNAPSHOT)?;
        }
        if let Some(open_prompts) = &snapshot.open_prompts {
            self.keep_only_prompts(&machine_id, open_prompts)?;
        }
        Ok(())
    }

    /// A proxy describes one of its sessions as being there.
    pub(super) fn bring_up(&mut self, peer: PeerKey, described: &Session) -> Result<(), Stop> {
        let session_id = &described.session_id;
        let machine = self.machine(peer)?.clone();
        if serde_json::to_string(described).is_ok_and(|text| text.len() > LONGEST_DESCRIPTION) {
            let message = format!("session `{session_id}` is described in more than {LONGEST_DESCRIPTION} bytes");
            return refuse(ErrorCode::ContentTooLarge, message);
        }
        if self.sessions.get(session_id).is_none() {
            self.revive_or_add(&machine.machine_id, described)?;
        }
        let mut session = described.clone();
        session.machine_id = Some(machine.machine_id.clone());
        session.machine_label = session.machine_label.or(machine.machine_label);
        session.last_seen_at = session.last_seen_at.or_else(|| Some(self.server_ts.clone()));

        let live = self.sessions.get_mut(session_id).expect("it was just added");
        if live.machine_id != machine.machine_id {
            return refuse(ErrorCode::Unauthorized, format!("session `{session_id}` belongs to another machine"));
        }
        let was_up = live.owner.replace(peer) == Some(peer);
        let old = std::mem::replace(&mut live.session, session.clone());
        if was_up && unchanged(&old, &session) {
            return Ok(());
        }
        let key = live.key;
        self.ledger.describe_session(key, &session)?;
        if was_up && same_identity(&old, &session) {
            self.emit_status(session_id)?;
        } else {
            self.emit(session_id, Audience::Everyone, |event_id, sequence| {
                SessionEvent::SessionUp(SessionUp { event_id, sequence, session })
            })?;
        }
        if !was_up {
            self.forward_unsettled(session_id)?;
        }
        Ok(())
    }

    fn revive_or_add(&mut self, machine_id: &MachineId, described: &Session) -> Result<(), Stop> {
        let known = self.ledger.session(&described.session_id)?;
        let count = self.sessions.iter().filter(|(_, live)| live.machine_id == *machine_id).count();
        if count >= self.limits.max_sessions_per_machine {
            let session_id = &described.session_id;
            let message = format!("session `{session_id}` was not taken: this machine has {count} already; close some");
            return refuse(ErrorCode::LimitReached, message);
        }
        let live = match known {
            Some(stored) if stored.machine_id != *machine_id => {
                let session_id = &described.session_id;
                return refuse(ErrorCode::Unauthorized, format!("session `{session_id}` belongs to another machine"));
            }
            Some(stored) => self.load_session(stored)?,
            None => LiveSession {
                key: self.ledger.add_session(machine_id, described)?,
                machine_id: machine_id.clone(),
                session: described.clone(),
                settings: None,
                last_sequence: Sequence(0),
                pruned_sequence: Sequence(0),
                owner: None,
                prompts: BTreeMap::new(),
            },
        };
        self.sessions.insert(described.session_id.clone(), live);
        Ok(())
    }

    /// Nobody speaks for a session any more.
    pub(super) fn take_down(&mut self, session_id: &SessionId, reason: DownReason) -> Result<(), LedgerError> {
        self.write_tails(|tail| tail.session_id == *session_id)?;
        let Some(live) = self.sessions.get_mut(session_id) else { return Ok(()) };
        live.owner = None;
        live.session.status = SessionStatus::DISCONNECTED;
        live.session.activity = None;
        let (key, session) = (live.key, live.session.clone());
        self.ledger.describe_session(key, &session)?;
        let session_id = session_id.clone();
        self.emit(&session.session_id, Audience::Everyone, |event_id, sequence| {
            SessionEvent::SessionDown(SessionDown { event_id, sequence, session_id, reason })
        })?;
        Ok(())
    }

    /// A session's health or activity changed. Its proxy speaks for it, so it is up.
    pub(super) fn proxy_status(&mut self, peer: PeerKey, status: &ProxyStatus) -> Result<(), Stop> {
        let live = self.own_session(peer, &status.session_id)?;
        let mut session = live.session.clone();
        if let Some(status) = &status.status {
            session.status = status.clone();
        } else if live.owner != Some(peer) {
            session.status = SessionStatus::HEALTHY;
        }
        if let Some(activity) = &status.activity {
            session.activity = Some(activity.clone());
        }
        session.last_seen_at = None;
        self.bring_up(peer, &session)
    }

    fn emit_status(&mut self, session_id: &SessionId) -> Result<(), LedgerError> {
        let session = self.sessions.get(session_id).expect("it is up").session.clone();
        self.emit(session_id, Audience::Everyone, |event_id, sequence| {
            SessionEvent::SessionStatus(SessionStatusChange {
                event_id,
                sequence,
                session_id: session.session_id,
                status: session.status,
                activity: session.activity,
            })
        })?;
        Ok(())
    }

    /// A session is over. Its history stays.
    pub(super) fn session_closed(&mut self, peer: PeerKey, closed: &SessionClosed) -> Result<(), Stop> {
        let key = self.own_session(peer, &closed.session_id)?.key;
        let request_id = self.finish_close(peer, closed)?;
        self.write_tails(|tail| tail.session_id == closed.session_id)?;
        self.drop_all_prompts(&closed.session_id)?;
        self.lose_track_of_all(
            &closed.session_id,
            "The session was closed before the agent's page showed this message",
        )?;
        self.ledger.close_session(key, self.now)?;
        self.sessions.remove(&closed.session_id);
        let frame = SessionClosed { request_id, ..closed.clone() };
        self.broadcast(&closed.session_id, Audience::Everyone, &RelayToBrowser::SessionClosed(frame));
        Ok(())
    }

    /// Keeps an agent's settings and tells everybody.
    pub(super) fn agent_config(&mut self, peer: PeerKey, config: &AgentConfig) -> Result<(), Stop> {
        let key = self.own_session(peer, &config.session_id)?.key;
        if serde_json::to_string(config).is_ok_and(|text| text.len() > LONGEST_DESCRIPTION) {
            let message = format!("agent_config: the settings have more than {LONGEST_DESCRIPTION} bytes");
            return refuse(ErrorCode::ContentTooLarge, message);
        }
        self.ledger.keep_settings(key, &config.settings)?;
        let live = self.sessions.get_mut(&config.session_id).expect("it is the proxy's own");
        live.settings = Some(config.settings.clone());
        self.confirm_controls(peer, config)?;
        self.broadcast(&config.session_id, Audience::Everyone, &RelayToBrowser::AgentConfig(config.clone()));
        Ok(())
    }

    /// A socket is closed. May run twice for one socket.
    pub(super) fn gone(&mut self, peer: PeerKey) -> Result<(), LedgerError> {
        self.silence(peer)?;
        self.peers.remove(peer);
        Ok(())
    }

    /// A peer is no longer heard: whatever it spoke for is down.
    pub(super) fn silence(&mut self, peer: PeerKey) -> Result<(), LedgerError> {
        for session_id in self.sessions.keys_where(|_, live| live.owner == Some(peer)) {
            self.take_down(&session_id, DownReason::PROXY_DISCONNECTED)?;
        }
        self.write_tails(|tail| tail.teller == peer)?;
        self.fail_controls_of(peer)
    }

    /// A live session that this proxy's machine may speak for.
    pub(super) fn own_session(&self, peer: PeerKey, session_id: &SessionId) -> Result<&LiveSession, Stop> {
        let machine = self.machine(peer)?;
        match self.sessions.get(session_id) {
            Some(live) if live.machine_id == machine.machine_id => Ok(live),
            Some(_) => refuse(ErrorCode::Unauthorized, format!("session `{session_id}` belongs to another machine")),
            None => refuse(
                ErrorCode::SessionUnknown,
                format!("session `{session_id}` is not open: list it in proxy_session_snapshot first"),
            ),
        }
    }

    /// The connected proxy that speaks for a session now.
    pub(super) fn proxy_of(&self, session_id: &SessionId) -> Option<PeerKey> {
        self.sessions.get(session_id)?.owner.filter(|owner| self.peers.get(*owner).is_some())
    }

    /// Why a command cannot reach a session's proxy.
    pub(super) fn unreachable(&self, session_id: &SessionId) -> WireError {
        if self.sessions.get(session_id).is_none() && self.peers.proxies().next().is_some() {
            WireError::new(ErrorCode::SessionUnknown, format!("There is no session `{session_id}`"))
        } else {
            WireError::new(ErrorCode::NoProxyConnected, "The machine of this session is not connected to the relay")
        }
    }

    fn machine(&self, peer: PeerKey) -> Result<&super::peers::Machine, Stop> {
        match self.peers.get(peer).and_then(|peer| peer.machine.as_ref()) {
            Some(machine) => Ok(machine),
            None => refuse(ErrorCode::Unauthorized, "this socket no longer speaks for a machine"),
        }
    }

    pub(super) fn machine_of(&self, peer: PeerKey) -> Result<MachineId, Stop> {
        self.machine(peer).map(|machine| machine.machine_id.clone())
    }

    /// Takes note of what retention has dropped.
    pub(super) fn reload_pruned(&mut self) -> Result<(), LedgerError> {
        for stored in self.ledger.live_sessions()? {
            if let Some(live) = self.sessions.get_mut(&stored.session.session_id) {
                live.pruned_sequence = stored.pruned_sequence;
            }
        }
        Ok(())
    }

    /// The earliest thing in any session that takes too long.
    pub(super) fn first_session_deadline(&self) -> Option<Millis> {
        self.sessions
            .iter()
            .flat_map(|(_, live)| live.prompts.values().filter_map(OpenPrompt::deadline))
            .chain(self.unsettled.iter().map(|(_, send)| send.deadline))
            .min()
    }
}

/// Equal but for the times, which change with every look.
fn unchanged(old: &Session, new: &Session) -> bool {
    let activity = |session: &Session| session.activity.clone().map(|activity| (activity.kind, activity.label));
    old.status == new.status && activity(old) == activity(new) && same_identity(old, new)
}

/// Equal but for health, activity and times.
fn same_identity(old: &Session, new: &Session) -> bool {
    let blank = |session: &Session| Session {
        status: SessionStatus::HEALTHY,
        activity: None,
        last_seen_at: None,
        ..session.clone()
    };
    blank(old) == blank(new)
}
