//! What the agent says: finished messages and growing ones.

use crate::peer::{Peer, assert_like, is_utc_time};
use crate::relay::Role;
use crate::world::{NOW, SESSION, World, acknowledged, announce, history, observed, update};
use serde_json::{Value, json};

/// The whole growing messages that a browser is told on joining.
async fn tails(world: &World) -> Vec<Value> {
    let mut joined = world.browser.again(&world.relay).await;
    let heard = joined.heard().await;
    heard.into_iter().filter(|frame| frame["type"] == "message_update").collect()
}

fn texts(snapshot: &Value) -> Vec<&str> {
    snapshot["messages"].as_array().unwrap().iter().map(|message| message["content"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_message_of_the_agent_reaches_the_browser() {
    let mut world = World::new().await;
    let message = json!({"role": "assistant", "content": "Done.", "created_at": NOW});
    world.proxy.send(json!({"type": "proxy_message", "session_id": SESSION, "message": message})).await;
    let event = world.browser.expect("message_event").await;
    assert_eq!(event["session_id"], SESSION);
    assert_like(&event["message"], &message);
    assert!(event["sequence"].is_u64() && event["message"]["message_id"].is_string(), "{event}");
}

#[tokio::test]
async fn a_message_without_a_time_gets_the_relays() {
    let mut world = World::new().await;
    let message = json!({"role": "assistant", "content": "Done."});
    world.proxy.send(json!({"type": "proxy_message", "session_id": SESSION, "message": message})).await;
    let event = world.browser.expect("message_event").await;
    assert!(is_utc_time(&event["message"]["created_at"]), "{event}");
}

#[tokio::test]
async fn without_an_id_each_message_is_a_new_one() {
    let mut world = World::new().await;
    let message = json!({"role": "assistant", "content": "Done.", "created_at": NOW});
    let frame = json!({"type": "proxy_message", "session_id": SESSION, "message": message});
    world.proxy.send_all([frame.clone(), frame]).await;
    let first = world.browser.expect("message_event").await;
    let second = world.browser.expect("message_event").await;
    assert_ne!(first["message"]["message_id"], second["message"]["message_id"]);
    assert_eq!(texts(&history(&mut world.browser, SESSION).await), ["Done.", "Done."]);
}

#[tokio::test]
async fn a_repeated_message_is_recognised_by_its_id() {
    let mut world = World::new().await;
    world.say("a", "Done.").await;
    acknowledged(&mut world.proxy, observed(SESSION, "a", "Done.")).await;
    acknowledged(&mut world.proxy, observed(SESSION, "a", "Other words under the same revision.")).await;
    assert_eq!(world.browser.heard().await, Vec::<Value>::new());
    assert_eq!(texts(&history(&mut world.browser, SESSION).await), ["Done."]);
}

#[tokio::test]
async fn a_higher_revision_replaces_the_message_where_it_stands() {
    let mut world = World::new().await;
    world.say("a", "first").await;
    world.say("b", "second").await;
    let mut corrected = observed(SESSION, "a", "first, corrected");
    corrected["message"]["revision"] = json!(2);
    world.proxy.send(corrected.clone()).await;
    let event = world.browser.expect("message_event").await;
    assert_like(&event["message"], &json!({"message_id": "a", "revision": 2, "content": "first, corrected"}));

    corrected["message"]["revision"] = json!(1);
    acknowledged(&mut world.proxy, corrected).await;
    world.browser.heard_nothing_like(json!({"type": "message_event"})).await;
    assert_eq!(texts(&history(&mut world.browser, SESSION).await), ["first, corrected", "second"]);
}

#[tokio::test]
async fn the_turn_a_send_made_is_the_same_message_as_the_send() {
    let mut world = World::new().await;
    world.finish("m1", "delivered").await;
    let mut turn = observed(SESSION, "dom-17", "hello");
    turn["message"]["role"] = json!("user");
    turn["message"]["client_message_id"] = json!("m1");
    world.proxy.send(turn.clone()).await;
    let event = world.browser.expect("message_event").await;
    assert_like(&event["message"], &json!({"message_id": "m1", "client_message_id": "m1", "role": "user"}));
    acknowledged(&mut world.proxy, turn).await;
    world.browser.heard_nothing_like(json!({"type": "message_event"})).await;
    let snapshot = history(&mut world.browser, SESSION).await;
    assert_like(&snapshot["messages"], &json!([{"message_id": "m1", "status": "delivered", "content": "hello"}]));
}

#[tokio::test]
async fn structure_and_unknown_kinds_are_carried_on() {
    let mut world = World::new().await;
    let blocks = json!([
        {"kind": "text", "text": "see"}, {"kind": "code", "language": "rust", "text": "fn x() {}"},
        {"kind": "tool_call", "name": "Bash", "input": "ls", "output": "a b"},
        {"kind": "diff", "path": "a.rs", "text": "-a\n+b"}, {"kind": "hologram", "depth": {"cm": 3}}
    ]);
    let mut frame = observed(SESSION, "a", "see");
    frame["message"]["blocks"] = blocks.clone();
    frame["message"]["role"] = json!("oracle");
    world.proxy.send(frame).await;
    let event = world.browser.expect("message_event").await;
    assert_like(&event["message"], &json!({"role": "oracle", "blocks": blocks}));
    let snapshot = history(&mut world.browser, SESSION).await;
    assert_like(&snapshot["messages"][0], &json!({"role": "oracle", "blocks": blocks}));
}

#[tokio::test]
async fn a_growing_message_is_live_state_and_not_history() {
    let mut world = World::new().await;
    world.proxy.send_all([update("a", 1, 0, "Hel"), update("a", 2, 3, "lo")]).await;
    for (revision, offset, text) in [(1, 0, "Hel"), (2, 3, "lo")] {
        let frame = world.browser.expect("message_update").await;
        let expected = json!({
            "session_id": SESSION, "message_id": "a", "revision": revision, "offset": offset, "text": text,
            "sequence": null
        });
        assert_like(&frame, &expected);
    }
    assert_like(&history(&mut world.browser, SESSION).await, &json!({"messages": []}));
}

#[tokio::test]
async fn a_browser_that_joins_mid_answer_gets_the_whole_tail() {
    let mut world = World::new().await;
    let updates = [update("a", 1, 0, "Hel"), update("a", 2, 3, "lo 😀"), update("b", 1, 0, "other")];
    world.proxy.send_all(updates).await;
    world.browser.expect_like(json!({"message_id": "b"})).await;
    let tails = tails(&world).await;
    assert_eq!(tails.len(), 2, "{tails:?}");
    let tail = |id: &str| tails.iter().find(|tail| tail["message_id"] == id).unwrap();
    assert_like(tail("a"), &json!({"offset": 0, "text": "Hello 😀", "revision": 2, "role": "assistant"}));
    assert_like(tail("b"), &json!({"offset": 0, "text": "other", "revision": 1}));
}

#[tokio::test]
async fn offsets_count_utf_16_units_and_replace_what_stood_there() {
    let mut world = World::new().await;
    world.proxy.send_all([update("a", 1, 0, "😀é"), update("a", 2, 3, "!"), update("a", 3, 2, "e?")]).await;
    world.browser.expect_like(json!({"type": "message_update", "revision": 3})).await;
    assert_eq!(tails(&world).await[0]["text"], "😀e?");
}

#[tokio::test]
async fn an_offset_past_the_end_asks_the_proxy_for_the_whole() {
    let mut world = World::new().await;
    world.proxy.send_all([update("a", 1, 0, "Hel"), update("a", 2, 9, "lost")]).await;
    assert_like(&world.proxy.expect("message_resync").await, &json!({"session_id": SESSION, "message_id": "a"}));
    world.browser.expect_like(json!({"type": "message_update", "revision": 1})).await;
    world.browser.heard_nothing_like(json!({"type": "message_update"})).await;
    world.proxy.send(update("a", 3, 0, "Hello, not lost")).await;
    let whole = world.browser.expect("message_update").await;
    assert_like(&whole, &json!({"offset": 0, "text": "Hello, not lost"}));
}

#[tokio::test]
async fn an_update_of_a_message_never_begun_asks_for_the_whole() {
    let mut world = World::new().await;
    world.proxy.send(update("a", 5, 100, "tail")).await;
    assert_like(&world.proxy.expect("message_resync").await, &json!({"message_id": "a"}));
    world.browser.heard_nothing_like(json!({"type": "message_update"})).await;
    assert_eq!(tails(&world).await, Vec::<Value>::new());
    let (_relay, mut browser, _) = world.lose_proxy().await;
    browser.heard_nothing_like(json!({"type": "message_event"})).await;
}

#[tokio::test]
async fn a_growing_message_is_held_to_the_content_limit_however_it_is_told() {
    let mut world = World::with(&["--max-content-bytes", "1000"]).await;
    world.proxy.send_all([update("a", 1, 0, &"x".repeat(600)), update("a", 2, 0, &"y".repeat(1000))]).await;
    world.browser.expect_like(json!({"type": "message_update", "revision": 1})).await;
    world.browser.expect_like(json!({"type": "message_update", "revision": 2})).await;
    let mut over = update("a", 3, 1000, "z");
    over["request_id"] = json!("r");
    world.proxy.send(over).await;
    let error = world.proxy.expect_like(json!({"request_id": "r"})).await;
    assert_like(&error, &json!({"type": "connection_error", "code": "content_too_large"}));
    let mut message = observed(SESSION, "b", &"x".repeat(1001));
    message["request_id"] = json!("s");
    world.proxy.send(message).await;
    let error = world.proxy.expect_like(json!({"request_id": "s"})).await;
    assert_like(&error, &json!({"type": "connection_error", "code": "content_too_large"}));
}

#[tokio::test]
async fn the_finished_message_ends_its_tail() {
    let mut world = World::new().await;
    world.proxy.send(update("a", 1, 0, "Hel")).await;
    let mut finished = observed(SESSION, "a", "Hello");
    finished["message"]["revision"] = json!(2);
    world.proxy.send(finished).await;
    let event = world.browser.expect("message_event").await;
    assert_like(&event["message"], &json!({"message_id": "a", "content": "Hello"}));
    assert_ne!(event["message"]["final"], false);
    assert_eq!(tails(&world).await, Vec::<Value>::new());
    assert_eq!(texts(&history(&mut world.browser, SESSION).await), ["Hello"]);
}

#[tokio::test]
async fn an_answer_cut_short_by_a_lost_proxy_is_kept_as_unfinished() {
    let mut world = World::new().await;
    world.proxy.send_all([update("a", 1, 0, "Hel"), update("a", 2, 3, "lo, wor")]).await;
    world.browser.expect_like(json!({"revision": 2})).await;
    let World { relay, mut browser, proxy } = world;
    let token = proxy.token.clone();
    drop(proxy);
    let cut = browser.expect("message_event").await;
    assert_like(&cut["message"], &json!({"message_id": "a", "content": "Hello, wor", "final": false}));

    let mut proxy = Peer::as_device(&relay, Role::Proxy, &token).await;
    announce(&mut proxy, &[SESSION]).await;
    let mut whole = observed(SESSION, "a", "Hello, world");
    whole["message"]["revision"] = json!(3);
    proxy.send(whole).await;
    let event = browser.expect("message_event").await;
    assert_like(&event["message"], &json!({"message_id": "a", "content": "Hello, world"}));
    assert_ne!(event["message"]["final"], false);
    assert_eq!(texts(&history(&mut browser, SESSION).await), ["Hello, world"]);
}

#[tokio::test]
async fn an_answer_cut_short_by_a_vanished_or_closed_session_is_kept_as_unfinished() {
    let mut world = World::new().await;
    let ends = [
        json!({"type": "proxy_session_snapshot", "sessions": []}),
        json!({"type": "session_closed", "session_id": SESSION, "reason": "target_closed"}),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let id = format!("a{number}");
        world.proxy.send_all([update(&id, 1, 0, "Hel"), end]).await;
        let cut = world.browser.expect("message_event").await;
        assert_like(&cut["message"], &json!({"message_id": id, "content": "Hel", "final": false}));
        announce(&mut world.proxy, &[SESSION]).await;
    }
}

#[tokio::test]
async fn a_proxys_frames_are_acknowledged_under_their_request_ids() {
    let mut world = World::new().await;
    world.forward("m1").await;
    let frames = [
        observed(SESSION, "a", "text"),
        update("b", 1, 0, "text"),
        crate::world::send_result(SESSION, "m1", "delivered"),
        json!({"type": "proxy_status", "session_id": SESSION, "status": "degraded"}),
        crate::world::prompt("p"),
        json!({"type": "permission_prompt_update", "session_id": SESSION, "prompt_id": "p", "state": "vanished"}),
        json!({"type": "agent_config", "session_id": SESSION, "model_id": "m"}),
        json!({"type": "session_closed", "session_id": SESSION}),
    ];
    for frame in frames {
        acknowledged(&mut world.proxy, frame).await;
    }
    world.proxy.send(json!({"type": "heartbeat", "request_id": "hb"})).await;
    world.proxy.expect_like(json!({"type": "heartbeat_ack", "request_id": "hb"})).await;
    world.proxy.heard_nothing_like(json!({"type": "proxy_ack"})).await;
}

#[tokio::test]
async fn a_message_that_lacks_a_field_is_refused_under_its_request_id() {
    let mut world = World::new().await;
    for field in ["role", "content"] {
        let mut frame = observed(SESSION, "a", "text");
        frame["message"].as_object_mut().unwrap().remove(field);
        frame["request_id"] = json!("r");
        world.proxy.send(frame).await;
        let error = world.proxy.expect_like(json!({"request_id": "r"})).await;
        assert_like(&error, &json!({"type": "connection_error", "code": "invalid_message"}));
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
}

#[tokio::test]
async fn a_turn_of_a_send_nobody_knows_is_a_message_like_any_other() {
    let mut world = World::new().await;
    let mut turn = observed(SESSION, "dom-17", "typed elsewhere");
    turn["message"]["role"] = json!("user");
    turn["message"]["client_message_id"] = json!("of-another-relay");
    world.proxy.send(turn).await;
    assert_eq!(world.browser.expect("message_event").await["message"]["message_id"], "dom-17");
    assert_eq!(texts(&history(&mut world.browser, SESSION).await), ["typed elsewhere"]);
}
