//! What can go wrong, as stable words, and why a socket was closed, as numbers with a policy.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

macro_rules! error_codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal,)+) => {
        /// Every error code we write. What we read may be any word: a proxy's own code passes through.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode { $($(#[doc = $doc])+ $name,)+ }

        impl ErrorCode {
            /// All of them, for the documentation's test.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }
    };
}

error_codes! {
    /// The peer speaks another version.
    ProtocolVersionUnsupported = "protocol_version_unsupported",
    /// The frame could not be understood, or contradicts itself.
    InvalidMessage = "invalid_message",
    /// The session is known, but nobody is connected who could reach it.
    SessionNotConnected = "session_not_connected",
    /// No such session.
    SessionUnknown = "session_unknown",
    /// The relay will not take this send now.
    SendRejected = "send_rejected",
    /// The proxy could not type the text.
    SendInjectionFailed = "send_injection_failed",
    /// A part of the agent's page was not found.
    SelectorFailure = "selector_failure",
    /// That part of the history is no longer kept.
    HistoryNotAvailable = "history_not_available",
    /// The cursor is not one of this ledger's.
    ResumeCursorInvalid = "resume_cursor_invalid",
    /// No proxy is there to do it.
    NoProxyConnected = "no_proxy_connected",
    /// The new session did not appear in time.
    LaunchTimeout = "launch_timeout",
    /// The agent or its IDE is not running.
    AgentNotOpen = "agent_not_open",
    /// This agent cannot be launched from afar.
    LaunchNotSupported = "launch_not_supported",
    /// The peer may not do this.
    Unauthorized = "unauthorized",
    /// The dialog is not open, or was answered already.
    PromptNotFound = "prompt_not_found",
    /// Nothing to stop.
    AgentNotActive = "agent_not_active",
    /// The agent does not offer that model.
    ModelNotAvailable = "model_not_available",
    /// This agent has no such control.
    ControlNotSupported = "control_not_supported",
    /// The agent's settings could not be read.
    ConfigReadFailed = "config_read_failed",
    /// The dialog on the screen is not the one that was answered.
    PromptChanged = "prompt_changed",
    /// The button was clicked and the dialog is still there.
    ClickNotApplied = "click_not_applied",
    /// Somebody's draft is in the composer and cannot be kept.
    ComposerNotEmpty = "composer_not_empty",
    /// The agent is busy and its page cannot queue.
    AgentBusy = "agent_busy",
    /// It may have happened; the proof was not seen.
    NotVerified = "not_verified",
    /// Too much, too fast.
    RateLimited = "rate_limited",
    /// A number that has an upper bound has reached it.
    LimitReached = "limit_reached",
    /// The text is longer than the relay takes.
    ContentTooLarge = "content_too_large",
    /// The relay cannot write to its disk; nothing was changed.
    StorageFull = "storage_full",
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error as it stands in a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
pub struct WireError {
    /// A stable word: one of `ErrorCode`, or a proxy's own.
    pub code: String,
    /// A sentence for a person; may change at any time.
    pub message: String,
}

impl WireError {
    /// An error of our own.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code: code.as_str().to_owned(), message: message.into() }
    }
}

macro_rules! close_codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal, $reason:literal;)+) => {
        /// Why the relay closed a socket. 4000–4499: come back. 4500–4999: coming back is pointless
        /// until a person changed something.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum CloseCode { $($(#[doc = $doc])+ $name,)+ }

        impl CloseCode {
            /// All of them, for the documentation's test.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The number in the close frame.
            pub const fn number(self) -> u16 {
                match self { $(Self::$name => $number,)+ }
            }

            /// The sentence in the close frame.
            pub const fn reason(self) -> &'static str {
                match self { $(Self::$name => $reason,)+ }
            }

            /// Whether a client should connect again by itself.
            pub const fn come_back(self) -> bool {
                self.number() < 4500
            }
        }
    };
}

close_codes! {
    /// The relay is stopping or restarting.
    Restarting = 4000, "the relay is restarting: come back";
    /// Nothing was heard for longer than the heartbeat timeout.
    Stale = 4001, "nothing heard within the heartbeat timeout: come back";
    /// The peer does not read what it is sent.
    TooSlow = 4002, "not reading fast enough: come back and resume from your cursors";
    /// No `connection_hello` came in time.
    HandshakeTimeout = 4003, "no connection_hello in time: come back and say hello";
    /// The peer kept breaking the rules.
    Abuse = 4004, "too many refused frames: come back later";
    /// Another version is spoken here.
    VersionUnsupported = 4500, "protocol version not supported: update this client";
    /// The first frame was not a valid `connection_hello` for this door.
    HandshakeInvalid = 4501, "invalid connection_hello";
    /// The token was revoked.
    TokenRevoked = 4502, "this token was revoked: pair again";
    /// Another proxy speaks for this machine now.
    Replaced = 4503, "another proxy has taken over this machine";
}
