//! What the ledger stores and replays: the events of a session, each with its sequence.

use crate::message::{MessageAccepted, MessageDelivered, MessageEvent, MessageFailed};
use crate::session::{SessionDown, SessionStatusChange, SessionUp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// One entry of a session's history. Live, the same entry travels as a frame of the same `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionEvent {
    SessionUp(SessionUp),
    SessionDown(SessionDown),
    SessionStatus(SessionStatusChange),
    MessageAccepted(MessageAccepted),
    MessageDelivered(MessageDelivered),
    MessageFailed(MessageFailed),
    MessageEvent(MessageEvent),
}
