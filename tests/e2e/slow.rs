//! A phone that does not keep up costs little, slows nobody, and catches up from the ledger.

use crate::peer::Peer;
use crate::relay::{Relay, Role};
use crate::world::{SESSION, World, acknowledged, announce, observed, send, send_result, session, snapshot, update};
use serde_json::{Value, json};
use std::ops::Range;
use std::time::Duration;
use tokio::net::TcpSocket;

/// Peers here send no heartbeats while they talk, and a busy machine may take its time.
const PATIENT: [&str; 4] = ["--max-frames-per-second", "0", "--heartbeat-timeout-ms", "600000"];
const MESSAGES: usize = 1500;
/// So that all messages together are many times what sockets and queues can hold.
const MESSAGE_BYTES: usize = 16_000;
/// So few at once that whoever reads them all never falls behind, even if the relay counts two lots.
const BATCH: usize = 5;

/// A browser whose own side buffers next to nothing.
async fn narrow_browser(relay: &Relay) -> Peer {
    narrow(relay, Role::Browser, &relay.token(Role::Browser, "narrow")).await
}

async fn narrow(relay: &Relay, role: Role, token: &str) -> Peer {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 << 10).unwrap();
    let stream = socket.connect(relay.address().parse().unwrap()).await.unwrap();
    let headers = [("Authorization", format!("Bearer {token}"))];
    let mut peer = Peer::over(Box::new(stream), relay.address(), role, &headers).await;
    peer.greet(json!({})).await;
    peer
}

/// The proxy says everything; the world's browser hears it all, live.
async fn talk(world: &mut World) {
    talk_on(world, 0..MESSAGES).await;
}

/// The proxy says a part of it; the world's browser hears it, live.
async fn talk_on(world: &mut World, numbers: Range<usize>) {
    let text = "x".repeat(MESSAGE_BYTES);
    for begin in numbers.clone().step_by(BATCH) {
        let ids: Vec<_> = (begin..numbers.end.min(begin + BATCH)).map(|number| format!("a{number}")).collect();
        world.proxy.send_all(ids.iter().map(|id| observed(SESSION, id, &text))).await;
        world.browser.send(json!({"type": "heartbeat"})).await;
        for id in &ids {
            assert_eq!(world.browser.expect("message_event").await["message"]["message_id"], json!(id));
        }
    }
}

/// The messages a frame brings: one when it is live, many when it catches up.
fn messages_in(frame: &Value) -> Vec<String> {
    let id = |event: &Value| event["message"]["message_id"].as_str().map(str::to_owned);
    match frame["type"].as_str().unwrap() {
        "message_event" => id(frame).into_iter().collect(),
        "history_delta" => frame["events"].as_array().unwrap().iter().filter_map(id).collect(),
        _ => Vec::new(),
    }
}

/// Every message once, in order.
#[track_caller]
fn assert_whole(messages: &[String]) {
    for (number, message) in messages.iter().enumerate() {
        let around = &messages[number.saturating_sub(3)..messages.len().min(number + 4)];
        assert_eq!(*message, format!("a{number}"), "a gap or a repeat in {around:?}");
    }
    assert_eq!(messages.len(), MESSAGES);
}

/// Reads until a message arrives; returns every message heard, live or caught up, and every frame.
async fn read_up_to(peer: &mut Peer, last: &str) -> (Vec<String>, Vec<Value>) {
    let (mut messages, mut frames) = (Vec::new(), Vec::new());
    while messages.last().map(String::as_str) != Some(last) {
        let frame = peer.next().await;
        messages.extend(messages_in(&frame));
        frames.push(frame);
    }
    (messages, frames)
}

#[tokio::test]
async fn a_browser_that_stops_reading_slows_nobody_costs_little_and_catches_up() {
    let mut world = World::with(&PATIENT).await;
    let mut stalled = narrow_browser(&world.relay).await;
    let before = world.relay.resident_kib();
    talk(&mut world).await;
    let grown = world.relay.resident_kib().saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB more");
    let prompt = crate::world::prompt("p1");
    acknowledged(&mut world.proxy, prompt).await;

    let (messages, frames) = read_up_to(&mut stalled, &format!("a{}", MESSAGES - 1)).await;
    assert_whole(&messages);
    assert!(frames.iter().any(|frame| frame["type"] == "session_snapshot"), "it is told anew what is true");
    let told_of_prompt = |frame: &Value| frame["prompt_id"] == "p1" || frame["open_prompts"][0]["prompt_id"] == "p1";
    if !frames.iter().any(told_of_prompt) {
        stalled.expect_where("the open prompt", told_of_prompt).await;
    }
    acknowledged(&mut world.proxy, observed(SESSION, "live", "again")).await;
    assert_eq!(read_up_to(&mut stalled, "live").await.0, ["live"]);
}

#[tokio::test]
async fn a_browser_that_falls_behind_again_and_again_misses_nothing() {
    let mut world = World::with(&PATIENT).await;
    let mut slow = narrow_browser(&world.relay).await;
    let mut messages = Vec::new();
    for begin in (0..MESSAGES).step_by(500) {
        // It stalls while much is said, and reads again while more is being said.
        let (stalled, end) = (begin + 340, begin + 500);
        talk_on(&mut world, begin..stalled).await;
        let last = format!("a{}", end - 1);
        let reading = read_up_to(&mut slow, &last);
        let ((), (heard, frames)) = tokio::join!(talk_on(&mut world, stalled..end), reading);
        assert!(frames.iter().any(|frame| frame["type"] == "history_delta"), "it fell behind");
        messages.extend(heard);
    }
    assert_whole(&messages);
}

