//! The handshake and the heartbeat.

use crate::config::AgentSettings;
use crate::envelope::Ids;
use crate::error::WireError;
use crate::ids::{ConnectionId, Epoch, MachineId, RequestId, Sequence, SessionId, Timestamp};
use crate::prompt::PermissionPrompt;
use crate::session::PendingLaunch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use ts_rs::TS;

/// The first frame on every socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct ConnectionHello {
    pub peer_role: PeerRole,
    pub client_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_version: Option<String>,
    /// A proxy's name for its dev box, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_label: Option<String>,
    /// A proxy's durable id for its dev box. The first one said binds the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<MachineId>,
    /// A browser's cursors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
}

/// Who is speaking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "snake_case")]
pub enum PeerRole {
    Browser,
    Proxy,
}

impl PeerRole {
    /// The word on the wire, in the ledger and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Browser => "browser",
            Self::Proxy => "proxy",
        }
    }
}

/// How far a browser has read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
pub struct Resume {
    pub sessions: Vec<Cursor>,
}

/// How far a browser has read in one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct Cursor {
    pub session_id: SessionId,
    pub last_sequence: Sequence,
    /// The epoch the sequence belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_epoch: Option<Epoch>,
}

/// Welcome, and everything that is true now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct ConnectionAck {
    pub connection_id: ConnectionId,
    pub heartbeat_interval_ms: u64,
    pub heartbeat_timeout_ms: u64,
    /// Frames larger than this are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_frame_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger_epoch: Option<Epoch>,
    /// To a proxy: the machine it speaks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<MachineId>,
    /// To a browser: the latest `agent_config` of each session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_configs: Option<BTreeMap<SessionId, AgentSettings>>,
    /// To a browser: every dialog that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_prompts: Option<Vec<PermissionPrompt>>,
    /// To a browser: its launches still under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_launches: Option<Vec<PendingLaunch>>,
}

/// Something was refused. Unless a close frame follows, the socket lives on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
pub struct ConnectionError {
    #[serde(flatten)]
    pub error: WireError,
    /// Those of the refused frame.
    #[serde(flatten)]
    pub ids: Ids,
}

/// A peer could not understand the relay. Noted, never answered: two peers that answer errors with
/// errors would never stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct PeerError {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// I am still here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct Heartbeat {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_id: Option<ConnectionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ts: Option<Timestamp>,
}

/// So am I.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct HeartbeatAck {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    pub connection_id: ConnectionId,
}

/// The sessions whose transcript a browser wants now. Without it, it gets everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
pub struct SessionInterest {
    pub sessions: Vec<SessionId>,
}
