//! Who may come in, and by which door.

use crate::http::{delete, get, upgrade};
use crate::peer::{Peer, assert_like};
use crate::relay::{Relay, Role};
use crate::world::World;
use serde_json::json;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// "Within a second", and one of grace for a busy machine.
const AT_ONCE: Duration = Duration::from_secs(2);

/// What a device is called in lists and revocations.
async fn token_id(relay: &Relay, token: &str) -> String {
    let me = get("/api/me").bearer(token).send(relay).await;
    assert_eq!(me.status, 200, "{}", me.text());
    me.json()["token_id"].as_str().expect("a token has an id").to_owned()
}

#[tokio::test]
async fn a_socket_without_a_valid_token_is_refused_at_the_upgrade() {
    let relay = Relay::start();
    let forged = "A".repeat(relay.token(Role::Browser, "model").len());
    for role in [Role::Browser, Role::Proxy] {
        let attempts = [
            upgrade(role.path()),
            upgrade(role.path()).bearer(""),
            upgrade(role.path()).bearer(&forged),
            upgrade(role.path()).header("Cookie", &format!("remora_token={forged}")),
            upgrade(role.path()).header("Authorization", &format!("Basic {forged}")),
        ];
        for attempt in attempts {
            let response = attempt.send(&relay).await;
            assert_eq!(response.status, 401, "{}", response.text());
            assert!(response.json()["error"]["code"].is_string(), "{}", response.text());
            assert!(response.json()["error"]["message"].is_string(), "{}", response.text());
        }
    }
}

#[tokio::test]
async fn a_token_in_a_url_opens_nothing() {
    let relay = Relay::start();
    let token = relay.token(Role::Browser, "phone");
    for name in ["token", "access_token", "remora_token", "authorization"] {
        let response = upgrade(&format!("/client-ws?{name}={token}")).send(&relay).await;
        assert_eq!(response.status, 401);
    }
}

#[tokio::test]
async fn a_token_opens_only_the_door_of_its_role() {
    let relay = Relay::start();
    for (role, other) in [(Role::Browser, Role::Proxy), (Role::Proxy, Role::Browser)] {
        let token = relay.token(role, "x");
        let response = upgrade(other.path()).bearer(&token).send(&relay).await;
        assert_eq!(response.status, 403, "{}", response.text());
        assert!(response.json()["error"]["code"].is_string());
        assert_eq!(upgrade(role.path()).bearer(&token).send(&relay).await.status, 101);
    }
}

#[tokio::test]
async fn a_foreign_origin_is_refused_and_our_own_is_not() {
    let relay = Relay::start();
    let token = relay.token(Role::Browser, "phone");
    let cookie = format!("remora_token={token}");
    let own = format!("http://{}", relay.address());
    let foreign = ["https://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1.evil.example"];
    for origin in foreign {
        for path in ["/client-ws", "/api/me"] {
            let response = upgrade(path).header("Cookie", &cookie).header("Origin", origin).send(&relay).await;
            assert_eq!(response.status, 403, "{origin} at {path}: {}", response.text());
        }
    }
    let response = upgrade("/client-ws").header("Cookie", &cookie).header("Origin", &own).send(&relay).await;
    assert_eq!(response.status, 101, "{}", response.text());
}

#[tokio::test]
async fn an_unexpected_host_is_refused() {
    let relay = Relay::start();
    let token = relay.token(Role::Browser, "phone");
    for host in ["evil.example", "evil.example:80", "127.0.0.1.evil.example"] {
        for path in ["/client-ws", "/api/me"] {
            let response = upgrade(path).bearer(&token).header("Host", host).send(&relay).await;
            assert_eq!(response.status, 403, "{host} at {path}: {}", response.text());
        }
    }
}

#[tokio::test]
async fn the_public_address_is_an_expected_host_and_origin() {
    let relay = Relay::with(&["--public-url", "https://remora.example"]);
    let token = relay.token(Role::Browser, "phone");
    let attempt = upgrade("/client-ws").header("Cookie", &format!("remora_token={token}"));
    let attempt = attempt.header("Host", "remora.example").header("Origin", "https://remora.example");
    assert_eq!(attempt.send(&relay).await.status, 101);
    let stream = TcpStream::connect(relay.address()).await.unwrap();
    let headers = [("Authorization", format!("Bearer {token}"))];
    let mut peer = Peer::over(Box::new(stream), "remora.example", Role::Browser, &headers).await;
    peer.greet(json!({})).await;
}

