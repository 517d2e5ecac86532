//! The first words on a socket.

use crate::peer::{Peer, assert_like};
use crate::relay::{Relay, Role};
use crate::world::World;
use serde_json::{Value, json};
use std::collections::HashSet;

/// A socket of a role on which a test says the first frame itself.
async fn unspoken(relay: &Relay, role: Role) -> Peer {
    Peer::open(relay, role, &relay.token(role, "raw")).await
}

/// Says a first frame and returns the error and the close code it earns.
async fn refused(relay: &Relay, role: Role, first: Value) -> (Value, u16) {
    let mut peer = unspoken(relay, role).await;
    peer.send(first).await;
    let error = peer.expect("connection_error").await;
    (error, peer.expect_close().await.0)
}

#[tokio::test]
async fn the_ack_holds_all_a_browser_needs_to_begin() {
    let relay = Relay::start();
    let browser = Peer::browser(&relay).await;
    assert_like(
        &browser.ack,
        &json!({
            "heartbeat_interval_ms": 10_000, "heartbeat_timeout_ms": 30_000, "max_frame_bytes": 8_388_608,
            "session_configs": {}, "open_prompts": [], "pending_launches": []
        }),
    );
    assert!(browser.ack["connection_id"].is_string());
    assert!(browser.ack["ledger_epoch"].is_string());
    assert_like(&browser.sessions, &json!({"sessions": []}));
}

#[tokio::test]
async fn the_ack_tells_a_proxy_the_machine_it_speaks_for() {
    let relay = Relay::start();
    let token = relay.token(Role::Proxy, "desk");
    let proxy = Peer::with_hello(&relay, Role::Proxy, &token, json!({"machine_id": "box-7"})).await;
    assert_like(&proxy.ack, &json!({"machine_id": "box-7", "heartbeat_interval_ms": 10_000}));
    assert!(proxy.ack["connection_id"].is_string());
    assert!(proxy.ack["ledger_epoch"].is_string());
}

#[tokio::test]
async fn the_seeds_own_hellos_are_welcome() {
    let relay = Relay::start();
    let mut browser = unspoken(&relay, Role::Browser).await;
    let resume = json!({"sessions": [{"session_id": "sess_123", "last_sequence": 42}]});
    browser.greet(json!({"client_name": "webui", "client_version": "dev", "resume": resume})).await;
    let mut proxy = unspoken(&relay, Role::Proxy).await;
    proxy
        .greet(json!({"client_name": "agent-proxy", "client_version": "dev", "machine_label": "Robert-Windows"}))
        .await;
}

#[tokio::test]
async fn the_timings_in_the_ack_are_the_flags() {
    let relay = Relay::with(&[
        "--heartbeat-interval-ms",
        "1234",
        "--heartbeat-timeout-ms",
        "5678",
        "--max-frame-bytes",
        "100000",
    ]);
    let expected = json!({"heartbeat_interval_ms": 1234, "heartbeat_timeout_ms": 5678, "max_frame_bytes": 100_000});
    assert_like(&Peer::browser(&relay).await.ack, &expected);
    assert_like(&Peer::proxy(&relay).await.ack, &expected);
}

#[tokio::test]
async fn every_connection_has_an_id_of_its_own() {
    let World { relay, browser, proxy } = World::new().await;
    let others = [browser.again(&relay).await, browser.again(&relay).await];
    let ids: HashSet<_> =
        others.iter().chain([&browser, &proxy]).map(|peer| peer.ack["connection_id"].to_string()).collect();
    assert_eq!(ids.len(), 4);
}

#[tokio::test]
async fn whatever_comes_before_the_hello_ends_the_socket() {
    let relay = Relay::start();
    let firsts = [
        json!({"type": "heartbeat", "request_id": "hb"}),
        json!({"type": "send_message", "session_id": "s", "client_message_id": "m", "content": "x", "created_at": "t"}),
        json!({"type": "no_such_type"}),
    ];
    for first in firsts {
        let (error, code) = refused(&relay, Role::Browser, first.clone()).await;
        assert_eq!((error["code"].as_str(), code), (Some("invalid_message"), 4501), "{first}");
    }
}

#[tokio::test]
async fn garbage_before_the_hello_ends_the_socket() {
    let relay = Relay::start();
    let mut peer = unspoken(&relay, Role::Proxy).await;
    peer.send_raw("not json".into()).await.unwrap();
    assert_eq!(peer.expect("connection_error").await["code"], "invalid_message");
    assert_eq!(peer.expect_close().await.0, 4501);
}

#[tokio::test]
async fn each_door_takes_only_its_own_role() {
    let relay = Relay::start();
    for (door, said) in [(Role::Browser, "proxy"), (Role::Proxy, "browser")] {
        let hello = json!({"type": "connection_hello", "peer_role": said, "client_name": "e2e"});
        assert_eq!(refused(&relay, door, hello).await.1, 4501, "{said} at {door:?}'s door");
    }
}

