//! Stop, settings and models.

use crate::peer::{Peer, assert_like};
use crate::relay::Relay;
use crate::world::{NOW, SESSION, World, acknowledged, control_result, observed};
use serde_json::{Value, json};

fn interrupt(request_id: &str) -> Value {
    json!({"type": "agent_interrupt", "request_id": request_id, "session_id": SESSION})
}

fn set_model(request_id: &str) -> Value {
    json!({"type": "agent_set_model", "request_id": request_id, "session_id": SESSION, "model_id": "opus"})
}

fn config_request(request_id: &str) -> Value {
    json!({"type": "agent_config_request", "request_id": request_id, "session_id": SESSION})
}

fn config(model_id: &str) -> Value {
    json!({
        "type": "agent_config", "session_id": SESSION, "model_id": model_id, "permission_mode": "bypassPermissions",
        "file_access_scope": "full", "available_models": ["opus", "haiku"],
        "capabilities": {"interrupt": true, "set_model": true, "permission_mode_change": false}, "read_at": NOW
    })
}

/// Every control command, to one session.
fn commands(session_id: &str) -> [Value; 4] {
    let answer = crate::world::answer("p1", "r1", "yes");
    [interrupt("r1"), set_model("r1"), config_request("r1"), answer].map(|mut frame| {
        frame["session_id"] = json!(session_id);
        frame
    })
}

async fn fails_with(browser: &mut Peer, command: &Value, code: &str) {
    browser.send(command.clone()).await;
    let result = browser.expect("agent_control_result").await;
    let expected = json!({
        "request_id": "r1", "session_id": command["session_id"], "command": command["type"],
        "result": "failed", "error": {"code": code}
    });
    assert_like(&result, &expected);
}

#[tokio::test]
async fn a_stop_reaches_the_proxy_and_its_result_the_asker_alone() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    for error in [None, Some("agent_not_active")] {
        world.browser.send(interrupt("r1")).await;
        assert_like(&world.proxy.expect("agent_interrupt").await, &interrupt("r1"));
        let result = control_result(&json!("r1"), "agent_interrupt", error);
        world.proxy.send(result.clone()).await;
        assert_like(&world.browser.expect("agent_control_result").await, &result);
    }
    tablet.heard_nothing_like(json!({"type": "agent_control_result"})).await;
}

/// The seed says `error_code` in its rules and `error` in its examples.
#[tokio::test]
async fn a_proxy_may_name_its_error_either_way() {
    let mut world = World::new().await;
    world.browser.send(interrupt("r1")).await;
    world.proxy.expect("agent_interrupt").await;
    let mut result = control_result(&json!("r1"), "agent_interrupt", None);
    result["result"] = json!("failed");
    result["error_code"] = json!("agent_not_active");
    world.proxy.send(result).await;
    let told = world.browser.expect("agent_control_result").await;
    assert_like(&told, &json!({"result": "failed", "error": {"code": "agent_not_active"}}));
}

#[tokio::test]
async fn the_result_goes_to_the_asking_socket_and_not_to_its_sibling() {
    let mut world = World::new().await;
    let mut sibling = world.browser.again(&world.relay).await;
    world.browser.send(interrupt("r1")).await;
    world.proxy.expect("agent_interrupt").await;
    world.proxy.send(control_result(&json!("r1"), "agent_interrupt", None)).await;
    world.browser.expect("agent_control_result").await;
    sibling.heard_nothing_like(json!({"request_id": "r1"})).await;
}

#[tokio::test]
async fn without_any_proxy_every_command_fails_at_once() {
    let relay = Relay::start();
    let mut browser = Peer::browser(&relay).await;
    for command in commands("sess_x") {
        fails_with(&mut browser, &command, "no_proxy_connected").await;
    }
}

#[tokio::test]
async fn commands_to_an_unknown_session_fail() {
    let mut world = World::new().await;
    let [interrupt, set_model, config_request, answer] = commands("sess_x");
    for command in [interrupt, set_model, config_request] {
        fails_with(&mut world.browser, &command, "session_unknown").await;
    }
    fails_with(&mut world.browser, &answer, "prompt_not_found").await;
}

#[tokio::test]
async fn commands_to_a_session_whose_proxy_is_away_fail() {
    let world = World::new().await;
    let mut other = Peer::proxy(&world.relay).await;
    let (_relay, mut browser, _) = world.lose_proxy().await;
    for command in &commands(SESSION)[..3] {
        fails_with(&mut browser, command, "no_proxy_connected").await;
    }
    other.heard_nothing_like(json!({"session_id": SESSION})).await;
}

#[tokio::test]
async fn equal_request_ids_of_two_phones_are_kept_apart() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    world.browser.send(interrupt("r1")).await;
    let first = world.proxy.expect("agent_interrupt").await["request_id"].clone();
    assert_eq!(first, "r1");
    tablet.send(interrupt("r1")).await;
    let second = world.proxy.expect("agent_interrupt").await["request_id"].clone();
    assert_ne!(first, second);
    world.proxy.send(control_result(&second, "agent_interrupt", Some("agent_not_active"))).await;
    let result = tablet.expect("agent_control_result").await;
    assert_like(&result, &json!({"request_id": "r1", "result": "failed"}));
    world.browser.heard_nothing_like(json!({"request_id": "r1"})).await;
    world.proxy.send(control_result(&first, "agent_interrupt", None)).await;
    let result = world.browser.expect("agent_control_result").await;
    assert_like(&result, &json!({"request_id": "r1", "result": "ok"}));
}

