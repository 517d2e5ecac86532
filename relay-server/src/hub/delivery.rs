//! Sends: accepted, forwarded, forwarded again after a reconnect, settled or timed out. Which step
//! may follow which is [`protocol::delivery`]'s to say.

use super::outbox::Item;
use super::peers::{Audience, PeerKey};
use super::{Hub, Stop, fresh_id, refuse};
use crate::clock::Millis;
use crate::ledger::{LedgerError, NewAudit, NewSend, StoredSend, StoredSession};
use protocol::browser::RelayToBrowser;
use protocol::delivery::{DeliveryState, DeliveryStep, next};
use protocol::error::{ErrorCode, WireError};
use protocol::event::SessionEvent;
use protocol::ids::{ClientMessageId, EventId, MessageId, Sequence, SessionId, Timestamp};
use protocol::message::{Message, MessageAccepted, MessageDelivered, MessageFailed, SendMessage};
use protocol::proxy::{ProxySendResult, RelayToProxy, SendOutcome};
use protocol::words::Role;

/// Sends that may wait for their proxies at once, all sessions together.
const MOST_UNSETTLED: usize = 10_000;

/// A send that no proxy has answered for yet.
#[derive(Clone, Debug)]
pub(super) struct Unsettled {
    /// When it becomes indeterminate.
    pub deadline: Millis,
    pub session_id: SessionId,
    pub token_id: String,
    pub device_name: Option<String>,
    pub accepted_at: Millis,
}

/// How a send ended, and what to tell.
struct Outcome {
    step: DeliveryStep,
    at: Option<Timestamp>,
    error: Option<WireError>,
}

impl Hub {
    /// A browser sends. The same id again never makes a second message.
    pub(super) fn send_message(&mut self, peer: PeerKey, send: &SendMessage) -> Result<(), Stop> {
        let empty =
            send.content.as_ref().is_none_or(String::is_empty) && send.attachments.as_ref().is_none_or(Vec::is_empty);
        if empty {
            return refuse(ErrorCode::InvalidMessage, "send_message: needs `content` or `attachments`");
        }
        if send.content.as_ref().is_some_and(|content| content.len() > self.limits.max_content_bytes) {
            let most = self.limits.max_content_bytes;
            let message = format!("The text is longer than {most} bytes: shorten it, or attach it as a file");
            return Ok(self.reject(peer, send, ErrorCode::ContentTooLarge, message)?);
        }
        if self.unsettled.len() >= MOST_UNSETTLED {
            let message = "Too many messages wait for their machines already: try again later".to_owned();
            return Ok(self.reject(peer, send, ErrorCode::LimitReached, message)?);
        }
        let Some(live) = self.sessions.get(&send.session_id) else {
            if let Some(closed) = self.ledger.session(&send.session_id)?
                && let Some(known) = self.ledger.send(closed.session_key, &send.client_message_id)?
            {
                return self.tell_again(peer, closed.session_key, &known);
            }
            let (code, message) = if self.peers.proxies().next().is_some() {
                (ErrorCode::SessionUnknown, "There is no such session")
            } else {
                (ErrorCode::SessionNotConnected, "Session is not currently connected")
            };
            return Ok(self.reject(peer, send, code, message.to_owned())?);
        };
        let session_key = live.key;
        match self.ledger.send(session_key, &send.client_message_id)? {
            None => self.take_send(peer, send, None),
            Some(known) if known.delivery == DeliveryState::Failed => self.take_send(peer, send, Some(known)),
            Some(known) => self.tell_again(peer, session_key, &known),
        }
    }

    /// Told again exactly as it was told before: the same event, to the asker alone.
    fn tell_again(&mut self, peer: PeerKey, session_key: i64, known: &StoredSend) -> Result<(), Stop> {
        if let Some(event) = self.ledger.event(session_key, known.settled_sequence)? {
            self.peers.tell(peer, Item::Answer(event.into()));
        }
        Ok(())
    }

