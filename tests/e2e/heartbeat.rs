//! Who is still there.

use crate::peer::{Peer, assert_like};
use crate::relay::Relay;
use crate::world::{SESSION, World, announce};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::interval;

/// Keeps a peer busy with a frame for several heartbeat timeouts.
async fn survives(peer: &mut Peer, timeout_ms: u64, frame: Value) {
    let mut ticks = interval(Duration::from_millis(timeout_ms / 5));
    for _ in 0..15 {
        ticks.tick().await;
        peer.send(frame.clone()).await;
    }
    peer.settle().await;
}

#[tokio::test]
async fn a_heartbeat_is_acknowledged_under_its_id() {
    let World { relay: _relay, mut browser, mut proxy } = World::new().await;
    for peer in [&mut browser, &mut proxy] {
        let connection_id = peer.ack["connection_id"].clone();
        peer.send(json!({
            "type": "heartbeat", "request_id": "hb_123", "connection_id": connection_id,
            "client_ts": "2026-03-19T10:15:30.000Z"
        }))
        .await;
        let ack = peer.expect("heartbeat_ack").await;
        assert_like(&ack, &json!({"request_id": "hb_123", "connection_id": connection_id}));
    }
}

#[tokio::test]
async fn a_bare_heartbeat_is_enough() {
    let World { relay: _relay, mut browser, proxy: _proxy } = World::new().await;
    browser.send(json!({"type": "heartbeat"})).await;
    assert_like(&browser.expect("heartbeat_ack").await, &json!({"request_id": null}));
}

#[tokio::test]
async fn a_silent_socket_is_closed_as_stale() {
    let World { relay: _relay, mut browser, mut proxy } =
        World::with(&["--heartbeat-interval-ms", "100", "--heartbeat-timeout-ms", "400"]).await;
    assert_eq!(browser.expect_close().await.0, 4001);
    assert_eq!(proxy.expect_close().await.0, 4001);
}

#[tokio::test]
async fn a_socket_that_beats_stays_open() {
    let relay = Relay::with(&["--heartbeat-interval-ms", "100", "--heartbeat-timeout-ms", "1000"]);
    survives(&mut Peer::browser(&relay).await, 1000, json!({"type": "heartbeat"})).await;
}

#[tokio::test]
async fn any_other_frame_keeps_a_socket_open_too() {
    let relay = Relay::with(&["--heartbeat-interval-ms", "100", "--heartbeat-timeout-ms", "1000"]);
    let mut proxy = Peer::proxy(&relay).await;
    survives(&mut proxy, 1000, json!({"type": "proxy_session_snapshot", "sessions": []})).await;
}

#[tokio::test]
async fn the_sessions_of_a_stale_proxy_go_down() {
    let relay = Relay::with(&["--heartbeat-interval-ms", "100", "--heartbeat-timeout-ms", "1000"]);
    let mut browser = Peer::browser(&relay).await;
    let mut proxy = Peer::proxy(&relay).await;
    announce(&mut proxy, &[SESSION]).await;
    let down = browser.expect_while_beating(json!({"type": "session_down"})).await;
    assert_like(&down, &json!({"session_id": SESSION, "reason": "proxy_disconnected"}));
    assert_eq!(proxy.expect_close().await.0, 4001);
}
