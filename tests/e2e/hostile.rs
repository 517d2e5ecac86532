//! Garbage, floods and half-open doors.

use crate::http::{get, upgrade};
use crate::peer::{Peer, assert_like};
use crate::relay::{Relay, Role};
use crate::world::{SESSION, World, observed};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, timeout, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

/// The relay is well: a phone and a desk come to talk as if nothing had happened.
async fn still_serves(relay: &Relay) {
    let mut proxy = Peer::proxy(relay).await;
    crate::world::announce(&mut proxy, &["sess_after"]).await;
    let mut browser = Peer::browser(relay).await;
    browser.send(crate::world::send("sess_after", "m1", "hello")).await;
    proxy.expect("send_message").await;
    browser.expect("message_accepted").await;
}

fn text_frame(bytes: Vec<u8>, is_final: bool) -> Message {
    Message::Frame(Frame::message(bytes, OpCode::Data(Data::Text), is_final))
}

/// A socket after the upgrade, byte by byte.
async fn raw_socket(relay: &Relay, role: Role) -> TcpStream {
    let mut stream = TcpStream::connect(relay.address()).await.unwrap();
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {}\r\n\r\n",
        role.path(),
        relay.address(),
        relay.token(role, "raw")
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(timeout(Duration::from_secs(10), stream.read_u8()).await.unwrap().unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    stream
}

/// The header of a masked text frame that promises so many bytes.
fn header(length: u64) -> Vec<u8> {
    [&[0x81, 0xff][..], &length.to_be_bytes(), &[0; 4]].concat()
}

#[tokio::test]
async fn json_nested_a_hundred_thousand_deep_is_refused() {
    let mut world = World::new().await;
    let deep = |open: &str, close: &str| {
        let (open, close) = (open.repeat(100_000), close.repeat(100_000));
        format!(r#"{{"type":"heartbeat","protocol_version":1,"request_id":"a","x":{open}0{close}}}"#)
    };
    for text in [deep("[", "]"), deep("{\"x\":", "}"), "[".repeat(100_000)] {
        for peer in [&mut world.browser, &mut world.proxy] {
            peer.send_raw(text.clone().into()).await.unwrap();
            assert_eq!(peer.expect("connection_error").await["code"], "invalid_message");
        }
    }
    world.finish("m1", "delivered").await;
}

#[tokio::test]
async fn deep_json_inside_a_field_that_is_carried_on_is_refused_too() {
    let mut world = World::new().await;
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let text = format!(
        r#"{{"type":"proxy_message","protocol_version":1,"session_id":"{SESSION}","request_id":"a",
        "message":{{"role":"user","content":"x","blocks":[{{"kind":"odd","x":{deep}}}]}}}}"#
    );
    world.proxy.send_raw(text.into()).await.unwrap();
    assert_eq!(world.proxy.expect("connection_error").await["code"], "invalid_message");
    world.finish("m1", "delivered").await;
}

#[tokio::test]
async fn a_frame_that_promises_eighty_mebibytes_is_refused_at_its_header() {
    let relay = Relay::start();
    let mut stream = raw_socket(&relay, Role::Browser).await;
    stream.write_all(&header(80 << 20)).await.unwrap();
    let mut answer = Vec::new();
    timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await.expect("closed at once").ok();
    // The answer is one close frame: 0x88, a length, the code.
    let code = answer.get(2..4).map(|code| u16::from_be_bytes([code[0], code[1]]));
    assert_eq!(answer.first(), Some(&0x88), "{answer:?}");
    assert_eq!(code, Some(1009));
    still_serves(&relay).await;
}

#[tokio::test]
async fn eighty_mebibytes_pushed_at_the_relay_stay_outside() {
    let relay = Relay::start();
    let mut browser = Peer::browser(&relay).await;
    let before = relay.resident_kib();
    browser.send_raw(text_frame(vec![b'x'; 80 << 20], true)).await.ok();
    let (code, _) = browser.expect_close().await;
    assert!([1009, 1006].contains(&code), "{code}");
    let grown = relay.resident_kib().saturating_sub(before);
    assert!(grown < 32 << 10, "{grown} KiB more");
    still_serves(&relay).await;
}

