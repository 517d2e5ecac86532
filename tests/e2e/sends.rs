//! A person's message, from the phone to the agent's page.

use crate::peer::{Peer, assert_like, is_utc_time};
use crate::relay::{Relay, Role};
use crate::world::{
    NOW, SESSION, World, acknowledged, announce, history, observed, send, send_result, session, snapshot,
};
use serde_json::{Value, json};

/// What a retry under the same id is answered with.
async fn retried(world: &mut World, id: &str) -> Value {
    world.browser.send(send(SESSION, id, "other words")).await;
    world.browser.expect_like(json!({"client_message_id": id})).await
}

#[tokio::test]
async fn a_send_is_accepted_forwarded_and_delivered() {
    let mut world = World::new().await;
    let frame = send(SESSION, "m1", "Please review this file");
    world.browser.send(frame.clone()).await;
    let accepted = world.browser.expect("message_accepted").await;
    let ids = json!({"session_id": SESSION, "message_id": "m1", "client_message_id": "m1"});
    assert_like(&accepted, &ids);
    assert_like(&accepted, &json!({"status": "accepted", "message": {"content": "Please review this file"}}));
    assert!(accepted["sequence"].is_u64() && is_utc_time(&accepted["accepted_at"]), "{accepted}");

    assert_like(&world.proxy.expect("send_message").await, &frame);
    world.proxy.send(send_result(SESSION, "m1", "delivered")).await;
    let delivered = world.browser.expect("message_delivered").await;
    assert_like(&delivered, &ids);
    assert_like(&delivered, &json!({"status": "delivered", "delivered_at": NOW}));
    assert!(delivered["sequence"].as_u64() > accepted["sequence"].as_u64());
}

#[tokio::test]
async fn every_browser_hears_what_becomes_of_a_send() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    let delivered = world.finish("m1", "delivered").await;
    let accepted = tablet.expect("message_accepted").await;
    assert_like(&accepted, &json!({"client_message_id": "m1", "message": {"role": "user", "content": "hello"}}));
    assert_eq!(tablet.expect("message_delivered").await["event_id"], delivered["event_id"]);
}

#[tokio::test]
async fn a_proxys_own_error_code_passes_through() {
    let mut world = World::new().await;
    let failed = world.finish("m1", "failed").await;
    assert_like(
        &failed,
        &json!({
            "session_id": SESSION, "message_id": "m1", "status": "failed", "failed_at": NOW, "delivery": null,
            "error": {"code": "send_button_not_found", "message": "Could not locate the send button"}
        }),
    );
    assert!(failed["sequence"].is_u64());
}

#[tokio::test]
async fn a_send_nobody_saw_arrive_is_indeterminate() {
    let mut world = World::new().await;
    let failed = world.finish("m1", "indeterminate").await;
    assert_like(&failed, &json!({"status": "failed", "delivery": "indeterminate", "error": {"code": "not_verified"}}));
}

#[tokio::test]
async fn delivery_does_not_depend_on_the_echo() {
    let mut world = World::new().await;
    world.forward("m1").await;
    let mut echo = observed(SESSION, "turn-1", "hello");
    echo["message"]["role"] = json!("user");
    acknowledged(&mut world.proxy, echo).await;
    world.browser.expect("message_event").await;
    world.browser.heard_nothing_like(json!({"type": "message_delivered"})).await;
}

#[tokio::test]
async fn a_send_to_a_session_that_is_down_fails_at_once() {
    let (_relay, mut browser, _) = World::new().await.lose_proxy().await;
    browser.send(send(SESSION, "m1", "hello")).await;
    let failed = browser.expect_like(json!({"client_message_id": "m1"})).await;
    let expected = json!({"type": "message_failed", "status": "failed", "error": {"code": "session_not_connected"}});
    assert_like(&failed, &expected);
    assert!(failed["sequence"].is_u64(), "it is in the session's history: {failed}");
}

#[tokio::test]
async fn a_send_to_an_unknown_session_fails_for_the_sender_alone() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    world.browser.send(send("sess_x", "m1", "hello")).await;
    let failed = world.browser.expect("message_failed").await;
    let expected = json!({"client_message_id": "m1", "sequence": null, "error": {"code": "session_unknown"}});
    assert_like(&failed, &expected);
    tablet.heard_nothing_like(json!({"client_message_id": "m1"})).await;
}

