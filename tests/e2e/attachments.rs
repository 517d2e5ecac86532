//! Files that go with a send.

use crate::http::{Response, get, post};
use crate::peer::{Peer, assert_like};
use crate::relay::{Relay, Role};
use crate::world::{SESSION, World, announce, send};
use serde_json::{Value, json};

/// The smallest thing that is sniffed as a PNG.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00";

async fn upload(relay: &Relay, token: &str, name: &str, body: &[u8]) -> Response {
    post(&format!("/api/attachments?name={name}"), body).bearer(token).send(relay).await
}

async fn uploaded(world: &World, name: &str, body: &[u8]) -> Value {
    let response = upload(&world.relay, &world.browser.token, name, body).await;
    assert_eq!(response.status, 201, "{}", response.text());
    response.json()
}

async fn download(relay: &Relay, token: &str, id: &Value) -> Response {
    get(&format!("/api/attachments/{}", id.as_str().unwrap())).bearer(token).send(relay).await
}

#[tokio::test]
async fn a_file_comes_back_as_it_was_and_never_as_a_page() {
    let world = World::new().await;
    let file = uploaded(&world, "shot.png", PNG).await;
    assert_like(&file, &json!({"name": "shot.png", "size_bytes": PNG.len(), "media_type": "image/png"}));
    assert_eq!(file["sha256"].as_str().unwrap().len(), 64);
    let response = download(&world.relay, &world.browser.token, &file["attachment_id"]).await;
    assert_eq!((response.status, response.body.as_slice()), (200, PNG));
    assert!(response.header("Content-Disposition").starts_with("attachment"), "{response:?}");
    assert!(response.header("Content-Security-Policy").contains("sandbox"), "{response:?}");
    assert_eq!(response.header("X-Content-Type-Options"), "nosniff");
}

#[tokio::test]
async fn a_page_in_a_files_clothes_is_not_served_as_one() {
    let world = World::new().await;
    let file = uploaded(&world, "innocent.png", b"<!doctype html><script>alert(1)</script>").await;
    assert_ne!(file["media_type"], "image/png");
    let response = download(&world.relay, &world.browser.token, &file["attachment_id"]).await;
    assert!(response.header("Content-Disposition").starts_with("attachment"), "{response:?}");
    assert!(response.header("Content-Security-Policy").contains("sandbox"), "{response:?}");
}

#[tokio::test]
async fn only_the_proxy_of_the_session_it_was_sent_to_may_fetch_a_file() {
    let mut world = World::new().await;
    let mut other = Peer::proxy(&world.relay).await;
    announce(&mut other, &["sess_other"]).await;
    let file = uploaded(&world, "shot.png", PNG).await;
    let id = &file["attachment_id"];
    for token in [&world.proxy.token, &other.token] {
        let status = download(&world.relay, token, id).await.status;
        assert!([403, 404].contains(&status), "before the send: {status}");
    }
    let mut frame = send(SESSION, "m1", "look");
    frame["attachments"] = json!([{"attachment_id": id, "name": "shot.png", "kind": "uploaded_file"}]);
    world.browser.send(frame.clone()).await;
    assert_eq!(world.proxy.expect("send_message").await["attachments"], frame["attachments"]);
    let response = download(&world.relay, &world.proxy.token, id).await;
    assert_eq!((response.status, response.body.as_slice()), (200, PNG));
    let status = download(&world.relay, &other.token, id).await.status;
    assert!([403, 404].contains(&status), "{status}");
}

#[tokio::test]
async fn no_name_from_outside_becomes_a_path() {
    let world = World::new().await;
    let before = everything_in(world.relay.home());
    let names = ["..%2F..%2Fescaped", "%2Fetc%2Fescaped", "..%5C..%5Cescaped", "a%00b", "escaped%0D%0AX-Evil:%201"];
    for name in names {
        let response = upload(&world.relay, &world.browser.token, name, PNG).await;
        if response.status == 201 {
            let id = response.json()["attachment_id"].clone();
            let file = download(&world.relay, &world.browser.token, &id).await;
            assert_eq!((file.status, file.body.as_slice()), (200, PNG), "{name}");
            assert_eq!(file.header("X-Evil"), "");
            assert!(!file.header("Content-Disposition").contains(".."), "{file:?}");
        } else {
            assert_eq!(response.status, 400, "{name}: {}", response.text());
        }
    }
    let after = everything_in(world.relay.home());
    let new: Vec<_> = after.iter().filter(|path| !before.contains(path)).collect();
    assert!(new.iter().all(|path| path.starts_with(world.relay.data_dir())), "{new:?}");
    assert!(!new.iter().any(|path| path.to_string_lossy().contains("escaped")), "{new:?}");
}

