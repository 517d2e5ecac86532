//! A phone that does not keep up costs little, slows nobody, and catches up from the ledger.

use crate::peer::Peer;
use crate::relay::{Relay, Role};
use crate::world::{SESSION, World, acknowledged, observed, send};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpSocket;

const MESSAGES: usize = 3000;
/// So that all messages together are many times what sockets and queues can hold.
const MESSAGE_BYTES: usize = 8000;
/// So few at once that whoever reads them all never falls behind.
const BATCH: usize = 20;

/// A browser whose own side buffers next to nothing.
async fn narrow_browser(relay: &Relay) -> Peer {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(8 << 10).unwrap();
    let stream = socket.connect(relay.address().parse().unwrap()).await.unwrap();
    let token = relay.token(Role::Browser, "narrow");
    let headers = [("Authorization", format!("Bearer {token}"))];
    let mut peer = Peer::over(Box::new(stream), relay.address(), Role::Browser, &headers).await;
    peer.greet(json!({})).await;
    peer
}

/// The proxy says everything; the world's browser hears it all, live.
async fn talk(world: &mut World) {
    let text = "x".repeat(MESSAGE_BYTES);
    for batch in 0..MESSAGES / BATCH {
        let ids: Vec<_> = (0..BATCH).map(|number| format!("a{}", batch * BATCH + number)).collect();
        world.proxy.send_all(ids.iter().map(|id| observed(SESSION, id, &text))).await;
        world.browser.send(json!({"type": "heartbeat"})).await;
        for id in &ids {
            assert_eq!(world.browser.expect("message_event").await["message"]["message_id"], json!(id));
        }
    }
}

fn message_id(event: &Value) -> Option<String> {
    event["message"]["message_id"].as_str().map(str::to_owned)
}

/// Reads until a message arrives, and returns every message heard, live or caught up, in order.
async fn read_up_to(peer: &mut Peer, last: &str) -> (Vec<String>, Vec<Value>) {
    let (mut messages, mut others) = (Vec::new(), Vec::new());
    while messages.last().map(String::as_str) != Some(last) {
        let frame = peer.next().await;
        match frame["type"].as_str().unwrap() {
            "message_event" => messages.extend(message_id(&frame)),
            "history_delta" => messages.extend(frame["events"].as_array().unwrap().iter().filter_map(message_id)),
            _ => others.push(frame),
        }
    }
    (messages, others)
}

#[tokio::test]
async fn a_browser_that_stops_reading_slows_nobody_costs_little_and_catches_up() {
    let mut world = World::with(&["--max-frames-per-second", "0"]).await;
    let mut stalled = narrow_browser(&world.relay).await;
    let before = world.relay.resident_kib();
    talk(&mut world).await;
    let grown = world.relay.resident_kib().saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB more");
    let prompt = crate::world::prompt("p1");
    acknowledged(&mut world.proxy, prompt).await;

    let (messages, others) = read_up_to(&mut stalled, &format!("a{}", MESSAGES - 1)).await;
    let expected: Vec<_> = (0..MESSAGES).map(|number| format!("a{number}")).collect();
    assert_eq!(messages, expected, "no gap, no repeat");
    assert!(others.iter().any(|frame| frame["type"] == "session_snapshot"), "{others:?}");
    let told_of_prompt = |frame: &Value| frame["prompt_id"] == "p1" || frame["open_prompts"][0]["prompt_id"] == "p1";
    if !others.iter().any(told_of_prompt) {
        stalled.expect_where("the open prompt", told_of_prompt).await;
    }
    acknowledged(&mut world.proxy, observed(SESSION, "live", "again")).await;
    assert_eq!(read_up_to(&mut stalled, "live").await.0, ["live"]);
}

#[tokio::test]
async fn a_browser_that_takes_nothing_for_long_is_closed() {
    let flags = ["--max-frames-per-second", "0", "--heartbeat-interval-ms", "500", "--heartbeat-timeout-ms", "2000"];
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
    let mut world = World::with(&["--max-frames-per-second", "0"]).await;
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
        for three in ids.chunks(3) {
            world.browser.send_all(three.iter().map(|id| send(SESSION, id, &text))).await;
            for _ in three {
                world.browser.expect("message_accepted").await;
            }
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