#[tokio::test]
async fn a_message_in_many_fragments_counts_as_one() {
    let relay = Relay::with(&["--max-frame-bytes", "100000"]);
    let mut browser = Peer::browser(&relay).await;
    let half = br#"{"type":"heartbeat","protocol_version":1,"request_id":"whole""#.to_vec();
    browser.send_raw(text_frame(half, false)).await.unwrap();
    let rest = Frame::message(b"}".to_vec(), OpCode::Data(Data::Continue), true);
    browser.send_raw(Message::Frame(rest)).await.unwrap();
    browser.expect_like(json!({"type": "heartbeat_ack", "request_id": "whole"})).await;

    browser.send_raw(text_frame(vec![b'x'; 60_000], false)).await.unwrap();
    let more = Frame::message(vec![b'x'; 60_000], OpCode::Data(Data::Continue), true);
    browser.send_raw(Message::Frame(more)).await.ok();
    assert_eq!(browser.expect_close().await.0, 1009);
    still_serves(&relay).await;
}

#[tokio::test]
async fn a_frame_just_below_the_limit_is_taken() {
    let mut world = World::with(&["--max-frame-bytes", "100000"]).await;
    let text = |length: usize| {
        let frame = json!({"type": "heartbeat", "protocol_version": 1, "request_id": "big", "x": ""}).to_string();
        frame.replace("\"x\":\"\"", &format!("\"x\":\"{}\"", "y".repeat(length - frame.len())))
    };
    assert_eq!(text(100_000).len(), 100_000);
    world.browser.send_raw(text(100_000).into()).await.unwrap();
    world.browser.expect_like(json!({"type": "heartbeat_ack", "request_id": "big"})).await;
    world.browser.send_raw(text(100_001).into()).await.unwrap();
    assert_eq!(world.browser.expect_close().await.0, 1009);
}

#[tokio::test]
async fn invalid_utf_8_closes_the_socket() {
    let relay = Relay::start();
    for bytes in [vec![b'"', 0xff, b'"'], vec![0xc3], b"\xed\xa0\x80".to_vec()] {
        let mut browser = Peer::browser(&relay).await;
        browser.send_raw(text_frame(bytes, true)).await.unwrap();
        assert_eq!(browser.expect_close().await.0, 1007);
    }
    still_serves(&relay).await;
}

#[tokio::test]
async fn a_binary_frame_is_refused_and_the_socket_lives_on() {
    let mut world = World::new().await;
    let heartbeat = br#"{"type":"heartbeat","protocol_version":1}"#.to_vec();
    for bytes in [vec![0; 100], heartbeat, Vec::new()] {
        world.browser.send_raw(Message::binary(bytes)).await.unwrap();
        assert_eq!(world.browser.expect("connection_error").await["code"], "invalid_message");
    }
    world.browser.heard_nothing_like(json!({"type": "heartbeat_ack"})).await;
}

#[tokio::test]
async fn half_open_sockets_harm_nobody_and_do_not_stay() {
    let relay = Relay::with(&["--heartbeat-interval-ms", "500", "--heartbeat-timeout-ms", "2000"]);
    let half_a_body = format!(
        "POST /api/pair HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{{",
        relay.address()
    );
    let beginnings = ["", "G", "GET /client-ws HTTP/1.1\r\nHost: ", &half_a_body];
    let mut half_open = Vec::new();
    for beginning in beginnings.iter().cycle().take(200) {
        let mut stream = TcpStream::connect(relay.address()).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        half_open.push(stream);
    }
    let mut unfinished = raw_socket(&relay, Role::Proxy).await;
    unfinished.write_all(&header(1000)).await.unwrap();
    unfinished.write_all(b"{\"type\":").await.unwrap();
    half_open.push(unfinished);
    still_serves(&relay).await;
    let deadline = Instant::now() + Duration::from_secs(30);
    for (number, mut stream) in half_open.into_iter().enumerate() {
        let ended = timeout_at(deadline, stream.read_to_end(&mut Vec::new())).await;
        assert!(ended.is_ok(), "{:?} keeps a socket open", beginnings.get(number % 4));
    }
}

#[tokio::test]
async fn a_flood_of_unknown_types_is_refused_logged_briefly_and_then_closed() {
    let relay = Relay::with(&["--max-frames-per-second", "0"]);
    let mut browser = Peer::browser(&relay).await;
    let quiet = relay.log().len();
    for batch in 0..20 {
        browser.send_all((0..500).map(|number| json!({"type": format!("unknown-{batch}-{number}")}))).await;
        for _ in 0..500 {
            browser.expect("connection_error").await;
        }
    }
    browser.try_send(json!({"type": "one-more"})).await;
    assert_eq!(browser.expect_close().await.0, 4004);
    let logged = relay.log().len() - quiet;
    assert!(logged < 20_000, "{logged} bytes of log");
    still_serves(&relay).await;
}

