//! A chat is closed, from the phone or at the desk.

use crate::peer::{Peer, assert_like};
use crate::relay::Relay;
use crate::world::{SESSION, World, acknowledged, announce, prompt, send};
use serde_json::{Value, json};

fn close(request_id: &str, session_id: &str) -> Value {
    json!({"type": "close_session", "request_id": request_id, "session_id": session_id})
}

fn closed(request_id: &Value) -> Value {
    json!({"type": "session_closed", "request_id": request_id, "session_id": SESSION, "reason": "user_requested"})
}

#[tokio::test]
async fn a_closed_session_goes_from_every_browser_and_its_history_stays() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    world.say("a", "text").await;
    world.browser.send(close("c1", SESSION)).await;
    assert_like(&world.proxy.expect("close_session").await, &close("c1", SESSION));
    world.proxy.send(closed(&json!("c1"))).await;
    for browser in [&mut world.browser, &mut tablet] {
        let frame = browser.expect("session_closed").await;
        let expected = json!({"request_id": "c1", "session_id": SESSION, "reason": "user_requested", "sequence": null});
        assert_like(&frame, &expected);
    }
    assert_like(&tablet.again(&world.relay).await.sessions, &json!({"sessions": []}));
    let snapshot = crate::world::history(&mut tablet, SESSION).await;
    assert_like(&snapshot["messages"], &json!([{"message_id": "a"}]));
}

#[tokio::test]
async fn a_session_closed_at_the_desk_goes_from_every_browser_too() {
    let mut world = World::new().await;
    world.proxy.send(json!({"type": "session_closed", "session_id": SESSION, "reason": "target_closed"})).await;
    let frame = world.browser.expect("session_closed").await;
    assert_like(&frame, &json!({"session_id": SESSION, "reason": "target_closed", "request_id": null}));
}

#[tokio::test]
async fn closing_an_unknown_or_closed_session_is_refused() {
    let mut world = World::new().await;
    acknowledged(&mut world.proxy, json!({"type": "session_closed", "session_id": SESSION})).await;
    for session_id in ["sess_x", SESSION] {
        world.browser.send(close("c1", session_id)).await;
        let error = world.browser.expect("connection_error").await;
        assert_like(&error, &json!({"code": "session_unknown", "request_id": "c1"}));
    }
    world.proxy.heard_nothing_like(json!({"type": "close_session"})).await;
}

#[tokio::test]
async fn closing_an_unknown_session_without_any_proxy_is_refused() {
    let relay = Relay::start();
    let mut browser = Peer::browser(&relay).await;
    browser.send(close("c1", "sess_x")).await;
    let error = browser.expect("connection_error").await;
    assert_like(&error, &json!({"code": "session_unknown", "request_id": "c1"}));
}

#[tokio::test]
async fn closing_a_session_whose_proxy_is_away_is_refused() {
    let (_relay, mut browser, _) = World::new().await.lose_proxy().await;
    browser.send(close("c1", SESSION)).await;
    let error = browser.expect("connection_error").await;
    assert_like(&error, &json!({"code": "no_proxy_connected", "request_id": "c1"}));
}

#[tokio::test]
async fn a_closed_session_can_come_back() {
    let mut world = World::new().await;
    let before = world.say("a", "text").await["sequence"].as_u64();
    acknowledged(&mut world.proxy, json!({"type": "session_closed", "session_id": SESSION})).await;
    world.browser.expect("session_closed").await;
    announce(&mut world.proxy, &[SESSION]).await;
    let up = world.browser.expect("session_up").await;
    assert_eq!(up["session"]["session_id"], SESSION);
    assert!(up["sequence"].as_u64() > before);
    world.finish("m1", "delivered").await;
}

#[tokio::test]
async fn sends_under_way_to_a_closed_session_are_indeterminate() {
    let mut world = World::new().await;
    world.forward("m1").await;
    world.proxy.send(json!({"type": "session_closed", "session_id": SESSION})).await;
    let failed = world.browser.expect("message_failed").await;
    assert_like(&failed, &json!({"client_message_id": "m1", "delivery": "indeterminate"}));
}

