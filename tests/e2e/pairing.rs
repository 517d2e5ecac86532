//! A new device comes in by a code that works once.

use crate::http::{Response, get, post_json, upgrade};
use crate::peer::{Peer, assert_like};
use crate::relay::{Relay, Role, last_word};
use serde_json::{Value, json};

/// The code that `relay-server pair` prints, as its last word.
fn code(relay: &Relay, role: Role) -> String {
    last_word(&relay.cli(&["pair", "--role", role.word()]))
}

async fn pair(relay: &Relay, code: &str) -> Response {
    post_json("/api/pair", &json!({"code": code, "device_name": "My Phone"})).send(relay).await
}

/// A code that is not the given one but looks like it.
fn wrong(code: &str) -> String {
    code.chars().rev().map(|letter| if letter == 'A' { 'B' } else { letter }).chain(['A']).skip(1).collect()
}

#[tokio::test]
async fn a_paired_phone_gets_a_cookie_and_comes_in_with_it() {
    let relay = Relay::start();
    let response = pair(&relay, &code(&relay, Role::Browser)).await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_like(&response.json(), &json!({"role": "browser", "device_name": "My Phone", "token": null}));
    assert!(response.json()["token_id"].is_string());
    let cookie = response.header("Set-Cookie").to_owned();
    for part in ["remora_token=", "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
        assert!(cookie.contains(part), "no {part} in {cookie}");
    }
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(upgrade("/client-ws").header("Cookie", cookie).send(&relay).await.status, 101);
    let me = get("/api/me").header("Cookie", cookie).send(&relay).await.json();
    assert_like(&me, &json!({"device_name": "My Phone", "role": "browser"}));
    let trail = relay.audit();
    let paired = |entry: &&Value| entry["action"] == "pair" && entry.to_string().contains("My Phone");
    assert!(trail.iter().any(|entry| paired(&entry)), "{trail:#?}");
}

#[tokio::test]
async fn the_cookie_is_for_https_only_where_the_page_is() {
    let relay = Relay::with(&["--public-url", "https://remora.example"]);
    let right = code(&relay, Role::Browser);
    let request = post_json("/api/pair", &json!({"code": right, "device_name": "Phone"}));
    let response = request.header("Host", "remora.example").send(&relay).await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert!(response.header("Set-Cookie").contains("Secure"), "{}", response.header("Set-Cookie"));
}

#[tokio::test]
async fn the_first_start_prints_a_code_and_the_pages_address() {
    let relay = Relay::start();
    relay.printed(|line| line.contains(&format!("http://{}", relay.address())));
    let line = relay.printed(|line| line.starts_with("Pairing code:"));
    let response = pair(&relay, &last_word(&line)).await;
    assert_eq!(response.status, 200, "{line}: {}", response.text());
}

#[tokio::test]
async fn a_paired_proxy_gets_its_token() {
    let relay = Relay::start();
    let response = pair(&relay, &code(&relay, Role::Proxy)).await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.json()["role"], "proxy");
    assert_eq!(response.header("Set-Cookie"), "");
    let token = response.json()["token"].as_str().unwrap().to_owned();
    Peer::as_device(&relay, Role::Proxy, &token).await;
}

#[tokio::test]
async fn a_code_works_once() {
    let relay = Relay::start();
    let right = code(&relay, Role::Browser);
    assert_eq!(pair(&relay, &right).await.status, 200);
    assert_eq!(pair(&relay, &right).await.status, 403);
}

#[tokio::test]
async fn a_wrong_code_is_refused_and_the_right_one_still_works() {
    let relay = Relay::start();
    let right = code(&relay, Role::Browser);
    let response = pair(&relay, &wrong(&right)).await;
    assert_eq!(response.status, 403, "{}", response.text());
    assert!(response.json()["error"]["code"].is_string());
    assert_eq!(response.header("Set-Cookie"), "");
    assert_eq!(pair(&relay, &right).await.status, 200);
}

#[tokio::test]
async fn after_five_wrong_codes_even_the_right_one_must_wait() {
    let relay = Relay::start();
    let right = code(&relay, Role::Browser);
    for _ in 0..5 {
        assert_eq!(pair(&relay, &wrong(&right)).await.status, 403);
    }
    let response = pair(&relay, &right).await;
    assert_eq!(response.status, 429, "{}", response.text());
    let seconds: u64 = response.header("Retry-After").parse().expect("Retry-After is in seconds");
    assert!(seconds > 0);
}

#[tokio::test]
async fn guesses_at_once_are_counted_one_by_one() {
    let relay = Relay::start();
    let right = code(&relay, Role::Browser);
    let guess = wrong(&right);
    let guesses = (0..40).map(|_| pair(&relay, &guess));
    let statuses: Vec<_> = futures_util::future::join_all(guesses).await.iter().map(|reply| reply.status).collect();
    let tried = statuses.iter().filter(|&&status| status == 403).count();
    assert!(tried <= 5 && statuses.iter().all(|status| [403, 429].contains(status)), "{statuses:?}");
}

#[tokio::test]
async fn the_address_of_a_lock_out_cannot_be_made_up() {
    let relay = Relay::start();
    let right = code(&relay, Role::Browser);
    for number in 0..6 {
        let body = json!({"code": wrong(&right), "device_name": "x"});
        let request = post_json("/api/pair", &body).header("X-Forwarded-For", &format!("10.0.0.{number}"));
        let status = request.send(&relay).await.status;
        assert_eq!(status, if number < 5 { 403 } else { 429 });
    }
}

#[tokio::test]
async fn behind_a_trusted_proxy_each_address_is_counted_for_itself() {
    let relay = Relay::with(&["--trusted-proxy", "127.0.0.1"]);
    let right = code(&relay, Role::Browser);
    let from = |address: &str, code: &str| {
        let body = json!({"code": code, "device_name": "x"});
        post_json("/api/pair", &body).header("X-Forwarded-For", address)
    };
    for _ in 0..5 {
        assert_eq!(from("10.0.0.1", &wrong(&right)).send(&relay).await.status, 403);
    }
    assert_eq!(from("10.0.0.1", &right).send(&relay).await.status, 429);
    assert_eq!(from("10.0.0.2", &right).send(&relay).await.status, 200);
}

#[tokio::test]
async fn a_body_that_is_no_pairing_is_refused() {
    let relay = Relay::start();
    for body in ["", "{}", "[]", "{\"code\": 7}", "nonsense"] {
        let request = crate::http::post("/api/pair", body).header("Content-Type", "application/json");
        let status = request.send(&relay).await.status;
        assert!((400..500).contains(&status), "{body}: {status}");
    }
    let huge = crate::http::post("/api/pair", vec![b'x'; 3 << 20]).header("Content-Type", "application/json");
    assert!((400..500).contains(&huge.send(&relay).await.status));
}

#[tokio::test]
async fn an_expired_code_is_refused() {
    let relay = Relay::start();
    let right = code(&relay, Role::Browser);
    relay.tamper("UPDATE pairings SET expires_at = 1");
    assert_eq!(pair(&relay, &right).await.status, 403);
}
