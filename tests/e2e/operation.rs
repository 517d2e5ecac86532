//! The relay as somebody runs it: started, stopped, configured, copied.

use crate::http::get;
use crate::peer::{Peer, assert_like};
use crate::relay::{LEDGER, PATIENCE, Relay, Role, binary};
use crate::tls;
use crate::world::{SESSION, World, history};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Stdio};
use tokio::time::{Instant, timeout};

/// Runs a command that must give up, and returns what it says.
async fn gives_up(command: Command) -> String {
    let mut command = tokio::process::Command::from(command);
    let child = command.kill_on_drop(true).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let output = timeout(PATIENCE, child.wait_with_output()).await.expect("it gives up").unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn the_first_line_says_where_it_listens() {
    let relay = Relay::start();
    let line = relay.printed(|_| true);
    assert_eq!(line, format!("Remora relay listening on http://{}", relay.address()));
    assert!(!relay.address().ends_with(":0"));
    assert_eq!(get("/healthz").send(&relay).await.status, 200);
}

#[tokio::test]
async fn a_token_can_be_made_before_the_first_start() {
    let mut relay = Relay::stopped(&[]);
    let token = relay.token(Role::Browser, "phone");
    relay.restart();
    Peer::as_device(&relay, Role::Browser, &token).await;
}

#[tokio::test]
async fn sigterm_closes_every_socket_with_come_back_and_ends_cleanly() {
    let World { mut relay, mut browser, mut proxy } = World::new().await;
    relay.signal_stop();
    assert_eq!(browser.expect_close().await.0, 4000);
    assert_eq!(proxy.expect_close().await.0, 4000);
    drop((browser, proxy));
    relay.wait();
    let log = relay.data_dir().join(format!("{LEDGER}-wal"));
    assert!(std::fs::metadata(log).map_or(0, |log| log.len()) == 0, "the ledger is checkpointed");
}

#[tokio::test]
async fn ctrl_c_is_as_good_as_sigterm() {
    let World { mut relay, mut browser, proxy } = World::new().await;
    relay.signal("-INT");
    assert_eq!(browser.expect_close().await.0, 4000);
    relay.wait();
    drop(proxy);
}

#[tokio::test]
async fn sigterm_does_not_wait_for_peers_that_do_not_listen() {
    let World { mut relay, browser, proxy } = World::new().await;
    relay.signal_stop();
    relay.wait();
    drop((browser, proxy));
}

#[tokio::test]
async fn a_second_relay_on_the_same_data_is_refused() {
    let world = World::new().await;
    let words = gives_up(world.relay.serve_command()).await;
    assert!(words.contains("data"), "it says why: {words}");
    let mut browser = world.browser;
    browser.settle().await;
}

#[tokio::test]
async fn a_flag_goes_before_the_environment_and_that_before_the_file() {
    let mut relay = Relay::stopped(&[]);
    let file = relay.home().join("remora.toml");
    std::fs::write(&file, "heartbeat_interval_ms = 1111\nheartbeat_timeout_ms = 11111\n").unwrap();
    let token = relay.token(Role::Browser, "phone");
    let cases = [(None, None, 1111), (None, Some("2222"), 2222), (Some("3333"), Some("2222"), 3333)];
    for (flag, environment, expected) in cases {
        let mut command = relay.serve_command();
        command.arg("--config").arg(&file);
        command.args(flag.map(|value| ["--heartbeat-interval-ms", value]).into_iter().flatten());
        command.envs(environment.map(|value| ("REMORA_HEARTBEAT_INTERVAL_MS", value)));
        relay.run(&mut command);
        let ack = Peer::as_device(&relay, Role::Browser, &token).await.ack;
        assert_like(&ack, &json!({"heartbeat_interval_ms": expected, "heartbeat_timeout_ms": 11_111}));
    }
}

#[tokio::test]
async fn the_settled_configuration_can_be_printed() {
    let relay = Relay::stopped(&["--send-timeout-ms", "4321", "--print-config"]);
    let output = relay.serve_command().output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(text.contains("send_timeout_ms") && text.contains("4321"), "{text}");
    assert!(text.contains("heartbeat_timeout_ms") && text.contains("30000"), "{text}");
}

#[tokio::test]
async fn an_unknown_key_in_the_file_is_an_error_that_names_it() {
    let relay = Relay::stopped(&[]);
    let file = relay.home().join("remora.toml");
    std::fs::write(&file, "heartbeat_interval_sm = 1000\n").unwrap();
    let mut command = relay.serve_command();
    command.arg("--config").arg(&file);
    let words = gives_up(command).await;
    assert!(words.contains("heartbeat_interval_sm"), "{words}");
}

#[tokio::test]
async fn a_wrong_flag_is_an_error_that_names_it() {
    let relay = Relay::stopped(&["--no-such-flag"]);
    assert!(gives_up(relay.serve_command()).await.contains("--no-such-flag"));
    let mut command = binary();
    command.args(["token", "create", "--role", "king", "--label", "x", "--data-dir"]).arg(relay.data_dir());
    assert!(gives_up(command).await.contains("king"));
}

/// A relay on a copy that was made with `backup`.
fn restored(copy: &Path) -> Relay {
    let mut relay = Relay::stopped(&[]);
    std::fs::create_dir_all(relay.data_dir()).unwrap();
    std::fs::copy(copy, relay.data_dir().join(LEDGER)).unwrap();
    relay.restart();
    relay
}

#[tokio::test]
async fn a_backup_taken_while_running_is_whole_and_opens_in_a_new_epoch() {
    let mut world = World::new().await;
    let seen = world.say("a", "before").await["sequence"].clone();
    let copy = world.relay.home().join("copy.sqlite3");
    world.relay.cli(&["backup", copy.to_str().unwrap()]);
    world.say("b", "after").await;

    let epoch = world.browser.ack["ledger_epoch"].clone();
    let relay = restored(&copy);
    let cursor = json!([{"session_id": SESSION, "last_sequence": seen, "ledger_epoch": epoch}]);
    let mut back = world.browser.resume(&relay, cursor.clone()).await;
    assert_ne!(back.ack["ledger_epoch"], epoch);
    let snapshot = back.expect("history_snapshot").await;
    assert_like(&snapshot, &json!({"verdict": "gap", "messages": [{"message_id": "a"}]}));

    let mut same = world.browser.resume(&world.relay, cursor).await;
    assert_eq!(same.ack["ledger_epoch"], epoch, "the original goes on");
    same.expect_like(json!({"type": "history_delta", "verdict": "ok"})).await;
}

#[tokio::test]
async fn a_restored_relay_keeps_its_new_epoch() {
    let world = World::new().await;
    let copy = world.relay.home().join("copy.sqlite3");
    world.relay.cli(&["backup", copy.to_str().unwrap()]);
    let mut relay = restored(&copy);
    let first = world.browser.again(&relay).await.ack["ledger_epoch"].clone();
    relay.restart();
    assert_eq!(world.browser.again(&relay).await.ack["ledger_epoch"], first);
}

#[tokio::test]
async fn a_ledger_of_a_newer_relay_is_refused_with_a_sentence() {
    let mut relay = Relay::start();
    relay.terminate();
    relay.tamper("PRAGMA user_version = 9999");
    let words = gives_up(relay.serve_command()).await;
    assert!(words.contains("9999") && words.contains("newer"), "{words}");
}

#[tokio::test]
async fn the_log_tells_neither_words_nor_tokens() {
    let mut world = World::new().await;
    let secret = "the-launch-code-is-0000";
    world.say("a", secret).await;
    world.browser.send(crate::world::send(SESSION, "m1", secret)).await;
    world.proxy.expect("send_message").await;
    world.proxy.send(crate::world::send_result(SESSION, "m1", "failed")).await;
    world.browser.expect("message_failed").await;
    world.browser.send_raw(format!("{{\"{secret}\":").into()).await.unwrap();
    world.browser.expect("connection_error").await;
    history(&mut world.browser, SESSION).await;
    world.relay.terminate();
    let log = world.relay.log();
    for told in [secret, &world.browser.token, &world.proxy.token] {
        assert!(!log.contains(told), "{told} is in the log");
    }
    assert!(!log.is_empty());
}

/// A certificate for `localhost` in two PEM files.
fn certificate(folder: &Path) -> rcgen::Certificate {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), made.cert.pem()).unwrap();
    made.cert
}