#[tokio::test]
async fn without_any_proxy_an_unknown_session_is_not_connected() {
    let relay = Relay::start();
    let mut browser = Peer::browser(&relay).await;
    browser.send(send("sess_x", "m1", "hello")).await;
    let failed = browser.expect("message_failed").await;
    assert_like(&failed, &json!({"sequence": null, "error": {"code": "session_not_connected"}}));
}

#[tokio::test]
async fn a_retry_while_under_way_is_told_so_and_forwards_nothing() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    world.forward("m1").await;
    let first = tablet.expect("message_accepted").await;
    let again = retried(&mut world, "m1").await;
    for field in ["type", "event_id", "sequence"] {
        assert_eq!(again[field], first[field], "{again}");
    }
    world.proxy.heard_nothing_like(json!({"type": "send_message"})).await;
    tablet.heard_nothing_like(json!({"client_message_id": "m1"})).await;
}

#[tokio::test]
async fn a_retry_after_delivery_is_told_so_and_forwards_nothing() {
    let mut world = World::new().await;
    let delivered = world.finish("m1", "delivered").await;
    let again = retried(&mut world, "m1").await;
    for field in ["type", "event_id", "sequence"] {
        assert_eq!(again[field], delivered[field], "{again}");
    }
    world.proxy.heard_nothing_like(json!({"type": "send_message"})).await;
}

#[tokio::test]
async fn a_retry_of_an_indeterminate_send_is_told_so_and_forwards_nothing() {
    let mut world = World::new().await;
    let failed = world.finish("m1", "indeterminate").await;
    let again = retried(&mut world, "m1").await;
    assert_like(&again, &json!({"type": "message_failed", "delivery": "indeterminate"}));
    assert_eq!((&again["event_id"], &again["sequence"]), (&failed["event_id"], &failed["sequence"]));
    world.proxy.heard_nothing_like(json!({"type": "send_message"})).await;
}

#[tokio::test]
async fn a_retry_after_failure_tries_the_original_words_again() {
    let mut world = World::new().await;
    let failed = world.finish("m1", "failed").await;
    let again = retried(&mut world, "m1").await;
    assert_like(&again, &json!({"type": "message_accepted", "message": {"content": "hello"}}));
    assert!(again["sequence"].as_u64() > failed["sequence"].as_u64());
    let forwarded = world.proxy.expect("send_message").await;
    assert_like(&forwarded, &json!({"client_message_id": "m1", "content": "hello"}));
    world.proxy.send(send_result(SESSION, "m1", "delivered")).await;
    world.browser.expect("message_delivered").await;
    let messages = history(&mut world.browser, SESSION).await;
    assert_like(&messages["messages"], &json!([{"client_message_id": "m1", "status": "delivered"}]));
}

#[tokio::test]
async fn a_send_that_failed_for_want_of_a_proxy_waits_for_the_users_retry() {
    let (relay, browser, token) = World::new().await.lose_proxy().await;
    let mut world = World { proxy: Peer::as_device(&relay, Role::Proxy, &token).await, relay, browser };
    world.browser.send(send(SESSION, "m1", "hello")).await;
    world.browser.expect("message_failed").await;
    announce(&mut world.proxy, &[SESSION]).await;
    world.proxy.heard_nothing_like(json!({"type": "send_message"})).await;
    assert_eq!(retried(&mut world, "m1").await["type"], "message_accepted");
    assert_like(&world.proxy.expect("send_message").await, &json!({"client_message_id": "m1", "content": "hello"}));
}

#[tokio::test]
async fn a_retry_from_another_device_is_the_same_send() {
    let mut world = World::new().await;
    let mut tablet = Peer::browser(&world.relay).await;
    world.finish("m1", "delivered").await;
    let delivered = tablet.expect("message_delivered").await;
    tablet.send(send(SESSION, "m1", "hello")).await;
    assert_eq!(tablet.expect("message_delivered").await["event_id"], delivered["event_id"]);
    world.browser.heard_nothing_like(json!({"client_message_id": "m1"})).await;
    world.proxy.heard_nothing_like(json!({"type": "send_message"})).await;
}

