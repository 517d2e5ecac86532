//! Text to frame and frame to text.
//!
//! Decoding goes in two steps: first the [`Head`], which every version shares, then the body that
//! its `type` names. So a peer of another version gets told so, whatever its bodies look like.

use crate::PROTOCOL_VERSION;
use crate::error::{ErrorCode, WireError};
use crate::ids::{ClientMessageId, RequestId, SessionId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// Frames nested deeper than this are refused. Below serde_json's own limit, so that ours is the one that counts.
pub const MAX_DEPTH: usize = 100;

/// A set of frames that travel in one direction.
pub trait Frames: Sized + Serialize {
    /// Every `type` of the set.
    const TYPES: &'static [&'static str];

    /// Reads the body of a frame whose `type` is known.
    fn parse(frame_type: &str, text: &str) -> Option<Result<Self, serde_json::Error>>;

    /// The `type` of this frame.
    fn frame_type(&self) -> &'static str;
}

/// What every frame has in common.
#[derive(Clone, Debug, Serialize, JsonSchema, TS)]
pub struct Envelope<T> {
    /// Always 1.
    #[schemars(range(min = 1, max = 1))]
    pub protocol_version: u32,
    /// The relay's clock when it spoke.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub server_ts: Option<Timestamp>,
    /// May stand on any frame; what answers that frame names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[ts(optional)]
    pub request_id: Option<RequestId>,
    #[serde(flatten)]
    pub body: T,
}

/// What a frame can be known again by, as far as it could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, TS)]
#[ts(optional_fields)]
pub struct Ids {
    /// Carried by any frame whose sender wants to hear of its fate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_message_id: Option<ClientMessageId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
}

/// A frame that was understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded<T> {
    pub ids: Ids,
    pub body: T,
}

/// A frame that was not.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{error:?}")]
pub struct Refused {
    pub error: WireError,
    pub ids: Ids,
    /// Another version is spoken over there: nothing it says will be understood.
    pub wrong_version: bool,
}

/// The part of a frame that all versions share. Read leniently, so that a refusal can name it.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(default, borrow)]
    r#type: Option<&'a serde_json::value::RawValue>,
    #[serde(default, borrow)]
    protocol_version: Option<&'a serde_json::value::RawValue>,
    #[serde(default, borrow)]
    request_id: Option<&'a serde_json::value::RawValue>,
    #[serde(default, borrow)]
    client_message_id: Option<&'a serde_json::value::RawValue>,
    #[serde(default, borrow)]
    session_id: Option<&'a serde_json::value::RawValue>,
}

impl Head<'_> {
    fn ids(&self) -> Ids {
        Ids {
            request_id: lenient(self.request_id),
            client_message_id: lenient(self.client_message_id),
            session_id: lenient(self.session_id),
        }
    }
}

/// Reads a frame.
#[expect(clippy::result_large_err, reason = "a refusal is rare, and handed on once")]
pub fn decode<T: Frames>(text: &str) -> Result<Decoded<T>, Refused> {
    if !text.trim_start().starts_with('{') {
        // serde would read an array as a struct, field by field.
        return Err(refuse(None, "not a JSON object".into()));
    }
    if depth(text) > MAX_DEPTH {
        return Err(refuse(None, format!("recursion limit: nested deeper than {MAX_DEPTH} levels")));
    }
    let head: Head = serde_json::from_str(text).map_err(|error| refuse(None, format!("not a JSON object: {error}")))?;
    let refuse = |message: String| refuse(Some(&head), message);

    let Some(frame_type) = head.r#type else {
        return Err(refuse("missing field `type`".into()));
    };
    let Ok(frame_type) = serde_json::from_str::<String>(frame_type.get()).map(|word| shortened(&word)) else {
        return Err(refuse("`type` must be a string".into()));
    };
    match head.protocol_version.map(|version| serde_json::from_str::<u32>(version.get())) {
        Some(Ok(PROTOCOL_VERSION)) => {}
        None => return Err(refuse(format!("{frame_type}: missing field `protocol_version`"))),
        Some(_) => {
            let error = WireError::new(
                ErrorCode::ProtocolVersionUnsupported,
                format!("Expected protocol_version {PROTOCOL_VERSION}"),
            );
            return Err(Refused { error, wrong_version: true, ..refuse(String::new()) });
        }
    }
    match T::parse(&frame_type, text) {
        None => Err(refuse(format!("unknown type `{frame_type}`"))),
        Some(Err(error)) => Err(refuse(format!("{frame_type}: {}", shortened(&error.to_string())))),
        Some(Ok(body)) => Ok(Decoded { ids: head.ids(), body }),
    }
}