#[tokio::test]
async fn a_cookie_opens_the_browsers_door_and_not_the_proxys() {
    let relay = Relay::start();
    let browser = format!("theme=dark; remora_token={}; x=y", relay.token(Role::Browser, "phone"));
    assert_eq!(upgrade("/client-ws").header("Cookie", &browser).send(&relay).await.status, 101);
    let proxy = format!("remora_token={}", relay.token(Role::Proxy, "desk"));
    let refused = upgrade("/proxy-ws").header("Cookie", &proxy).send(&relay).await.status;
    assert!([401, 403].contains(&refused), "{refused}");
}

#[tokio::test]
async fn nothing_but_the_page_health_and_pairing_is_open() {
    let relay = Relay::start();
    let health = get("/healthz").send(&relay).await;
    assert_eq!((health.status, health.text().trim()), (200, "ok"));
    assert_eq!(get("/").send(&relay).await.status, 200);
    let closed = ["/readyz", "/metrics", "/api/me", "/api/devices", "/api/audit", "/api/attachments/x"];
    for path in closed {
        let response = get(path).send(&relay).await;
        assert_eq!(response.status, 401, "{path}");
        assert!(response.json()["error"]["code"].is_string(), "{path}");
    }
    assert_eq!(delete("/api/devices/x").send(&relay).await.status, 401);
    assert_eq!(crate::http::post("/api/attachments?name=a", "x").send(&relay).await.status, 401);
}

#[tokio::test]
async fn any_valid_token_may_look_at_readiness_and_metrics() {
    let world = World::new().await;
    for token in [&world.browser.token, &world.proxy.token] {
        assert_eq!(get("/readyz").bearer(token).send(&world.relay).await.status, 200);
        let metrics = get("/metrics").bearer(token).send(&world.relay).await;
        assert_eq!(metrics.status, 200);
        for word in ["connection", "session", "event", "commit", "drop", "deliver"] {
            assert!(metrics.text().contains(word), "no {word} in {}", metrics.text());
        }
    }
    let cookie = format!("remora_token={}", world.browser.token);
    assert_eq!(get("/readyz").header("Cookie", &cookie).send(&world.relay).await.status, 200);
}

#[tokio::test]
async fn a_proxys_token_opens_no_page_api() {
    let relay = Relay::start();
    let token = relay.token(Role::Proxy, "desk");
    for path in ["/api/devices", "/api/audit"] {
        assert_eq!(get(path).bearer(&token).send(&relay).await.status, 403, "{path}");
    }
    assert_eq!(delete("/api/devices/x").bearer(&token).send(&relay).await.status, 403);
    assert_eq!(crate::http::post("/api/attachments?name=a", "x").bearer(&token).send(&relay).await.status, 403);
}

#[tokio::test]
async fn a_token_revoked_from_another_process_loses_its_sockets() {
    let World { relay, mut browser, mut proxy } = World::new().await;
    let mut bystander = Peer::browser(&relay).await;
    let mut sibling = browser.again(&relay).await;
    let proxys_id = token_id(&relay, &proxy.token).await;
    for id in [token_id(&relay, &browser.token).await, proxys_id] {
        relay.cli(&["token", "revoke", &id]);
    }
    let revoked = Instant::now();
    for peer in [&mut browser, &mut sibling, &mut proxy] {
        assert_eq!(peer.expect_close().await.0, 4502);
    }
    assert!(revoked.elapsed() < AT_ONCE, "{:?}", revoked.elapsed());
    assert_eq!(upgrade("/client-ws").bearer(&browser.token).send(&relay).await.status, 401);
    assert_eq!(upgrade("/proxy-ws").bearer(&proxy.token).send(&relay).await.status, 401);
    assert_eq!(get("/api/me").bearer(&browser.token).send(&relay).await.status, 401);
    bystander.settle().await;
}

