//! Dialogs that wait for a person: shown, answered, given back.

use crate::peer::{Peer, assert_like, is_utc_time};
use crate::world::{NOW, SESSION, World, acknowledged, answer, control_result, prompt, session};
use serde_json::{Value, json};

/// A world in which a prompt is open and shown.
async fn prompted() -> World {
    opened(&[], prompt("p1")).await
}

async fn opened(flags: &[&str], prompt: Value) -> World {
    let mut world = World::with(flags).await;
    world.proxy.send(prompt).await;
    world.browser.expect("permission_prompt").await;
    world
}

/// The prompts a newly connected browser is told of.
async fn open_prompts(world: &World) -> Value {
    world.browser.again(&world.relay).await.ack["open_prompts"].clone()
}

/// The browser answers, and the proxy has the answer.
async fn answered(world: &mut World) -> Value {
    world.browser.send(answer("p1", "r1", "yes")).await;
    world.browser.expect_like(json!({"type": "permission_prompt_update", "state": "answering"})).await;
    world.proxy.expect("permission_response").await
}

/// Every browser hears what has become of the answer `yes`.
async fn all_hear(browsers: &mut [&mut Peer], state: &str) {
    for browser in browsers {
        let update = browser.expect("permission_prompt_update").await;
        let expected = json!({"session_id": SESSION, "prompt_id": "p1", "state": state, "choice_id": "yes"});
        assert_like(&update, &expected);
    }
}

/// An answer that must be refused with a code.
async fn refused(world: &mut World, frame: Value, code: &str) {
    world.browser.send(frame).await;
    let result = world.browser.expect("agent_control_result").await;
    let expected = json!({"command": "permission_response", "result": "failed", "error": {"code": code}});
    assert_like(&result, &expected);
    world.proxy.heard_nothing_like(json!({"type": "permission_response"})).await;
}

#[tokio::test]
async fn a_prompt_is_shown_to_every_browser_as_the_ide_shows_it() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    let mut whole = prompt("p1");
    let more = json!({
        "kind": "question", "fingerprint": "f00d", "command": "rm -rf build", "diff": "-a\n+b", "detected_at": NOW
    });
    whole.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    world.proxy.send(whole.clone()).await;
    for browser in [&mut world.browser, &mut tablet] {
        let shown = browser.expect("permission_prompt").await;
        assert_like(&shown, &whole);
        assert_like(&shown, &json!({"sequence": null, "expires_at": null}));
    }
    whole.as_object_mut().unwrap().remove("type");
    assert_like(&open_prompts(&world).await, &json!([whole]));
}

#[tokio::test]
async fn a_timed_prompt_tells_when_it_expires() {
    let mut timed = prompt("p1");
    timed["timeout_ms"] = json!(30_000);
    let mut world = World::new().await;
    world.proxy.send(timed).await;
    let shown = world.browser.expect("permission_prompt").await;
    assert!(is_utc_time(&shown["expires_at"]), "{shown}");
    assert_eq!(open_prompts(&world).await[0]["expires_at"], shown["expires_at"]);
}

#[tokio::test]
async fn a_restated_prompt_is_not_shown_again_and_a_changed_one_is() {
    let mut world = prompted().await;
    acknowledged(&mut world.proxy, prompt("p1")).await;
    world.browser.heard_nothing_like(json!({"type": "permission_prompt"})).await;
    let mut changed = prompt("p1");
    changed["prompt_text"] = json!("Edit two files?");
    world.proxy.send(changed).await;
    assert_eq!(world.browser.expect("permission_prompt").await["prompt_text"], "Edit two files?");
}

#[tokio::test]
async fn an_answer_reaches_the_dialog_and_everybody_sees_how_it_goes() {
    let mut world = prompted().await;
    let mut tablet = Peer::browser(&world.relay).await;
    world.browser.send(answer("p1", "r1", "yes")).await;
    assert_like(&world.proxy.expect("permission_response").await, &answer("p1", "r1", "yes"));
    all_hear(&mut [&mut world.browser, &mut tablet], "answering").await;
    assert_like(&open_prompts(&world).await, &json!([]));
    world.proxy.send(control_result(&json!("r1"), "permission_response", None)).await;
    all_hear(&mut [&mut world.browser, &mut tablet], "resolved").await;
    assert_like(&open_prompts(&world).await, &json!([]));
    let result = world.browser.expect("agent_control_result").await;
    assert_like(&result, &json!({"request_id": "r1", "command": "permission_response", "result": "ok"}));
    tablet.heard_nothing_like(json!({"type": "agent_control_result"})).await;
}