#[tokio::test]
async fn a_send_to_a_closed_session_fails() {
    let mut world = World::new().await;
    acknowledged(&mut world.proxy, json!({"type": "session_closed", "session_id": SESSION})).await;
    world.browser.send(send(SESSION, "m1", "hello")).await;
    let failed = world.browser.expect("message_failed").await;
    let code = failed["error"]["code"].as_str().unwrap();
    assert!(["session_unknown", "session_not_connected"].contains(&code), "{failed}");
    world.proxy.heard_nothing_like(json!({"type": "send_message"})).await;
}

#[tokio::test]
async fn the_prompts_of_a_closed_session_vanish() {
    let mut world = World::new().await;
    world.proxy.send(prompt("p1")).await;
    world.browser.expect("permission_prompt").await;
    world.proxy.send(json!({"type": "session_closed", "session_id": SESSION})).await;
    let update = world.browser.expect("permission_prompt_update").await;
    assert_like(&update, &json!({"session_id": SESSION, "prompt_id": "p1", "state": "vanished"}));
    assert_like(&world.browser.again(&world.relay).await.ack, &json!({"open_prompts": []}));
}

#[tokio::test]
async fn equal_request_ids_of_two_phones_close_two_sessions() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    announce(&mut world.proxy, &[SESSION, "sess_2"]).await;
    world.browser.send(close("c1", SESSION)).await;
    world.proxy.expect_like(json!({"type": "close_session", "session_id": SESSION})).await;
    tablet.send(close("c1", "sess_2")).await;
    let second = world.proxy.expect_like(json!({"type": "close_session", "session_id": "sess_2"})).await;
    let mut done = closed(&second["request_id"]);
    done["session_id"] = json!("sess_2");
    world.proxy.send(done).await;
    let expected = json!({"type": "session_closed", "session_id": "sess_2", "request_id": "c1"});
    tablet.expect_like(expected.clone()).await;
    world.browser.expect_like(expected).await;
}

#[tokio::test]
async fn a_close_that_lacks_a_field_is_told_which() {
    let mut world = World::new().await;
    for field in ["request_id", "session_id"] {
        let mut frame = close("c1", SESSION);
        frame.as_object_mut().unwrap().remove(field);
        world.browser.send(frame).await;
        let error = world.browser.expect("connection_error").await;
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
}

#[tokio::test]
async fn a_retry_of_a_settled_send_is_still_told_its_end_after_the_close() {
    let mut world = World::new().await;
    let delivered = world.finish("m1", "delivered").await;
    acknowledged(&mut world.proxy, json!({"type": "session_closed", "session_id": SESSION})).await;
    world.browser.send(send(SESSION, "m1", "hello")).await;
    let told = world.browser.expect_like(json!({"client_message_id": "m1"})).await;
    assert_eq!((&told["type"], &told["event_id"]), (&delivered["type"], &delivered["event_id"]), "{told}");
}

#[tokio::test]
async fn a_close_that_the_proxy_confirms_without_the_id_is_confirmed_too() {
    let mut world = World::with(&["--send-timeout-ms", "500"]).await;
    announce(&mut world.proxy, &[SESSION, "sess_2"]).await;
    world.browser.send(close("c1", SESSION)).await;
    world.proxy.expect("close_session").await;
    acknowledged(&mut world.proxy, json!({"type": "session_closed", "session_id": SESSION})).await;
    world.browser.expect("session_closed").await;
    world.browser.send(json!({"type": "agent_interrupt", "request_id": "later", "session_id": "sess_2"})).await;
    world.browser.expect_like(json!({"request_id": "later", "error": {"code": "not_verified"}})).await;
    world.browser.heard_nothing_like(json!({"request_id": "c1"})).await;
}
