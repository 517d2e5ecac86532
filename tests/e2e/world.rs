//! A relay with one phone and one desk on it, and the words they use most.

use crate::peer::Peer;
use crate::relay::Relay;
use serde_json::{Value, json};

/// The session that a [`World`] begins with.
pub(crate) const SESSION: &str = "sess_1";

/// When things happen in these tests, where the time does not matter.
pub(crate) const NOW: &str = "2026-03-19T10:15:30.000Z";

/// A relay, a browser and a proxy that has announced [`SESSION`].
pub(crate) struct World {
    pub(crate) relay: Relay,
    pub(crate) browser: Peer,
    pub(crate) proxy: Peer,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// A world whose relay has more flags.
    pub(crate) async fn with(flags: &[&str]) -> Self {
        let relay = Relay::with(flags);
        let mut proxy = Peer::proxy(&relay).await;
        announce(&mut proxy, &[SESSION]).await;
        let browser = Peer::browser(&relay).await;
        Self { relay, browser, proxy }
    }

    /// Takes a send to the proxy: accepted, and forwarded.
    pub(crate) async fn forward(&mut self, id: &str) -> Value {
        self.browser.send(send(SESSION, id, "hello")).await;
        self.browser.expect_like(json!({"type": "message_accepted", "client_message_id": id})).await;
        self.proxy.expect_like(json!({"type": "send_message", "client_message_id": id})).await
    }

    /// Takes a send to its end, and returns the event that tells it.
    pub(crate) async fn finish(&mut self, id: &str, result: &str) -> Value {
        self.forward(id).await;
        self.proxy.send(send_result(SESSION, id, result)).await;
        let end = if result == "delivered" { "message_delivered" } else { "message_failed" };
        self.browser.expect_like(json!({"type": end, "client_message_id": id})).await
    }

    /// The proxy reports a message, and the browser hears it.
    pub(crate) async fn say(&mut self, message_id: &str, content: &str) -> Value {
        self.proxy.send(observed(SESSION, message_id, content)).await;
        self.browser.expect_like(json!({"type": "message_event", "message": {"message_id": message_id}})).await
    }

    /// The proxy's socket goes away, and the browser hears that the session is down.
    pub(crate) async fn lose_proxy(mut self) -> (Relay, Peer, String) {
        let token = self.proxy.token.clone();
        self.proxy.hang_up().await;
        self.browser.expect_like(json!({"type": "session_down", "session_id": SESSION})).await;
        (self.relay, self.browser, token)
    }
}

/// A proxy lists its sessions and waits until the relay has them.
pub(crate) async fn announce(proxy: &mut Peer, sessions: &[&str]) {
    acknowledged(proxy, snapshot(sessions.iter().map(|id| session(id)))).await;
}

/// Says a frame with a `request_id` of its own and waits for its `proxy_ack`.
pub(crate) async fn acknowledged(proxy: &mut Peer, mut frame: Value) {
    let request_id = format!("req-{}", rand::random::<u64>());
    frame["request_id"] = json!(request_id);
    proxy.send(frame).await;
    proxy.expect_like(json!({"type": "proxy_ack", "request_id": request_id})).await;
}

/// Says a result under the `request_id` it already has, and waits until the relay has taken it in.
pub(crate) async fn acknowledged_as(proxy: &mut Peer, frame: Value) {
    let request_id = frame["request_id"].clone();
    proxy.send(frame).await;
    proxy.expect_like(json!({"type": "proxy_ack", "request_id": request_id})).await;
}

/// The transcript as a browser is told it now.
pub(crate) async fn history(browser: &mut Peer, session_id: &str) -> Value {
    browser.send(json!({"type": "history_request", "session_id": session_id})).await;
    browser.expect_like(json!({"type": "history_snapshot", "session_id": session_id})).await
}

/// The events after a cursor, as a browser is told them now.
pub(crate) async fn events_after(browser: &mut Peer, session_id: &str, sequence: u64) -> Vec<Value> {
    browser.send(json!({"type": "history_request", "session_id": session_id, "after_sequence": sequence})).await;
    let mut delta = browser.expect_like(json!({"type": "history_delta", "session_id": session_id})).await;
    serde_json::from_value(delta["events"].take()).expect("events are a list")
}

pub(crate) fn session(session_id: &str) -> Value {
    json!({
        "session_id": session_id, "agent_type": "codex", "display_name": "Codex",
        "workspace_name": "remora", "status": "healthy"
    })
}

pub(crate) fn snapshot(sessions: impl IntoIterator<Item = Value>) -> Value {
    json!({"type": "proxy_session_snapshot", "sessions": sessions.into_iter().collect::<Vec<_>>()})
}

pub(crate) fn send(session_id: &str, id: &str, content: &str) -> Value {
    json!({
        "type": "send_message", "session_id": session_id, "client_message_id": id,
        "content": content, "created_at": NOW
    })
}

pub(crate) fn send_result(session_id: &str, id: &str, result: &str) -> Value {
    let mut frame = json!({
        "type": "proxy_send_result", "session_id": session_id, "client_message_id": id, "result": result
    });
    if result == "failed" {
        frame["failed_at"] = json!(NOW);
        frame["error"] = json!({"code": "send_button_not_found", "message": "Could not locate the send button"});
    } else {
        frame["delivered_at"] = json!(NOW);
    }
    frame
}

pub(crate) fn observed(session_id: &str, message_id: &str, content: &str) -> Value {
    json!({
        "type": "proxy_message", "session_id": session_id,
        "message": {"message_id": message_id, "role": "assistant", "content": content, "created_at": NOW}
    })
}

pub(crate) fn update(message_id: &str, revision: u32, offset: usize, text: &str) -> Value {
    json!({
        "type": "proxy_message_update", "session_id": SESSION, "message_id": message_id,
        "revision": revision, "role": "assistant", "offset": offset, "text": text
    })
}

pub(crate) fn prompt(prompt_id: &str) -> Value {
    json!({
        "type": "permission_prompt", "session_id": SESSION, "prompt_id": prompt_id,
        "prompt_text": "Edit file relay-server/index.js?", "detected_at": NOW,
        "choices": [
            {"choice_id": "yes", "label": "Yes", "is_default": false},
            {"choice_id": "no", "label": "No", "is_default": true}
        ]
    })
}

pub(crate) fn answer(prompt_id: &str, request_id: &str, choice_id: &str) -> Value {
    json!({
        "type": "permission_response", "request_id": request_id, "session_id": SESSION,
        "prompt_id": prompt_id, "choice_id": choice_id
    })
}

pub(crate) fn control_result(request_id: &Value, command: &str, error: Option<&str>) -> Value {
    let mut frame = json!({
        "type": "agent_control_result", "request_id": request_id, "session_id": SESSION,
        "command": command, "result": if error.is_some() { "failed" } else { "ok" }
    });
    if let Some(code) = error {
        frame["error"] = json!({"code": code, "message": "as the proxy says"});
    }
    frame
}