#[tokio::test]
async fn tls_is_spoken_with_the_given_certificate_and_with_its_successor() {
    let mut relay = Relay::stopped(&[]);
    let first = certificate(relay.home());
    let mut command = relay.serve_command();
    command.arg("--tls-cert").arg(relay.home().join("cert.pem"));
    command.arg("--tls-key").arg(relay.home().join("key.pem"));
    relay.run(&mut command);
    assert!(relay.printed(|_| true).contains("https://"));
    let token = relay.token(Role::Browser, "phone");

    let stream = tls::connect(relay.address(), first.der()).await.unwrap();
    let headers = [("Authorization", format!("Bearer {token}"))];
    let mut browser = Peer::over(Box::new(stream), relay.address(), Role::Browser, &headers).await;
    browser.greet(json!({})).await;
    let stream = tls::connect(relay.address(), first.der()).await.unwrap();
    assert_eq!(get("/healthz").send_over(relay.address(), stream).await.status, 200);

    let second = certificate(relay.home());
    let deadline = Instant::now() + PATIENCE;
    while tls::connect(relay.address(), second.der()).await.is_err() {
        assert!(Instant::now() < deadline, "the new certificate is not taken up");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    browser.settle().await;
}

#[tokio::test]
async fn a_certificate_that_is_none_is_an_error() {
    let relay = Relay::stopped(&[]);
    certificate(relay.home());
    std::fs::write(relay.home().join("cert.pem"), "not a certificate").unwrap();
    let mut command = relay.serve_command();
    command.arg("--tls-cert").arg(relay.home().join("cert.pem"));
    command.arg("--tls-key").arg(relay.home().join("key.pem"));
    assert!(gives_up(command).await.contains("cert.pem"));
}

#[tokio::test]
async fn tokens_can_be_made_many_at_once_while_the_relay_is_busy() {
    let mut world = World::new().await;
    let tokens: Vec<_> = std::thread::scope(|scope| {
        let relay = &world.relay;
        let makers: Vec<_> =
            (0..12).map(|number| scope.spawn(move || relay.token(Role::Browser, &format!("phone {number}")))).collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect()
    });
    world.finish("m1", "delivered").await;
    for token in &tokens {
        Peer::as_device(&world.relay, Role::Browser, token).await;
    }
}

#[tokio::test]
async fn what_does_not_exist_cannot_be_revoked_and_what_exists_is_not_overwritten() {
    let relay = Relay::start();
    assert!(!relay.try_cli(&["token", "revoke", "nobody"]).status.success());
    let precious = relay.home().join("precious");
    std::fs::write(&precious, "do not touch").unwrap();
    assert!(!relay.try_cli(&["backup", precious.to_str().unwrap()]).status.success());
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "do not touch");
}
