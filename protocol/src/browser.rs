//! Every frame between a browser and the relay.

use crate::config::{AgentConfig, AgentConfigRequest, AgentControlResult, AgentInterrupt, AgentSetModel};
use crate::connection::{
    ConnectionAck, ConnectionError, ConnectionHello, Heartbeat, HeartbeatAck, PeerError, SessionInterest,
};
use crate::envelope::frames;
use crate::message::{
    HistoryDelta, HistoryRequest, HistorySnapshot, MessageAccepted, MessageDelivered, MessageEvent, MessageFailed,
    MessageUpdate, SendMessage,
};
use crate::prompt::{PermissionPrompt, PermissionPromptExpired, PermissionPromptUpdate, PermissionResponse};
use crate::session::{
    CloseSession, LaunchSession, SessionClosed, SessionDown, SessionLaunchAck, SessionLaunchFailed, SessionLaunching,
    SessionSnapshot, SessionStatusChange, SessionUp,
};

frames! {
    /// What a browser may say.
    BrowserToRelay {
        ConnectionHello(ConnectionHello) = "connection_hello",
        ConnectionError(PeerError) = "connection_error",
        Heartbeat(Heartbeat) = "heartbeat",
        SessionInterest(SessionInterest) = "session_interest",
        SendMessage(SendMessage) = "send_message",
        HistoryRequest(HistoryRequest) = "history_request",
        LaunchSession(LaunchSession) = "launch_session",
        CloseSession(CloseSession) = "close_session",
        PermissionResponse(PermissionResponse) = "permission_response",
        AgentInterrupt(AgentInterrupt) = "agent_interrupt",
        AgentConfigRequest(AgentConfigRequest) = "agent_config_request",
        AgentSetModel(AgentSetModel) = "agent_set_model",
    }
}

frames! {
    /// What a browser hears.
    RelayToBrowser {
        ConnectionAck(ConnectionAck) = "connection_ack",
        ConnectionError(ConnectionError) = "connection_error",
        HeartbeatAck(HeartbeatAck) = "heartbeat_ack",
        SessionSnapshot(SessionSnapshot) = "session_snapshot",
        SessionUp(SessionUp) = "session_up",
        SessionDown(SessionDown) = "session_down",
        SessionStatus(SessionStatusChange) = "session_status",
        SessionLaunching(SessionLaunching) = "session_launching",
        SessionLaunchAck(SessionLaunchAck) = "session_launch_ack",
        SessionLaunchFailed(SessionLaunchFailed) = "session_launch_failed",
        SessionClosed(SessionClosed) = "session_closed",
        MessageAccepted(MessageAccepted) = "message_accepted",
        MessageDelivered(MessageDelivered) = "message_delivered",
        MessageFailed(MessageFailed) = "message_failed",
        MessageEvent(MessageEvent) = "message_event",
        MessageUpdate(MessageUpdate) = "message_update",
        HistorySnapshot(HistorySnapshot) = "history_snapshot",
        HistoryDelta(HistoryDelta) = "history_delta",
        PermissionPrompt(PermissionPrompt) = "permission_prompt",
        PermissionPromptExpired(PermissionPromptExpired) = "permission_prompt_expired",
        PermissionPromptUpdate(PermissionPromptUpdate) = "permission_prompt_update",
        AgentConfig(AgentConfig) = "agent_config",
        AgentControlResult(AgentControlResult) = "agent_control_result",
    }
}