/// Writes a frame. The relay stamps what it says with its clock; other peers say none.
pub fn encode<T: Serialize>(body: &T, server_ts: Option<&Timestamp>) -> String {
    let json = |text: serde_json::Result<String>| text.expect("frames are plain data, with string keys only");
    let body = json(serde_json::to_string(body));
    let server_ts =
        server_ts.map_or_else(String::new, |stamp| format!(r#""server_ts":{},"#, json(serde_json::to_string(stamp))));
    // The envelope's fields are put in front of the body's, which is never empty: it has a `type`.
    // To have serde merge the two would cost more than the rest of the frame.
    format!(r#"{{"protocol_version":{PROTOCOL_VERSION},{server_ts}{}"#, &body[1..])
}

fn refuse(head: Option<&Head>, message: String) -> Refused {
    Refused {
        error: WireError::new(ErrorCode::InvalidMessage, message),
        ids: head.map(Head::ids).unwrap_or_default(),
        wrong_version: false,
    }
}

fn lenient<'a, T: Deserialize<'a>>(raw: Option<&'a serde_json::value::RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// How deeply brackets nest. Counted beforehand, because serde skips unknown fields of any depth and
/// a limit that holds for known fields only would be no limit.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Keeps a peer's own words in an error message to a readable length.
fn shortened(text: &str) -> String {
    const LONGEST_CHARS: usize = 200;
    match text.char_indices().nth(LONGEST_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Declares the frames of one direction: the enum, its words, and how to read a body by its word.
macro_rules! frames {
    ($(#[doc = $doc:literal])+ $name:ident { $($variant:ident($body:ty) = $word:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, serde::Serialize, schemars::JsonSchema, ts_rs::TS)]
        #[serde(tag = "type")]
        #[allow(clippy::large_enum_variant, reason = "a frame lives for one step; boxing every body would cost more")]
        pub enum $name { $(#[serde(rename = $word)] $variant($body),)+ }

        impl $crate::envelope::Frames for $name {
            const TYPES: &'static [&'static str] = &[$($word,)+];

            fn parse(frame_type: &str, text: &str) -> Option<Result<Self, serde_json::Error>> {
                Some(match frame_type {
                    $($word => serde_json::from_str(text).map(Self::$variant),)+
                    _ => return None,
                })
            }

            fn frame_type(&self) -> &'static str {
                match self { $(Self::$variant(_) => $word,)+ }
            }
        }

        $(impl From<$body> for $name {
            fn from(body: $body) -> Self {
                Self::$variant(body)
            }
        })+
    };
}
pub(crate) use frames;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::browser::BrowserToRelay;

    fn refusal(text: &str) -> Refused {
        decode::<BrowserToRelay>(text).unwrap_err()
    }

    #[test]
    fn unknown_fields_are_ignored() {
        let frame = r#"{"type":"session_interest","protocol_version":1,"sessions":["a"],"mood":"good","x":{"y":[1]}}"#;
        assert!(decode::<BrowserToRelay>(frame).is_ok());
    }

    #[test]
    fn a_refusal_says_what_is_wrong() {
        let cases = [
            ("", "not a JSON object"),
            ("[1,2]", "not a JSON object"),
            (r#"{"protocol_version":1}"#, "missing field `type`"),
            (r#"{"type":7,"protocol_version":1}"#, "`type` must be a string"),
            (r#"{"type":"heartbeat"}"#, "missing field `protocol_version`"),
            (r#"{"type":"sing","protocol_version":1}"#, "unknown type `sing`"),
            (r#"{"type":"close_session","protocol_version":1,"request_id":"r"}"#, "missing field `session_id`"),
            (
                r#"{"type":"close_session","protocol_version":1,"request_id":"r","session_id":""}"#,
                "`session_id` must be 1 to 256 bytes",
            ),
        ];
        for (text, expected) in cases {
            let refused = refusal(text);
            assert_eq!(refused.error.code, "invalid_message", "{text}");
            assert!(refused.error.message.contains(expected), "{text}: {}", refused.error.message);
            assert!(!refused.wrong_version);
        }
    }

    #[test]
    fn another_version_is_refused_before_the_body_is_looked_at() {
        for version in ["2", "0", "\"1\"", "null", "1.5"] {
            let refused = refusal(&format!(r#"{{"type":"hello_v2","protocol_version":{version}}}"#));
            // `null` is as good as absent: the field is missing, not of another version.
            let expected = if version == "null" { "invalid_message" } else { "protocol_version_unsupported" };
            assert_eq!(refused.error.code, expected, "{version}");
        }
    }

    #[test]
    fn a_refusal_carries_the_ids_it_could_read() {
        let refused =
            refusal(r#"{"type":"send_message","protocol_version":1,"request_id":"r1","client_message_id":"m1"}"#);
        assert_eq!(refused.ids.request_id, Some(RequestId::new("r1")));
        assert_eq!(refused.ids.client_message_id, Some(ClientMessageId::new("m1")));
    }

    #[test]
    fn nesting_that_would_overflow_the_stack_is_refused() {
        let deep = format!(
            r#"{{"type":"heartbeat","protocol_version":1,"x":{}{}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert!(refusal(&deep).error.message.contains("recursion limit"));
    }

    #[test]
    fn brackets_in_a_string_do_not_nest() {
        let text = format!(r#"{{"type":"heartbeat","protocol_version":1,"x":"\\\"{}"}}"#, "[".repeat(1000));
        assert_eq!(depth(&text), 1);
        assert!(decode::<BrowserToRelay>(&text).is_ok());
    }

    #[test]
    fn a_long_unknown_word_is_shortened_in_the_refusal() {
        let refused = refusal(&format!(r#"{{"type":"{}","protocol_version":1}}"#, "é".repeat(5000)));
        assert!(refused.error.message.len() < 600);
    }
}
