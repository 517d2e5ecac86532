//! A new agent chat, started from the phone.

use crate::peer::{Peer, assert_like, is_utc_time};
use crate::relay::{Relay, Role};
use crate::world::{SESSION, World, announce, session, snapshot};
use serde_json::{Value, json};

fn launch(request_id: &str) -> Value {
    json!({
        "type": "launch_session", "request_id": request_id, "agent_type": "claude",
        "workspace_path": "C:\\Users\\Robert\\repo", "window_title": "repo"
    })
}

fn launched(request_id: &Value, session_id: &str) -> Value {
    json!({"type": "session_launch_ack", "request_id": request_id, "session_id": session_id, "agent_type": "claude"})
}

fn launch_failed(request_id: &str) -> Value {
    json!({
        "type": "session_launch_failed", "request_id": request_id, "agent_type": "claude",
        "reason": "Antigravity is not running", "error_code": "agent_not_open"
    })
}

/// Asks for a launch and waits until the proxy has it.
async fn ask(world: &mut World, request_id: &str) -> Value {
    world.browser.send(launch(request_id)).await;
    world.browser.expect_like(json!({"type": "session_launching", "request_id": request_id})).await;
    world.proxy.expect("launch_session").await
}

/// A relay with two proxies, of machines `left` and `right`.
async fn two_machines() -> (Relay, Peer, Peer, Peer) {
    let relay = Relay::start();
    let mut proxies = Vec::new();
    for machine in ["left", "right"] {
        let token = relay.token(Role::Proxy, machine);
        proxies.push(Peer::with_hello(&relay, Role::Proxy, &token, json!({"machine_id": machine})).await);
    }
    let browser = Peer::browser(&relay).await;
    let right = proxies.pop().unwrap();
    (relay, browser, proxies.pop().unwrap(), right)
}

#[tokio::test]
async fn a_launch_is_forwarded_as_it_is_and_only_the_asker_hears_of_it() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    world.browser.send(launch("l1")).await;
    let launching = world.browser.expect("session_launching").await;
    assert_like(&launching, &json!({"request_id": "l1", "agent_type": "claude"}));
    assert_like(&world.proxy.expect("launch_session").await, &launch("l1"));

    world.proxy.send(launched(&json!("l1"), "sess_new")).await;
    let ack = world.browser.expect("session_launch_ack").await;
    assert_like(&ack, &json!({"request_id": "l1", "session_id": "sess_new", "agent_type": "claude"}));
    for browser in [&mut world.browser, &mut tablet] {
        let up = browser.expect("session_up").await;
        assert_like(&up["session"], &json!({"session_id": "sess_new", "agent_type": "claude"}));
    }
    for frame_type in ["session_launching", "session_launch_ack"] {
        tablet.heard_nothing_like(json!({"type": frame_type})).await;
    }
}

#[tokio::test]
async fn a_launched_session_that_was_announced_already_is_not_announced_twice() {
    let mut world = World::new().await;
    ask(&mut world, "l1").await;
    announce(&mut world.proxy, &[SESSION, "sess_new"]).await;
    world.browser.expect("session_up").await;
    world.proxy.send(launched(&json!("l1"), "sess_new")).await;
    world.browser.expect("session_launch_ack").await;
    world.browser.heard_nothing_like(json!({"type": "session_up"})).await;
}

#[tokio::test]
async fn a_launched_session_can_be_spoken_for_at_once() {
    let mut world = World::new().await;
    ask(&mut world, "l1").await;
    world.proxy.send(launched(&json!("l1"), "sess_new")).await;
    world.proxy.send(crate::world::observed("sess_new", "a", "hi")).await;
    world.browser.expect_like(json!({"type": "message_event", "session_id": "sess_new"})).await;
    world.browser.send(crate::world::send("sess_new", "m1", "hello")).await;
    assert_eq!(world.proxy.expect("send_message").await["session_id"], "sess_new");
}