#[tokio::test]
async fn one_good_frame_forgives_the_refused_ones_before_it() {
    let relay = Relay::with(&["--max-frames-per-second", "0"]);
    let mut browser = Peer::browser(&relay).await;
    for _ in 0..24 {
        browser.send_all((0..500).map(|number| json!({"type": format!("unknown-{number}")}))).await;
        for _ in 0..500 {
            browser.expect("connection_error").await;
        }
        browser.send(json!({"type": "heartbeat"})).await;
        browser.expect("heartbeat_ack").await;
    }
}

#[tokio::test]
async fn too_many_frames_a_second_are_refused_and_the_socket_lives_on() {
    let relay = Relay::with(&["--max-frames-per-second", "20"]);
    let mut browser = Peer::browser(&relay).await;
    let mut other = Peer::browser(&relay).await;
    browser.send_all((0..200).map(|number| json!({"type": "heartbeat", "request_id": format!("h{number}")}))).await;
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..200 {
        let answer = browser.next().await;
        match answer["type"].as_str().unwrap() {
            "heartbeat_ack" => taken += 1,
            _ => {
                assert_like(&answer, &json!({"type": "connection_error", "code": "rate_limited"}));
                refused += 1;
            }
        }
    }
    assert!(taken >= 10 && refused >= 100, "{taken} taken, {refused} refused");
    other.send(json!({"type": "heartbeat"})).await;
    other.expect("heartbeat_ack").await;

    let mut tries = interval(Duration::from_millis(200));
    for _ in 0..50 {
        tries.tick().await;
        browser.send(json!({"type": "heartbeat"})).await;
        if browser.next().await["type"] == "heartbeat_ack" {
            return;
        }
    }
    panic!("the socket is never listened to again");
}

#[tokio::test]
async fn more_sockets_than_allowed_are_refused_until_one_leaves() {
    let relay = Relay::with(&["--max-sockets", "3"]);
    let token = relay.token(Role::Browser, "phone");
    let mut peers = Vec::new();
    for _ in 0..3 {
        peers.push(Peer::as_device(&relay, Role::Browser, &token).await);
    }
    let refused = upgrade("/client-ws").bearer(&token).send(&relay).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "limit_reached");
    assert_eq!(get("/healthz").send(&relay).await.status, 200);
    peers.pop().unwrap().hang_up().await;
    let mut tries = interval(Duration::from_millis(50));
    for _ in 0..200 {
        tries.tick().await;
        if upgrade("/client-ws").bearer(&token).send(&relay).await.status == 101 {
            return;
        }
    }
    panic!("the place is never free again");
}

#[tokio::test]
async fn ids_that_are_empty_or_endless_are_refused() {
    let mut world = World::new().await;
    for id in [String::new(), "x".repeat(100_000)] {
        world.browser.send(crate::world::send(SESSION, &id, "hello")).await;
        assert_eq!(world.browser.expect("connection_error").await["code"], "invalid_message");
        world.proxy.send(observed(SESSION, &id, "text")).await;
        assert_eq!(world.proxy.expect("connection_error").await["code"], "invalid_message");
    }
    world.finish("m1", "delivered").await;
}

#[tokio::test]
async fn what_is_no_websocket_frame_closes_the_socket() {
    let relay = Relay::start();
    let unmasked = b"\x81\x02{}".to_vec();
    let reserved = b"\x8b\x80\0\0\0\0".to_vec();
    for bytes in [unmasked, reserved, vec![0xff; 64]] {
        let mut stream = raw_socket(&relay, Role::Browser).await;
        stream.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await.expect("closed at once").ok();
        assert_eq!(answer.get(..4), Some(&[0x88, answer[1], 0x03, 0xea][..]), "close 1002");
    }
    still_serves(&relay).await;
}

#[tokio::test]
async fn half_a_character_in_json_is_refused() {
    let mut world = World::new().await;
    let text = r#"{"type":"send_message","protocol_version":1,"session_id":"sess_1","client_message_id":"m1","created_at":"t","content":"\ud800"}"#;
    world.browser.send_raw(text.into()).await.unwrap();
    let error = world.browser.expect("connection_error").await;
    assert_like(&error, &json!({"code": "invalid_message", "client_message_id": "m1"}));
    world.finish("m2", "delivered").await;
}
