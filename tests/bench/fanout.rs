//! Fan-out: one proxy's events to many browsers, against two bare broadcasters.

use crate::broadcaster::{Broadcaster, Style};
use crate::numbers::{Ratios, median, per_second};
use crate::process::Process;
use crate::relay::Relay;
use crate::report::{Aim, Report, say};
use crate::socket::{Door, browser, proxy};
use crate::stage::{Stage, proxy_message};
use anyhow::{Context, Result};
use std::time::Duration;

const CROWDS: [usize; 3] = [100, 500, 1000];
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(700);

/// A modest rate for the latencies: a busy agent, far from what the server could do.
const PACED_EVENTS_PER_SECOND: u64 = 50;
const PACED_EVENTS: u64 = 128;

/// A sentence or two, as agents write.
const CONTENT: &str =
    "I moved the parser into a module of its own, kept the old entry point as a thin wrapper, and the tests pass.";

/// Measures all crowds.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    for browsers in CROWDS {
        one_crowd(browsers, report).await.with_context(|| format!("fan-out to {browsers}"))?;
    }
    Ok(())
}

async fn one_crowd(browsers: usize, report: &mut Report) -> Result<()> {
    say(&format!("fan-out to {browsers} browsers"));
    let relay = Relay::start()?;
    let (proxy_door, browser_door) = (relay.proxy_door()?, relay.browser_door("crowd")?);
    let size = event_bytes(&relay, &browser_door).await?;
    let plain_server = Broadcaster::start(Style::Plain)?;
    let batched_server = Broadcaster::start(Style::Batched)?;

    let mut relayed = Stage::relay(relay.process(), &proxy_door, &browser_door, browsers, CONTENT).await?;
    let mut plain = bare(&plain_server, browsers, size).await?;
    let mut batched = bare(&batched_server, browsers, size).await?;

    let mut rates: [Vec<f64>; 3] = Default::default();
    let mut costs: [Vec<f64>; 3] = Default::default();
    for round in 0..=ROUNDS {
        for (index, stage) in [&mut plain, &mut relayed, &mut batched].into_iter().enumerate() {
            let burst = stage.burst(ROUND).await?;
            // The first round warms up sockets, buffers and pages.
            if round > 0 {
                rates[index].push(burst.per_second());
                costs[index].push(burst.cpu_micros());
            }
        }
    }
    tell_rates(browsers, size, &rates, &costs, report);
    let kib = |process: Process| process.resident_kib().map(|kib| kib / browsers as u64);
    say(&format!(
        "  resident memory after the bursts, per browser: plain {} KiB, relay {} KiB, batched {} KiB",
        kib(plain_server.process())?,
        kib(relay.process())?,
        kib(batched_server.process())?
    ));

    let timed_plain = plain.paced(PACED_EVENTS, PACED_EVENTS_PER_SECOND).await?;
    let timed_relay = relayed.paced(PACED_EVENTS, PACED_EVENTS_PER_SECOND).await?;
    let scenario = format!("event to {browsers} browsers, {PACED_EVENTS_PER_SECOND}/s: p50 / p99 / p99.9");
    report.note(&scenario, timed_relay.tail(), timed_plain.tail());
    Ok(())
}

fn tell_rates(browsers: usize, size: usize, rates: &[Vec<f64>; 3], costs: &[Vec<f64>; 3], report: &mut Report) {
    let [plain, relay, batched] = rates.each_ref().map(|rates| median(rates));
    let against = |base: usize| Ratios::of(&rates[1], &rates[base]);
    let [plain_cost, relay_cost, batched_cost] = costs.each_ref().map(|costs| median(costs));
    say(&format!(
        "  frames of {size} bytes; server processor time per delivery: plain {plain_cost:.2} us, relay {relay_cost:.2} us, batched {batched_cost:.2} us"
    ));
    let scenario = format!("fan-out to {browsers}, against the plain broadcaster");
    report.ratio(&scenario, per_second(relay), per_second(plain), &against(0), Aim::AtLeast(0.8));
    let scenario = format!("fan-out to {browsers}, against the batching broadcaster");
    report.ratio(&scenario, per_second(relay), per_second(batched), &against(2), Aim::None);
}

async fn bare(server: &Broadcaster, browsers: usize, size: usize) -> Result<Stage> {
    Stage::broadcaster(server.process(), &server.pusher_door(), &server.browser_door(), browsers, size).await
}

/// How long the relay's frame for one such event is, so that the broadcasters carry as much.
async fn event_bytes(relay: &Relay, browser_door: &Door) -> Result<usize> {
    let sample = "sess_sample".to_owned();
    let proxy_door = relay.proxy_door()?;
    let mut witness = browser(browser_door).await?;
    let proxy = proxy(&proxy_door, std::slice::from_ref(&sample)).await?;
    proxy.say(&proxy_message(&sample, 0, CONTENT)).await?;
    let event = witness.hear_type("message_event").await?;
    // It is gone for good before the crowd comes, or its going would be counted as an event.
    drop(proxy);
    witness.hear_type("session_down").await?;
    Ok(event.to_string().len())
}
