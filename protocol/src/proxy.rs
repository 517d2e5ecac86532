//! Every frame between a proxy and the relay.

use crate::config::{AgentConfig, AgentConfigRequest, AgentControlResult, AgentInterrupt, AgentSetModel};
use crate::connection::{ConnectionAck, ConnectionError, ConnectionHello, Heartbeat, HeartbeatAck, PeerError};
use crate::envelope::frames;
use crate::error::WireError;
use crate::ids::{ClientMessageId, MessageId, RequestId, SessionId, Timestamp};
use crate::message::{Block, MessageUpdate, SendMessage};
use crate::prompt::{PermissionPrompt, PermissionPromptUpdate, PermissionResponse, PromptKey};
use crate::session::{
    Activity, CloseSession, LaunchSession, Session, SessionClosed, SessionLaunchAck, SessionLaunchFailed,
};
use crate::words::{Role, SessionStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

frames! {
    /// What a proxy may say.
    ProxyToRelay {
        ConnectionHello(ConnectionHello) = "connection_hello",
        ConnectionError(PeerError) = "connection_error",
        Heartbeat(Heartbeat) = "heartbeat",
        ProxySessionSnapshot(ProxySessionSnapshot) = "proxy_session_snapshot",
        ProxyMessage(ProxyMessage) = "proxy_message",
        ProxyMessageUpdate(MessageUpdate) = "proxy_message_update",
        ProxySendResult(ProxySendResult) = "proxy_send_result",
        ProxyStatus(ProxyStatus) = "proxy_status",
        SessionLaunchAck(SessionLaunchAck) = "session_launch_ack",
        SessionLaunchFailed(SessionLaunchFailed) = "session_launch_failed",
        SessionClosed(SessionClosed) = "session_closed",
        PermissionPrompt(PermissionPrompt) = "permission_prompt",
        PermissionPromptUpdate(PermissionPromptUpdate) = "permission_prompt_update",
        AgentConfig(AgentConfig) = "agent_config",
        AgentControlResult(AgentControlResult) = "agent_control_result",
    }
}

frames! {
    /// What a proxy hears.
    RelayToProxy {
        ConnectionAck(ConnectionAck) = "connection_ack",
        ConnectionError(ConnectionError) = "connection_error",
        HeartbeatAck(HeartbeatAck) = "heartbeat_ack",
        ProxyAck(ProxyAck) = "proxy_ack",
        MessageResync(MessageResync) = "message_resync",
        SendMessage(SendMessage) = "send_message",
        LaunchSession(LaunchSession) = "launch_session",
        CloseSession(CloseSession) = "close_session",
        PermissionResponse(PermissionResponse) = "permission_response",
        AgentInterrupt(AgentInterrupt) = "agent_interrupt",
        AgentConfigRequest(AgentConfigRequest) = "agent_config_request",
        AgentSetModel(AgentSetModel) = "agent_set_model",
    }
}

/// Every session the proxy sees now; those missing are down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct ProxySessionSnapshot {
    pub sessions: Vec<Session>,
    /// Every dialog the proxy sees now. Only where it is given have the missing ones vanished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_prompts: Option<Vec<PromptKey>>,
}

/// A finished message was seen in the page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
pub struct ProxyMessage {
    pub session_id: SessionId,
    pub message: ObservedMessage,
}

/// A message as a proxy saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct ObservedMessage {
    /// Stable: a repeat is recognised by it. Without one, each is a new message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    pub role: Role,
    pub content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#final: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Vec<Block>>,
    /// The send whose typing made this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<ClientMessageId>,
}

/// How a forwarded send ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct ProxySendResult {
    pub session_id: SessionId,
    pub client_message_id: ClientMessageId,
    pub result: SendOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<WireError>,
}

/// The ends a forwarded send can come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "snake_case")]
pub enum SendOutcome {
    Delivered,
    Failed,
    /// Typed, but the proof was not seen.
    Indeterminate,
}

/// A session's health or activity changed; what is absent did not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct ProxyStatus {
    pub session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<SessionStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<Activity>,
}

/// The frame with this `request_id` is on the relay's disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
pub struct ProxyAck {
    pub request_id: RequestId,
}

/// The relay's copy of a growing message differs: send it whole, with `offset` 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
pub struct MessageResync {
    pub session_id: SessionId,
    pub message_id: MessageId,
}