    /// Takes a new send, or one that failed before, and forwards it if someone is there to type it.
    fn take_send(&mut self, peer: PeerKey, send: &SendMessage, known: Option<StoredSend>) -> Result<(), Stop> {
        let Some((token_id, device_name)) = self.who(peer) else { return Ok(()) };
        let retried = known.is_some();
        // A retry is of the message as it was first said.
        let message = known.map_or_else(|| as_message(send, &device_name), |known| known.message);
        let proxy = self.proxy_of(&send.session_id);
        let state = DeliveryState::Queued;
        let (state, sequence) = match proxy {
            Some(_) => {
                let state = next(state, DeliveryStep::Accept).expect("a new send can be accepted");
                (state, self.emit_accepted(&send.session_id, &message, &token_id)?)
            }
            None => {
                let state = next(state, DeliveryStep::Fail).expect("a new send can fail");
                let error = WireError::new(ErrorCode::SessionNotConnected, "Session is not currently connected");
                let failed_at = self.server_ts.clone();
                (state, self.emit_failed(&send.session_id, &message.message_id, &token_id, failed_at, error, None)?)
            }
        };
        let live = self.sessions.get(&send.session_id).expect("checked by the caller");
        let (session_key, machine_id) = (live.key, live.machine_id.clone());
        if retried {
            self.ledger.advance_send(session_key, &send.client_message_id, state, sequence)?;
        } else {
            let new = NewSend { session_key, sequence, message: &message, delivery: state, token_id: &token_id };
            self.ledger.add_send(&new, self.now)?;
        }
        for attachment in message.attachments.iter().flatten() {
            self.ledger.use_attachment(&attachment.attachment_id, session_key)?;
        }
        self.audit(&NewAudit {
            action: "send",
            outcome: state.as_str(),
            token_id: Some(&token_id),
            device_name: Some(&device_name),
            machine_id: Some(machine_id.as_str()),
            session_id: Some(send.session_id.as_str()),
            subject: Some(send.client_message_id.as_str()),
            detail: None,
        })?;
        if let Some(proxy) = proxy {
            let deadline = self.now + self.limits.send_timeout_ms;
            self.wake_by(deadline);
            let unsettled = Unsettled {
                deadline,
                session_id: send.session_id.clone(),
                token_id,
                device_name: Some(device_name),
                accepted_at: self.now,
            };
            self.unsettled.insert((session_key, send.client_message_id.clone()), unsettled);
            self.forward(proxy, &send.session_id, message);
        }
        Ok(())
    }

    fn emit_accepted(
        &mut self,
        session_id: &SessionId,
        message: &Message,
        token_id: &str,
    ) -> Result<Sequence, LedgerError> {
        let accepted_at = self.server_ts.clone();
        let mut message = message.clone();
        message.status = Some(DeliveryState::Accepted);
        self.emit(session_id, Audience::InterestedOr(token_id), |event_id, sequence| {
            SessionEvent::MessageAccepted(MessageAccepted {
                event_id,
                sequence,
                session_id: session_id.clone(),
                message_id: message.message_id.clone(),
                client_message_id: ClientMessageId::new(message.message_id.as_str()),
                status: DeliveryState::Accepted,
                accepted_at,
                message: Some(message),
            })
        })
    }

    fn emit_failed(
        &mut self,
        session_id: &SessionId,
        message_id: &MessageId,
        token_id: &str,
        failed_at: Timestamp,
        error: WireError,
        delivery: Option<DeliveryState>,
    ) -> Result<Sequence, LedgerError> {
        self.emit(session_id, Audience::InterestedOr(token_id), |event_id, sequence| {
            SessionEvent::MessageFailed(MessageFailed {
                event_id,
                sequence: Some(sequence),
                session_id: session_id.clone(),
                message_id: message_id.clone(),
                client_message_id: ClientMessageId::new(message_id.as_str()),
                status: DeliveryState::Failed,
                failed_at,
                error,
                delivery,
            })
        })
    }