#[tokio::test]
async fn a_command_nobody_answers_fails_as_not_verified() {
    let mut world = World::with(&["--send-timeout-ms", "300"]).await;
    world.browser.send(interrupt("r1")).await;
    let result = world.browser.expect("agent_control_result").await;
    let expected = json!({
        "request_id": "r1", "command": "agent_interrupt", "result": "failed", "error": {"code": "not_verified"}
    });
    assert_like(&result, &expected);
}

#[tokio::test]
async fn a_command_whose_proxy_goes_away_fails() {
    let mut world = World::new().await;
    world.browser.send(interrupt("r1")).await;
    world.proxy.expect("agent_interrupt").await;
    let (_relay, mut browser, _) = world.lose_proxy().await;
    let result = browser.expect("agent_control_result").await;
    assert_like(&result, &json!({"request_id": "r1", "result": "failed", "error": {"code": "no_proxy_connected"}}));
}

#[tokio::test]
async fn a_result_nobody_asked_for_is_taken_and_ignored() {
    let mut world = World::new().await;
    world.proxy.send(control_result(&json!("r9"), "agent_interrupt", None)).await;
    world.proxy.settle().await;
    world.browser.heard_nothing_like(json!({"request_id": "r9"})).await;
}

#[tokio::test]
async fn settings_are_shown_to_all_and_remembered() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    for model in ["haiku", "opus"] {
        world.proxy.send(config(model)).await;
        for browser in [&mut world.browser, &mut tablet] {
            assert_like(&browser.expect("agent_config").await, &config(model));
        }
    }
    let mut cached = config("opus");
    for field in ["type", "session_id"] {
        cached.as_object_mut().unwrap().remove(field);
    }
    let again = world.browser.again(&world.relay).await;
    assert_like(&again.ack["session_configs"], &json!({SESSION: cached}));
}

#[tokio::test]
async fn a_request_for_settings_is_answered_from_memory_and_then_afresh() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    acknowledged(&mut world.proxy, config("haiku")).await;
    for browser in [&mut world.browser, &mut tablet] {
        browser.expect("agent_config").await;
    }
    world.browser.send(config_request("r1")).await;
    assert_like(&world.browser.expect("agent_config").await, &config("haiku"));
    assert_like(&world.proxy.expect("agent_config_request").await, &config_request("r1"));
    tablet.heard_nothing_like(json!({"type": "agent_config"})).await;
    world.proxy.send(config("opus")).await;
    for browser in [&mut world.browser, &mut tablet] {
        assert_like(&browser.expect("agent_config").await, &config("opus"));
    }
}

#[tokio::test]
async fn a_model_is_set_and_confirmed_by_the_settings() {
    let mut world = World::new().await;
    world.browser.send(set_model("r1")).await;
    assert_like(&world.proxy.expect("agent_set_model").await, &set_model("r1"));
    world.proxy.send_all([control_result(&json!("r1"), "agent_set_model", None), config("opus")]).await;
    world.browser.expect_like(json!({"type": "agent_control_result", "request_id": "r1", "result": "ok"})).await;
    assert_eq!(world.browser.expect("agent_config").await["model_id"], "opus");
}

#[tokio::test]
async fn a_model_that_is_not_offered_is_refused_by_the_proxy() {
    let mut world = World::new().await;
    world.browser.send(set_model("r1")).await;
    world.proxy.expect("agent_set_model").await;
    let result = control_result(&json!("r1"), "agent_set_model", Some("model_not_available"));
    world.proxy.send(result.clone()).await;
    assert_like(&world.browser.expect("agent_control_result").await, &result);
}

/// A proxy that knows only the seed confirms these two by `agent_config`, without a result.
#[tokio::test]
async fn settings_that_confirm_a_command_are_its_answer() {
    let mut world = World::with(&["--send-timeout-ms", "500"]).await;
    world.browser.send(config_request("r1")).await;
    world.browser.send(set_model("r2")).await;
    world.proxy.expect("agent_set_model").await;
    acknowledged(&mut world.proxy, config("opus")).await;
    world.browser.send(interrupt("later")).await;
    world.browser.expect_like(json!({"request_id": "later", "error": {"code": "not_verified"}})).await;
    for request_id in ["r1", "r2"] {
        world.browser.heard_nothing_like(json!({"request_id": request_id, "result": "failed"})).await;
    }
}

#[tokio::test]
async fn a_command_that_lacks_a_field_is_told_which() {
    let mut world = World::new().await;
    let cases = [
        (interrupt("r1"), "request_id"),
        (interrupt("r1"), "session_id"),
        (set_model("r1"), "model_id"),
        (set_model("r1"), "session_id"),
        (config_request("r1"), "session_id"),
    ];
    for (mut frame, field) in cases {
        frame.as_object_mut().unwrap().remove(field);
        world.browser.send(frame).await;
        let error = world.browser.expect("connection_error").await;
        assert_eq!(error["code"], "invalid_message");
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
}

#[tokio::test]
async fn a_command_does_not_wait_for_the_transcript() {
    let mut world = World::new().await;
    world.proxy.send_all((0..500).map(|number| observed(SESSION, &format!("a{number}"), "text"))).await;
    world.browser.send(interrupt("r1")).await;
    world.proxy.expect("agent_interrupt").await;
    world.proxy.send(control_result(&json!("r1"), "agent_interrupt", None)).await;
    world.browser.expect_like(json!({"request_id": "r1", "result": "ok"})).await;
}

#[tokio::test]
async fn a_config_needs_its_model() {
    let mut world = World::new().await;
    world.proxy.send(json!({"type": "agent_config", "session_id": SESSION, "request_id": "c"})).await;
    let error = world.proxy.expect_like(json!({"request_id": "c"})).await;
    assert_like(&error, &json!({"type": "connection_error", "code": "invalid_message"}));
    assert!(error["message"].as_str().unwrap().contains("model_id"), "{error}");
}
