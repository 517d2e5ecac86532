//! The transcript as proxies report it: finished messages, and answers that still grow.

use super::peers::{Audience, PeerKey};
use super::{Hub, Stop, fresh_id, refuse};
use crate::ledger::LedgerError;
use protocol::browser::RelayToBrowser;
use protocol::error::ErrorCode;
use protocol::event::SessionEvent;
use protocol::ids::{MessageId, SessionId, Timestamp};
use protocol::message::{Message, MessageEvent, MessageUpdate};
use protocol::proxy::{MessageResync, ObservedMessage, ProxyMessage, RelayToProxy};
use protocol::words::Role;

/// Answers that may grow at once in one session; an agent writes one, seldom two.
const MOST_TAILS: usize = 8;

/// A message that is still being written.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    pub(super) session_id: SessionId,
    /// The proxy that reports it.
    pub(super) teller: PeerKey,
    revision: u32,
    role: Role,
    created_at: Timestamp,
    text: String,
    /// The wire counts in these.
    utf16_units: usize,
}

impl Hub {
    /// A finished message was seen. A repeat is recognised by its id and revision.
    pub(super) fn proxy_message(&mut self, peer: PeerKey, report: &ProxyMessage) -> Result<(), Stop> {
        let key = self.own_session(peer, &report.session_id)?.key;
        if report.message.content.len() > self.limits.max_content_bytes {
            let most = self.limits.max_content_bytes;
            return refuse(ErrorCode::ContentTooLarge, format!("proxy_message: `content` is longer than {most} bytes"));
        }
        if let Some(message_id) = &report.message.message_id {
            self.tails.remove(&(report.session_id.clone(), message_id.clone()));
        }
        let known = self.known_message(key, &report.message)?;
        let mut revision = report.message.revision.unwrap_or(1);
        if let Some(known_revision) = known.as_ref().and_then(|known| known.revision) {
            let completes = known.as_ref().is_some_and(is_unfinished) && report.message.r#final != Some(false);
            if completes {
                // What was cut short is finished after all, whatever number its proxy gives it.
                revision = revision.max(known_revision + 1);
            } else if known_revision >= revision {
                return Ok(());
            }
        }
        let message = self.merged(known, &report.message, revision);
        Ok(self.keep(&report.session_id, &message)?)
    }

    /// What the ledger has of this message: by the send that caused it, or by its own id.
    fn known_message(&self, session_key: i64, seen: &ObservedMessage) -> Result<Option<Message>, LedgerError> {
        if let Some(client_message_id) = &seen.client_message_id
            && let Some(send) = self.ledger.send(session_key, client_message_id)?
        {
            return Ok(Some(send.message));
        }
        let Some(message_id) = &seen.message_id else { return Ok(None) };
        let known = self.ledger.message(session_key, message_id)?;
        Ok(known.map(|known| Message { revision: Some(known.revision.unwrap_or(1)), ..known }))
    }

    /// The message as it will stand in the ledger. A phone's send keeps its own id and its device.
    fn merged(&self, known: Option<Message>, seen: &ObservedMessage, revision: u32) -> Message {
        let id = || seen.message_id.clone().unwrap_or_else(|| MessageId::new(fresh_id("msg")));
        let message = Message {
            message_id: id(),
            role: seen.role.clone(),
            content: seen.content.clone(),
            created_at: seen.created_at.clone().unwrap_or_else(|| self.server_ts.clone()),
            revision: Some(revision),
            r#final: Some(seen.r#final.unwrap_or(true)),
            blocks: seen.blocks.clone(),
            client_message_id: seen.client_message_id.clone(),
            status: None,
            attachments: None,
            device_name: None,
        };
        let Some(known) = known else { return message };
        // What a person sent stays as it was said, however the page shows it.
        let content = if known.device_name.is_some() { known.content } else { message.content };
        Message {
            message_id: known.message_id,
            content,
            created_at: known.created_at,
            client_message_id: known.client_message_id,
            attachments: known.attachments,
            device_name: known.device_name,
            ..message
        }
    }

