//! One browser that stops reading, among twenty that do not.

use crate::numbers::{Ratios, Samples, mebibytes, median, millis};
use crate::relay::Relay;
use crate::report::{Aim, Report, say};
use crate::socket::{Door, browser};
use crate::stage::Stage;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

const LIVE_BROWSERS: usize = 20;
const EVENTS: u64 = 20_000;
const EVENTS_PER_SECOND: u64 = 4000;
const ROUNDS: usize = 5;

/// Small, so that it is the relay's memory that fills and not the kernel's.
const STALLED_RECEIVE_BUFFER: u32 = 4096;

/// Long enough that all the events are several times what the kernel takes for one socket.
const CONTENT_BYTES: usize = 600;

/// One run on a relay of its own.
struct Run {
    gained_kib: f64,
    latencies: Samples,
}

/// Runs with and without the stalled one in turns.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    say(&format!("one stalled browser among {LIVE_BROWSERS}, {EVENTS} events"));
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(one_run(false).await.context("without a stalled browser")?);
        with.push(one_run(true).await.context("with a stalled browser")?);
    }
    let gained = |runs: &[Run]| median(&runs.iter().map(|run| run.gained_kib).collect::<Vec<_>>());
    let (before, after) = (gained(&without), gained(&with));
    let cost = (after - before).max(0.0);
    say(&format!("  the relay grows by {} without it, by {} with it", mebibytes(before), mebibytes(after)));
    report.value(
        "memory that one stalled browser costs",
        (mebibytes(cost), cost),
        None,
        ("< 1 MiB", Aim::AtMost(1024.0)),
    );

    let p99 = |run: &Run| run.latencies.percentile(0.99).as_secs_f64();
    let (without, with): (Vec<f64>, Vec<f64>) = without.iter().map(p99).zip(with.iter().map(p99)).unzip();
    let text = |seconds: &[f64]| millis(Duration::from_secs_f64(median(seconds))) + " ms";
    let name = "p99 of the others, with it against without it";
    report.ratio(name, text(&with), text(&without), &Ratios::of(&with, &without), Aim::AtMost(1.25));
    Ok(())
}

async fn one_run(stalls: bool) -> Result<Run> {
    let relay = Relay::start()?;
    let browser_door = relay.browser_door("crowd")?;
    let mut stage =
        Stage::relay(relay.process(), &relay.proxy_door()?, &browser_door, LIVE_BROWSERS, &"x".repeat(CONTENT_BYTES))
            .await?;
    // It is connected in both runs; in one it has asked for nothing, so that there is nothing to read.
    let stalled_door = Door { receive_buffer_bytes: Some(STALLED_RECEIVE_BUFFER), ..browser_door.clone() };
    let stalled = browser(&stalled_door).await?;
    if !stalls {
        stalled.say(r#"{"type":"session_interest","protocol_version":1,"sessions":[]}"#).await?;
    }
    stage.paced(640, EVENTS_PER_SECOND).await?;
    let process = relay.process();
    let resident = process.resident_kib()?;
    process.forget_peak()?;
    let latencies = stage.paced(EVENTS, EVENTS_PER_SECOND).await?;
    let gained_kib = process.peak_kib()?.saturating_sub(resident) as f64;
    let dropped = relay.counted(&browser_door, "remora_relay_queue_drops_total")?;
    ensure!(stalls == (dropped > 0.0), "a stalled browser: {stalls}, frames dropped: {dropped}");
    Ok(Run { gained_kib, latencies })
}