#[tokio::test]
async fn the_same_id_in_another_session_is_another_send() {
    let mut world = World::new().await;
    announce(&mut world.proxy, &[SESSION, "sess_2"]).await;
    for session_id in [SESSION, "sess_2"] {
        world.browser.send(send(session_id, "m1", "hello")).await;
        let fields = json!({"session_id": session_id, "client_message_id": "m1"});
        assert_like(&world.browser.expect("message_accepted").await, &fields);
        assert_like(&world.proxy.expect("send_message").await, &fields);
    }
}

#[tokio::test]
async fn a_proxy_that_never_answers_leaves_the_send_indeterminate() {
    let mut world = World::with(&["--send-timeout-ms", "300"]).await;
    world.forward("m1").await;
    let failed = world.browser.expect("message_failed").await;
    let expected = json!({"client_message_id": "m1", "delivery": "indeterminate", "error": {"code": "not_verified"}});
    assert_like(&failed, &expected);
    assert!(failed["sequence"].is_u64());
}

#[tokio::test]
async fn late_news_settles_an_indeterminate_send() {
    let mut world = World::with(&["--send-timeout-ms", "300"]).await;
    for (id, result, end) in [("m1", "delivered", "message_delivered"), ("m2", "failed", "message_failed")] {
        world.forward(id).await;
        world.browser.expect_like(json!({"client_message_id": id, "delivery": "indeterminate"})).await;
        world.proxy.send(send_result(SESSION, id, result)).await;
        let settled = world.browser.expect_like(json!({"type": end, "client_message_id": id})).await;
        assert_like(&settled, &json!({"status": result, "delivery": null}));
    }
}

#[tokio::test]
async fn nothing_moves_a_delivered_send() {
    let mut world = World::new().await;
    world.finish("m1", "delivered").await;
    for result in ["failed", "indeterminate", "delivered"] {
        acknowledged(&mut world.proxy, send_result(SESSION, "m1", result)).await;
    }
    assert_eq!(world.browser.heard().await, Vec::<Value>::new());
    let messages = history(&mut world.browser, SESSION).await;
    assert_like(&messages["messages"], &json!([{"status": "delivered"}]));
}

#[tokio::test]
async fn the_result_of_an_unknown_send_is_taken_and_ignored() {
    let mut world = World::new().await;
    acknowledged(&mut world.proxy, send_result(SESSION, "never-sent", "delivered")).await;
    assert_eq!(world.browser.heard().await, Vec::<Value>::new());
}

#[tokio::test]
async fn sends_without_an_answer_are_forwarded_again_in_order_when_the_session_is_back() {
    let mut world = World::new().await;
    for id in ["m1", "m2", "m3"] {
        world.forward(id).await;
    }
    world.proxy.send(send_result(SESSION, "m2", "delivered")).await;
    world.browser.expect("message_delivered").await;
    let (relay, mut browser, token) = world.lose_proxy().await;
    let mut proxy = Peer::as_device(&relay, Role::Proxy, &token).await;
    proxy.send(snapshot(vec![session(SESSION)])).await;
    for id in ["m1", "m3"] {
        assert_like(&proxy.expect("send_message").await, &json!({"client_message_id": id, "content": "hello"}));
        proxy.send(send_result(SESSION, id, "delivered")).await;
        browser.expect_like(json!({"type": "message_delivered", "client_message_id": id})).await;
    }
    proxy.heard_nothing_like(json!({"type": "send_message"})).await;
}

#[tokio::test]
async fn sends_whose_proxy_does_not_return_end_as_indeterminate() {
    let mut world = World::with(&["--send-timeout-ms", "1500"]).await;
    world.forward("m1").await;
    let (_relay, mut browser, _) = world.lose_proxy().await;
    browser.expect_like(json!({"client_message_id": "m1", "delivery": "indeterminate"})).await;
}

