//! Several dev boxes on one relay, each speaking for itself alone.

use crate::peer::{Peer, assert_like};
use crate::relay::{Relay, Role};
use crate::world::{SESSION, World, acknowledged, announce, observed, prompt, send, send_result, session, snapshot};
use serde_json::{Value, json};

/// A second machine beside a world's own.
async fn other_machine(world: &World) -> Peer {
    let token = world.relay.token(Role::Proxy, "laptop");
    let hello = json!({"machine_id": "laptop-1", "machine_label": "Laptop"});
    let mut proxy = Peer::with_hello(&world.relay, Role::Proxy, &token, hello).await;
    announce(&mut proxy, &["sess_laptop"]).await;
    proxy
}

/// A hello that must be turned away with `unauthorized` and 4501.
async fn turned_away(relay: &Relay, token: &str, machine_id: &str) {
    let mut proxy = Peer::open(relay, Role::Proxy, token).await;
    let hello = json!({
        "type": "connection_hello", "peer_role": "proxy", "client_name": "e2e", "machine_id": machine_id
    });
    proxy.send(hello).await;
    assert_eq!(proxy.expect("connection_error").await["code"], "unauthorized");
    assert_eq!(proxy.expect_close().await.0, 4501);
}

#[tokio::test]
async fn the_sessions_of_all_machines_are_one_list() {
    let mut world = World::new().await;
    let mut laptop = other_machine(&world).await;
    let listed = world.browser.again(&world.relay).await.sessions;
    let sessions = listed["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2);
    let of = |id: &str| sessions.iter().find(|session| session["session_id"] == id).unwrap();
    assert_like(of("sess_laptop"), &json!({"machine_id": "laptop-1", "machine_label": "Laptop"}));
    assert_eq!(of(SESSION)["machine_id"], world.proxy.ack["machine_id"]);

    for (session_id, proxy) in [(SESSION, &mut world.proxy), ("sess_laptop", &mut laptop)] {
        world.browser.send(send(session_id, "m1", "hello")).await;
        assert_eq!(proxy.expect("send_message").await["session_id"], session_id);
    }
}

#[tokio::test]
async fn a_machine_cannot_name_itself_otherwise_in_its_sessions() {
    let mut world = World::new().await;
    let mut claimed = session("sess_2");
    claimed["machine_id"] = json!("somebody-else");
    world.proxy.send(snapshot(vec![session(SESSION), claimed])).await;
    let up = world.browser.expect("session_up").await;
    assert_eq!(up["session"]["machine_id"], world.proxy.ack["machine_id"]);
}

#[tokio::test]
async fn one_machine_going_away_leaves_the_others_alone() {
    let world = World::new().await;
    let mut laptop = other_machine(&world).await;
    let (_relay, mut browser, _) = world.lose_proxy().await;
    browser.heard_nothing_like(json!({"type": "session_down", "session_id": "sess_laptop"})).await;
    browser.send(send("sess_laptop", "m1", "hello")).await;
    laptop.expect("send_message").await;
}

#[tokio::test]
async fn a_proxy_cannot_claim_another_machines_session() {
    let mut world = World::new().await;
    let mut laptop = other_machine(&world).await;
    world.browser.expect("session_up").await;
    let mut stolen = session(SESSION);
    stolen["display_name"] = json!("stolen");
    laptop.send(snapshot(vec![session("sess_laptop"), stolen, session("sess_new")])).await;
    let error = laptop.expect("connection_error").await;
    assert_eq!(error["code"], "unauthorized");
    assert!(error["message"].as_str().unwrap().contains(SESSION), "{error}");

    let up = world.browser.expect("session_up").await;
    assert_eq!(up["session"]["session_id"], "sess_new", "the rest of the snapshot holds");
    world.browser.heard_nothing_like(json!({"type": "session_up"})).await;
    world.browser.send(send(SESSION, "m1", "hello")).await;
    world.proxy.expect("send_message").await;
    laptop.heard_nothing_like(json!({"type": "send_message"})).await;
}

#[tokio::test]
async fn a_proxy_cannot_speak_for_another_machines_session() {
    let mut world = World::new().await;
    world.proxy.send(prompt("p1")).await;
    world.browser.expect("permission_prompt").await;
    world.forward("m1").await;
    let mut laptop = other_machine(&world).await;
    world.browser.expect("session_up").await;
    let frames = [
        observed(SESSION, "a", "text"),
        crate::world::update("a", 1, 0, "text"),
        send_result(SESSION, "m1", "delivered"),
        json!({"type": "proxy_status", "session_id": SESSION, "status": "degraded"}),
        prompt("p2"),
        json!({"type": "permission_prompt_update", "session_id": SESSION, "prompt_id": "p1", "state": "vanished"}),
        json!({"type": "agent_config", "session_id": SESSION, "model_id": "m"}),
        json!({"type": "session_closed", "session_id": SESSION}),
    ];
    for mut frame in frames {
        frame["request_id"] = json!("r");
        laptop.send(frame.clone()).await;
        let error = laptop.expect_like(json!({"request_id": "r"})).await;
        assert!(
            crate::peer::is_like(
                &error,
                &json!({"type": "connection_error", "code": "unauthorized", "session_id": SESSION})
            ),
            "{frame} is answered by {error}"
        );
    }
    assert_eq!(world.browser.heard().await, Vec::<Value>::new());
}

#[tokio::test]
async fn another_machines_results_for_launches_and_commands_are_ignored() {
    let mut world = World::new().await;
    let mut laptop = other_machine(&world).await;
    let machine_id = world.proxy.ack["machine_id"].clone();
    world
        .browser
        .send(json!({
            "type": "launch_session", "request_id": "l1", "agent_type": "claude", "machine_id": machine_id
        }))
        .await;
    world.proxy.expect("launch_session").await;
    world.browser.send(json!({"type": "agent_interrupt", "request_id": "i1", "session_id": SESSION})).await;
    world.proxy.expect("agent_interrupt").await;
    laptop
        .send_all([
            json!({"type": "session_launch_ack", "request_id": "l1", "session_id": "sess_laptop"}),
            json!({"type": "session_launch_failed", "request_id": "l1", "reason": "no", "error_code": "x"}),
            crate::world::control_result(&json!("i1"), "agent_interrupt", None),
        ])
        .await;
    laptop.settle().await;
    for frame_type in ["session_launch_ack", "session_launch_failed", "agent_control_result"] {
        world.browser.heard_nothing_like(json!({"type": frame_type})).await;
    }
}

#[tokio::test]
async fn a_token_is_bound_to_the_first_machine_it_names() {
    let relay = Relay::start();
    let token = relay.token(Role::Proxy, "desk");
    Peer::with_hello(&relay, Role::Proxy, &token, json!({"machine_id": "box-1"})).await.hang_up().await;
    turned_away(&relay, &token, "box-2").await;
    let again = Peer::with_hello(&relay, Role::Proxy, &token, json!({"machine_id": "box-1"})).await;
    assert_eq!(again.ack["machine_id"], "box-1");
}

#[tokio::test]
async fn a_machine_belongs_to_one_token() {
    let relay = Relay::start();
    let token = relay.token(Role::Proxy, "desk");
    let mut first = Peer::with_hello(&relay, Role::Proxy, &token, json!({"machine_id": "box-1"})).await;
    turned_away(&relay, &relay.token(Role::Proxy, "thief"), "box-1").await;
    first.settle().await;
}

#[tokio::test]
async fn a_proxy_that_names_no_machine_is_the_machine_of_its_token() {
    let World { relay, browser: _browser, mut proxy } = World::new().await;
    let machine_id = proxy.ack["machine_id"].clone();
    assert!(machine_id.is_string(), "{}", proxy.ack);
    let again = proxy.again(&relay).await;
    assert_eq!(again.ack["machine_id"], machine_id);
    assert_ne!(Peer::proxy(&relay).await.ack["machine_id"], machine_id);
    assert_eq!(proxy.expect_close().await.0, 4503);
}

#[tokio::test]
async fn a_second_proxy_of_the_same_machine_takes_over() {
    let mut world = World::new().await;
    world.forward("m1").await;
    let mut second = world.proxy.again(&world.relay).await;
    let error = world.proxy.expect("connection_error").await;
    assert_eq!(error["code"], "unauthorized");
    assert!(error["message"].as_str().unwrap().contains("nother proxy"), "{error}");
    assert_eq!(world.proxy.expect_close().await.0, 4503);

    announce(&mut second, &[SESSION]).await;
    assert_like(&second.expect("send_message").await, &json!({"client_message_id": "m1"}));
    second.send(send_result(SESSION, "m1", "delivered")).await;
    world.browser.expect_like(json!({"type": "message_delivered", "client_message_id": "m1"})).await;
    let listed = world.browser.again(&world.relay).await.sessions;
    assert_like(&listed["sessions"], &json!([{"session_id": SESSION, "status": "healthy"}]));
}

#[tokio::test]
async fn the_end_of_a_proxy_that_was_replaced_takes_nothing_down() {
    let mut world = World::new().await;
    let mut second = world.proxy.again(&world.relay).await;
    announce(&mut second, &[SESSION]).await;
    world.proxy.expect_close().await;
    let World { relay, mut browser, proxy } = world;
    drop(proxy);
    acknowledged(&mut second, observed(SESSION, "a", "still here")).await;
    browser.expect("message_event").await;
    let listed = browser.again(&relay).await.sessions;
    assert_eq!(listed["sessions"][0]["status"], "healthy");
}

#[tokio::test]
async fn a_machine_that_is_paired_anew_keeps_its_sessions() {
    let relay = Relay::start();
    let lost = relay.token(Role::Proxy, "desk");
    let mut proxy = Peer::with_hello(&relay, Role::Proxy, &lost, json!({"machine_id": "box-1"})).await;
    announce(&mut proxy, &[SESSION]).await;
    let me = crate::http::get("/api/me").bearer(&lost).send(&relay).await.json();
    relay.cli(&["token", "revoke", me["token_id"].as_str().unwrap()]);
    assert_eq!(proxy.expect_close().await.0, 4502);

    let fresh = relay.token(Role::Proxy, "desk again");
    let mut proxy = Peer::with_hello(&relay, Role::Proxy, &fresh, json!({"machine_id": "box-1"})).await;
    announce(&mut proxy, &[SESSION]).await;
    let browser = Peer::browser(&relay).await;
    assert_like(&browser.sessions, &json!({"sessions": [{"session_id": SESSION, "status": "healthy"}]}));
}
