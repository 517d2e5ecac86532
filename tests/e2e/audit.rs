//! The trail of who did what.

use crate::http::get;
use crate::peer::{Peer, is_like};
use crate::relay::Relay;
use crate::world::{SESSION, World, answer, control_result, prompt};
use serde_json::{Value, json};

/// The entries of the trail that fit.
fn entries(trail: &[Value], pattern: &Value) -> usize {
    trail.iter().filter(|entry| is_like(entry, pattern)).count()
}

#[track_caller]
fn assert_entry(trail: &[Value], pattern: &Value) {
    assert!(entries(trail, pattern) > 0, "no {pattern} in {trail:#?}");
}

async fn api_trail(relay: &Relay, token: &str, query: &str) -> Vec<Value> {
    let response = get(&format!("/api/audit?{query}")).bearer(token).send(relay).await;
    assert_eq!(response.status, 200, "{}", response.text());
    let body = response.json();
    let list = body.as_array().or(body["entries"].as_array()).expect("a list of entries");
    list.clone()
}

/// One of everything a person can do.
async fn busy_world() -> World {
    let mut world = World::new().await;
    world.finish("m1", "delivered").await;
    world.proxy.send(prompt("p1")).await;
    world.browser.expect("permission_prompt").await;
    world.browser.send(answer("p1", "r1", "yes")).await;
    world.proxy.expect("permission_response").await;
    world.proxy.send(control_result(&json!("r1"), "permission_response", None)).await;
    world.browser.expect("agent_control_result").await;
    world.browser.send(json!({"type": "agent_interrupt", "request_id": "i1", "session_id": SESSION})).await;
    world.proxy.expect("agent_interrupt").await;
    world.proxy.send(control_result(&json!("i1"), "agent_interrupt", Some("agent_not_active"))).await;
    world.browser.expect("agent_control_result").await;
    world.browser.send(json!({"type": "launch_session", "request_id": "l1", "agent_type": "claude"})).await;
    world.proxy.expect("launch_session").await;
    world.proxy.send(json!({"type": "session_launch_ack", "request_id": "l1", "session_id": "sess_new"})).await;
    world.browser.expect("session_launch_ack").await;
    world.browser.send(json!({"type": "close_session", "request_id": "c1", "session_id": SESSION})).await;
    world.proxy.expect("close_session").await;
    world.proxy.send(json!({"type": "session_closed", "request_id": "c1", "session_id": SESSION})).await;
    world.browser.expect("session_closed").await;
    world
}

#[tokio::test]
async fn every_act_of_a_person_is_in_the_trail_with_its_device() {
    let world = busy_world().await;
    let trail = world.relay.audit();
    let by_phone = |action: &str, session_id: Option<&str>| {
        let mut pattern = json!({"action": action, "device_name": "phone"});
        if let Some(session_id) = session_id {
            pattern["session_id"] = json!(session_id);
        }
        pattern
    };
    for action in ["send", "permission_response", "agent_interrupt", "close_session"] {
        assert_entry(&trail, &by_phone(action, Some(SESSION)));
    }
    assert_entry(&trail, &by_phone("launch_session", None));
    assert_entry(&trail, &by_phone("login", None));
    let answered = trail.iter().filter(|entry| entry["action"] == "permission_response").collect::<Vec<_>>();
    let told = |words: &str| answered.iter().any(|entry| entry.to_string().contains(words));
    assert!(told("Edit file relay-server/index.js?") && told("yes"), "{answered:#?}");
}

#[tokio::test]
async fn the_api_tells_the_same_trail_by_filter_and_page() {
    let world = busy_world().await;
    let (relay, token) = (&world.relay, &world.browser.token);
    let all = api_trail(relay, token, "limit=1000").await;
    assert_eq!(all.len(), relay.audit().len());
    let sends = api_trail(relay, token, "limit=100&action=send").await;
    assert!(!sends.is_empty() && sends.iter().all(|entry| entry["action"] == "send"), "{sends:#?}");
    let session = api_trail(relay, token, &format!("limit=100&session_id={SESSION}")).await;
    assert!(!session.is_empty() && session.iter().all(|entry| entry["session_id"] == SESSION), "{session:#?}");

    let mut paged = Vec::new();
    let mut query = "limit=2".to_owned();
    loop {
        let page = api_trail(relay, token, &query).await;
        let Some(last) = page.last() else { break };
        query = format!("limit=2&before={}", last["audit_id"]);
        paged.extend(page);
    }
    assert_eq!(paged, all);
}

#[tokio::test]
async fn refused_and_failed_acts_are_in_the_trail_too() {
    let mut world = World::new().await;
    world.browser.send(answer("nothing", "r1", "yes")).await;
    world.browser.expect("agent_control_result").await;
    world.finish("m1", "failed").await;
    let trail = world.relay.audit();
    assert_entry(&trail, &json!({"action": "permission_response"}));
    let outcomes: Vec<_> = trail.iter().filter(|entry| entry["action"] == "send").collect();
    assert!(outcomes.iter().any(|entry| entry.to_string().contains("failed")), "{outcomes:#?}");
}

#[tokio::test]
async fn pairings_and_revocations_are_in_the_trail() {
    let relay = Relay::start();
    let browser = Peer::browser(&relay).await;
    let me = get("/api/me").bearer(&browser.token).send(&relay).await.json();
    relay.cli(&["token", "revoke", me["token_id"].as_str().unwrap()]);
    let trail = relay.audit();
    let about = |word: &str| trail.iter().any(|entry| entry["action"].as_str().unwrap().contains(word));
    assert!(about("token") || about("pair"), "{trail:#?}");
    assert!(about("revoke"), "{trail:#?}");
}

#[tokio::test]
async fn the_trail_reads_as_text_too() {
    let world = busy_world().await;
    let text = world.relay.cli(&["audit"]);
    for word in ["send", "permission_response", "phone"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    let filtered = world.relay.cli(&["audit", "--action", "send"]);
    assert!(filtered.contains("send") && !filtered.contains("permission_response"), "{filtered}");
}