#[tokio::test]
async fn a_launch_that_the_proxy_refuses_fails_for_the_asker_alone() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    ask(&mut world, "l1").await;
    world.proxy.send(launch_failed("l1")).await;
    assert_like(&world.browser.expect("session_launch_failed").await, &launch_failed("l1"));
    tablet.heard_nothing_like(json!({"type": "session_launch_failed"})).await;
    assert_like(&world.browser.again(&world.relay).await.ack, &json!({"pending_launches": []}));
}

#[tokio::test]
async fn without_a_proxy_a_launch_fails_at_once() {
    let relay = Relay::start();
    let mut browser = Peer::browser(&relay).await;
    browser.send(launch("l1")).await;
    let failed = browser.next().await;
    let expected = json!({"type": "session_launch_failed", "request_id": "l1", "error_code": "no_proxy_connected"});
    assert_like(&failed, &expected);
    assert!(failed["reason"].is_string());
    assert_like(&browser.again(&relay).await.ack, &json!({"pending_launches": []}));
}

#[tokio::test]
async fn a_launch_goes_to_the_machine_asked_for() {
    let (_relay, mut browser, mut left, mut right) = two_machines().await;
    let mut frame = launch("l1");
    frame["machine_id"] = json!("right");
    browser.send(frame.clone()).await;
    assert_like(&right.expect("launch_session").await, &frame);
    left.heard_nothing_like(json!({"type": "launch_session"})).await;
    right.send(launched(&json!("l1"), "sess_new")).await;
    assert_eq!(browser.expect("session_launch_ack").await["session_id"], "sess_new");
    let up = browser.expect("session_up").await;
    assert_eq!(up["session"]["machine_id"], "right");
}

#[tokio::test]
async fn with_several_machines_the_launch_must_name_one_that_is_there() {
    let (_relay, mut browser, mut left, mut right) = two_machines().await;
    for (machine, code) in [(None, "invalid_message"), (Some("elsewhere"), "no_proxy_connected")] {
        let mut frame = launch("l1");
        if let Some(machine) = machine {
            frame["machine_id"] = json!(machine);
        }
        browser.send(frame).await;
        let failed = browser.expect("session_launch_failed").await;
        assert_like(&failed, &json!({"request_id": "l1", "error_code": code}));
    }
    left.heard_nothing_like(json!({"type": "launch_session"})).await;
    right.heard_nothing_like(json!({"type": "launch_session"})).await;
}

#[tokio::test]
async fn a_launch_that_takes_too_long_fails() {
    let mut world = World::with(&["--launch-timeout-ms", "300"]).await;
    ask(&mut world, "l1").await;
    let failed = world.browser.expect("session_launch_failed").await;
    assert_like(&failed, &json!({"request_id": "l1", "agent_type": "claude", "error_code": "launch_timeout"}));
    assert_like(&world.browser.again(&world.relay).await.ack, &json!({"pending_launches": []}));
}

#[tokio::test]
async fn a_repeated_launch_is_answered_again_and_not_forwarded_again() {
    let mut world = World::new().await;
    ask(&mut world, "l1").await;
    world.browser.send(launch("l1")).await;
    world.browser.expect_like(json!({"type": "session_launching", "request_id": "l1"})).await;
    world.proxy.heard_nothing_like(json!({"type": "launch_session"})).await;
}

#[tokio::test]
async fn a_launch_under_way_is_told_to_its_own_device_alone() {
    let mut world = World::new().await;
    ask(&mut world, "l1").await;
    let again = world.browser.again(&world.relay).await;
    let pending = &again.ack["pending_launches"];
    assert_like(pending, &json!([{"request_id": "l1", "agent_type": "claude"}]));
    assert!(is_utc_time(&pending[0]["launched_at"]) && is_utc_time(&pending[0]["timeout_at"]), "{pending}");
    let tablet = Peer::browser(&world.relay).await;
    assert_like(&tablet.ack, &json!({"pending_launches": []}));
}