#[tokio::test]
async fn the_first_answer_wins() {
    let mut world = prompted().await;
    let mut tablet = Peer::browser(&world.relay).await;
    answered(&mut world).await;
    tablet.send(answer("p1", "r2", "no")).await;
    let result = tablet.expect("agent_control_result").await;
    assert_like(&result, &json!({"request_id": "r2", "result": "failed", "error": {"code": "prompt_not_found"}}));
    world.proxy.heard_nothing_like(json!({"type": "permission_response"})).await;
}

#[tokio::test]
async fn an_answer_to_no_open_prompt_is_refused() {
    let mut world = prompted().await;
    refused(&mut world, answer("p2", "r", "yes"), "prompt_not_found").await;
    answered(&mut world).await;
    world.proxy.send(control_result(&json!("r1"), "permission_response", None)).await;
    world.browser.expect("agent_control_result").await;
    refused(&mut world, answer("p1", "r", "yes"), "prompt_not_found").await;
}

#[tokio::test]
async fn an_answer_that_does_not_fit_leaves_the_prompt_open() {
    let mut world = prompted().await;
    let base = json!({
        "type": "permission_response", "request_id": "r", "session_id": SESSION, "prompt_id": "p1"
    });
    let wrong =
        [json!({"choice_id": "always"}), json!({"choice_ids": ["yes"]}), json!({"text": "as you like"}), json!({})];
    for fields in wrong {
        let mut frame = base.clone();
        frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        refused(&mut world, frame, "invalid_message").await;
    }
    assert_like(&open_prompts(&world).await, &json!([{"prompt_id": "p1"}]));
    answered(&mut world).await;
}

#[tokio::test]
async fn a_question_takes_several_choices_or_words() {
    let mut world = World::new().await;
    for (prompt_id, fields) in [("p1", json!({"choice_ids": ["yes", "no"]})), ("p2", json!({"text": "neither"}))] {
        let mut question = prompt(prompt_id);
        question["multi_select"] = json!(true);
        question["free_text"] = json!(true);
        world.proxy.send(question).await;
        world.browser.expect("permission_prompt").await;
        let mut frame = answer(prompt_id, "r1", "yes");
        frame.as_object_mut().unwrap().remove("choice_id");
        let mut wrong = frame.clone();
        wrong["choice_ids"] = json!(["yes", "always"]);
        refused(&mut world, wrong, "invalid_message").await;

        frame.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        world.browser.send(frame.clone()).await;
        assert_like(&world.proxy.expect("permission_response").await, &frame);
        world.proxy.send(control_result(&json!("r1"), "permission_response", None)).await;
        world.browser.expect_like(json!({"type": "permission_prompt_update", "state": "resolved"})).await;
        world.browser.expect_like(json!({"type": "agent_control_result", "result": "ok"})).await;
    }
}

#[tokio::test]
async fn a_prompt_whose_proxy_is_away_stays_open() {
    let (relay, mut browser, _) = prompted().await.lose_proxy().await;
    browser.send(answer("p1", "r1", "yes")).await;
    let result = browser.expect("agent_control_result").await;
    assert_like(&result, &json!({"request_id": "r1", "result": "failed", "error": {"code": "no_proxy_connected"}}));
    browser.heard_nothing_like(json!({"type": "permission_prompt_update"})).await;
    assert_like(&browser.again(&relay).await.ack, &json!({"open_prompts": [{"prompt_id": "p1"}]}));
}

