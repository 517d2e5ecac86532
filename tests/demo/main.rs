//! A make-believe dev box for `scripts/run`: one agent that answers what it is told, so that there is
//! something to look at where no IDE is installed.
//!
//! It speaks the proxy's side of the protocol like any other proxy. "run CMD" makes it ask for
//! permission first; everything else is answered at once, growing word by word.

use anyhow::{Context, bail};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

const SESSION: &str = "demo-session";

/// A pause between words, so that one can watch an answer grow.
const WORD_PAUSE: Duration = Duration::from_millis(80);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(token)) = (arguments.next(), arguments.next()) else {
        bail!("usage: demo http://HOST:PORT PROXY_TOKEN");
    };
    Demo::connect(&url, &token).await?.run().await
}

struct Demo {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    heartbeat: Duration,
    answers: u32,
    /// The command that waits for a permission, with its prompt's id.
    asked: Option<(String, String)>,
}

impl Demo {
    async fn connect(url: &str, token: &str) -> anyhow::Result<Self> {
        let mut request = format!("{}/proxy-ws", url.replacen("http", "ws", 1)).into_client_request()?;
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse()?);
        let (socket, _) = connect_async(request).await.context("the relay did not let us in")?;
        let mut demo = Self { socket, heartbeat: Duration::from_secs(10), answers: 0, asked: None };
        demo.say(json!({"type": "connection_hello", "peer_role": "proxy", "client_name": "demo", "machine_id": "demo-machine", "machine_label": "Demo machine"})).await?;
        demo.show("idle", "Idle").await?;
        demo.say(json!({"type": "agent_config", "session_id": SESSION, "model_id": "demo-1", "available_models": ["demo-1", "demo-2"],
            "capabilities": {"interrupt": false, "set_model": true, "permission_dialogs": true}})).await?;
        Ok(demo)
    }

    async fn run(mut self) -> anyhow::Result<()> {
        loop {
            let Ok(frame) = tokio::time::timeout(self.heartbeat, self.socket.next()).await else {
                self.say(json!({"type": "heartbeat"})).await?;
                continue;
            };
            match frame.context("the relay closed the connection")?? {
                Message::Text(text) => self.heard(&serde_json::from_str(&text)?).await?,
                Message::Close(reason) => bail!("the relay closed the connection: {reason:?}"),
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }

    async fn heard(&mut self, frame: &Value) -> anyhow::Result<()> {
        match frame["type"].as_str() {
            Some("connection_ack") => {
                self.heartbeat = Duration::from_millis(frame["heartbeat_interval_ms"].as_u64().unwrap_or(10_000));
            }
            Some("send_message") => self.told(frame).await?,
            Some("permission_response") => self.permitted(frame).await?,
            Some("agent_set_model") => {
                self.say(json!({"type": "agent_config", "session_id": SESSION, "model_id": frame["model_id"], "available_models": ["demo-1", "demo-2"]})).await?;
                self.done(frame, "agent_set_model").await?;
            }
            Some("launch_session") => {
                let reason = "The demo has one agent only";
                self.say(json!({"type": "session_launch_failed", "request_id": frame["request_id"], "error_code": "launch_not_supported", "reason": reason})).await?;
            }
            Some("agent_interrupt" | "close_session" | "agent_config_request") => {
                let command = frame["type"].clone();
                let error = json!({"code": "control_not_supported", "message": "The demo cannot do this"});
                self.say(json!({"type": "agent_control_result", "request_id": frame["request_id"], "session_id": SESSION, "command": command, "result": "failed", "error": error})).await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn told(&mut self, frame: &Value) -> anyhow::Result<()> {
        let id = &frame["client_message_id"];
        let text = frame["content"].as_str().unwrap_or("(a file)").to_owned();
        self.say(json!({"type": "proxy_message", "session_id": SESSION, "message": {"role": "user", "content": text, "client_message_id": id}})).await?;
        self.say(
            json!({"type": "proxy_send_result", "session_id": SESSION, "client_message_id": id, "result": "delivered"}),
        )
        .await?;
        if let Some(command) = text.strip_prefix("run ") {
            return self.ask(command).await;
        }
        self.answer(&format!("You said: {text}\n\nThis is a demo agent. Say \"run cargo test\" and it will ask for your permission first.")).await
    }

    async fn ask(&mut self, command: &str) -> anyhow::Result<()> {
        self.answers += 1;
        let prompt_id = format!("demo-prompt-{}", self.answers);
        self.show("waiting_for_user", "Waiting for you").await?;
        self.say(json!({"type": "permission_prompt", "session_id": SESSION, "prompt_id": prompt_id, "prompt_text": "Allow this command?", "command": command,
            "choices": [
                {"choice_id": "yes", "label": "Yes", "is_default": false},
                {"choice_id": "no", "label": "No", "is_default": true},
            ]})).await?;
        self.asked = Some((command.to_owned(), prompt_id));
        Ok(())
    }

    async fn permitted(&mut self, frame: &Value) -> anyhow::Result<()> {
        let asked = self.asked.take_if(|(_, prompt_id)| frame["prompt_id"] == prompt_id.as_str());
        let Some((command, _)) = asked else { return Ok(()) };
        self.done(frame, "permission_response").await?;
        let words = if frame["choice_id"] == "yes" { "I would run it now" } else { "All right, I leave it" };
        self.answer(&format!("{words}: {command}")).await
    }

    /// Says something word by word, then as a finished message.
    async fn answer(&mut self, text: &str) -> anyhow::Result<()> {
        self.answers += 1;
        let message_id = format!("demo-answer-{}-{}", std::process::id(), self.answers);
        self.show("generating", "Writing").await?;
        let mut offset = 0;
        for (revision, word) in text.split_inclusive(' ').enumerate() {
            self.say(json!({"type": "proxy_message_update", "session_id": SESSION, "message_id": message_id, "revision": revision + 1, "role": "assistant", "offset": offset, "text": word})).await?;
            offset += word.encode_utf16().count();
            tokio::time::sleep(WORD_PAUSE).await;
        }
        let revision = text.split_inclusive(' ').count() + 1;
        self.say(json!({"type": "proxy_message", "session_id": SESSION, "message": {"message_id": message_id, "revision": revision, "role": "assistant", "content": text}})).await?;
        self.show("idle", "Idle").await
    }

    async fn show(&mut self, kind: &str, label: &str) -> anyhow::Result<()> {
        self.say(json!({"type": "proxy_session_snapshot", "sessions": [{
            "session_id": SESSION, "agent_type": "demo", "display_name": "Demo agent", "workspace_name": "make-believe",
            "status": "healthy", "activity": {"kind": kind, "label": label},
        }]}))
        .await
    }

    async fn done(&mut self, frame: &Value, command: &str) -> anyhow::Result<()> {
        self.say(json!({"type": "agent_control_result", "request_id": frame["request_id"], "session_id": SESSION, "command": command, "result": "ok"})).await
    }

    async fn say(&mut self, mut frame: Value) -> anyhow::Result<()> {
        frame["protocol_version"] = 1.into();
        Ok(self.socket.send(Message::text(frame.to_string())).await?)
    }
}
