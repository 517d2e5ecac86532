//! Words that are closed when we write and open when we read.
//!
//! A peer one release ahead may say a word we do not know yet. It is carried on as it is and shown
//! as plain text, never dropped.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use ts_rs::TS;

/// The words that a TypeScript union names, so that the JSON Schema names the same ones.
fn known(union: &str) -> Vec<&str> {
    union.split('"').skip(1).step_by(2).collect()
}

macro_rules! word_type {
    ($($(#[doc = $doc:literal])+ $name:ident, $ts:literal { $($(#[doc = $word_doc:literal])+ $constant:ident = $word:literal,)* })+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, TS)]
        #[ts(type = $ts)]
        #[schemars(extend("examples" = known($ts)))]
        pub struct $name(Cow<'static, str>);

        impl $name {
            $($(#[doc = $word_doc])+ pub const $constant: Self = Self(Cow::Borrowed($word));)*

            /// A word as a peer said it.
            pub fn new(word: impl Into<String>) -> Self {
                Self(Cow::Owned(word.into()))
            }

            /// The word as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

word_type! {
    /// Which agent a session talks to.
    AgentType, "\"claude\" | \"codex\" | \"gemini\" | (string & {})" {
        /// Recognised as an agent, but not which.
        UNKNOWN = "unknown",
    }
    /// How well a session can be read and driven now.
    SessionStatus, "\"healthy\" | \"degraded\" | \"disconnected\" | \"scraping_failed\" | \"agent_ui_changed\" | (string & {})" {
        /// All is well.
        HEALTHY = "healthy",
        /// Nobody is connected who could speak for it.
        DISCONNECTED = "disconnected",
    }
    /// What the agent is doing.
    ActivityKind, "\"thinking\" | \"generating\" | \"reading_files\" | \"running_command\" | \"applying_patch\" | \"waiting_for_user\" | \"idle\" | (string & {})" {
        /// A dialog is open.
        WAITING_FOR_USER = "waiting_for_user",
        /// Nothing is going on.
        IDLE = "idle",
    }
    /// Who said a message.
    Role, "\"user\" | \"assistant\" | \"system\" | \"tool\" | (string & {})" {
        /// The person, at the desk or on a phone.
        USER = "user",
        /// The agent.
        ASSISTANT = "assistant",
    }
    /// What sort of answer a dialog wants.
    PromptKind, "\"permission\" | \"question\" | \"plan\" | (string & {})" {
        /// May the agent do this?
        PERMISSION = "permission",
        /// Which of these do you mean?
        QUESTION = "question",
        /// Is this plan all right?
        PLAN = "plan",
    }
    /// Why a session became unavailable.
    DownReason, "\"proxy_disconnected\" | \"not_in_snapshot\" | (string & {})" {
        /// Its proxy's socket closed.
        PROXY_DISCONNECTED = "proxy_disconnected",
        /// Its proxy no longer lists it.
        NOT_IN_SNAPSHOT = "not_in_snapshot",
    }
    /// Why a session was closed.
    CloseReason, "\"user_requested\" | \"target_closed\" | \"proxy_shutdown\" | (string & {})" {
        /// A person asked for it.
        USER_REQUESTED = "user_requested",
    }
}
