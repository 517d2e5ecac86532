//! The hub on an in-memory ledger, with a clock that the test turns: inputs in, frames out.

use super::outbox::{Item, Next, Outbox};
use super::*;
use crate::config::Settings;
use crate::ledger::Token;
use protocol::browser::BrowserToRelay;
use protocol::connection::PeerRole;
use protocol::envelope::{Decoded, decode};
use protocol::proxy::ProxyToRelay;
use serde_json::{Value, json};
use std::path::PathBuf;

const SESSION: &str = "sess_1";

/// A hub with its clock.
struct World {
    hub: Hub,
    now: Millis,
    next_peer: u64,
}

/// A socket as the hub sees it.
struct Socket {
    key: PeerKey,
    role: PeerRole,
    outbox: Arc<Outbox>,
}

impl World {
    fn new() -> Self {
        let limits = Settings::default().resolve(Settings::default(), PathBuf::new()).unwrap().limits;
        let hub = Hub::open(Ledger::in_memory().unwrap(), limits, Arc::new(Metrics::new()), 0).unwrap();
        Self { hub, now: 0, next_peer: 0 }
    }

    /// One phone and one dev box that shows one session.
    fn with_session() -> (Self, Socket, Socket) {
        let mut world = Self::new();
        let (browser, proxy) = (world.connect(PeerRole::Browser, "phone"), world.connect(PeerRole::Proxy, "desk"));
        world.announce(&proxy, &[SESSION]);
        browser.drain();
        proxy.drain();
        (world, browser, proxy)
    }

    fn step(&mut self, inputs: &[Input]) {
        self.hub.step(self.now, inputs);
    }

    fn pass(&mut self, milliseconds: Millis) {
        self.now += milliseconds;
        self.step(&[]);
    }

    fn connect(&mut self, role: PeerRole, token_id: &str) -> Socket {
        let socket = Socket { key: PeerKey(self.next_peer), role, outbox: Arc::new(Outbox::new(role)) };
        self.next_peer += 1;
        let (token_id, label) = (token_id.to_owned(), token_id.to_owned());
        if self.hub.ledger.token(&token_id).unwrap().is_none() {
            let (token_hash, created_at) = ([0; 32], self.now);
            let token = Token {
                token_id: token_id.clone(),
                role,
                label: label.clone(),
                token_hash,
                machine_id: None,
                created_at,
                last_used_at: None,
                revoked_at: None,
            };
            self.hub.ledger.add_token(&token).unwrap();
        }
        let door = Door { token_id, role, label };
        let hello = json!({"peer_role": role.as_str(), "client_name": "test"});
        let (peer, hello) = (socket.key, serde_json::from_value(hello).unwrap());
        self.step(&[Input::Hello { peer, door, hello, outbox: socket.outbox.clone() }]);
        socket
    }

    fn say(&mut self, socket: &Socket, frame: Value) {
        self.step(&[socket.input(frame)]);
    }

    fn announce(&mut self, proxy: &Socket, sessions: &[&str]) {
        let sessions: Vec<Value> =
            sessions.iter().map(|id| json!({"session_id": id, "agent_type": "codex", "status": "healthy"})).collect();
        self.say(proxy, json!({"type": "proxy_session_snapshot", "sessions": sessions}));
    }

    fn disconnect(&mut self, socket: &Socket) {
        self.step(&[Input::Gone { peer: socket.key }]);
    }
}

impl Socket {
    fn input(&self, mut frame: Value) -> Input {
        frame["protocol_version"] = 1.into();
        let text = frame.to_string();
        let (ids, frame) = match self.role {
            PeerRole::Browser => {
                let Decoded { ids, body } = decode::<BrowserToRelay>(&text).unwrap();
                (ids, Frame::FromBrowser(body))
            }
            PeerRole::Proxy => {
                let Decoded { ids, body } = decode::<ProxyToRelay>(&text).unwrap();
                (ids, Frame::FromProxy(body))
            }
        };
        Input::Frame { peer: self.key, ids, frame }
    }

    /// Everything said to this socket since the last call.
    fn drain(&self) -> Vec<Value> {
        let mut frames = Vec::new();
        while let Some(Next::Write(items)) = self.outbox.take_now() {
            self.outbox.written();
            for item in items {
                match item {
                    Item::Answer(text) | Item::Event(_, _, text) | Item::State(text) => {
                        frames.push(serde_json::from_str(&text).unwrap());
                    }
                    Item::History(history) => frames.push(json!({"opening": history.opening})),
                }
            }
        }
        frames
    }

    /// The types of everything said since the last call.
    fn types(&self) -> Vec<String> {
        self.drain().iter().map(|frame| frame["type"].as_str().unwrap_or("history").to_owned()).collect()
    }

