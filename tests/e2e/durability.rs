//! What survives `kill -9`.

use crate::peer::{Peer, assert_like, is_like};
use crate::relay::{Relay, Role};
use crate::world::{
    SESSION, World, acknowledged, announce, answer, events_after, history, observed, prompt, send_result,
};
use serde_json::{Value, json};

/// Kills the relay and starts it again. Nobody is connected then.
fn crash(world: World) -> (Relay, String, String) {
    let World { mut relay, browser, proxy } = world;
    relay.restart();
    (relay, browser.token, proxy.token)
}

/// The same, with browser and proxy back; the proxy has not said anything yet.
async fn crash_and_return(world: World) -> World {
    let (relay, phone, desk) = crash(world);
    let proxy = Peer::as_device(&relay, Role::Proxy, &desk).await;
    let browser = Peer::as_device(&relay, Role::Browser, &phone).await;
    World { relay, browser, proxy }
}

fn launch() -> Value {
    json!({"type": "launch_session", "request_id": "l1", "agent_type": "claude"})
}

fn launched() -> Value {
    json!({"type": "session_launch_ack", "request_id": "l1", "session_id": "sess_new", "agent_type": "claude"})
}

#[tokio::test]
async fn sessions_stay_listed_as_disconnected_until_they_are_back() {
    let mut world = crash_and_return(World::new().await).await;
    let listed = json!({"sessions": [{"session_id": SESSION, "status": "disconnected", "display_name": "Codex"}]});
    assert_like(&world.browser.sessions, &listed);
    announce(&mut world.proxy, &[SESSION]).await;
    assert_like(&world.browser.expect("session_up").await["session"], &json!({"status": "healthy"}));
}

#[tokio::test]
async fn history_is_the_same_and_sequences_go_on() {
    let mut world = World::new().await;
    world.say("a", "text").await;
    world.finish("m1", "delivered").await;
    let epoch = world.browser.ack["ledger_epoch"].clone();
    let transcript = history(&mut world.browser, SESSION).await["messages"].clone();
    let events = events_after(&mut world.browser, SESSION, 0).await;

    let mut world = crash_and_return(world).await;
    assert_eq!(world.browser.ack["ledger_epoch"], epoch);
    assert_eq!(history(&mut world.browser, SESSION).await["messages"], transcript);
    let again = events_after(&mut world.browser, SESSION, 0).await;
    assert_eq!(again[..events.len()], events[..]);
    let last = again.last().unwrap()["sequence"].as_u64();
    announce(&mut world.proxy, &[SESSION]).await;
    assert!(world.browser.expect("session_up").await["sequence"].as_u64() > last);
}

#[tokio::test]
async fn what_was_acknowledged_is_on_disk() {
    let mut world = World::new().await;
    acknowledged(&mut world.proxy, observed(SESSION, "a", "text")).await;
    let mut world = crash_and_return(world).await;
    assert_like(&history(&mut world.browser, SESSION).await["messages"], &json!([{"message_id": "a"}]));
}

#[tokio::test]
async fn accepted_sends_are_forwarded_again_in_order_when_their_session_is_back() {
    let mut world = World::new().await;
    for id in ["m1", "m2", "m3"] {
        world.forward(id).await;
    }
    world.proxy.send(send_result(SESSION, "m2", "delivered")).await;
    world.browser.expect("message_delivered").await;
    let mut world = crash_and_return(world).await;
    announce(&mut world.proxy, &[SESSION]).await;
    for id in ["m1", "m3"] {
        let forwarded = world.proxy.expect("send_message").await;
        assert_like(&forwarded, &json!({"client_message_id": id, "session_id": SESSION, "content": "hello"}));
        world.proxy.send(send_result(SESSION, id, "delivered")).await;
        world.browser.expect_like(json!({"type": "message_delivered", "client_message_id": id})).await;
    }
    world.proxy.heard_nothing_like(json!({"type": "send_message"})).await;
}

#[tokio::test]
async fn accepted_sends_whose_session_does_not_return_end_as_indeterminate() {
    let mut world = World::with(&["--send-timeout-ms", "1000"]).await;
    world.forward("m1").await;
    let (relay, phone, _) = crash(world);
    let mut browser = Peer::as_device(&relay, Role::Browser, &phone).await;
    browser.expect_like(json!({"client_message_id": "m1", "delivery": "indeterminate"})).await;
    assert_like(&history(&mut browser, SESSION).await["messages"], &json!([{"status": "indeterminate"}]));
}

#[tokio::test]
async fn a_settled_send_is_still_settled() {
    let mut world = World::new().await;
    let ends = [world.finish("m1", "delivered").await, world.finish("m2", "indeterminate").await];
    let mut world = crash_and_return(world).await;
    announce(&mut world.proxy, &[SESSION]).await;
    for end in ends {
        let id = end["client_message_id"].as_str().unwrap();
        world.browser.send(crate::world::send(SESSION, id, "hello")).await;
        let told = world.browser.expect_like(json!({"client_message_id": id})).await;
        for field in ["type", "event_id", "sequence", "delivery"] {
            assert_eq!(told[field], end[field], "{told}");
        }
    }
    world.proxy.heard_nothing_like(json!({"type": "send_message"})).await;
}

