//! Sessions: what is known of one agent chat, and how that changes.

use crate::ids::{EventId, MachineId, RequestId, Sequence, SessionId, Timestamp};
use crate::words::{ActivityKind, AgentType, CloseReason, DownReason, SessionStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// The durable description of one agent chat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct Session {
    pub session_id: SessionId,
    pub agent_type: AgentType,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_path: Option<String>,
    /// Which dev box; set by the relay from the proxy's token, whatever the proxy says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<MachineId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_label: Option<String>,
    /// The proxy's fingerprint for finding this chat again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_signature: Option<String>,
    /// The debug target that shows it now. Transient: never a name for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen_at: Option<Timestamp>,
    pub status: SessionStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
}

/// What the agent is doing, in a machine's word and a person's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct Activity {
    pub kind: ActivityKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
}

/// Every session that is not closed; sent after each handshake.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
pub struct SessionSnapshot {
    pub sessions: Vec<Session>,
}

/// A session became available, came back, or is described anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
pub struct SessionUp {
    pub event_id: EventId,
    pub sequence: Sequence,
    pub session: Session,
}

/// A session became unavailable. Its history stays readable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
pub struct SessionDown {
    pub event_id: EventId,
    pub sequence: Sequence,
    pub session_id: SessionId,
    pub reason: DownReason,
}

/// A session's health or activity changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct SessionStatusChange {
    pub event_id: EventId,
    pub sequence: Sequence,
    pub session_id: SessionId,
    pub status: SessionStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
}

/// Asks the session's proxy to close it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
pub struct CloseSession {
    pub request_id: RequestId,
    pub session_id: SessionId,
}

/// The session was closed; every browser hears it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct SessionClosed {
    /// The `close_session` that caused it; absent when the proxy closed it on its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    pub session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<CloseReason>,
}

/// Asks a machine's proxy for a new agent chat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct LaunchSession {
    pub request_id: RequestId,
    pub agent_type: AgentType,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_title: Option<String>,
    /// Needed only where several machines are connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<MachineId>,
}

/// The launch was forwarded; only the browser that asked hears it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
pub struct SessionLaunching {
    pub request_id: RequestId,
    pub agent_type: AgentType,
}

/// A launch still under way, told to a browser that comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct PendingLaunch {
    pub request_id: RequestId,
    pub agent_type: AgentType,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<MachineId>,
    pub launched_at: Timestamp,
    pub timeout_at: Timestamp,
}

/// The new session exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct SessionLaunchAck {
    pub request_id: RequestId,
    pub session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<AgentType>,
}

/// The launch came to nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct SessionLaunchFailed {
    pub request_id: RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<AgentType>,
    /// A sentence for a person.
    pub reason: String,
    /// A stable word: one of `ErrorCode`, or a proxy's own.
    pub error_code: String,
}