    /// The one frame of a type among those said since the last call.
    fn heard(&self, frame_type: &str) -> Value {
        let frames = self.drain();
        let mut found = frames.iter().filter(|frame| frame["type"] == frame_type);
        let frame = found.next().unwrap_or_else(|| panic!("no {frame_type} in {frames:?}"));
        assert!(found.next().is_none(), "two {frame_type} in {frames:?}");
        frame.clone()
    }
}

fn send(id: &str) -> Value {
    json!({"type": "send_message", "client_message_id": id, "session_id": SESSION, "content": "hi", "created_at": "2026-03-19T10:16:30.000Z"})
}

fn result(id: &str, result: &str) -> Value {
    json!({"type": "proxy_send_result", "session_id": SESSION, "client_message_id": id, "result": result})
}

fn prompt(id: &str) -> Value {
    json!({"type": "permission_prompt", "session_id": SESSION, "prompt_id": id, "prompt_text": "Run it?",
        "choices": [{"choice_id": "yes", "label": "Yes", "is_default": false}, {"choice_id": "no", "label": "No", "is_default": true}]})
}

#[test]
fn nothing_is_said_before_the_commit() {
    let (mut world, browser, proxy) = World::with_session();
    world.hub.ledger.limit_pages(Some(1));
    let big = json!({"type": "proxy_message", "session_id": SESSION, "message": {"role": "assistant", "content": "x".repeat(1_000_000)}});
    world.say(&proxy, big.clone());
    assert_eq!(browser.types(), [""; 0], "a message that was not kept is not shown");
    assert_eq!(proxy.heard("connection_error")["code"], "storage_full");

    world.hub.ledger.limit_pages(None);
    world.say(&proxy, big);
    assert_eq!(browser.types(), ["message_event"]);
}

#[test]
fn what_the_disk_refuses_is_refused_and_what_needs_no_disk_is_served() {
    let (mut world, browser, proxy) = World::with_session();
    world.hub.ledger.limit_pages(Some(1));
    let mut big = send("m1");
    big["content"] = "x".repeat(1_000_000).into();
    world.step(&[browser.input(big.clone()), browser.input(json!({"type": "heartbeat", "request_id": "h"}))]);
    let frames = browser.drain();
    assert_eq!(frames[0]["error"]["code"], "storage_full");
    assert_eq!(frames[1]["type"], "heartbeat_ack");
    assert_eq!(proxy.types(), [""; 0]);

    world.hub.ledger.limit_pages(None);
    world.say(&browser, big);
    assert_eq!(browser.heard("message_accepted")["sequence"], 2, "no sequence was used up");
    assert_eq!(proxy.types(), ["send_message"]);
}

#[test]
fn a_proxy_that_left_while_the_disk_was_full_is_noted_later() {
    let (mut world, browser, proxy) = World::with_session();
    for message in 0..40 {
        let text = format!("{message}{}", "x".repeat(3000));
        world.say(
            &proxy,
            json!({"type": "proxy_message", "session_id": SESSION, "message": {"role": "assistant", "content": text}}),
        );
    }
    browser.drain();
    world.hub.ledger.limit_pages(Some(1));
    // Tails that must be written make sure that the step needs a page.
    world.say(&proxy, json!({"type": "proxy_message_update", "session_id": SESSION, "message_id": "g", "revision": 1, "offset": 0, "text": "y".repeat(100_000)}));
    browser.drain();
    world.disconnect(&proxy);
    assert_eq!(browser.types(), [""; 0]);
    world.hub.ledger.limit_pages(None);
    world.pass(timers::RETRY_MS);
    assert!(browser.types().contains(&"session_down".to_owned()));
}

#[test]
fn a_group_of_inputs_is_one_step_and_keeps_its_order() {
    let (mut world, browser, proxy) = World::with_session();
    let inputs: Vec<Input> = ["a", "b", "c"].iter().map(|id| browser.input(send(id))).collect();
    world.step(&inputs);
    let ids =
        |frames: Vec<Value>| frames.iter().map(|frame| frame["client_message_id"].to_string()).collect::<Vec<_>>();
    assert_eq!(ids(browser.drain()), ["\"a\"", "\"b\"", "\"c\""]);
    assert_eq!(ids(proxy.drain()), ["\"a\"", "\"b\"", "\"c\""]);
}

#[test]
fn a_send_that_nobody_answers_for_becomes_indeterminate_and_may_still_be_settled() {
    let (mut world, browser, proxy) = World::with_session();
    world.say(&browser, send("m1"));
    browser.drain();
    world.pass(59_999);
    assert_eq!(browser.types(), [""; 0]);
    world.pass(1);
    let failed = browser.heard("message_failed");
    assert_eq!((&failed["delivery"], &failed["error"]["code"]), (&json!("indeterminate"), &json!("not_verified")));
    world.say(&proxy, result("m1", "delivered"));
    assert_eq!(browser.types(), ["message_delivered"]);
    world.say(&proxy, result("m1", "failed"));
    assert_eq!(browser.types(), [""; 0], "nothing moves a delivered send");
}

