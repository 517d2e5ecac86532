//! An agent's settings, and the commands that control it.

use crate::error::WireError;
use crate::ids::{RequestId, SessionId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use ts_rs::TS;

/// What an agent is set to, as its page shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
pub struct AgentConfig {
    pub session_id: SessionId,
    #[serde(flatten)]
    pub settings: AgentSettings,
}

/// The settings themselves; keyed by session in `connection_ack`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct AgentSettings {
    /// `unknown` if it cannot be read.
    pub model_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_access_scope: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_models: Option<Vec<String>>,
    /// What the proxy can do with this agent; a missing key is unknown, not false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<BTreeMap<String, bool>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Timestamp>,
}

/// Stops a running generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
pub struct AgentInterrupt {
    pub request_id: RequestId,
    pub session_id: SessionId,
}

/// Asks for a fresh `agent_config`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct AgentConfigRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    pub session_id: SessionId,
}

/// Changes the model; confirmed by the `agent_config` that follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct AgentSetModel {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    pub session_id: SessionId,
    pub model_id: String,
}

/// How a control command ended; only the browser that gave it hears.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct AgentControlResult {
    /// That of the command; absent only if the command had none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    pub session_id: SessionId,
    /// The `type` of the command.
    pub command: String,
    pub result: ControlOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<WireError>,
    /// Some proxies give their code here. Read, never written: it goes on in `error`.
    #[serde(default, skip_serializing)]
    #[schemars(skip)]
    #[ts(skip)]
    pub error_code: Option<String>,
}

impl AgentControlResult {
    /// What went wrong, wherever the proxy put it.
    pub fn failure(&self) -> Option<WireError> {
        let bare = || Some(WireError { code: self.error_code.clone()?, message: String::new() });
        self.error.clone().or_else(bare).filter(|_| self.result == ControlOutcome::Failed)
    }
}

/// The two ends a control command can come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "snake_case")]
pub enum ControlOutcome {
    Ok,
    Failed,
}