    /// A send that cannot be taken, and is no part of any transcript: the sender and the trail know.
    fn reject(
        &mut self,
        peer: PeerKey,
        send: &SendMessage,
        code: ErrorCode,
        message: String,
    ) -> Result<(), LedgerError> {
        if let Some((token_id, device_name)) = self.who(peer) {
            self.audit(&NewAudit {
                action: "send",
                outcome: code.as_str(),
                token_id: Some(&token_id),
                device_name: Some(&device_name),
                session_id: Some(send.session_id.as_str()),
                subject: Some(send.client_message_id.as_str()),
                detail: Some(&message),
                ..NewAudit::default()
            })?;
        }
        self.fail_unrecorded(peer, send, code, message);
        Ok(())
    }

    /// Tells the sender alone of a failure that the ledger cannot hold.
    pub(super) fn fail_unrecorded(&mut self, peer: PeerKey, send: &SendMessage, code: ErrorCode, message: String) {
        let frame = MessageFailed {
            event_id: EventId::new(fresh_id("evt")),
            sequence: None,
            session_id: send.session_id.clone(),
            message_id: MessageId::new(send.client_message_id.as_str()),
            client_message_id: send.client_message_id.clone(),
            status: DeliveryState::Failed,
            failed_at: self.server_ts.clone(),
            error: WireError::new(code, message),
            delivery: None,
        };
        self.tell_browser(peer, &RelayToBrowser::MessageFailed(frame));
    }

    fn forward(&mut self, proxy: PeerKey, session_id: &SessionId, message: Message) {
        let send = SendMessage {
            client_message_id: ClientMessageId::new(message.message_id.as_str()),
            session_id: session_id.clone(),
            content: Some(message.content).filter(|content| !content.is_empty()),
            attachments: message.attachments,
            created_at: message.created_at,
        };
        self.tell_proxy(proxy, &RelayToProxy::SendMessage(send));
    }

    /// A session is back: whatever nobody has answered for is forwarded again, under the same ids.
    /// The proxy knows which of them it has typed already.
    pub(super) fn forward_unsettled(&mut self, session_id: &SessionId) -> Result<(), LedgerError> {
        let Some(live) = self.sessions.get(session_id) else { return Ok(()) };
        let Some(proxy) = live.owner else { return Ok(()) };
        for send in self.ledger.unsettled_sends(live.key)? {
            self.forward(proxy, session_id, send.message);
        }
        Ok(())
    }

    /// The proxy says what became of a send.
    pub(super) fn send_result(&mut self, peer: PeerKey, result: &ProxySendResult) -> Result<(), Stop> {
        self.own_session(peer, &result.session_id)?;
        let given = result.error.clone();
        let outcome = match result.result {
            SendOutcome::Delivered => {
                Outcome { step: DeliveryStep::Deliver, at: result.delivered_at.clone(), error: None }
            }
            SendOutcome::Failed => Outcome {
                step: DeliveryStep::Fail,
                at: result.failed_at.clone(),
                error: given
                    .or_else(|| Some(WireError::new(ErrorCode::SendInjectionFailed, "The proxy could not type it"))),
            },
            SendOutcome::Indeterminate => Outcome {
                step: DeliveryStep::LoseTrack,
                at: result.failed_at.clone(),
                error: given.map(|given| WireError::new(ErrorCode::NotVerified, given.message)),
            },
        };
        Ok(self.settle(&result.session_id, &result.client_message_id, outcome)?)
    }

    /// Nobody will answer for these any more.
    pub(super) fn lose_track_of_all(&mut self, session_id: &SessionId, why: &str) -> Result<(), LedgerError> {
        let Some(live) = self.sessions.get(session_id) else { return Ok(()) };
        let session_key = live.key;
        for (_, id) in self.unsettled.keys_where(|(key, _), _| *key == session_key) {
            self.lose_track(session_id, &id, why)?;
        }
        Ok(())
    }

    pub(super) fn lose_track(
        &mut self,
        session_id: &SessionId,
        id: &ClientMessageId,
        why: &str,
    ) -> Result<(), LedgerError> {
        let error = Some(WireError::new(ErrorCode::NotVerified, why));
        self.settle(session_id, id, Outcome { step: DeliveryStep::LoseTrack, at: None, error })
    }