#[test]
fn a_repeated_send_is_forwarded_once_and_answered_alike() {
    let (mut world, browser, proxy) = World::with_session();
    world.say(&browser, send("m1"));
    let first = browser.heard("message_accepted");
    world.say(&browser, send("m1"));
    assert_eq!(browser.heard("message_accepted"), first);
    assert_eq!(proxy.types(), ["send_message"]);
}

#[test]
fn an_unanswered_send_is_forwarded_again_when_its_session_is_back() {
    let (mut world, browser, proxy) = World::with_session();
    world.say(&browser, send("m1"));
    world.disconnect(&proxy);
    let again = world.connect(PeerRole::Proxy, "desk");
    again.drain();
    world.announce(&again, &[SESSION]);
    assert_eq!(again.heard("send_message")["client_message_id"], "m1");
}

#[test]
fn the_first_answer_wins_and_one_that_did_not_work_reopens_the_prompt() {
    let (mut world, browser, proxy) = World::with_session();
    let answer = |id: &str, choice: &str| json!({"type": "permission_response", "request_id": id, "session_id": SESSION, "prompt_id": "p", "choice_id": choice});
    world.say(&proxy, prompt("p"));
    browser.drain();
    world.say(&browser, answer("r1", "maybe"));
    assert_eq!(browser.heard("agent_control_result")["error"]["code"], "invalid_message");
    world.say(&browser, answer("r2", "yes"));
    assert_eq!(browser.heard("permission_prompt_update")["state"], "answering");
    world.say(&browser, answer("r3", "no"));
    assert_eq!(browser.heard("agent_control_result")["error"]["code"], "prompt_not_found");
    assert_eq!(proxy.heard("permission_response")["choice_id"], "yes");
    world.say(&proxy, json!({"type": "agent_control_result", "request_id": "r2", "session_id": SESSION, "command": "permission_response",
        "result": "failed", "error": {"code": "click_not_applied", "message": "still there"}}));
    assert_eq!(browser.types(), ["permission_prompt_update", "permission_prompt", "agent_control_result"]);
}

#[test]
fn a_prompt_without_a_timeout_is_never_answered_by_itself() {
    let (mut world, browser, proxy) = World::with_session();
    world.say(&proxy, prompt("p"));
    browser.drain();
    world.pass(365 * 24 * 3_600_000);
    assert!(!proxy.types().contains(&"permission_response".to_owned()));
    assert_eq!(browser.types(), [""; 0]);
}

#[test]
fn a_slow_browser_misses_nothing_once_it_reads_again() {
    let (mut world, browser, proxy) = World::with_session();
    let message = |text: String| json!({"type": "proxy_message", "session_id": SESSION, "message": {"role": "assistant", "content": text}});
    for _ in 0..20 {
        world.say(&proxy, message("x".repeat(100_000)));
    }
    let queued = browser.drain();
    let last = queued.last().unwrap()["sequence"].as_u64().unwrap();
    assert!(queued.len() < 20, "the queue is bounded");
    world.step(&[Input::CatchUp { peer: browser.key }]);
    let frames = browser.drain();
    let types: Vec<_> = frames.iter().map(|frame| frame["type"].as_str().unwrap_or("history")).collect();
    assert_eq!(types, ["connection_ack", "session_snapshot", "history"]);
    assert!(frames[2]["opening"].as_str().unwrap().contains(&format!("\"from_sequence\":{last},")));
    world.say(&proxy, message("live".into()));
    assert_eq!(browser.types(), ["message_event"]);
}

#[test]
fn two_phones_with_the_same_request_id_are_kept_apart() {
    let (mut world, browser, proxy) = World::with_session();
    let tablet = world.connect(PeerRole::Browser, "tablet");
    tablet.drain();
    let interrupt = json!({"type": "agent_interrupt", "request_id": "r", "session_id": SESSION});
    world.say(&browser, interrupt.clone());
    world.say(&tablet, interrupt);
    let asked = proxy.drain();
    assert_eq!(asked[0]["request_id"], "r");
    assert_ne!(asked[1]["request_id"], "r");
    world.say(&proxy, json!({"type": "agent_control_result", "request_id": asked[1]["request_id"], "session_id": SESSION, "command": "agent_interrupt", "result": "ok"}));
    assert_eq!(tablet.heard("agent_control_result")["request_id"], "r");
    assert_eq!(browser.types(), [""; 0]);
}