#[tokio::test]
async fn a_send_must_hold_something() {
    let mut world = World::new().await;
    for empty in [json!(null), json!("")] {
        let mut frame = send(SESSION, "m1", "");
        frame["content"] = empty;
        world.browser.send(frame).await;
        let error = world.browser.expect("connection_error").await;
        assert_like(&error, &json!({"code": "invalid_message", "client_message_id": "m1"}));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("content") && message.contains("attachments"), "{message}");
    }
    world.proxy.heard_nothing_like(json!({"type": "send_message"})).await;
}

#[tokio::test]
async fn a_send_that_lacks_a_field_is_told_which() {
    let mut world = World::new().await;
    for field in ["client_message_id", "session_id", "created_at"] {
        let mut frame = send(SESSION, "m1", "hello");
        frame.as_object_mut().unwrap().remove(field);
        world.browser.send(frame).await;
        let error = world.browser.expect("connection_error").await;
        assert_eq!(error["code"], "invalid_message");
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
}

#[tokio::test]
async fn a_send_of_attachments_alone_is_enough() {
    let mut world = World::new().await;
    let attachments = json!([{"attachment_id": "att_123", "name": "Screenshot.png", "kind": "uploaded_file"}]);
    let mut frame = send(SESSION, "m1", "");
    frame.as_object_mut().unwrap().remove("content");
    frame["attachments"] = attachments.clone();
    world.browser.send(frame).await;
    world.browser.expect("message_accepted").await;
    assert_eq!(world.proxy.expect("send_message").await["attachments"], attachments);
}

#[tokio::test]
async fn content_that_is_too_long_is_refused_and_leaves_no_trace() {
    let mut world = World::with(&["--max-content-bytes", "1000"]).await;
    world.browser.send(send(SESSION, "m1", &"x".repeat(1001))).await;
    let failed = world.browser.expect("message_failed").await;
    let expected = json!({"client_message_id": "m1", "sequence": null, "error": {"code": "content_too_large"}});
    assert_like(&failed, &expected);
    world.proxy.heard_nothing_like(json!({"type": "send_message"})).await;
    assert_like(&history(&mut world.browser, SESSION).await, &json!({"messages": []}));
    world.browser.send(send(SESSION, "m2", &"x".repeat(1000))).await;
    world.browser.expect_like(json!({"type": "message_accepted", "client_message_id": "m2"})).await;
}

#[tokio::test]
async fn many_sends_at_once_reach_the_proxy_in_order() {
    let mut world = World::new().await;
    let ids: Vec<_> = (0..300).map(|number| format!("m{number}")).collect();
    world.browser.send_all(ids.iter().map(|id| send(SESSION, id, "hello"))).await;
    for id in &ids {
        assert_eq!(world.proxy.expect("send_message").await["client_message_id"], json!(id));
        assert_eq!(world.browser.expect("message_accepted").await["client_message_id"], json!(id));
    }
}

#[tokio::test]
async fn a_send_arrives_with_every_character_it_left_with() {
    let mut world = World::new().await;
    let text = "line\nline\ttab \"quote\" \\ \u{0} \u{7f} é 漢字 👩‍👩‍👧 \u{202e}rtl </script> \r\n";
    world.browser.send(send(SESSION, "m1", text)).await;
    assert_eq!(world.proxy.expect("send_message").await["content"], text);
    assert_eq!(world.browser.expect("message_accepted").await["message"]["content"], text);
}

#[tokio::test]
async fn a_snapshot_restated_meanwhile_forwards_nothing_twice() {
    let mut world = World::new().await;
    world.forward("m1").await;
    announce(&mut world.proxy, &[SESSION]).await;
    announce(&mut world.proxy, &[SESSION, "sess_2"]).await;
    world.proxy.heard_nothing_like(json!({"type": "send_message"})).await;
}

#[tokio::test]
async fn a_send_to_a_session_its_proxy_no_longer_sees_fails() {
    let mut world = World::new().await;
    announce(&mut world.proxy, &[]).await;
    world.browser.send(send(SESSION, "m1", "hello")).await;
    let failed = world.browser.expect("message_failed").await;
    assert_like(&failed, &json!({"client_message_id": "m1", "error": {"code": "session_not_connected"}}));
    world.proxy.heard_nothing_like(json!({"type": "send_message"})).await;
}