    /// Moves a send on, if its state allows the step; repeats and contradictions change nothing.
    fn settle(&mut self, session_id: &SessionId, id: &ClientMessageId, outcome: Outcome) -> Result<(), LedgerError> {
        let Some(live) = self.sessions.get(session_id) else { return Ok(()) };
        let (session_key, machine_id) = (live.key, live.machine_id.clone());
        let unsettled = self.unsettled.remove(&(session_key, id.clone()));
        let accepted_at = unsettled.as_ref().map(|unsettled| unsettled.accepted_at);
        let (delivery, token_id, device_name) = match unsettled {
            Some(waiting) => (DeliveryState::SendingToProxy, waiting.token_id, waiting.device_name),
            // Late news of one that was given up, or a repeat.
            None => match self.ledger.send(session_key, id)? {
                Some(known) => (known.delivery, known.token_id, known.message.device_name),
                None => return Ok(()),
            },
        };
        let Ok(state) = next(delivery, outcome.step) else { return Ok(()) };
        let message_id = MessageId::new(id.as_str());
        let at = outcome.at.unwrap_or_else(|| self.server_ts.clone());
        let detail = outcome.error.as_ref().map(|error| format!("{}: {}", error.code, error.message));
        let sequence = if state == DeliveryState::Delivered {
            self.emit(session_id, Audience::InterestedOr(&token_id), |event_id, sequence| {
                SessionEvent::MessageDelivered(MessageDelivered {
                    event_id,
                    sequence,
                    session_id: session_id.clone(),
                    message_id,
                    client_message_id: id.clone(),
                    status: DeliveryState::Delivered,
                    delivered_at: at,
                })
            })?
        } else {
            let lost = state == DeliveryState::Indeterminate;
            let error = outcome.error.unwrap_or_else(|| {
                WireError::new(
                    ErrorCode::NotVerified,
                    "It may have been typed, but the proof was not seen: look before you send it again",
                )
            });
            let delivery = lost.then_some(DeliveryState::Indeterminate);
            self.emit_failed(session_id, &message_id, &token_id, at, error, delivery)?
        };
        self.ledger.advance_send(session_key, id, state, sequence)?;
        self.audit(&NewAudit {
            action: "send",
            outcome: state.as_str(),
            token_id: Some(&token_id),
            device_name: device_name.as_deref(),
            machine_id: Some(machine_id.as_str()),
            session_id: Some(session_id.as_str()),
            subject: Some(id.as_str()),
            detail: detail.as_deref(),
        })?;
        if let Some(accepted_at) = accepted_at {
            self.metrics.delivery_seconds.observe((self.now - accepted_at) as f64 / 1000.0);
        }
        Ok(())
    }

    /// A send from before the restart, with the clock started anew.
    pub(super) fn wait_for_result(&mut self, session: &StoredSession, send: &StoredSend) {
        let deadline = self.now + self.limits.send_timeout_ms;
        self.wake_by(deadline);
        let unsettled = Unsettled {
            deadline,
            session_id: session.session.session_id.clone(),
            token_id: send.token_id.clone(),
            device_name: send.message.device_name.clone(),
            accepted_at: send.at,
        };
        let id = ClientMessageId::new(send.message.message_id.as_str());
        self.unsettled.insert((session.session_key, id), unsettled);
    }
}

/// A send as it will stand in the transcript.
fn as_message(send: &SendMessage, device_name: &str) -> Message {
    Message {
        message_id: MessageId::new(send.client_message_id.as_str()),
        role: Role::USER,
        content: send.content.clone().unwrap_or_default(),
        created_at: send.created_at.clone(),
        revision: None,
        r#final: None,
        blocks: None,
        client_message_id: Some(send.client_message_id.clone()),
        status: None,
        attachments: send.attachments.clone(),
        device_name: Some(device_name.to_owned()),
    }
}