#[tokio::test]
async fn a_dialog_that_was_gone_when_the_answer_came_has_vanished() {
    let mut world = prompted().await;
    answered(&mut world).await;
    world.proxy.send(control_result(&json!("r1"), "permission_response", Some("prompt_not_found"))).await;
    world.browser.expect_like(json!({"type": "permission_prompt_update", "state": "vanished"})).await;
    let result = world.browser.expect("agent_control_result").await;
    assert_like(&result, &json!({"request_id": "r1", "result": "failed", "error": {"code": "prompt_not_found"}}));
    assert_like(&open_prompts(&world).await, &json!([]));
}

#[tokio::test]
async fn an_answer_that_was_not_applied_gives_the_prompt_back() {
    let mut world = prompted().await;
    let mut tablet = Peer::browser(&world.relay).await;
    answered(&mut world).await;
    world.proxy.send(control_result(&json!("r1"), "permission_response", Some("prompt_changed"))).await;
    for browser in [&mut world.browser, &mut tablet] {
        browser.expect_like(json!({"type": "permission_prompt_update", "state": "reverted", "prompt_id": "p1"})).await;
        assert_like(&browser.expect("permission_prompt").await, &prompt("p1"));
    }
    let result = world.browser.expect("agent_control_result").await;
    assert_like(&result, &json!({"request_id": "r1", "result": "failed", "error": {"code": "prompt_changed"}}));
    assert_like(&open_prompts(&world).await, &json!([{"prompt_id": "p1"}]));
    answered(&mut world).await;
}

#[tokio::test]
async fn a_prompt_whose_proxy_stays_silent_is_over_and_cannot_be_answered_twice() {
    let mut world = opened(&["--send-timeout-ms", "400"], prompt("p1")).await;
    answered(&mut world).await;
    let update = world.browser.expect_like(json!({"type": "permission_prompt_update", "state": "vanished"})).await;
    assert_like(&update, &json!({"prompt_id": "p1", "error": {"code": "not_verified"}}));
    let result = world.browser.expect("agent_control_result").await;
    assert_like(&result, &json!({"request_id": "r1", "result": "failed", "error": {"code": "not_verified"}}));
    assert_eq!(open_prompts(&world).await, json!([]));
}

#[tokio::test]
async fn a_proxy_that_still_sees_the_dialog_gives_the_prompt_back() {
    let mut world = prompted().await;
    answered(&mut world).await;
    world.proxy.send(prompt("p1")).await;
    world.browser.expect_like(json!({"type": "permission_prompt_update", "state": "reverted"})).await;
    world.browser.expect("permission_prompt").await;
    assert_like(&open_prompts(&world).await, &json!([{"prompt_id": "p1"}]));
}

#[tokio::test]
async fn only_an_explicit_list_makes_prompts_vanish() {
    let mut world = prompted().await;
    world.proxy.send(prompt("p2")).await;
    world.browser.expect("permission_prompt").await;
    let mut frame = json!({"type": "proxy_session_snapshot", "sessions": [session(SESSION)]});
    acknowledged(&mut world.proxy, frame.clone()).await;
    world.browser.heard_nothing_like(json!({"type": "permission_prompt_update"})).await;
    frame["open_prompts"] = json!([{"session_id": SESSION, "prompt_id": "p2"}]);
    acknowledged(&mut world.proxy, frame).await;
    let update = world.browser.expect("permission_prompt_update").await;
    assert_like(&update, &json!({"prompt_id": "p1", "state": "vanished"}));
    assert_like(&open_prompts(&world).await, &json!([{"prompt_id": "p2"}]));
}

#[tokio::test]
async fn a_proxy_can_tell_that_a_dialog_went_away() {
    let mut world = prompted().await;
    let gone = json!({
        "type": "permission_prompt_update", "session_id": SESSION, "prompt_id": "p1", "state": "vanished"
    });
    world.proxy.send(gone.clone()).await;
    assert_like(&world.browser.expect("permission_prompt_update").await, &gone);
    assert_like(&open_prompts(&world).await, &json!([]));
}

