//! Newtype ids: a `SessionId` cannot be handed in where a `PromptId` is due.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use ts_rs::TS;

/// Longer ids than this are refused: an id is a name, not a place to store things.
pub const MAX_ID_BYTES: usize = 256;

macro_rules! id_type {
    ($($(#[doc = $doc:literal])+ $name:ident, $field:literal;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema, TS)]
        #[ts(type = "string")]
        pub struct $name(#[schemars(length(min = 1, max = MAX_ID_BYTES))] String);

        impl $name {
            /// Wraps an id that this side made itself.
            pub fn new(id: impl Into<String>) -> Self {
                Self(id.into())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let id = String::deserialize(deserializer)?;
                if id.is_empty() || id.len() > MAX_ID_BYTES {
                    return Err(de::Error::custom(format_args!(
                        "`{}` must be 1 to {MAX_ID_BYTES} bytes long, this one has {}",
                        $field, id.len()
                    )));
                }
                Ok(Self(id))
            }
        }
    )+};
}

id_type! {
    /// The durable name of one logical agent chat.
    SessionId, "session_id";
    /// Made by the browser before it sends; a retry reuses it.
    ClientMessageId, "client_message_id";
    /// The ledger's name for one transcript message.
    MessageId, "message_id";
    /// The name of one emitted event.
    EventId, "event_id";
    /// The name of one instance of a dialog: two equal dialogs in a row have two.
    PromptId, "prompt_id";
    /// The name of one button or option of a dialog.
    ChoiceId, "choice_id";
    /// Ties an answer to its question; unique per socket only.
    RequestId, "request_id";
    /// Given by the relay to one open socket.
    ConnectionId, "connection_id";
    /// One dev box, bound to the token of its proxy.
    MachineId, "machine_id";
    /// An uploaded file.
    AttachmentId, "attachment_id";
    /// Changes only when history was lost, so that a client knows its cursors are worthless.
    Epoch, "ledger_epoch";
}

/// Grows by at least one with each event of a session; never goes back, never repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, TS)]
#[ts(type = "number")]
pub struct Sequence(pub u64);

impl std::fmt::Display for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// An ISO 8601 UTC time such as `2026-03-19T10:15:30.000Z`.
///
/// Peers' times are carried as they were said; the relay never computes with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(type = "string")]
#[schemars(extend("format" = "date-time"))]
pub struct Timestamp(pub String);
