//! Dialogs that dismiss themselves.

use crate::peer::{Peer, assert_like};
use crate::world::{SESSION, World, answer, prompt};
use serde_json::{Value, json};

fn timed(timeout_ms: u64, default_choice: Option<&str>) -> Value {
    let mut frame = prompt("p1");
    frame["timeout_ms"] = json!(timeout_ms);
    if let Some(choice) = default_choice {
        frame["default_choice"] = json!(choice);
    }
    frame
}

#[tokio::test]
async fn an_expired_prompt_applies_its_default_and_every_browser_hears_it() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    world.proxy.send(timed(300, Some("no"))).await;
    let applied = world.proxy.expect("permission_response").await;
    assert_like(&applied, &json!({"session_id": SESSION, "prompt_id": "p1", "choice_id": "no"}));
    for browser in [&mut world.browser, &mut tablet] {
        let expired = browser.expect("permission_prompt_expired").await;
        assert_like(&expired, &json!({"session_id": SESSION, "prompt_id": "p1", "applied_choice": "no"}));
    }
    assert_like(&tablet.again(&world.relay).await.ack, &json!({"open_prompts": []}));
    tablet.send(answer("p1", "late", "yes")).await;
    let result = tablet.expect("agent_control_result").await;
    assert_like(&result, &json!({"request_id": "late", "error": {"code": "prompt_not_found"}}));
    world.proxy.heard_nothing_like(json!({"type": "permission_response"})).await;
}

#[tokio::test]
async fn without_a_default_the_prompt_just_expires() {
    let mut world = World::new().await;
    world.proxy.send(timed(300, None)).await;
    let expired = world.browser.expect("permission_prompt_expired").await;
    assert_like(&expired, &json!({"prompt_id": "p1", "applied_choice": null}));
    world.proxy.heard_nothing_like(json!({"type": "permission_response"})).await;
}

#[tokio::test]
async fn without_a_proxy_nothing_is_applied() {
    let mut world = World::new().await;
    world.proxy.send(timed(1500, Some("no"))).await;
    world.browser.expect("permission_prompt").await;
    let (_relay, mut browser, _) = world.lose_proxy().await;
    let expired = browser.expect("permission_prompt_expired").await;
    assert_like(&expired, &json!({"prompt_id": "p1", "applied_choice": null}));
}

#[tokio::test]
async fn an_answered_prompt_does_not_expire() {
    let mut world = World::new().await;
    world.proxy.send(timed(600, Some("no"))).await;
    world.browser.expect("permission_prompt").await;
    world.browser.send(answer("p1", "r1", "yes")).await;
    let forwarded = world.proxy.expect("permission_response").await;
    assert_eq!(forwarded["choice_id"], "yes");
    let done = crate::world::control_result(&forwarded["request_id"], "permission_response", None);
    world.proxy.send(done).await;
    world.browser.expect_like(json!({"type": "permission_prompt_update", "state": "resolved"})).await;

    // A second prompt that expires later than the first would have.
    let mut second = timed(700, None);
    second["prompt_id"] = json!("p2");
    world.proxy.send(second).await;
    world.browser.expect_like(json!({"type": "permission_prompt_expired", "prompt_id": "p2"})).await;
    world.browser.heard_nothing_like(json!({"type": "permission_prompt_expired"})).await;
    world.proxy.heard_nothing_like(json!({"type": "permission_response"})).await;
}