#[tokio::test]
async fn a_hello_that_lacks_a_field_is_told_which() {
    let relay = Relay::start();
    let whole = json!({"type": "connection_hello", "peer_role": "browser", "client_name": "e2e"});
    for field in ["peer_role", "client_name"] {
        let mut hello = whole.clone();
        hello.as_object_mut().unwrap().remove(field);
        let (error, code) = refused(&relay, Role::Browser, hello).await;
        assert_eq!(code, 4501);
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
}

#[tokio::test]
async fn another_version_in_the_hello_is_refused() {
    let relay = Relay::start();
    for version in [json!(2), json!(0), json!("1")] {
        let hello = json!({
            "type": "connection_hello", "protocol_version": version, "peer_role": "browser", "client_name": "e2e"
        });
        let (error, code) = refused(&relay, Role::Browser, hello).await;
        assert_eq!((error["code"].as_str(), code), (Some("protocol_version_unsupported"), 4500), "{version}");
        assert!(error["message"].as_str().unwrap().contains('1'), "{error}");
    }
}

#[tokio::test]
async fn another_version_later_ends_the_socket_too() {
    let World { relay: _relay, mut browser, mut proxy } = World::new().await;
    for peer in [&mut browser, &mut proxy] {
        peer.send(json!({"type": "heartbeat", "protocol_version": 2})).await;
        assert_eq!(peer.expect("connection_error").await["code"], "protocol_version_unsupported");
        assert_eq!(peer.expect_close().await.0, 4500);
    }
}

#[tokio::test]
async fn a_later_frame_without_a_version_is_refused_and_the_socket_lives_on() {
    let World { relay: _relay, mut browser, proxy: _proxy } = World::new().await;
    browser.send_raw(r#"{"type":"heartbeat","request_id":"a"}"#.into()).await.unwrap();
    let error = browser.expect("connection_error").await;
    assert_like(&error, &json!({"code": "invalid_message", "request_id": "a"}));
    assert!(error["message"].as_str().unwrap().contains("protocol_version"), "{error}");
    browser.settle().await;
}

#[tokio::test]
async fn a_socket_that_never_says_hello_is_closed() {
    let relay = Relay::with(&["--heartbeat-interval-ms", "100", "--heartbeat-timeout-ms", "300"]);
    for role in [Role::Browser, Role::Proxy] {
        let mut silent = unspoken(&relay, role).await;
        assert_eq!(silent.expect_close().await.0, 4003);
    }
}

#[tokio::test]
async fn unknown_fields_are_ignored_everywhere() {
    let World { relay, mut browser, mut proxy } = World::new().await;
    let extra = json!({"deep": [1, {"er": null}]});
    Peer::with_hello(&relay, Role::Browser, &browser.token, json!({"x_unknown": extra})).await;
    browser.send(json!({"type": "heartbeat", "request_id": "a", "x_unknown": extra})).await;
    browser.expect_like(json!({"type": "heartbeat_ack", "request_id": "a"})).await;
    let mut session = crate::world::session("sess_x");
    session["x_unknown"] = extra;
    proxy.send(json!({"type": "proxy_session_snapshot", "sessions": [session], "x_unknown": 1})).await;
    browser.expect_like(json!({"type": "session_up", "session": {"session_id": "sess_x"}})).await;
}

#[tokio::test]
async fn a_frame_that_is_not_understood_is_refused_and_the_socket_lives_on() {
    let World { relay: _relay, mut browser, mut proxy } = World::new().await;
    let cases = [
        (json!({"type": "sing", "request_id": "a"}), "sing"),
        (json!({"request_id": "a"}), "type"),
        (json!({"type": 7, "request_id": "a"}), "type"),
    ];
    for peer in [&mut browser, &mut proxy] {
        for (frame, named) in &cases {
            peer.send(frame.clone()).await;
            let error = peer.expect("connection_error").await;
            assert_like(&error, &json!({"code": "invalid_message", "request_id": "a"}));
            assert!(error["message"].as_str().unwrap().contains(named), "{error}");
        }
        peer.settle().await;
    }
}

#[tokio::test]
async fn what_is_not_an_object_is_refused_and_the_socket_lives_on() {
    let World { relay: _relay, mut browser, proxy: _proxy } = World::new().await;
    for text in ["", "null", "[]", "7", "\"type\"", "{\"type\":", "{} {}"] {
        browser.send_raw(text.into()).await.unwrap();
        assert_eq!(browser.expect("connection_error").await["code"], "invalid_message", "{text}");
    }
    browser.settle().await;
}

#[tokio::test]
async fn an_error_from_a_peer_is_never_answered() {
    let World { relay: _relay, mut browser, mut proxy } = World::new().await;
    for peer in [&mut browser, &mut proxy] {
        peer.send(json!({"type": "connection_error", "code": "invalid_message", "message": "you said"})).await;
        peer.send(json!({"type": "connection_error"})).await;
        peer.settle().await;
    }
    browser.heard_nothing_like(json!({"type": "connection_error"})).await;
    let errors = proxy.heard().await;
    assert!(errors.iter().all(|frame| frame["type"] != "connection_error"), "{errors:?}");
}

#[tokio::test]
async fn frames_of_the_other_direction_are_refused() {
    let World { relay: _relay, mut browser, mut proxy } = World::new().await;
    browser.send(json!({"type": "proxy_session_snapshot", "sessions": [], "request_id": "a"})).await;
    browser.expect_like(json!({"type": "connection_error", "code": "invalid_message", "request_id": "a"})).await;
    proxy.send(json!({"type": "launch_session", "agent_type": "claude", "request_id": "a"})).await;
    proxy.expect_like(json!({"type": "connection_error", "code": "invalid_message", "request_id": "a"})).await;
}