    fn keep(&mut self, session_id: &SessionId, message: &Message) -> Result<(), LedgerError> {
        let sequence = self.emit(session_id, Audience::Interested, |event_id, sequence| {
            let (session_id, message) = (session_id.clone(), message.clone());
            SessionEvent::MessageEvent(MessageEvent { event_id, sequence, session_id, message })
        })?;
        let key = self.sessions.get(session_id).expect("events are emitted for live sessions only").key;
        self.ledger.keep_message(key, sequence, message, self.now)
    }

    /// A message grew. Only what was added travels on.
    pub(super) fn message_update(&mut self, peer: PeerKey, update: &MessageUpdate) -> Result<(), Stop> {
        let session_key = self.own_session(peer, &update.session_id)?.key;
        let most = self.limits.max_content_bytes;
        let key = (update.session_id.clone(), update.message_id.clone());
        let mut tail = match self.tails.get(&key) {
            Some(tail) => tail.clone(),
            // News of a message that is finished already is no news.
            None if self.is_finished(session_key, &update.message_id)? => return Ok(()),
            None if self.tails.iter().filter(|((session_id, _), _)| *session_id == key.0).count() >= MOST_TAILS => {
                let message = format!("proxy_message_update: {MOST_TAILS} messages are growing already");
                return refuse(ErrorCode::LimitReached, message);
            }
            None => Tail::begin(update, peer, &self.server_ts),
        };
        match tail.put(update, most) {
            Put::Done => {
                tail.teller = peer;
                self.tails.insert(key, tail);
                let frame = RelayToBrowser::MessageUpdate(update.clone());
                self.broadcast(&update.session_id, Audience::Interested, &frame);
            }
            Put::Stale => {}
            Put::NoSuchOffset => {
                let (session_id, message_id) = key;
                self.tell_proxy(peer, &RelayToProxy::MessageResync(MessageResync { session_id, message_id }));
            }
            Put::TooLong => {
                let message = format!("proxy_message_update: the text is longer than {most} bytes");
                return refuse(ErrorCode::ContentTooLarge, message);
            }
        }
        Ok(())
    }

    fn is_finished(&self, session_key: i64, message_id: &MessageId) -> Result<bool, LedgerError> {
        Ok(self.ledger.message(session_key, message_id)?.is_some_and(|known| !is_unfinished(&known)))
    }

    /// The growing messages of a session, whole, for a browser that has just begun to look.
    pub(super) fn tell_tails(&mut self, peer: PeerKey, session_id: &SessionId) {
        let tails = self.tails.iter().filter(|((of, _), _)| of == session_id);
        let updates: Vec<MessageUpdate> = tails
            .map(|((_, message_id), tail)| MessageUpdate {
                session_id: session_id.clone(),
                message_id: message_id.clone(),
                revision: tail.revision,
                role: Some(tail.role.clone()),
                offset: 0,
                text: tail.text.clone(),
                created_at: Some(tail.created_at.clone()),
            })
            .collect();
        for update in updates {
            self.tell_browser(peer, &RelayToBrowser::MessageUpdate(update));
        }
    }

    /// The agent went away in the middle of these: what it had written becomes history, unfinished.
    pub(super) fn write_tails(&mut self, of: impl Fn(&Tail) -> bool) -> Result<(), LedgerError> {
        for key in self.tails.keys_where(|_, tail| of(tail)) {
            let Some(tail) = self.tails.remove(&key) else { continue };
            if self.sessions.get(&tail.session_id).is_none() {
                continue;
            }
            let message = Message {
                message_id: key.1,
                role: tail.role,
                content: tail.text,
                created_at: tail.created_at,
                revision: Some(tail.revision),
                r#final: Some(false),
                blocks: None,
                client_message_id: None,
                status: None,
                attachments: None,
                device_name: None,
            };
            self.keep(&tail.session_id, &message)?;
        }
        Ok(())
    }
}

/// Whether the agent went away in the middle of this message.
fn is_unfinished(message: &Message) -> bool {
    message.r#final == Some(false)
}

