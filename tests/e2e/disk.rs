//! A disk that is full, and has room again.
//!
//! The relay runs on a small `tmpfs` in a mount namespace of its own, so nothing is left behind and
//! the disk is full for nobody else. The test reaches that disk through `/proc/PID/root`.

use crate::peer::Peer;
use crate::relay::{Relay, Role};
use crate::world::{SESSION, World, acknowledged, announce, history, observed, send, send_result, update};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mounts the small disk over the data directory, takes along what was there, and becomes the relay.
const ON_A_SMALL_DISK: &str = r#"
set -e
cp -a "$DATA" "$DATA.before"
mount -t tmpfs -o size=8m tmpfs "$DATA"
cp -a "$DATA.before/." "$DATA/"
exec "$@"
"#;

/// `unshare` with what this machine permits: as root, or in a user namespace.
fn unshare() -> Command {
    let permitted =
        |flags: &&str| Command::new("unshare").args([flags, "true"]).output().is_ok_and(|it| it.status.success());
    let flags = ["-m", "-rm"].into_iter().find(permitted);
    let mut command = Command::new("unshare");
    command.arg(flags.expect("this test needs `unshare -m` or `unshare -rm` to work"));
    command
}

/// A world whose relay has a disk of 8 MiB, and where that disk is seen from here.
async fn on_a_small_disk() -> (World, PathBuf) {
    let mut relay = Relay::stopped(&["--max-frames-per-second", "0"]);
    let [phone, desk] = [(Role::Browser, "phone"), (Role::Proxy, "desk")].map(|(role, label)| relay.token(role, label));
    let serve = relay.serve_command();
    let mut command = unshare();
    command.args(["sh", "-c", ON_A_SMALL_DISK, "sh"]).env("DATA", relay.data_dir());
    command.arg(serve.get_program()).args(serve.get_args());
    relay.run(&mut command);
    let mut proxy = Peer::as_device(&relay, Role::Proxy, &desk).await;
    announce(&mut proxy, &[SESSION]).await;
    let browser = Peer::as_device(&relay, Role::Browser, &phone).await;
    let data = relay.data_dir();
    let disk = PathBuf::from(format!("/proc/{}/root", relay.pid())).join(data.strip_prefix("/").unwrap());
    (World { relay, browser, proxy }, disk)
}

/// Leaves no byte free.
fn fill(disk: &Path) {
    let mut file = std::fs::File::create(disk.join("filler")).unwrap();
    for size in [1 << 16, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

/// Sends until one is refused, and returns the ids that were accepted and the refusal.
async fn send_until_refused(world: &mut World) -> (Vec<String>, Value) {
    let mut accepted = Vec::new();
    for number in 0..20_000 {
        let id = format!("m{number}");
        world.browser.send(send(SESSION, &id, &"x".repeat(8000))).await;
        let answer = world.browser.expect_like(json!({"client_message_id": id})).await;
        if answer["type"] != "message_accepted" {
            return (accepted, answer);
        }
        world.proxy.expect_like(json!({"type": "send_message", "client_message_id": id})).await;
        accepted.push(id);
    }
    panic!("the disk never fills");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_nothing_else_and_heals_by_itself() {
    let (mut world, disk) = on_a_small_disk().await;
    world.say("a", "before").await;
    fill(&disk);
    let (accepted, refused) = send_until_refused(&mut world).await;
    let expected =
        json!({"type": "message_failed", "status": "failed", "sequence": null, "error": {"code": "storage_full"}});
    crate::peer::assert_like(&refused, &expected);
    world.proxy.heard_nothing_like(json!({"client_message_id": refused["client_message_id"]})).await;

    let mut message = observed(SESSION, "b", &"y".repeat(8000));
    message["request_id"] = json!("r1");
    world.proxy.send(message.clone()).await;
    world.proxy.expect_like(json!({"type": "connection_error", "code": "storage_full", "request_id": "r1"})).await;
    assert_eq!(history(&mut world.browser, SESSION).await["messages"].as_array().unwrap().len(), accepted.len() + 1);
    world.browser.send(json!({"type": "heartbeat", "request_id": "hb"})).await;
    world.browser.expect_like(json!({"type": "heartbeat_ack", "request_id": "hb"})).await;

    std::fs::remove_file(disk.join("filler")).unwrap();
    let again = refused["client_message_id"].as_str().unwrap().to_owned();
    world.browser.send(send(SESSION, &again, "shorter")).await;
    world.browser.expect_like(json!({"type": "message_accepted", "client_message_id": again})).await;
    acknowledged(&mut world.proxy, message).await;
    for id in accepted.iter().chain([&again]) {
        world.proxy.send(send_result(SESSION, id, "delivered")).await;
        world.browser.expect_like(json!({"type": "message_delivered", "client_message_id": id})).await;
    }
}

#[tokio::test]
async fn on_a_full_disk_one_can_still_connect_and_read() {
    let (mut world, disk) = on_a_small_disk().await;
    world.say("a", "before").await;
    fill(&disk);
    send_until_refused(&mut world).await;
    let mut second = world.browser.again(&world.relay).await;
    assert_eq!(second.sessions["sessions"][0]["session_id"], SESSION);
    assert_eq!(history(&mut second, SESSION).await["messages"][0]["message_id"], "a");
}

#[tokio::test]
async fn on_a_full_disk_a_growing_message_grows_on() {
    let (mut world, disk) = on_a_small_disk().await;
    fill(&disk);
    send_until_refused(&mut world).await;
    let (mut text, mut revision) = (String::new(), 0);
    for _ in 0..20 {
        let mut frames = vec![update("tail", revision + 1, text.len(), "abc")];
        frames.push(observed(SESSION, "refused", &"y".repeat(8000)));
        frames.push(update("tail", revision + 2, text.len() + 3, "def"));
        frames.push(update("tail", revision + 3, text.len() + 6, "ghi"));
        world.proxy.send_all(frames).await;
        text.push_str("abcdefghi");
        revision += 3;
    }
    let mut heard = String::new();
    while heard.len() < text.len() {
        let grown = world.browser.expect("message_update").await;
        let offset = usize::try_from(grown["offset"].as_u64().unwrap()).unwrap();
        assert!(offset <= heard.len(), "{grown} leaves a hole after {heard}");
        heard.truncate(offset);
        heard.push_str(grown["text"].as_str().unwrap());
    }
    assert_eq!(heard, text);
}