#[tokio::test]
async fn a_device_can_be_revoked_from_another_device() {
    let relay = Relay::start();
    let mut lost = Peer::browser(&relay).await;
    let phone = relay.token(Role::Browser, "other phone");
    let id = token_id(&relay, &lost.token).await;
    let listed = get("/api/devices").bearer(&phone).send(&relay).await.json();
    assert!(listed.to_string().contains(&id) && listed.to_string().contains("other phone"), "{listed}");
    let response = delete(&format!("/api/devices/{id}")).bearer(&phone).send(&relay).await;
    assert!((200..300).contains(&response.status), "{}", response.text());
    assert_eq!(lost.expect_close().await.0, 4502);
    assert_eq!(get("/api/me").bearer(&lost.token).send(&relay).await.status, 401);
    assert_eq!(delete("/api/devices/nobody").bearer(&phone).send(&relay).await.status, 404);
}

#[tokio::test]
async fn tokens_are_listed_without_being_told() {
    let relay = Relay::start();
    let token = relay.token(Role::Browser, "my phone");
    relay.token(Role::Proxy, "my desk");
    let listed = relay.cli(&["token", "list"]);
    for word in ["my phone", "my desk", "browser", "proxy", &token_id(&relay, &token).await] {
        assert!(listed.contains(word), "no {word} in {listed}");
    }
    assert!(!listed.contains(&token));
}

#[tokio::test]
async fn a_token_is_long_random_and_kept_nowhere() {
    let relay = Relay::start();
    let tokens: Vec<_> = (0..3).map(|_| relay.token(Role::Browser, "phone")).collect();
    for token in &tokens {
        assert!(token.len() >= 43, "256 bits need 43 characters: {token}");
        Peer::as_device(&relay, Role::Browser, token).await;
    }
    assert_ne!(tokens[0], tokens[1]);
    let secret = tokens[0].rsplit(['_', '.']).next().unwrap_or(&tokens[0]);
    for file in files_under(&relay.data_dir()) {
        let bytes = std::fs::read(&file).unwrap();
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{} holds a token", file.display());
    }
    assert!(!relay.log().contains(secret));
}

fn files_under(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_under(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn who_am_i_is_answered_for_each_role() {
    let relay = Relay::start();
    let token = relay.token(Role::Browser, "my phone");
    let me = get("/api/me").bearer(&token).send(&relay).await.json();
    assert_like(&me, &json!({"role": "browser", "device_name": "my phone"}));
    assert!(me["token_id"].is_string());
}

#[tokio::test]
async fn a_foreign_page_can_change_nothing_with_the_phones_cookie() {
    let relay = Relay::start();
    let token = relay.token(Role::Browser, "phone");
    let cookie = format!("remora_token={token}");
    let id = token_id(&relay, &token).await;
    let attempts = [
        delete(&format!("/api/devices/{id}")),
        crate::http::post("/api/attachments?name=a", "x"),
        crate::http::post_json("/api/pair", &json!({"code": "x", "device_name": "x"})),
    ];
    for attempt in attempts {
        let response = attempt.header("Cookie", &cookie).header("Origin", "https://evil.example").send(&relay).await;
        assert_eq!(response.status, 403, "{}", response.text());
    }
    assert_eq!(get("/api/me").bearer(&token).send(&relay).await.status, 200);
}

#[tokio::test]
async fn the_page_allows_no_inline_script_and_no_frame_around_it() {
    let relay = Relay::start();
    let page = get("/").send(&relay).await;
    let policy = page.header("Content-Security-Policy");
    assert!(policy.contains("default-src") && policy.contains("frame-ancestors"), "{policy}");
    let scripts = policy.split(';').find(|part| part.trim().starts_with("script-src")).unwrap_or("");
    assert!(!scripts.contains("unsafe"), "{policy}");
    assert_eq!(page.header("X-Content-Type-Options"), "nosniff");
    assert_eq!(get("/").header("Host", "evil.example").send(&relay).await.status, 403);
    for path in ["/../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/assets/../../Cargo.toml"] {
        let status = get(path).send(&relay).await.status;
        assert!([400, 404].contains(&status), "{path}: {status}");
    }
}

#[tokio::test]
async fn a_plain_request_at_a_sockets_door_is_told_to_upgrade() {
    let relay = Relay::start();
    let token = relay.token(Role::Browser, "phone");
    assert_eq!(get("/client-ws").bearer(&token).send(&relay).await.status, 426);
}
