//! Dialogs that wait for a person, and the answers to them.

use crate::error::WireError;
use crate::ids::{ChoiceId, PromptId, RequestId, SessionId, Timestamp};
use crate::words::PromptKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// One dialog as the IDE shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct PermissionPrompt {
    pub session_id: SessionId,
    pub prompt_id: PromptId,
    /// The whole text, as shown.
    pub prompt_text: String,
    /// At least one.
    #[schemars(length(min = 1))]
    pub choices: Vec<Choice>,
    /// Set only where the IDE's own dialog dismisses itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Applied when `timeout_ms` has passed; one of `choices`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_choice: Option<ChoiceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detected_at: Option<Timestamp>,
    /// Set by the relay from `timeout_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Absent means permission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<PromptKind>,
    /// What the proxy compares before it clicks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Several choices may be given at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_select: Option<bool>,
    /// An answer in the person's own words is possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_text: Option<bool>,
    /// The exact command, where the dialog shows one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The exact change, where the dialog shows one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

/// One button or option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
pub struct Choice {
    pub choice_id: ChoiceId,
    pub label: String,
    pub is_default: bool,
}

/// A person's answer; forwarded to the proxy as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct PermissionResponse {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    pub session_id: SessionId,
    pub prompt_id: PromptId,
    /// Required unless `choice_ids` or `text` answers a question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice_id: Option<ChoiceId>,
    /// Several choices, where the prompt is `multi_select`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice_ids: Option<Vec<ChoiceId>>,
    /// An answer in words, where the prompt takes `free_text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The dialog dismissed itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct PermissionPromptExpired {
    pub session_id: SessionId,
    pub prompt_id: PromptId,
    /// What the relay told the proxy to apply; absent when it told it nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_choice: Option<ChoiceId>,
}

/// How far a dialog has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, TS)]
#[serde(rename_all = "snake_case")]
pub enum PromptState {
    /// Waits for an answer.
    Open,
    /// An answer is on its way to the proxy.
    Answering,
    /// The proxy applied the answer.
    Resolved,
    /// The answer was not applied; the prompt is open again.
    Reverted,
    /// The dialog went away without an answer of ours.
    Vanished,
}

/// A dialog's state changed. To every browser; from a proxy only with `vanished`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct PermissionPromptUpdate {
    pub session_id: SessionId,
    pub prompt_id: PromptId,
    pub state: PromptState,
    /// The answer on its way or applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice_id: Option<ChoiceId>,
    /// Who answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// Why it was reverted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<WireError>,
}

/// Names a prompt that a proxy still sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, TS)]
pub struct PromptKey {
    pub session_id: SessionId,
    pub prompt_id: PromptId,
}
