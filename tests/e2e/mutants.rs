//! Every frame of the protocol, disfigured at random: the relay answers or ignores it, and lives on.

use crate::peer::Peer;
use crate::relay::{Relay, Role};
use crate::world::{SESSION, World, acknowledged, announce, prompt};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::path::Path;

/// Disfigured copies of each frame.
const MUTANTS: usize = 80;

/// The golden frames that a role may say, but the hello.
fn golden(role: Role) -> Vec<Value> {
    let folder = format!("../protocol/frames/{}_to_relay", role.word());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(&folder).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let mut frames: Vec<Value> = files.map(|text| serde_json::from_str(&text).unwrap()).collect();
    frames.retain(|frame| frame["type"] != "connection_hello");
    // Directories are read in any order; a seed must mean the same everywhere.
    frames.sort_by_key(|frame| frame["type"].to_string());
    assert!(frames.len() > 5, "the frames are in {}", folder.display());
    frames
}

/// Something that a field does not expect.
fn oddity(random: &mut StdRng) -> Value {
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
    let oddities = [
        json!(null),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("x".repeat(300)),
        json!("\u{0}\u{202e}💥"),
        json!([]),
        json!([null, 1, "x"]),
        json!({}),
        json!({"code": 7}),
        json!(true),
        json!(SESSION),
        json!("p1"),
        deep,
    ];
    oddities[random.random_range(0..oddities.len())].clone()
}

/// Replaces, removes or doubles something in a random place.
fn disfigure(value: &mut Value, random: &mut StdRng) {
    let odd = oddity(random);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let at = random.random_range(0..fields.len());
            let name = fields.keys().nth(at).unwrap().clone();
            match random.random_range(0..4) {
                0 => drop(fields.remove(&name)),
                1 => drop(fields.insert(name, odd)),
                _ => disfigure(&mut fields[&name], random),
            }
        }
        Value::Array(items) if !items.is_empty() => match random.random_range(0..3) {
            0 => items.push(odd),
            1 => items.extend(items.clone()),
            _ => {
                let at = random.random_range(0..items.len());
                disfigure(&mut items[at], random);
            }
        },
        Value::Object(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            *value = odd;
        }
    }
}

/// Says mutants of every frame, aimed at a session and a prompt that exist.
async fn torment(peer: &mut Peer, random: &mut StdRng) {
    for frame in golden(peer.role) {
        for _ in 0..MUTANTS {
            let mut mutant = frame.clone();
            for (name, target) in [("session_id", SESSION), ("prompt_id", "p1")] {
                if mutant.get(name).is_some() {
                    mutant[name] = json!(target);
                }
            }
            disfigure(&mut mutant, random);
            // Another version closes the socket, as it should.
            mutant["protocol_version"] = json!(1);
            peer.send(mutant).await;
        }
        peer.heard().await;
    }
}

#[tokio::test]
async fn disfigured_frames_break_nothing() {
    let seed = rand::random();
    eprintln!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let World { relay, mut browser, mut proxy } = World::new().await;
    acknowledged(&mut proxy, prompt("p1")).await;
    torment(&mut browser, &mut random).await;
    torment(&mut proxy, &mut random).await;
    browser.heard().await;
    lives_on(relay).await;
}

/// A calm pair of peers finds everything in order, before and after a restart.
async fn lives_on(mut relay: Relay) {
    for round in ["before", "after"] {
        let mut proxy = Peer::proxy(&relay).await;
        let session_id = format!("calm-{round}");
        announce(&mut proxy, &[&session_id]).await;
        let mut browser = Peer::browser(&relay).await;
        browser.send(crate::world::send(&session_id, "m1", "hello")).await;
        proxy.expect("send_message").await;
        proxy.send(crate::world::send_result(&session_id, "m1", "delivered")).await;
        browser.expect("message_delivered").await;
        relay.restart();
    }
    assert!(!relay.log().contains("panicked"));
}
