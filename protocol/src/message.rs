//! Transcript messages and the life of a send, as they stand in frames.

use crate::delivery::DeliveryState;
use crate::error::WireError;
use crate::event::SessionEvent;
use crate::ids::{AttachmentId, ClientMessageId, Epoch, EventId, MessageId, RequestId, Sequence, SessionId, Timestamp};
use crate::words::Role;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// One message of a transcript, as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct Message {
    pub message_id: MessageId,
    pub role: Role,
    /// The plain text of it all.
    pub content: String,
    pub created_at: Timestamp,
    /// Grows when the message is corrected. Absent means 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// False when the agent went away in the middle of it. Absent means true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#final: Option<bool>,
    /// The same content with its structure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Vec<Block>>,
    /// The send that caused this message, if a browser did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<ClientMessageId>,
    /// How far that send came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<DeliveryState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Vec<Attachment>>,
    /// The paired device it was sent from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
}

/// A part of a message with a structure of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Block {
    Text {
        text: String,
    },
    Thinking {
        text: String,
    },
    Code {
        #[serde(skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        language: Option<String>,
        text: String,
    },
    ToolCall {
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        input: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        output: Option<String>,
    },
    Diff {
        #[serde(skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        path: Option<String>,
        text: String,
    },
    Image {
        #[serde(skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        attachment_id: Option<AttachmentId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        alt: Option<String>,
    },
    /// A kind from a newer peer: carried on as it is.
    #[serde(untagged)]
    Other(#[ts(type = "UnknownBlock")] serde_json::Value),
}

/// A file that goes with a send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct Attachment {
    pub attachment_id: AttachmentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `uploaded_file` for what came through `POST /api/attachments`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A person's message on its way to an agent: browser to relay, and unchanged on to the proxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct SendMessage {
    pub client_message_id: ClientMessageId,
    pub session_id: SessionId,
    /// At least one of `content` and `attachments` must hold something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachments: Option<Vec<Attachment>>,
    pub created_at: Timestamp,
}

/// The relay has the send on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct MessageAccepted {
    pub event_id: EventId,
    pub sequence: Sequence,
    pub session_id: SessionId,
    pub message_id: MessageId,
    pub client_message_id: ClientMessageId,
    pub status: DeliveryState,
    pub accepted_at: Timestamp,
    /// What was sent, so that other devices can show it at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
}

/// The proxy saw the send arrive in the agent's page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
pub struct MessageDelivered {
    pub event_id: EventId,
    pub sequence: Sequence,
    pub session_id: SessionId,
    pub message_id: MessageId,
    pub client_message_id: ClientMessageId,
    pub status: DeliveryState,
    pub delivered_at: Timestamp,
}

/// The send came to nothing, or nobody can tell (`delivery: "indeterminate"`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct MessageFailed {
    pub event_id: EventId,
    /// Absent only when nothing was recorded: an unknown session, a text too large, a full disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
    pub session_id: SessionId,
    pub message_id: MessageId,
    pub client_message_id: ClientMessageId,
    /// Always `failed`, so that a client that knows no `delivery` ends too.
    pub status: DeliveryState,
    pub failed_at: Timestamp,
    pub error: WireError,
    /// `indeterminate` when the text may have been typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryState>,
}

/// A finished message of the transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
pub struct MessageEvent {
    pub event_id: EventId,
    pub sequence: Sequence,
    pub session_id: SessionId,
    pub message: Message,
}

/// What a growing message gained. Live state, not history: it has no sequence.
///
/// `text` goes in at `offset`, in UTF-16 code units; what stood from there on is replaced. An
/// `offset` of 0 carries the whole text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct MessageUpdate {
    pub session_id: SessionId,
    pub message_id: MessageId,
    pub revision: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    pub offset: u32,
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}

/// Asks for a session's transcript, or for what happened since a cursor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct HistoryRequest {
    pub session_id: SessionId,
    /// Absent: a snapshot. Present: the events after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_sequence: Option<Sequence>,
    /// The epoch `after_sequence` belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_epoch: Option<Epoch>,
    /// A snapshot of only the newest so many messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// With a snapshot: only messages from before this sequence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_sequence: Option<Sequence>,
}

/// Whether a cursor could be continued from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing is missing.
    Ok,
    /// The cursor is worthless: throw away what you have and take this snapshot.
    Gap,
}

/// The known transcript of a session, or one page of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct HistorySnapshot {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    pub session_id: SessionId,
    pub ledger_epoch: Epoch,
    /// Live events after this one are news; continue from here.
    pub last_sequence: Sequence,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Oldest first.
    pub messages: Vec<Message>,
    /// Where the oldest message stands: ask with `before_sequence` for what came before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_sequence: Option<Sequence>,
    /// Whether older messages exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_more: Option<bool>,
}

/// The events of a session after a cursor, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct HistoryDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    pub session_id: SessionId,
    pub ledger_epoch: Epoch,
    pub from_sequence: Sequence,
    pub last_sequence: Sequence,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    pub events: Vec<SessionEvent>,
}
