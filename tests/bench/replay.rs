//! Replay: a browser asks for everything since sequence 0, and counts what comes.

use crate::bare_replay::{Marks, bare_replay};
use crate::numbers::{mebibytes, median, per_second, thousands};
use crate::relay::Relay;
use crate::report::{Aim, Report, say};
use crate::socket::{READ_BYTES, Socket, browser, proxy, write_all};
use crate::stage::proxy_message;
use crate::wire::push_text_frame;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::time::Instant;

const LENGTHS: [u64; 2] = [10_000, 100_000];
const ROUNDS: usize = 5;

/// Events written to the ledger between two acknowledgements.
const FILL_CHUNK: u64 = 1000;

const CONTENT: &str =
    "I moved the parser into a module of its own, kept the old entry point as a thin wrapper, and the tests pass.";

/// Measures all lengths.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    let relay = Relay::start()?;
    let sessions: Vec<String> = LENGTHS.iter().map(|length| format!("sess_{length}")).collect();
    let mut proxy = proxy(&relay.proxy_door()?, &sessions).await?;
    let mut browser = browser(&relay.browser_door("reader")?).await?;
    browser.say(r#"{"type":"session_interest","protocol_version":1,"sessions":[]}"#).await?;
    for (session, length) in sessions.iter().zip(LENGTHS) {
        say(&format!("replay of {} events", thousands(length)));
        fill(&mut proxy, session, length).await?;
        let total = check(&mut browser, session, length).await?;
        measure(&relay, &mut browser, session, total, report).await?;
    }
    Ok(())
}

async fn measure(relay: &Relay, browser: &mut Socket, session: &str, total: u64, report: &mut Report) -> Result<()> {
    let process = relay.process();
    let (mut rates, mut bare_rates, mut growths, mut size) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        bare_rates.push(total as f64 / bare_replay(relay.data_dir(), session, total)?);
        let resident = process.resident_kib()?;
        process.forget_peak()?;
        let (seconds, bytes) = replay(browser, session, total).await?;
        rates.push(total as f64 / seconds);
        growths.push(process.peak_kib()?.saturating_sub(resident) as f64);
        size = bytes;
    }
    let name = format!("replay of {} events", thousands(total));
    let (rate, bare) = (median(&rates), median(&bare_rates));
    let aim = if total > 50_000 { Aim::AtLeast(200_000.0) } else { Aim::None };
    report.value(&name, (per_second(rate), rate), Some((per_second(bare), bare)), ("> 200,000/s", aim));
    let growth = growths.into_iter().fold(0.0, f64::max);
    let name = format!("most memory gained in it ({} of events)", mebibytes(size as f64 / 1024.0));
    report.value(&name, (mebibytes(growth), growth), None, ("< 8 MiB", Aim::AtMost(8.0 * 1024.0)));
    Ok(())
}

async fn fill(proxy: &mut Socket, session: &str, length: u64) -> Result<()> {
    let started = Instant::now();
    for first in (0..length).step_by(FILL_CHUNK as usize) {
        let mut frames = Vec::new();
        for number in first..first + FILL_CHUNK {
            let mut message = proxy_message(session, number, CONTENT);
            if number + 1 == first + FILL_CHUNK {
                message.insert_str(1, r#""request_id":"chunk","#);
            }
            push_text_frame(&mut frames, &message);
        }
        write_all(&proxy.stream, &frames).await?;
        proxy.hear_type("proxy_ack").await?;
    }
    let rate = length as f64 / started.elapsed().as_secs_f64();
    say(&format!("  written to the ledger by one proxy, {FILL_CHUNK} under way: {}", per_second(rate)));
    Ok(())
}

/// Asks once and reads every word of the answer. Returns how many events there are.
async fn check(browser: &mut Socket, session: &str, length: u64) -> Result<u64> {
    browser.say(&request(session)).await?;
    let delta = browser.hear_type("history_delta").await?;
    let events = delta["events"].as_array().context("a delta has events")?;
    let mut last = 0;
    let mut messages = 0;
    for event in events {
        let sequence = event["sequence"].as_u64().context("an event has a sequence")?;
        ensure!(sequence > last, "sequence {sequence} after {last}");
        last = sequence;
        if event["type"] == "message_event" {
            ensure!(event["message"]["message_id"] == format!("msg_{messages:09}"), "lost before {event}");
            messages += 1;
        }
    }
    ensure!(messages == length, "{length} messages were written, {messages} came back");
    ensure!(delta["last_sequence"] == json!(last), "the cursor does not fit the events");
    Ok(events.len() as u64)
}

/// Asks once and counts. Returns the seconds until the last byte, and the bytes.
async fn replay(browser: &mut Socket, session: &str, total: u64) -> Result<(f64, u64)> {
    let mut scratch = vec![0; READ_BYTES];
    let mut marks = Marks::default();
    let mut ended = false;
    let started = Instant::now();
    browser.say(&request(session)).await?;
    while !ended {
        browser
            .read_pieces(&mut scratch, |piece| {
                marks.take(piece.payload);
                ended |= piece.ends;
            })
            .await?;
    }
    let seconds = started.elapsed().as_secs_f64();
    ensure!(marks.count == total, "{total} events were asked for, {} came", marks.count);
    Ok((seconds, marks.bytes))
}

fn request(session: &str) -> String {
    let request: Value = json!({
        "type": "history_request", "protocol_version": 1, "session_id": session, "after_sequence": 0,
    });
    request.to_string()
}
