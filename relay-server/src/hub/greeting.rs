//! Hello: who may speak for what, and everything that is true now.

use super::access::Door;
use super::input::connection_id;
use super::outbox::{Item, Outbox};
use super::peers::{Machine, Peer, PeerKey};
use super::{Hub, Stop};
use crate::ledger::{LedgerError, NewAudit, Token};
use protocol::browser::RelayToBrowser;
use protocol::config::AgentSettings;
use protocol::connection::{ConnectionAck, ConnectionError, ConnectionHello, Cursor, PeerRole};
use protocol::envelope::{Ids, encode};
use protocol::error::{CloseCode, ErrorCode, WireError};
use protocol::ids::{MachineId, SessionId};
use protocol::prompt::PermissionPrompt;
use protocol::proxy::RelayToProxy;
use protocol::session::{Session, SessionSnapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Cursors of one hello that are answered; nobody follows more sessions.
const MOST_CURSORS: usize = 5000;

impl Hub {
    /// A socket has said hello. It is welcomed, or told why not and closed. May run twice for one socket.
    pub(super) fn hello(
        &mut self,
        key: PeerKey,
        door: &Door,
        hello: &ConnectionHello,
        outbox: &Arc<Outbox>,
    ) -> Result<(), LedgerError> {
        let token = (door.token_id.as_str(), door.label.as_str());
        let mut peer = Peer::new(door.role, connection_id(key), token, outbox.clone());
        // The token was good when the socket was opened; the hello may come much later.
        let Some(token) = self.ledger.token(&door.token_id)?.filter(|token| token.revoked_at.is_none()) else {
            self.peers.insert(key, peer);
            let error = WireError::new(ErrorCode::Unauthorized, "This token was revoked: pair again");
            return self.turn_away(key, error, CloseCode::TokenRevoked);
        };
        if door.role == PeerRole::Proxy {
            match self.bind_machine(&token, hello) {
                Ok(machine) => peer.machine = Some(machine),
                Err(Stop::Refused(error)) => {
                    self.note_login(door, &peer, &error.code)?;
                    self.peers.insert(key, peer);
                    return self.turn_away(key, error, CloseCode::HandshakeInvalid);
                }
                Err(Stop::Ledger(error)) => return Err(error),
            }
        }
        self.note_login(door, &peer, "ok")?;
        let machine = peer.machine.clone();
        self.peers.insert(key, peer);
        match machine {
            Some(machine) => {
                self.replace_other_proxies(key, &machine.machine_id)?;
                self.greet_proxy(key, machine.machine_id);
                Ok(())
            }
            None => self.greet_browser(key, hello.resume.as_ref().map_or(&[], |resume| &resume.sessions)),
        }
    }

    /// Who got in is noted, unless the disk is full: reading must go on then.
    fn note_login(&mut self, door: &Door, peer: &Peer, outcome: &str) -> Result<(), LedgerError> {
        if self.degraded {
            tracing::warn!(token_id = door.token_id, "a login could not be noted in the audit trail");
            return Ok(());
        }
        self.ledger.touch_token(&door.token_id, self.now)?;
        let machine_id = peer.machine.as_ref().map(|machine| machine.machine_id.as_str());
        let (token_id, device_name) = (Some(door.token_id.as_str()), Some(door.label.as_str()));
        self.audit(&NewAudit { action: "login", outcome, token_id, device_name, machine_id, ..NewAudit::default() })
    }

    /// A token speaks for the machine it first said hello with, and a machine has one token.
    fn bind_machine(&mut self, token: &Token, hello: &ConnectionHello) -> Result<Machine, Stop> {
        let unauthorized = |message: String| Err(Stop::Refused(WireError::new(ErrorCode::Unauthorized, message)));
        let bound = token.machine_id.clone();
        let wanted = hello.machine_id.clone();
        let machine_id = match (bound, wanted) {
            (Some(bound), Some(wanted)) if bound != wanted => {
                return unauthorized(format!(
                    "this token belongs to machine `{bound}`: pair `{wanted}` with a code of its own"
                ));
            }
            (Some(bound), _) => bound,
            (None, wanted) => {
                let machine_id = wanted.unwrap_or_else(|| MachineId::new(token.token_id.clone()));
                if self.ledger.token_of_machine(&machine_id)?.is_some() {
                    return unauthorized(format!("machine `{machine_id}` has a token already: revoke that one first"));
                }
                self.ledger.bind_token(&token.token_id, &machine_id)?;
                machine_id
            }
        };
        Ok(Machine { machine_id, machine_label: hello.machine_label.clone().or_else(|| Some(token.label.clone())) })
    }

    /// A second proxy for a machine takes over: the first is told, and what it spoke for is down
    /// until the new one says what it sees.
    fn replace_other_proxies(&mut self, key: PeerKey, machine_id: &MachineId) -> Result<(), LedgerError> {
        let others: Vec<PeerKey> = self
            .peers
            .proxies()
            .filter(|(other, machine)| *other != key && machine.machine_id == *machine_id)
            .map(|(other, _)| other)
            .collect();
        for other in others {
            let error = WireError::new(ErrorCode::Unauthorized, "another proxy has taken over this machine");
            self.turn_away(other, error, CloseCode::Replaced)?;
        }
        Ok(())
    }

    /// Tells a peer why it cannot stay, at once: what was queued for it is dropped, and nothing it
    /// still says is heard.
    pub(super) fn turn_away(&mut self, key: PeerKey, error: WireError, code: CloseCode) -> Result<(), LedgerError> {
        let error = ConnectionError { error, ids: Ids::default() };
        let text = encode(&RelayToBrowser::ConnectionError(error), Some(&self.server_ts));
        self.peers.send_away(key, Item::Answer(text.into()), code);
        self.silence(key)
    }

    fn greet_proxy(&mut self, key: PeerKey, machine_id: MachineId) {
        let Some(mut ack) = self.ack(key) else { return };
        ack.machine_id = Some(machine_id);
        self.tell_proxy(key, &RelayToProxy::ConnectionAck(ack));
    }

    /// Everything that is true now, then what happened since the browser's cursors.
    fn greet_browser(&mut self, key: PeerKey, cursors: &[Cursor]) -> Result<(), LedgerError> {
        let Some(mut ack) = self.ack(key) else { return Ok(()) };
        let Some(token_id) = self.peers.get(key).map(|peer| peer.token_id.clone()) else { return Ok(()) };
        ack.session_configs = Some(self.session_configs());
        ack.open_prompts = Some(self.open_prompts());
        ack.pending_launches = Some(self.take_pending_launches(key, &token_id));
        self.tell_browser(key, &RelayToBrowser::ConnectionAck(ack));
        let sessions: Vec<Session> = self.sessions.iter().map(|(_, live)| live.session.clone()).collect();
        self.tell_browser(key, &RelayToBrowser::SessionSnapshot(SessionSnapshot { sessions }));
        for cursor in cursors.iter().take(MOST_CURSORS) {
            self.resume(key, cursor)?;
        }
        let growing: BTreeSet<SessionId> = self.tails.iter().map(|((session_id, _), _)| session_id.clone()).collect();
        for session_id in growing {
            if self.peers.get(key).is_some_and(|peer| peer.is_interested(&session_id)) {
                self.tell_tails(key, &session_id);
            }
        }
        self.tell_held_results(key, &token_id)
    }

    /// A slow browser has read all it was given: it is greeted anew, from where it fell behind.
    pub(super) fn catch_up(&mut self, key: PeerKey) -> Result<(), LedgerError> {
        let Some(behind) = self.peers.take_behind(key) else { return Ok(()) };
        let mut cursors = Vec::new();
        for (session_key, last_sequence) in behind {
            // From the ledger: the session may have been closed meanwhile.
            if let Some(session_id) = self.ledger.session_id(session_key)? {
                cursors.push(Cursor { session_id, last_sequence, ledger_epoch: None });
            }
        }
        self.greet_browser(key, &cursors)
    }

    fn ack(&self, key: PeerKey) -> Option<ConnectionAck> {
        Some(ConnectionAck {
            connection_id: self.peers.get(key)?.connection_id.clone(),
            heartbeat_interval_ms: self.limits.heartbeat_interval_ms,
            heartbeat_timeout_ms: self.limits.heartbeat_timeout_ms,
            max_frame_bytes: Some(self.limits.max_frame_bytes as u64),
            ledger_epoch: Some(self.ledger.epoch().clone()),
            machine_id: None,
            session_configs: None,
            open_prompts: None,
            pending_launches: None,
        })
    }

    fn session_configs(&self) -> BTreeMap<SessionId, AgentSettings> {
        let sessions = self.sessions.iter();
        sessions.filter_map(|(session_id, live)| Some((session_id.clone(), live.settings.clone()?))).collect()
    }

    fn open_prompts(&self) -> Vec<PermissionPrompt> {
        let prompts = self.sessions.iter().flat_map(|(_, live)| live.prompts.values());
        prompts.filter(|prompt| prompt.is_open()).map(|prompt| prompt.prompt.clone()).collect()
    }
}
