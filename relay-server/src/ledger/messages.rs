//! The transcript, and the sends in it.

use super::{Ledger, Result};
use crate::clock::Millis;
use protocol::delivery::DeliveryState;
use protocol::ids::{ClientMessageId, MessageId, Sequence};
use protocol::message::Message;

/// A send to be kept.
pub(crate) struct NewSend<'a> {
    pub session_key: i64,
    pub sequence: Sequence,
    pub message: &'a Message,
    pub delivery: DeliveryState,
    pub token_id: &'a str,
}

/// A send as the ledger knows it.
#[derive(Debug)]
pub(crate) struct StoredSend {
    pub message: Message,
    pub delivery: DeliveryState,
    pub token_id: String,
    /// The event that told `delivery`.
    pub settled_sequence: Sequence,
    pub at: Millis,
}

type Columns = (String, String, String, i64, Millis);

const SELECT: &str = "SELECT message, delivery, token_id, settled_sequence, at FROM messages";

fn columns(row: &rusqlite::Row) -> rusqlite::Result<Columns> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
}

fn stored((message, delivery, token_id, settled_sequence, at): Columns) -> Result<StoredSend> {
    Ok(StoredSend {
        message: serde_json::from_str(&message)?,
        // A word from a newer relay cannot be here: its ledger would have been refused.
        delivery: DeliveryState::from_word(&delivery).unwrap_or(DeliveryState::Indeterminate),
        token_id,
        settled_sequence: Sequence(settled_sequence as u64),
        at,
    })
}

impl Ledger {
    /// The send with this id, if there is one.
    pub(crate) fn send(&self, session_key: i64, client_message_id: &ClientMessageId) -> Result<Option<StoredSend>> {
        let sql = format!("{SELECT} WHERE session_key = ?1 AND message_id = ?2 AND delivery IS NOT NULL");
        self.one(&sql, (session_key, client_message_id.as_str()), columns)?.map(stored).transpose()
    }

    /// The sends of a session that no proxy has answered for yet, oldest first.
    pub(crate) fn unsettled_sends(&self, session_key: i64) -> Result<Vec<StoredSend>> {
        let sql = format!("{SELECT} WHERE session_key = ?1 AND delivery = 'accepted' ORDER BY sequence");
        self.all(&sql, [session_key], columns)?.into_iter().map(stored).collect()
    }

    /// Keeps a new send.
    pub(crate) fn add_send(&mut self, send: &NewSend, at: Millis) -> Result<()> {
        self.write(
            "INSERT INTO messages (session_key, sequence, message_id, revision, at, message, delivery, token_id, settled_sequence)
             VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?2)
             ON CONFLICT (session_key, message_id) DO UPDATE SET
                 delivery = excluded.delivery, token_id = excluded.token_id, settled_sequence = excluded.settled_sequence",
            (
                send.session_key,
                send.sequence.0 as i64,
                send.message.message_id.as_str(),
                at,
                serde_json::to_string(send.message)?,
                send.delivery.as_str(),
                send.token_id,
            ),
        )?;
        Ok(())
    }

    /// Notes how far a send has come, and the event that told it.
    pub(crate) fn advance_send(
        &mut self,
        session_key: i64,
        client_message_id: &ClientMessageId,
        delivery: DeliveryState,
        told_by: Sequence,
    ) -> Result<()> {
        self.write(
            "UPDATE messages SET delivery = ?3, settled_sequence = ?4 WHERE session_key = ?1 AND message_id = ?2",
            (session_key, client_message_id.as_str(), delivery.as_str(), told_by.0 as i64),
        )?;
        Ok(())
    }

    /// A known message.
    pub(crate) fn message(&self, session_key: i64, message_id: &MessageId) -> Result<Option<Message>> {
        let text: Option<String> = self.one(
            "SELECT message FROM messages WHERE session_key = ?1 AND message_id = ?2",
            (session_key, message_id.as_str()),
            |row| row.get(0),
        )?;
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// Keeps a message. One that is known keeps its place and its delivery.
    pub(crate) fn keep_message(
        &mut self,
        session_key: i64,
        sequence: Sequence,
        message: &Message,
        at: Millis,
    ) -> Result<()> {
        self.write(
            "INSERT INTO messages (session_key, sequence, message_id, revision, at, message) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (session_key, message_id) DO UPDATE SET revision = excluded.revision, message = excluded.message",
            (
                session_key,
                sequence.0 as i64,
                message.message_id.as_str(),
                message.revision.unwrap_or(1),
                at,
                serde_json::to_string(message)?,
            ),
        )?;
        Ok(())
    }
}