#[tokio::test]
async fn a_prompt_outlives_its_proxys_socket() {
    let (relay, mut browser, token) = prompted().await.lose_proxy().await;
    browser.heard_nothing_like(json!({"type": "permission_prompt_update"})).await;
    let mut proxy = Peer::as_device(&relay, crate::relay::Role::Proxy, &token).await;
    crate::world::announce(&mut proxy, &[SESSION]).await;
    acknowledged(&mut proxy, prompt("p1")).await;
    browser.heard_nothing_like(json!({"type": "permission_prompt"})).await;
    browser.send(answer("p1", "r1", "yes")).await;
    assert_like(&proxy.expect("permission_response").await, &answer("p1", "r1", "yes"));
}

#[tokio::test]
async fn a_prompt_that_contradicts_itself_is_refused() {
    let mut world = World::new().await;
    let mut without_choices = prompt("p1");
    without_choices["choices"] = json!([]);
    let mut foreign_default = prompt("p1");
    foreign_default["default_choice"] = json!("maybe");
    for mut frame in [without_choices, foreign_default] {
        frame["request_id"] = json!("r");
        world.proxy.send(frame).await;
        let error = world.proxy.expect_like(json!({"request_id": "r"})).await;
        assert_like(&error, &json!({"type": "connection_error", "code": "invalid_message"}));
    }
    world.browser.heard_nothing_like(json!({"type": "permission_prompt"})).await;
}

#[tokio::test]
async fn an_answer_without_a_request_id_is_an_answer() {
    let mut world = prompted().await;
    let mut frame = answer("p1", "", "no");
    frame.as_object_mut().unwrap().remove("request_id");
    world.browser.send(frame.clone()).await;
    assert_like(&world.proxy.expect("permission_response").await, &frame);
}

#[tokio::test]
async fn more_prompts_than_a_machine_may_have_are_refused() {
    let mut world = World::with(&["--max-prompts-per-machine", "2"]).await;
    world.proxy.send_all([prompt("p1"), prompt("p2"), prompt("p3")]).await;
    assert_eq!(world.proxy.expect("connection_error").await["code"], "limit_reached");
    assert_eq!(open_prompts(&world).await.as_array().unwrap().len(), 2);
    acknowledged(&mut world.proxy, prompt("p2")).await;
}

#[tokio::test]
async fn a_proxy_that_went_away_says_on_its_return_whether_the_answered_prompt_is_still_open() {
    for still_open in [true, false] {
        let mut world = prompted().await;
        answered(&mut world).await;
        let (relay, mut browser, lost) = world.lose_proxy().await;
        let result = browser.expect("agent_control_result").await;
        assert_like(&result, &json!({"request_id": "r1", "result": "failed", "error": {"code": "no_proxy_connected"}}));
        let mut proxy = Peer::as_device(&relay, crate::relay::Role::Proxy, &lost).await;
        let mut frame = crate::world::snapshot(vec![crate::world::session(SESSION)]);
        let seen = if still_open { json!([{"session_id": SESSION, "prompt_id": "p1"}]) } else { json!([]) };
        frame["open_prompts"] = seen;
        proxy.send(frame).await;
        let state = if still_open { "reverted" } else { "vanished" };
        browser.expect_like(json!({"type": "permission_prompt_update", "state": state})).await;
        let open = browser.again(&relay).await.ack["open_prompts"].as_array().unwrap().len();
        assert_eq!(open, usize::from(still_open));
    }
}

#[tokio::test]
async fn equal_prompt_ids_in_two_sessions_are_two_prompts() {
    let mut world = prompted().await;
    crate::world::announce(&mut world.proxy, &[SESSION, "sess_2"]).await;
    let mut twin = prompt("p1");
    twin["session_id"] = json!("sess_2");
    world.proxy.send(twin).await;
    world.browser.expect_like(json!({"type": "permission_prompt", "session_id": "sess_2"})).await;
    answered(&mut world).await;
    assert_like(&open_prompts(&world).await, &json!([{"session_id": "sess_2", "prompt_id": "p1"}]));
}

#[tokio::test]
async fn a_prompt_seen_again_at_another_time_is_the_same_prompt() {
    let mut world = prompted().await;
    let mut again = prompt("p1");
    again["detected_at"] = json!("2026-03-19T11:00:00.000Z");
    acknowledged(&mut world.proxy, again).await;
    world.browser.heard_nothing_like(json!({"type": "permission_prompt"})).await;
}
