//! History that is older than it may get.

use crate::peer::{Peer, assert_like};
use crate::relay::{Relay, Role};
use crate::world::{SESSION, World, history};
use serde_json::json;

/// A relay that keeps so many days, on a ledger whose first message is from long ago.
async fn with_an_old_message(days: &str) -> (Relay, Peer) {
    let mut world = World::new().await;
    world.say("old", "long ago").await;
    world.say("new", "today").await;
    world.relay.terminate();
    world.relay.tamper("UPDATE messages SET at = 0 WHERE message_id = 'old'");
    world.relay.tamper("UPDATE events SET at = 0 WHERE event LIKE '%\"old\"%' OR event LIKE '%session_up%'");
    let mut command = world.relay.serve_command();
    world.relay.run(command.args(["--retain-days", days]));
    let browser = Peer::as_device(&world.relay, Role::Browser, &world.browser.token).await;
    (world.relay, browser)
}

#[tokio::test]
async fn what_is_too_old_goes_and_the_rest_stays() {
    let (_relay, mut browser) = with_an_old_message("1").await;
    assert_like(&history(&mut browser, SESSION).await["messages"], &json!([{"message_id": "new"}]));
}

#[tokio::test]
async fn a_cursor_before_what_is_kept_is_told_so() {
    let (relay, mut browser) = with_an_old_message("1").await;
    browser
        .send(json!({"type": "history_request", "session_id": SESSION, "after_sequence": 0, "request_id": "h"}))
        .await;
    let error = browser.expect_like(json!({"request_id": "h"})).await;
    assert_like(&error, &json!({"type": "connection_error", "code": "history_not_available"}));
    let mut back = browser.resume(&relay, json!([{"session_id": SESSION, "last_sequence": 0}])).await;
    let snapshot = back.expect("history_snapshot").await;
    assert_like(&snapshot, &json!({"verdict": "gap", "messages": [{"message_id": "new"}]}));
}

#[tokio::test]
async fn by_default_everything_is_kept() {
    let (_relay, mut browser) = with_an_old_message("0").await;
    let messages = &history(&mut browser, SESSION).await["messages"];
    assert_like(messages, &json!([{"message_id": "old"}, {"message_id": "new"}]));
}