#[tokio::test]
async fn a_growing_message_is_whole_again_after_falling_behind() {
    let mut world = World::with(&PATIENT).await;
    let mut stalled = narrow_browser(&world.relay).await;
    world.proxy.send(update("tail", 1, 0, "begin ")).await;
    talk(&mut world).await;
    world.proxy.send(update("tail", 2, 6, "middle ")).await;
    world.proxy.settle().await;
    stalled.expect_like(json!({"type": "message_update", "text": "begin "})).await;
    let caught_up = stalled.expect("message_update").await;
    assert_eq!((&caught_up["offset"], &caught_up["text"]), (&json!(0), &json!("begin middle ")));
    world.proxy.send(update("tail", 3, 13, "end")).await;
    let live = stalled.expect("message_update").await;
    assert_eq!((&live["offset"], &live["text"]), (&json!(13), &json!("end")));
}

#[tokio::test]
async fn the_fate_of_ones_own_send_is_not_lost_by_falling_behind() {
    let mut world = World::with(&PATIENT).await;
    announce(&mut world.proxy, &[SESSION, "sess_2"]).await;
    let mut stalled = narrow_browser(&world.relay).await;
    stalled.send(json!({"type": "session_interest", "sessions": [SESSION]})).await;
    stalled.send(send("sess_2", "m1", "hello")).await;
    stalled.expect("message_accepted").await;
    talk(&mut world).await;
    world.proxy.send(send_result("sess_2", "m1", "delivered")).await;
    world.browser.expect("message_delivered").await;
    let (_, frames) = read_up_to(&mut stalled, &format!("a{}", MESSAGES - 1)).await;
    let tells = |frame: &Value| frame["type"] == "message_delivered" && frame["client_message_id"] == "m1";
    let told =
        |frame: &Value| tells(frame) || frame["events"].as_array().is_some_and(|events| events.iter().any(tells));
    if !frames.iter().any(told) {
        stalled.expect_where("news of the send", told).await;
    }
}

#[tokio::test]
async fn a_browser_that_takes_nothing_for_long_is_closed() {
    let flags = ["--max-frames-per-second", "0", "--heartbeat-interval-ms", "500", "--heartbeat-timeout-ms", "6000"];
    let mut world = World::with(&flags).await;
    let mut stalled = narrow_browser(&world.relay).await;
    stalled.patience = Duration::from_secs(20);
    talk(&mut world).await;
    let mut beats = tokio::time::interval(Duration::from_millis(300));
    for _ in 0..60 {
        beats.tick().await;
        world.browser.send(json!({"type": "heartbeat"})).await;
        world.proxy.send(json!({"type": "heartbeat"})).await;
        // It says that it is there; it only does not listen.
        if !stalled.try_send(json!({"type": "heartbeat"})).await {
            break;
        }
    }
    let (code, _) = stalled.expect_close().await;
    assert!([4002, 1006].contains(&code), "{code}");
    world.browser.settle().await;
}

#[tokio::test]
async fn a_reply_to_a_slow_reader_arrives_whole() {
    let mut world = World::with(&PATIENT).await;
    let mut slow = narrow_browser(&world.relay).await;
    slow.send(json!({"type": "session_interest", "sessions": []})).await;
    slow.settle().await;
    talk(&mut world).await;
    slow.send(json!({"type": "history_request", "session_id": SESSION})).await;
    let snapshot = slow.expect("history_snapshot").await;
    assert_eq!(snapshot["messages"].as_array().unwrap().len(), MESSAGES);
}

#[tokio::test]
async fn large_sends_in_a_row_reach_a_proxy_that_reads() {
    let mut world = World::new().await;
    let text = "x".repeat(1 << 20);
    let ids: Vec<_> = (0..12).map(|number| format!("m{number}")).collect();
    let sending = async {
        for id in &ids {
            world.browser.send(send(SESSION, id, &text)).await;
            world.browser.expect_like(json!({"type": "message_accepted", "client_message_id": id})).await;
        }
    };
    let reading = async {
        for id in &ids {
            let sent = world.proxy.expect("send_message").await;
            assert_eq!((&sent["client_message_id"], sent["content"].as_str()), (&json!(id), Some(text.as_str())));
        }
    };
    tokio::join!(sending, reading);
    world.proxy.settle().await;
}

#[tokio::test]
async fn a_proxy_that_stops_reading_loses_its_socket_and_none_of_its_sends() {
    let relay = Relay::with(&["--heartbeat-interval-ms", "500", "--heartbeat-timeout-ms", "6000"]);
    let token = relay.token(Role::Proxy, "narrow");
    let mut stalled = narrow(&relay, Role::Proxy, &token).await;
    announce(&mut stalled, &[SESSION]).await;
    let mut browser = Peer::browser(&relay).await;
    let text = "x".repeat(MESSAGE_BYTES);
    let ids: Vec<_> = (0..400).map(|number| format!("m{number}")).collect();
    let mut accepted = Vec::new();
    for lot in ids.chunks(BATCH) {
        browser.send_all(lot.iter().map(|id| send(SESSION, id, &text))).await;
        for id in lot {
            // On a busy machine it may be gone before all are sent.
            let answer = browser.expect_like(json!({"client_message_id": id})).await;
            accepted.extend((answer["type"] == "message_accepted").then_some(id.as_str()));
        }
    }
    assert!(accepted.len() > BATCH, "{accepted:?}");
    browser.expect_while_beating(json!({"type": "session_down"})).await;

    let mut back = Peer::as_device(&relay, Role::Proxy, &token).await;
    back.send(snapshot(vec![session(SESSION)])).await;
    browser.expect("session_up").await;
    browser.send(send(SESSION, "one-more", &text)).await;
    for id in accepted.into_iter().chain(["one-more"]) {
        assert_eq!(back.expect("send_message").await["client_message_id"], json!(id));
    }
    back.settle().await;
}