#[tokio::test]
async fn open_prompts_and_settings_survive() {
    let mut world = World::new().await;
    let mut timed = prompt("p2");
    timed["timeout_ms"] = json!(3_600_000);
    let settings = json!({"model_id": "opus", "permission_mode": "ask", "capabilities": {"interrupt": true}});
    let mut config = json!({"type": "agent_config", "session_id": SESSION});
    config.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    for frame in [prompt("p1"), timed, config] {
        acknowledged(&mut world.proxy, frame).await;
    }
    let expires = world.browser.expect_like(json!({"prompt_id": "p2"})).await["expires_at"].clone();
    let mut world = crash_and_return(world).await;
    let prompts = world.browser.ack["open_prompts"].as_array().unwrap().clone();
    assert!(prompts.iter().any(|open| is_like(open, &json!({"prompt_id": "p1", "expires_at": null}))), "{prompts:?}");
    assert!(
        prompts.iter().any(|open| is_like(open, &json!({"prompt_id": "p2", "expires_at": expires}))),
        "{prompts:?}"
    );
    assert_like(&world.browser.ack["session_configs"], &json!({SESSION: settings}));

    announce(&mut world.proxy, &[SESSION]).await;
    acknowledged(&mut world.proxy, prompt("p1")).await;
    world.browser.heard_nothing_like(json!({"type": "permission_prompt"})).await;
    world.browser.send(answer("p1", "r1", "yes")).await;
    assert_like(&world.proxy.expect("permission_response").await, &answer("p1", "r1", "yes"));
}

#[tokio::test]
async fn a_timed_prompt_still_expires() {
    let mut world = World::new().await;
    let mut timed = prompt("p1");
    timed["timeout_ms"] = json!(1500);
    timed["default_choice"] = json!("no");
    acknowledged(&mut world.proxy, timed).await;
    let mut world = crash_and_return(world).await;
    announce(&mut world.proxy, &[SESSION]).await;
    world.browser.expect_like(json!({"type": "permission_prompt_expired", "prompt_id": "p1"})).await;
    assert_like(&world.browser.again(&world.relay).await.ack, &json!({"open_prompts": []}));
}

#[tokio::test]
async fn a_prompt_whose_answer_was_under_way_is_not_lost() {
    let mut world = World::new().await;
    acknowledged(&mut world.proxy, prompt("p1")).await;
    world.browser.send(answer("p1", "r1", "yes")).await;
    world.proxy.expect("permission_response").await;
    let mut world = crash_and_return(world).await;
    announce(&mut world.proxy, &[SESSION]).await;
    acknowledged(&mut world.proxy, prompt("p1")).await;
    let open = &world.browser.again(&world.relay).await.ack["open_prompts"];
    assert_like(open, &json!([{"prompt_id": "p1"}]));
    world.browser.send(answer("p1", "r2", "no")).await;
    assert_like(&world.proxy.expect("permission_response").await, &answer("p1", "r2", "no"));
}

#[tokio::test]
async fn a_launch_under_way_survives_and_ends() {
    let mut world = World::new().await;
    world.browser.send(launch()).await;
    world.proxy.expect("launch_session").await;
    let mut world = crash_and_return(world).await;
    assert_like(&world.browser.ack["pending_launches"], &json!([{"request_id": "l1", "agent_type": "claude"}]));
    world.proxy.send(launched()).await;
    assert_like(&world.browser.expect("session_launch_ack").await, &launched());
}

#[tokio::test]
async fn a_launch_nobody_answers_still_times_out() {
    let mut world = World::with(&["--launch-timeout-ms", "2000"]).await;
    world.browser.send(launch()).await;
    world.proxy.expect("launch_session").await;
    let mut world = crash_and_return(world).await;
    world.browser.expect_like(json!({"type": "session_launch_failed", "error_code": "launch_timeout"})).await;
}

#[tokio::test]
async fn a_held_launch_result_survives() {
    let mut world = World::new().await;
    world.browser.send(launch()).await;
    world.proxy.expect("launch_session").await;
    let World { relay, browser, mut proxy } = world;
    let phone = browser.token.clone();
    browser.hang_up().await;
    proxy.send(launched()).await;
    proxy.expect_like(json!({"type": "proxy_ack", "request_id": "l1"})).await;
    let mut relay = relay;
    relay.restart();
    let mut back = Peer::as_device(&relay, Role::Browser, &phone).await;
    assert_like(&back.expect("session_launch_ack").await, &json!({"request_id": "l1", "session_id": "sess_new"}));
}

#[tokio::test]
async fn a_closed_session_stays_closed_and_a_machine_keeps_its_token() {
    let mut relay = Relay::start();
    let desk = relay.token(Role::Proxy, "desk");
    let mut proxy = Peer::with_hello(&relay, Role::Proxy, &desk, json!({"machine_id": "box-1"})).await;
    announce(&mut proxy, &[SESSION, "sess_2"]).await;
    acknowledged(&mut proxy, json!({"type": "session_closed", "session_id": SESSION})).await;
    relay.restart();
    let browser = Peer::browser(&relay).await;
    assert_like(&browser.sessions, &json!({"sessions": [{"session_id": "sess_2"}]}));
    assert_eq!(Peer::as_device(&relay, Role::Proxy, &desk).await.ack["machine_id"], "box-1");
}

#[tokio::test]
async fn a_revoked_token_stays_revoked() {
    let mut relay = Relay::start();
    let token = relay.token(Role::Browser, "lost");
    let me = crate::http::get("/api/me").bearer(&token).send(&relay).await.json();
    relay.cli(&["token", "revoke", me["token_id"].as_str().unwrap()]);
    relay.restart();
    assert_eq!(crate::http::upgrade("/client-ws").bearer(&token).send(&relay).await.status, 401);
}
