//! A phone that pays only for the chat on its screen.

use crate::peer::{Peer, assert_like};
use crate::world::{SESSION, World, announce, observed, prompt, send, send_result, update};
use serde_json::{Value, json};

const OTHER: &str = "sess_2";

/// A world with two sessions whose browser is interested in [`SESSION`] alone.
async fn interested_in_one() -> World {
    let mut world = World::new().await;
    announce(&mut world.proxy, &[SESSION, OTHER]).await;
    world.browser.expect("session_up").await;
    set_interest(&mut world.browser, &[SESSION]).await;
    world
}

async fn set_interest(browser: &mut Peer, sessions: &[&str]) {
    browser.send(json!({"type": "session_interest", "sessions": sessions})).await;
    browser.settle().await;
}

fn elsewhere(mut frame: Value) -> Value {
    frame["session_id"] = json!(OTHER);
    frame
}

#[tokio::test]
async fn without_an_interest_everything_comes() {
    let mut world = World::new().await;
    announce(&mut world.proxy, &[SESSION, OTHER]).await;
    world.proxy.send_all([observed(SESSION, "a", "x"), observed(OTHER, "b", "y")]).await;
    world.browser.expect_like(json!({"type": "message_event", "session_id": SESSION})).await;
    world.browser.expect_like(json!({"type": "message_event", "session_id": OTHER})).await;
}

#[tokio::test]
async fn only_the_named_sessions_transcript_comes() {
    let mut world = interested_in_one().await;
    world.proxy.send_all([observed(OTHER, "a", "x"), elsewhere(update("b", 1, 0, "y")), update("c", 1, 0, "z")]).await;
    world.proxy.send(observed(SESSION, "d", "w")).await;
    world.browser.expect_like(json!({"type": "message_update", "message_id": "c"})).await;
    world.browser.expect_like(json!({"type": "message_event", "message": {"message_id": "d"}})).await;
    assert_eq!(world.browser.heard().await, Vec::<Value>::new());
}

#[tokio::test]
async fn sessions_prompts_configs_and_closes_always_come() {
    let mut world = interested_in_one().await;
    let frames = [
        json!({"type": "proxy_status", "session_id": OTHER, "status": "degraded"}),
        elsewhere(prompt("p")),
        json!({"type": "agent_config", "session_id": OTHER, "model_id": "m"}),
        json!({"type": "session_closed", "session_id": OTHER}),
    ];
    world.proxy.send_all(frames).await;
    for frame_type in ["session_status", "permission_prompt", "agent_config", "session_closed"] {
        assert_eq!(world.browser.expect(frame_type).await["session_id"], OTHER);
    }
    assert_like(&world.browser.expect("permission_prompt_update").await, &json!({"state": "vanished"}));
}

#[tokio::test]
async fn the_fate_of_ones_own_sends_always_comes() {
    let mut world = interested_in_one().await;
    let mut second_tab = world.browser.again(&world.relay).await;
    set_interest(&mut second_tab, &[]).await;
    world.browser.send(send(OTHER, "m1", "hello")).await;
    world.proxy.expect("send_message").await;
    world.proxy.send(send_result(OTHER, "m1", "delivered")).await;
    for tab in [&mut world.browser, &mut second_tab] {
        tab.expect_like(json!({"type": "message_accepted", "client_message_id": "m1"})).await;
        tab.expect_like(json!({"type": "message_delivered", "client_message_id": "m1"})).await;
    }
}

#[tokio::test]
async fn the_fate_of_other_devices_sends_comes_only_for_named_sessions() {
    let mut world = interested_in_one().await;
    let mut tablet = Peer::browser(&world.relay).await;
    for (session_id, id) in [(OTHER, "m1"), (SESSION, "m2")] {
        tablet.send(send(session_id, id, "hello")).await;
        world.proxy.expect("send_message").await;
        world.proxy.send(send_result(session_id, id, "delivered")).await;
        tablet.expect_like(json!({"type": "message_delivered", "client_message_id": id})).await;
    }
    world.browser.expect_like(json!({"type": "message_accepted", "client_message_id": "m2"})).await;
    world.browser.expect_like(json!({"type": "message_delivered", "client_message_id": "m2"})).await;
    assert_eq!(world.browser.heard().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_newly_named_session_brings_the_tail_of_its_growing_message() {
    let mut world = interested_in_one().await;
    world.proxy.send_all([elsewhere(update("a", 1, 0, "Hel")), elsewhere(update("a", 2, 3, "lo"))]).await;
    world.proxy.settle().await;
    set_interest(&mut world.browser, &[OTHER]).await;
    let tail = world.browser.expect("message_update").await;
    assert_like(&tail, &json!({"session_id": OTHER, "offset": 0, "text": "Hello", "revision": 2}));
    world.proxy.send(elsewhere(update("a", 3, 5, "!"))).await;
    assert_like(&world.browser.expect("message_update").await, &json!({"offset": 5, "text": "!"}));
    world.proxy.send_all([observed(SESSION, "b", "x"), observed(OTHER, "c", "y")]).await;
    world.browser.expect_like(json!({"type": "message_event", "session_id": OTHER})).await;
    world.browser.heard_nothing_like(json!({"session_id": SESSION, "type": "message_event"})).await;
}

#[tokio::test]
async fn a_session_still_named_brings_no_second_tail() {
    let mut world = interested_in_one().await;
    world.proxy.send(update("a", 1, 0, "Hel")).await;
    world.browser.expect("message_update").await;
    set_interest(&mut world.browser, &[SESSION, OTHER]).await;
    world.browser.heard_nothing_like(json!({"type": "message_update"})).await;
}

#[tokio::test]
async fn history_can_be_read_without_an_interest() {
    let mut world = interested_in_one().await;
    crate::world::acknowledged(&mut world.proxy, observed(OTHER, "a", "x")).await;
    let snapshot = crate::world::history(&mut world.browser, OTHER).await;
    assert_like(&snapshot, &json!({"messages": [{"message_id": "a"}]}));
}
