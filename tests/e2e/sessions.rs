//! Sessions come, change, go and come back.

use crate::peer::{Peer, assert_like};
use crate::relay::Role;
use crate::world::{NOW, SESSION, World, acknowledged, announce, observed, prompt, send_result, session, snapshot};
use serde_json::{Value, json};

/// How a newly connected browser sees one session.
async fn listed(world: &World, session_id: &str) -> Value {
    let browser = world.browser.again(&world.relay).await;
    let sessions = browser.sessions["sessions"].as_array().unwrap();
    sessions.iter().find(|session| session["session_id"] == session_id).cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_new_session_is_announced_with_all_its_metadata() {
    let mut world = World::new().await;
    let whole = json!({
        "session_id": "sess_123", "agent_type": "codex", "display_name": "Codex", "window_title": "repo-name",
        "workspace_name": "repo-name", "workspace_path": "C:\\Users\\Robert\\Documents\\Remote Agent Chat",
        "machine_label": "Robert-Windows", "target_signature": "sig_abc", "target_id": "transient-target-id",
        "status": "healthy", "activity": {"kind": "thinking", "label": "Thinking", "updated_at": NOW}
    });
    world.proxy.send(snapshot(vec![session(SESSION), whole.clone()])).await;
    let up = world.browser.expect("session_up").await;
    assert!(up["sequence"].is_u64(), "{up}");
    assert_like(&up["session"], &whole);
    assert_like(&listed(&world, "sess_123").await, &whole);
}

#[tokio::test]
async fn a_session_needs_no_more_than_its_three_required_fields() {
    let mut world = World::new().await;
    let least = json!({"session_id": "sess_2", "agent_type": "unknown", "status": "healthy"});
    world.proxy.send(snapshot(vec![session(SESSION), least.clone()])).await;
    assert_like(&world.browser.expect("session_up").await["session"], &least);
    for field in ["session_id", "agent_type", "status"] {
        let mut lacking = least.clone();
        lacking.as_object_mut().unwrap().remove(field);
        world.proxy.send(snapshot(vec![session(SESSION), lacking])).await;
        let error = world.proxy.expect("connection_error").await;
        assert_eq!(error["code"], "invalid_message");
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
}

#[tokio::test]
async fn an_unchanged_snapshot_says_nothing() {
    let mut world = World::new().await;
    announce(&mut world.proxy, &[SESSION]).await;
    assert_eq!(world.browser.heard().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_changed_status_in_a_snapshot_is_only_a_status() {
    let mut world = World::new().await;
    let mut changed = session(SESSION);
    changed["status"] = json!("agent_ui_changed");
    acknowledged(&mut world.proxy, snapshot(vec![changed])).await;
    let status = world.browser.expect("session_status").await;
    assert_like(&status, &json!({"session_id": SESSION, "status": "agent_ui_changed"}));
    assert!(status["sequence"].is_u64());
    world.browser.heard_nothing_like(json!({"type": "session_up"})).await;
}

#[tokio::test]
async fn a_session_described_anew_is_announced_anew() {
    let mut world = World::new().await;
    let mut renamed = session(SESSION);
    renamed["display_name"] = json!("Codex, second window");
    world.proxy.send(snapshot(vec![renamed])).await;
    let up = world.browser.expect("session_up").await;
    assert_like(&up["session"], &json!({"session_id": SESSION, "display_name": "Codex, second window"}));
    assert_eq!(listed(&world, SESSION).await["display_name"], "Codex, second window");
}

#[tokio::test]
async fn a_session_missing_from_the_snapshot_is_down_and_stays_listed() {
    let mut world = World::new().await;
    announce(&mut world.proxy, &["sess_2"]).await;
    let down = world.browser.expect("session_down").await;
    assert_like(&down, &json!({"session_id": SESSION, "reason": "not_in_snapshot"}));
    assert!(down["sequence"].is_u64());
    assert_like(&listed(&world, SESSION).await, &json!({"status": "disconnected", "display_name": "Codex"}));
    assert_eq!(listed(&world, "sess_2").await["status"], "healthy");
}

#[tokio::test]
async fn a_lost_proxy_takes_its_sessions_down_and_brings_them_back_under_their_ids() {
    let (relay, mut browser, token) = World::new().await.lose_proxy().await;
    let listed = browser.again(&relay).await.sessions;
    assert_like(&listed["sessions"][0], &json!({"session_id": SESSION, "status": "disconnected"}));
    let mut proxy = Peer::as_device(&relay, Role::Proxy, &token).await;
    announce(&mut proxy, &[SESSION]).await;
    let up = browser.expect("session_up").await;
    assert_like(&up["session"], &json!({"session_id": SESSION, "status": "healthy"}));
}

#[tokio::test]
async fn a_lost_proxy_is_the_reason_of_the_down() {
    let World { relay: _relay, mut browser, proxy } = World::new().await;
    drop(proxy);
    let down = browser.expect("session_down").await;
    assert_like(&down, &json!({"session_id": SESSION, "reason": "proxy_disconnected"}));
}

#[tokio::test]
async fn a_status_changes_health_and_activity() {
    let mut world = World::new().await;
    let activity = json!({"kind": "thinking", "label": "Thinking", "updated_at": NOW});
    world
        .proxy
        .send(json!({"type": "proxy_status", "session_id": SESSION, "status": "degraded", "activity": activity}))
        .await;
    let status = world.browser.expect("session_status").await;
    assert_like(&status, &json!({"session_id": SESSION, "status": "degraded", "activity": activity}));
    assert!(status["sequence"].is_u64());
    assert_like(&listed(&world, SESSION).await, &json!({"status": "degraded", "activity": activity}));
}

#[tokio::test]
async fn a_status_without_health_leaves_the_health_as_it_was() {
    let mut world = World::new().await;
    world.proxy.send(json!({"type": "proxy_status", "session_id": SESSION, "status": "degraded"})).await;
    world.browser.expect("session_status").await;
    world.proxy.send(json!({"type": "proxy_status", "session_id": SESSION, "activity": {"kind": "idle"}})).await;
    let status = world.browser.expect("session_status").await;
    assert_like(&status, &json!({"status": "degraded", "activity": {"kind": "idle"}}));
}

#[tokio::test]
async fn words_from_a_newer_proxy_pass_through() {
    let mut world = World::new().await;
    let odd =
        json!({"session_id": "sess_2", "agent_type": "aider", "status": "sleeping", "activity": {"kind": "dreaming"}});
    world.proxy.send(snapshot(vec![session(SESSION), odd.clone()])).await;
    assert_like(&world.browser.expect("session_up").await["session"], &odd);
}

#[tokio::test]
async fn health_is_told_apart_from_the_sockets_liveness() {
    let mut world = World::new().await;
    world.proxy.send(json!({"type": "proxy_status", "session_id": SESSION, "status": "scraping_failed"})).await;
    world.browser.expect_like(json!({"type": "session_status", "status": "scraping_failed"})).await;
    world.proxy.send(json!({"type": "heartbeat"})).await;
    world.proxy.expect("heartbeat_ack").await;
    world.browser.heard_nothing_like(json!({"type": "session_down"})).await;
    assert_eq!(listed(&world, SESSION).await["status"], "scraping_failed");
}

#[tokio::test]
async fn a_proxy_cannot_speak_of_a_session_it_never_announced() {
    let mut world = World::new().await;
    let mut elsewhere = prompt("p");
    elsewhere["session_id"] = json!("sess_x");
    let frames = [
        json!({"type": "proxy_status", "session_id": "sess_x", "status": "healthy"}),
        observed("sess_x", "m", "text"),
        send_result("sess_x", "m", "delivered"),
        elsewhere,
        json!({"type": "agent_config", "session_id": "sess_x", "model_id": "m"}),
        json!({"type": "session_closed", "session_id": "sess_x"}),
    ];
    for mut frame in frames {
        frame["request_id"] = json!("a");
        world.proxy.send(frame.clone()).await;
        let error = world.proxy.expect_like(json!({"request_id": "a"})).await;
        assert_like(&error, &json!({"type": "connection_error", "code": "session_unknown"}));
    }
    assert_eq!(world.browser.heard().await, Vec::<Value>::new());
}

#[tokio::test]
async fn every_browser_hears_of_every_session() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    announce(&mut world.proxy, &[SESSION, "sess_2"]).await;
    for browser in [&mut world.browser, &mut tablet] {
        browser.expect_like(json!({"type": "session_up", "session": {"session_id": "sess_2"}})).await;
    }
}

#[tokio::test]
async fn more_sessions_than_a_machine_may_have_are_refused() {
    let mut world = World::with(&["--max-sessions-per-machine", "3"]).await;
    let mut frame = snapshot([SESSION, "sess_2", "sess_3", "sess_4"].map(session));
    frame["request_id"] = json!("many");
    world.proxy.send(frame).await;
    let error = world.proxy.expect("connection_error").await;
    assert_eq!(error["code"], "limit_reached");
    assert!(error["message"].as_str().unwrap().contains("sess_4"), "{error}");
    for session_id in ["sess_2", "sess_3"] {
        world.browser.expect_like(json!({"type": "session_up", "session": {"session_id": session_id}})).await;
    }
    world.browser.heard_nothing_like(json!({"type": "session_up"})).await;
}

#[tokio::test]
async fn a_session_seen_again_at_another_time_is_unchanged() {
    let mut world = World::new().await;
    let mut seen = session(SESSION);
    for time in ["2026-03-19T11:00:00.000Z", "2026-03-19T12:00:00.000Z"] {
        seen["last_seen_at"] = json!(time);
        acknowledged(&mut world.proxy, snapshot([seen.clone()])).await;
    }
    assert_eq!(world.browser.heard().await, Vec::<Value>::new());
}

#[tokio::test]
async fn sessions_that_come_back_count_towards_the_limit_too() {
    let mut world = World::with(&["--max-sessions-per-machine", "2"]).await;
    acknowledged(&mut world.proxy, json!({"type": "session_closed", "session_id": SESSION})).await;
    announce(&mut world.proxy, &["sess_2", "sess_3"]).await;
    world.proxy.send(snapshot([SESSION, "sess_2", "sess_3"].map(session))).await;
    assert_eq!(world.proxy.expect("connection_error").await["code"], "limit_reached");
    let listed = world.browser.again(&world.relay).await.sessions;
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 2, "{listed}");
}
