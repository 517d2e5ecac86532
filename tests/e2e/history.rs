//! What was said before: snapshots, deltas, cursors and pages.

use crate::peer::{Peer, assert_like};
use crate::relay::Role;
use crate::world::{SESSION, World, acknowledged, announce, events_after, history, observed};
use serde_json::{Value, json};
use std::time::Duration;

/// The highest sequence a browser knows of a session.
async fn cursor(browser: &mut Peer) -> u64 {
    history(browser, SESSION).await["last_sequence"].as_u64().unwrap()
}

fn ids(snapshot: &Value) -> Vec<&str> {
    snapshot["messages"].as_array().unwrap().iter().map(|message| message["message_id"].as_str().unwrap()).collect()
}

/// Everything a peer is told after its hello, up to the replies to its cursors.
async fn resumed(world: &World, cursors: Value) -> Vec<Value> {
    world.browser.resume(&world.relay, cursors).await.heard().await
}

#[tokio::test]
async fn a_snapshot_holds_the_transcript_oldest_first() {
    let mut world = World::new().await;
    for number in 0..5 {
        world.say(&format!("a{number}"), "text").await;
    }
    let last = world.say("a5", "text").await["sequence"].clone();
    world.browser.send(json!({"type": "history_request", "session_id": SESSION, "request_id": "h1"})).await;
    let snapshot = world.browser.expect("history_snapshot").await;
    assert_like(&snapshot, &json!({"session_id": SESSION, "request_id": "h1", "last_sequence": last}));
    assert_eq!(snapshot["ledger_epoch"], world.browser.ack["ledger_epoch"]);
    assert_eq!(ids(&snapshot), ["a0", "a1", "a2", "a3", "a4", "a5"]);
    assert_like(
        &snapshot["messages"][0],
        &json!({"role": "assistant", "content": "text", "created_at": crate::world::NOW}),
    );
}

#[tokio::test]
async fn a_send_is_in_the_snapshot_with_how_far_it_came() {
    let mut world = World::new().await;
    world.finish("m1", "delivered").await;
    world.finish("m2", "failed").await;
    world.finish("m3", "indeterminate").await;
    world.forward("m4").await;
    let snapshot = history(&mut world.browser, SESSION).await;
    let expected = [("m1", "delivered"), ("m2", "failed"), ("m3", "indeterminate")];
    for (message, (id, status)) in snapshot["messages"].as_array().unwrap().iter().zip(expected) {
        assert_like(message, &json!({"client_message_id": id, "status": status, "role": "user", "content": "hello"}));
    }
    let last = &snapshot["messages"][3];
    assert!(["accepted", "sending_to_proxy"].contains(&last["status"].as_str().unwrap()), "{last}");
}

#[tokio::test]
async fn a_delta_holds_every_event_after_the_cursor_as_it_was_live() {
    let mut world = World::new().await;
    let start = cursor(&mut world.browser).await;
    world.say("a1", "text").await;
    let mut live = vec![world.finish("m1", "delivered").await];
    world.proxy.send(json!({"type": "proxy_status", "session_id": SESSION, "status": "degraded"})).await;
    live.push(world.browser.expect("session_status").await);
    announce(&mut world.proxy, &[]).await;
    live.push(world.browser.expect("session_down").await);

    let after = json!({"type": "history_request", "session_id": SESSION, "after_sequence": start, "request_id": "h"});
    world.browser.send(after).await;
    let delta = world.browser.expect("history_delta").await;
    assert_like(&delta, &json!({"session_id": SESSION, "from_sequence": start, "request_id": "h"}));
    assert_eq!(delta["ledger_epoch"], world.browser.ack["ledger_epoch"]);
    let events = delta["events"].as_array().unwrap();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["message_event", "message_accepted", "message_delivered", "session_status", "session_down"]);
    assert_eq!(delta["last_sequence"], events.last().unwrap()["sequence"]);
    for frame in live {
        let same = events.iter().find(|event| event["event_id"] == frame["event_id"]).unwrap();
        let (mut same, mut frame) = (same.clone(), frame);
        for envelope in ["protocol_version", "server_ts"] {
            same.as_object_mut().unwrap().remove(envelope);
            frame.as_object_mut().unwrap().remove(envelope);
        }
        assert_eq!(same, frame);
    }
}