#[tokio::test]
async fn a_result_is_held_for_an_asker_that_is_away() {
    for succeeds in [true, false] {
        let mut world = World::new().await;
        ask(&mut world, "l1").await;
        let token = world.browser.token.clone();
        world.browser.hang_up().await;
        let mut tablet = Peer::browser(&world.relay).await;
        let (result, expected) = if succeeds {
            (launched(&json!("l1"), SESSION), "session_launch_ack")
        } else {
            (launch_failed("l1"), "session_launch_failed")
        };
        crate::world::acknowledged_as(&mut world.proxy, result).await;
        tablet.heard_nothing_like(json!({"type": expected})).await;

        let mut back = Peer::as_device(&world.relay, Role::Browser, &token).await;
        assert_like(&back.ack, &json!({"pending_launches": []}));
        assert_like(&back.expect(expected).await, &json!({"request_id": "l1"}));
        let mut third = back.again(&world.relay).await;
        third.heard_nothing_like(json!({"type": expected})).await;
    }
}

#[tokio::test]
async fn equal_request_ids_of_two_phones_are_kept_apart() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    let first = ask(&mut world, "l1").await["request_id"].clone();
    tablet.send(launch("l1")).await;
    tablet.expect_like(json!({"type": "session_launching", "request_id": "l1"})).await;
    let second = world.proxy.expect("launch_session").await["request_id"].clone();
    assert_ne!(first, second);
    world.proxy.send_all([launched(&second, "sess_tablet"), launched(&first, "sess_phone")]).await;
    let expected = json!({"request_id": "l1", "session_id": "sess_tablet"});
    assert_like(&tablet.expect("session_launch_ack").await, &expected);
    let expected = json!({"request_id": "l1", "session_id": "sess_phone"});
    assert_like(&world.browser.expect("session_launch_ack").await, &expected);
}

#[tokio::test]
async fn a_launch_that_lacks_a_field_is_told_which() {
    let mut world = World::new().await;
    for field in ["request_id", "agent_type"] {
        let mut frame = launch("l1");
        frame.as_object_mut().unwrap().remove(field);
        world.browser.send(frame).await;
        let error = world.browser.expect("connection_error").await;
        assert_eq!(error["code"], "invalid_message");
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_cannot_answer_a_launch_with_another_machines_session() {
    let (_relay, mut browser, mut left, mut right) = two_machines().await;
    crate::world::acknowledged(&mut left, snapshot(vec![session(SESSION)])).await;
    browser.expect("session_up").await;
    let mut frame = launch("l1");
    frame["machine_id"] = json!("right");
    browser.send(frame).await;
    right.expect("launch_session").await;
    right.send(launched(&json!("l1"), SESSION)).await;
    assert_eq!(right.expect("connection_error").await["code"], "unauthorized");
    browser.heard_nothing_like(json!({"type": "session_launch_ack"})).await;
}

#[tokio::test]
async fn a_proxy_that_was_away_meanwhile_can_still_answer() {
    let mut world = World::new().await;
    ask(&mut world, "l1").await;
    let (relay, mut browser, token) = world.lose_proxy().await;
    let mut proxy = Peer::as_device(&relay, Role::Proxy, &token).await;
    proxy.send(launched(&json!("l1"), "sess_new")).await;
    assert_eq!(browser.expect("session_launch_ack").await["session_id"], "sess_new");
}

#[tokio::test]
async fn a_held_result_is_not_held_for_ever() {
    let mut world = World::with(&["--launch-timeout-ms", "700"]).await;
    let mut tablet = Peer::browser(&world.relay).await;
    ask(&mut world, "l1").await;
    let token = world.browser.token.clone();
    world.browser.hang_up().await;
    crate::world::acknowledged_as(&mut world.proxy, launched(&json!("l1"), "sess_new")).await;

    // A launch that begins later times out when the window of the held result has passed.
    tablet.send(launch("l2")).await;
    tablet.expect_like(json!({"request_id": "l2", "error_code": "launch_timeout"})).await;
    let mut back = Peer::as_device(&world.relay, Role::Browser, &token).await;
    back.heard_nothing_like(json!({"type": "session_launch_ack"})).await;
}