impl Tail {
    fn begin(update: &MessageUpdate, teller: PeerKey, now: &Timestamp) -> Self {
        Self {
            session_id: update.session_id.clone(),
            teller,
            revision: update.revision,
            role: update.role.clone().unwrap_or(Role::ASSISTANT),
            created_at: update.created_at.clone().unwrap_or_else(|| now.clone()),
            text: String::new(),
            utf16_units: 0,
        }
    }

    /// Puts text in at its offset and drops what stood from there on.
    fn put(&mut self, update: &MessageUpdate, most_bytes: usize) -> Put {
        if update.revision < self.revision {
            return Put::Stale;
        }
        let offset = update.offset as usize;
        let end = if offset == self.utf16_units { Some(self.text.len()) } else { byte_offset(&self.text, offset) };
        let Some(end) = end else { return Put::NoSuchOffset };
        if end + update.text.len() > most_bytes {
            return Put::TooLong;
        }
        self.text.truncate(end);
        self.text.push_str(&update.text);
        self.utf16_units = offset + update.text.chars().map(char::len_utf16).sum::<usize>();
        self.revision = update.revision;
        Put::Done
    }
}

/// What became of an addition.
#[derive(Debug, PartialEq, Eq)]
enum Put {
    Done,
    /// It is older than what we have.
    Stale,
    /// The two sides disagree: the whole text is needed.
    NoSuchOffset,
    TooLong,
}

/// Where a count of UTF-16 units falls in a string, unless beyond it or inside a character.
fn byte_offset(text: &str, utf16_offset: usize) -> Option<usize> {
    let mut units = 0;
    for (byte, character) in text.char_indices() {
        if units >= utf16_offset {
            return (units == utf16_offset).then_some(byte);
        }
        units += character.len_utf16();
    }
    (units == utf16_offset).then_some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn update(offset: usize, text: &str) -> MessageUpdate {
        MessageUpdate {
            session_id: SessionId::new("s"),
            message_id: MessageId::new("m"),
            revision: 1,
            role: None,
            offset: offset as u32,
            text: text.to_owned(),
            created_at: None,
        }
    }

    fn tail() -> Tail {
        Tail::begin(&update(0, ""), PeerKey(0), &Timestamp(String::new()))
    }

    #[test]
    fn offsets_count_utf16_units() {
        let mut tail = tail();
        assert_eq!(tail.put(&update(0, "a😀b"), 100), Put::Done);
        assert_eq!(tail.put(&update(2, "x"), 100), Put::NoSuchOffset, "inside the emoji");
        assert_eq!(tail.put(&update(5, "x"), 100), Put::NoSuchOffset, "beyond the end");
        assert_eq!(tail.put(&update(3, "c"), 100), Put::Done);
        assert_eq!(tail.text, "a😀c");
    }

    #[test]
    fn a_text_is_held_to_its_limit_and_can_be_restated_up_to_it() {
        let mut tail = tail();
        assert_eq!(tail.put(&update(0, "12345678"), 10), Put::Done);
        assert_eq!(tail.put(&update(8, "9ab"), 10), Put::TooLong);
        assert_eq!(tail.put(&update(0, "123456789a"), 10), Put::Done);
    }

    proptest! {
        #[test]
        fn a_text_sent_in_pieces_arrives_whole(pieces in prop::collection::vec("\\PC{0,8}", 0..12), again in 0..12usize) {
            let mut tail = tail();
            let mut sent = String::new();
            for (index, piece) in pieces.iter().enumerate() {
                let offset = sent.encode_utf16().count();
                prop_assert_eq!(tail.put(&update(offset, piece), 10_000), Put::Done);
                if index == again {
                    prop_assert_eq!(tail.put(&update(offset, piece), 10_000), Put::Done, "a repeated piece changes nothing");
                }
                sent.push_str(piece);
            }
            prop_assert_eq!(&tail.text, &sent);
            prop_assert_eq!(tail.utf16_units, sent.encode_utf16().count());
        }
    }
}