#[tokio::test]
async fn a_delta_from_zero_holds_everything_and_from_the_end_nothing() {
    let mut world = World::new().await;
    world.say("a", "text").await;
    let last = world.say("b", "text").await["sequence"].as_u64().unwrap();
    let all = events_after(&mut world.browser, SESSION, 0).await;
    let types: Vec<_> = all.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["session_up", "message_event", "message_event"]);
    assert!(all.is_sorted_by(|a, b| a["sequence"].as_u64() < b["sequence"].as_u64()), "{all:?}");
    assert_eq!(events_after(&mut world.browser, SESSION, last - 1).await.len(), 1);
    assert_eq!(events_after(&mut world.browser, SESSION, last).await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_cursor_that_is_not_of_this_ledger_is_refused() {
    let mut world = World::new().await;
    let last = cursor(&mut world.browser).await;
    let epoch = world.browser.ack["ledger_epoch"].clone();
    let bad = [json!({"after_sequence": last + 1}), json!({"after_sequence": 1, "ledger_epoch": "another"})];
    for fields in bad {
        let mut request = json!({"type": "history_request", "session_id": SESSION, "request_id": "h"});
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        world.browser.send(request).await;
        let error = world.browser.expect("connection_error").await;
        assert_like(&error, &json!({"code": "resume_cursor_invalid", "request_id": "h"}));
    }
    world
        .browser
        .send(json!({
            "type": "history_request", "session_id": SESSION, "after_sequence": last, "ledger_epoch": epoch
        }))
        .await;
    world.browser.expect("history_delta").await;
}

#[tokio::test]
async fn the_history_of_an_unknown_session_is_refused() {
    let mut world = World::new().await;
    for after in [json!(null), json!(0)] {
        let mut request = json!({"type": "history_request", "session_id": "sess_x", "request_id": "h"});
        if after.is_u64() {
            request["after_sequence"] = after;
        }
        world.browser.send(request).await;
        let error = world.browser.expect("connection_error").await;
        assert_like(&error, &json!({"code": "session_unknown", "request_id": "h"}));
    }
}

#[tokio::test]
async fn a_browser_that_comes_back_gets_exactly_what_it_missed() {
    let mut world = World::new().await;
    let seen = world.say("a", "seen").await["sequence"].as_u64().unwrap();
    let token = world.browser.token.clone();
    world.browser.hang_up().await;
    for id in ["b", "c"] {
        acknowledged(&mut world.proxy, observed(SESSION, id, "missed")).await;
    }
    let cursors = json!({"resume": {"sessions": [{"session_id": SESSION, "last_sequence": seen}]}});
    let mut back = Peer::with_hello(&world.relay, Role::Browser, &token, cursors).await;
    let delta = back.next().await;
    assert_like(&delta, &json!({"type": "history_delta", "verdict": "ok", "from_sequence": seen}));
    let missed: Vec<_> =
        delta["events"].as_array().unwrap().iter().map(|event| &event["message"]["message_id"]).collect();
    assert_eq!(missed, ["b", "c"]);
    acknowledged(&mut world.proxy, observed(SESSION, "d", "live")).await;
    let live = back.expect("message_event").await;
    assert!(live["sequence"].as_u64() > delta["last_sequence"].as_u64());
}

#[tokio::test]
async fn each_cursor_in_the_hello_is_answered() {
    let mut world = World::new().await;
    announce(&mut world.proxy, &[SESSION, "sess_2"]).await;
    world.say("a", "text").await;
    let last = cursor(&mut world.browser).await;
    let epoch = world.browser.ack["ledger_epoch"].clone();
    let heard = resumed(
        &world,
        json!([
            {"session_id": SESSION, "last_sequence": last, "ledger_epoch": epoch},
            {"session_id": "sess_2", "last_sequence": 0}
        ]),
    )
    .await;
    assert_like(&heard[0], &json!({"type": "history_delta", "session_id": SESSION, "verdict": "ok", "events": []}));
    assert_like(&heard[0], &json!({"from_sequence": last, "last_sequence": last}));
    assert_like(&heard[1], &json!({"type": "history_delta", "session_id": "sess_2", "verdict": "ok"}));
    assert_like(&heard[1]["events"], &json!([{"type": "session_up"}]));
}

#[tokio::test]
async fn a_worthless_cursor_in_the_hello_is_a_gap_and_brings_a_snapshot() {
    let mut world = World::new().await;
    world.say("a", "text").await;
    let last = cursor(&mut world.browser).await;
    let worthless = [
        json!({"session_id": SESSION, "last_sequence": last + 1000}),
        json!({"session_id": SESSION, "last_sequence": 1, "ledger_epoch": "another"}),
    ];
    for cursor in worthless {
        let heard = resumed(&world, json!([cursor])).await;
        assert_like(&heard[0], &json!({"type": "history_snapshot", "verdict": "gap", "last_sequence": last}));
        assert_eq!(ids(&heard[0]), ["a"]);
    }
    let heard = resumed(&world, json!([{"session_id": "sess_x", "last_sequence": 7}])).await;
    let empty = json!({"session_id": "sess_x", "verdict": "gap", "last_sequence": 0, "messages": []});
    assert_like(&heard[0], &empty);
}

#[tokio::test]
async fn the_replies_to_the_cursors_come_before_the_growing_messages() {
    let mut world = World::new().await;
    world.proxy.send(crate::world::update("a", 1, 0, "Hel")).await;
    world.browser.expect("message_update").await;
    let heard = resumed(&world, json!([{"session_id": SESSION, "last_sequence": 0}])).await;
    let types: Vec<_> = heard.iter().map(|frame| frame["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["history_delta", "message_update"]);
}

#[tokio::test]
async fn a_long_transcript_can_be_read_page_by_page() {
    let mut world = World::new().await;
    for number in 0..25 {
        world.say(&format!("a{number}"), "text").await;
    }
    let whole = history(&mut world.browser, SESSION).await;
    let mut pages: Vec<Value> = Vec::new();
    let mut request = json!({"type": "history_request", "session_id": SESSION, "limit": 10});
    loop {
        world.browser.send(request.clone()).await;
        let page = world.browser.expect("history_snapshot").await;
        request["before_sequence"] = page["first_sequence"].clone();
        let more = page["has_more"].as_bool().unwrap();
        pages.insert(0, page);
        if !more {
            break;
        }
    }
    let sizes: Vec<_> = pages.iter().map(|page| page["messages"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [5, 10, 10]);
    let paged: Vec<_> = pages.iter().flat_map(|page| ids(page)).collect();
    assert_eq!(paged, ids(&whole));
}

#[tokio::test]
async fn a_limit_does_not_shorten_a_delta() {
    let mut world = World::new().await;
    for number in 0..5 {
        world.say(&format!("a{number}"), "text").await;
    }
    let request = json!({"type": "history_request", "session_id": SESSION, "after_sequence": 0, "limit": 1});
    world.browser.send(request).await;
    assert_eq!(world.browser.expect("history_delta").await["events"].as_array().unwrap().len(), 6);
}

#[tokio::test]
async fn twenty_thousand_messages_come_as_one_reply() {
    let mut world = World::with(&["--max-frames-per-second", "0", "--heartbeat-timeout-ms", "600000"]).await;
    world.browser.send(json!({"type": "session_interest", "sessions": []})).await;
    world.proxy.patience = Duration::from_secs(60);
    world.browser.patience = Duration::from_secs(60);
    let text = "word ".repeat(40);
    for batch in 0..20 {
        let frames = (0..1000).map(|number| observed(SESSION, &format!("a{}", batch * 1000 + number), &text));
        world.proxy.send_all(frames).await;
    }
    acknowledged(&mut world.proxy, observed(SESSION, "last", "last")).await;
    let snapshot = history(&mut world.browser, SESSION).await;
    let expected: Vec<_> = (0..20_000).map(|number| format!("a{number}")).chain(["last".into()]).collect();
    assert_eq!(ids(&snapshot), expected);
    assert_eq!(events_after(&mut world.browser, SESSION, 0).await.len(), 20_002);
}

#[tokio::test]
async fn a_snapshot_and_the_live_events_after_it_miss_nothing_and_repeat_nothing() {
    let mut world = World::new().await;
    for number in 0..1000 {
        world.proxy.send(observed(SESSION, &format!("a{number}"), "text")).await;
        if number == 300 {
            world.browser.send(json!({"type": "history_request", "session_id": SESSION})).await;
        }
    }
    let snapshot = world.browser.expect("history_snapshot").await;
    let last = snapshot["last_sequence"].as_u64();
    let mut all: Vec<String> = ids(&snapshot).into_iter().map(str::to_owned).collect();
    while all.len() < 1000 {
        let event = world.browser.expect_where("news", |event| event["sequence"].as_u64() > last).await;
        all.push(event["message"]["message_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(all, (0..1000).map(|number| format!("a{number}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_session_that_is_down_or_closed_can_still_be_read() {
    let mut world = World::new().await;
    world.say("a", "text").await;
    announce(&mut world.proxy, &[]).await;
    world.browser.expect("session_down").await;
    assert_eq!(ids(&history(&mut world.browser, SESSION).await), ["a"]);
    announce(&mut world.proxy, &[SESSION]).await;
    acknowledged(&mut world.proxy, json!({"type": "session_closed", "session_id": SESSION})).await;
    world.browser.expect("session_closed").await;
    assert_eq!(ids(&history(&mut world.browser, SESSION).await), ["a"]);
}

#[tokio::test]
async fn a_cursor_that_is_no_number_is_refused() {
    let mut world = World::new().await;
    for cursor in [json!(-1), json!(1.5), json!("1"), json!([])] {
        let request =
            json!({"type": "history_request", "session_id": SESSION, "after_sequence": cursor, "request_id": "h"});
        world.browser.send(request).await;
        let error = world.browser.expect("connection_error").await;
        assert_like(&error, &json!({"code": "invalid_message", "request_id": "h"}));
    }
}

#[tokio::test]
async fn there_is_nothing_before_the_first_message() {
    let mut world = World::new().await;
    let first = world.say("a", "text").await["sequence"].clone();
    for limit in [json!(null), json!(10)] {
        let mut request = json!({"type": "history_request", "session_id": SESSION, "before_sequence": first});
        if limit.is_u64() {
            request["limit"] = limit;
        }
        world.browser.send(request).await;
        let page = world.browser.expect("history_snapshot").await;
        assert_like(&page, &json!({"messages": [], "has_more": false}));
    }
}
