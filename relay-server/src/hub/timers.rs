//! What happens because time has passed.

use super::{Hub, PeerKey};
use crate::clock::Millis;
use crate::ledger::LedgerError;
use protocol::error::{CloseCode, ErrorCode, WireError};
use protocol::ids::{ClientMessageId, PromptId, SessionId};
use protocol::prompt::PromptState;

/// How soon something the disk refused is tried again.
pub(super) const RETRY_MS: Millis = 1000;

/// How often tokens revoked by another process are looked for. They lose their sockets within a second.
const LOOK_AROUND_MS: Millis = 500;

/// How often old history and files are cleaned up.
const HOUSEKEEPING_MS: Millis = 3600 * 1000;

const DAY_MS: Millis = 24 * 3600 * 1000;

/// Something that a session has waited for long enough.
enum Due {
    Send(ClientMessageId),
    Expiry(PromptId),
    Answer(PromptId),
}

impl Hub {
    /// Ends whatever took too long.
    pub(super) fn tick(&mut self) -> Result<(), LedgerError> {
        for peer in self.unrecorded_departures.clone() {
            self.gone(peer)?;
        }
        for (session_id, due) in self.due() {
            match due {
                Due::Send(id) => {
                    let why = "The machine did not say in time whether it was typed: look before you send it again";
                    self.lose_track(&session_id, &id, why)?;
                }
                Due::Expiry(prompt_id) => self.expire_prompt(&session_id, &prompt_id)?,
                Due::Answer(prompt_id) => {
                    // It was answered, and must not be twice. If it is still there, its proxy will say so.
                    let error =
                        WireError::new(ErrorCode::NotVerified, "The machine did not say in time whether it worked");
                    self.end_prompt(&session_id, &prompt_id, PromptState::Vanished, Some(error))?;
                }
            }
        }
        self.time_out_controls()?;
        self.time_out_launches()?;
        self.close_revoked()?;
        if self.now >= self.next_housekeeping {
            self.clean_up()?;
        }
        Ok(())
    }

    /// All of that is on disk: what was due is done, and it is known when to look again.
    pub(super) fn ticked(&mut self) {
        self.unrecorded_departures.clear();
        if self.now >= self.next_housekeeping {
            self.next_housekeeping = self.now + HOUSEKEEPING_MS;
        }
        let deadlines = [
            Some(self.now + LOOK_AROUND_MS),
            Some(self.next_housekeeping),
            self.first_session_deadline(),
            self.first_launch_deadline(),
            self.controls.iter().map(|(_, control)| control.deadline).min(),
        ];
        self.wake_at = deadlines.into_iter().flatten().min().unwrap_or(self.now + LOOK_AROUND_MS);
    }

    fn due(&self) -> Vec<(SessionId, Due)> {
        let sends = self.unsettled.iter().filter(|(_, send)| send.deadline <= self.now);
        let mut due: Vec<_> = sends.map(|((_, id), send)| (send.session_id.clone(), Due::Send(id.clone()))).collect();
        for (session_id, live) in self.sessions.iter() {
            for (prompt_id, prompt) in &live.prompts {
                if prompt.deadline().is_some_and(|deadline| deadline <= self.now) {
                    let prompt_id = prompt_id.clone();
                    let what = if prompt.is_open() { Due::Expiry(prompt_id) } else { Due::Answer(prompt_id) };
                    due.push((session_id.clone(), what));
                }
            }
        }
        due
    }

    /// Tokens may be revoked by the command line, in another process.
    fn close_revoked(&mut self) -> Result<(), LedgerError> {
        let revoked = self.ledger.revoked_tokens()?;
        revoked.iter().try_for_each(|token_id| self.close_sockets_of(token_id))
    }

    /// A revoked token's sockets close at once.
    pub(super) fn close_sockets_of(&mut self, token_id: &str) -> Result<(), LedgerError> {
        let sockets: Vec<PeerKey> =
            self.peers.iter().filter(|(_, peer)| peer.token_id == token_id).map(|(key, _)| key).collect();
        for key in sockets {
            let error = WireError::new(ErrorCode::Unauthorized, "This token was revoked: pair again");
            self.turn_away(key, error, CloseCode::TokenRevoked)?;
        }
        Ok(())
    }

    fn clean_up(&mut self) -> Result<(), LedgerError> {
        let before = match self.limits.retain_days {
            0 => Millis::MIN,
            days => self.now - Millis::from(days) * DAY_MS,
        };
        if before > Millis::MIN {
            let dropped = self.ledger.prune(before)?;
            tracing::info!(dropped, "events past their retention were dropped");
            self.reload_pruned()?;
        }
        let gone = self.ledger.drop_attachments(self.now - DAY_MS, before)?;
        self.remove_files(gone);
        Ok(())
    }
}