#[tokio::test]
async fn no_id_from_outside_becomes_a_path() {
    let world = World::new().await;
    let ids = ["x", "..", "..%2F..%2Fstderr.log", "%2Fetc%2Fpasswd", "..%2Fledger.db", "%00"];
    for id in ids {
        let response = get(&format!("/api/attachments/{id}")).bearer(&world.browser.token).send(&world.relay).await;
        assert!([400, 404].contains(&response.status), "{id}: {}", response.status);
    }
}

#[tokio::test]
async fn equal_files_are_kept_once() {
    let world = World::new().await;
    let body = vec![7; 300_000];
    let first = uploaded(&world, "a.bin", &body).await;
    let before = everything_in(&world.relay.data_dir()).len();
    let second = uploaded(&world, "b.bin", &body).await;
    assert_eq!(first["sha256"], second["sha256"]);
    assert_eq!(everything_in(&world.relay.data_dir()).len(), before);
    let response = download(&world.relay, &world.browser.token, &second["attachment_id"]).await;
    assert_eq!(response.body, body);
    assert!(response.header("Content-Disposition").contains("b.bin"), "{response:?}");
}

#[tokio::test]
async fn a_file_outlives_a_restart() {
    let mut world = World::new().await;
    let file = uploaded(&world, "shot.png", PNG).await;
    world.relay.restart();
    let response = download(&world.relay, &world.browser.token, &file["attachment_id"]).await;
    assert_eq!((response.status, response.body.as_slice()), (200, PNG));
}

#[tokio::test]
async fn a_file_that_is_too_large_is_refused_before_it_is_read() {
    let relay = Relay::start();
    let token = relay.token(Role::Browser, "phone");
    let request = post("/api/attachments?name=huge.bin", "only the beginning").bearer(&token);
    let response = request.header("Content-Length", &(1u64 << 40).to_string()).send(&relay).await;
    assert_eq!(response.status, 413, "{}", response.text());
    assert!(response.json()["error"]["code"].is_string());
}

fn everything_in(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { everything_in(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn files_have_limits_of_size_count_and_room() {
    let flags = ["--max-attachment-bytes", "1000", "--max-attachments", "3", "--attachment-quota-bytes", "1500"];
    let relay = Relay::with(&flags);
    let token = relay.token(Role::Browser, "phone");
    let upload = async |size: usize, byte: u8| upload(&relay, &token, "a.bin", &vec![byte; size]).await.status;
    assert_eq!(upload(1001, 0).await, 413);
    assert_eq!(upload(1000, 1).await, 201);
    assert_eq!(upload(1000, 2).await, 507);
    assert_eq!(upload(100, 3).await, 201);
    assert_eq!(upload(100, 4).await, 201);
    assert_eq!(upload(100, 5).await, 429);
}

#[tokio::test]
async fn a_file_without_an_announced_length_is_held_to_the_limit_too() {
    let relay = Relay::with(&["--max-attachment-bytes", "1000"]);
    let token = relay.token(Role::Browser, "phone");
    let chunked = |size: usize| format!("{size:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(size));
    for (size, status) in [(1000, 201), (1001, 413)] {
        let request = post("/api/attachments?name=a", chunked(size)).bearer(&token);
        let request = request.header("Transfer-Encoding", "chunked");
        assert_eq!(request.send(&relay).await.status, status, "{size} bytes");
    }
    let kept = everything_in(&relay.data_dir().join("attachments"));
    assert_eq!(kept.len(), 1, "nothing half-written stays: {kept:?}");
}

#[tokio::test]
async fn a_file_that_no_send_ever_named_goes_after_a_day() {
    let mut world = World::new().await;
    let unused = uploaded(&world, "unused.png", PNG).await;
    let used = uploaded(&world, "used.bin", &[7; 100]).await;
    let mut frame = send(SESSION, "m1", "look");
    frame["attachments"] = json!([{"attachment_id": used["attachment_id"], "kind": "uploaded_file"}]);
    world.browser.send(frame).await;
    world.browser.expect("message_accepted").await;
    world.relay.terminate();
    world.relay.tamper("UPDATE attachments SET created_at = 1");
    let folder = world.relay.data_dir().join("attachments");
    for path in everything_in(&folder) {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    world.relay.restart();

    // It is cleaned up soon after the start; until then it is still there.
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(50));
    for _ in 0..200 {
        looks.tick().await;
        if download(&world.relay, &world.browser.token, &unused["attachment_id"]).await.status == 404 {
            break;
        }
    }
    assert_eq!(download(&world.relay, &world.browser.token, &unused["attachment_id"]).await.status, 404);
    assert_eq!(download(&world.relay, &world.browser.token, &used["attachment_id"]).await.status, 200);
    assert_eq!(everything_in(&folder).len(), 1);
}
