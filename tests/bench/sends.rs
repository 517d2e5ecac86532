//! Sends: many senders at once against a bare group-commit loop, one lone sender against one commit.

use crate::bare_ledger::{BareLedger, Pattern};
use crate::numbers::{Ratios, Samples, median, millis, per_second};
use crate::process::Process;
use crate::relay::Relay;
use crate::report::{Aim, Report, say};
use crate::sender::{Round, Sender, deliver_everything};
use crate::socket::{Door, proxy};
use anyhow::{Result, bail};
use futures_util::future::try_join_all;
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};

pub(crate) const SESSIONS: usize = 8;
pub(crate) const SENDERS: usize = 64;
const WINDOW: usize = 4;

/// All that can be under way is in one commit: half of it being accepted, half being delivered.
const BARE_GROUP: usize = SENDERS * WINDOW / 2;

const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(1200);
const LONE_ROUND: Duration = Duration::from_millis(600);

/// Sends per second, and how long the senders wait for `message_accepted`.
pub(crate) async fn crowd(report: &mut Report) -> Result<()> {
    say(&format!("sends: {SENDERS} senders of window {WINDOW} on {SESSIONS} sessions"));
    let sessions: Vec<String> = (0..SESSIONS).map(|number| format!("sess_{number}")).collect();
    let relay = Relay::start()?;
    let proxy = proxy(&relay.proxy_door()?, &sessions).await?;
    let mut senders = Vec::new();
    for number in 0..SENDERS {
        // A token each: a device hears of all its own sends, whatever it looks at.
        let door = relay.browser_door(&format!("phone {number}"))?;
        senders.push(Sender::connect(&door, number, &sessions[number % SESSIONS]).await?);
    }
    unless_it_ends(deliver_everything(proxy, None), compare_crowds(&relay, &mut senders, report)).await?;
    tell_groups(&relay, &relay.browser_door("counter")?)
}

async fn compare_crowds(relay: &Relay, senders: &mut [Sender], report: &mut Report) -> Result<()> {
    relay_round(senders).await?;
    let mut bare = open_bare(relay)?;
    bare.sends_per_second(BARE_GROUP, ROUND)?;
    let (mut relay_rates, mut bare_rates, mut to_accepted) = (Vec::new(), Vec::new(), Samples::default());
    let mut cpu = CpuTimes::start(relay.process())?;
    for _ in 0..ROUNDS {
        bare_rates.push(bare.sends_per_second(BARE_GROUP, ROUND)?);
        cpu.pause()?;
        let (rate, samples) = relay_round(senders).await?;
        cpu.count(samples.count())?;
        relay_rates.push(rate);
        to_accepted.absorb(&samples);
    }
    cpu.tell();
    let ratios = Ratios::of(&relay_rates, &bare_rates);
    let (relay_rate, bare_rate) = (per_second(median(&relay_rates)), per_second(median(&bare_rates)));
    report.ratio(
        "sends accepted and delivered, 64 x 4 on 8 sessions",
        relay_rate,
        bare_rate,
        &ratios,
        Aim::AtLeast(0.5),
    );
    report.note("send to accepted under that load: p50 / p99 / p99.9", to_accepted.tail(), "-".into());
    Ok(())
}

/// Processor time of the relay and of this load generator, in the relay's rounds only.
struct CpuTimes {
    watched: [Process; 2],
    since: [Duration; 2],
    used: [Duration; 2],
    sends: usize,
}

impl CpuTimes {
    fn start(relay: Process) -> Result<Self> {
        let watched = [relay, Process::new(std::process::id())];
        let since = [watched[0].cpu_time()?, watched[1].cpu_time()?];
        Ok(Self { watched, since, used: Default::default(), sends: 0 })
    }

    /// What was used up to now is not counted.
    fn pause(&mut self) -> Result<()> {
        self.since = [self.watched[0].cpu_time()?, self.watched[1].cpu_time()?];
        Ok(())
    }

    /// What was used since the pause was used for so many sends.
    fn count(&mut self, sends: usize) -> Result<()> {
        for index in 0..2 {
            self.used[index] += self.watched[index].cpu_time()? - self.since[index];
        }
        self.sends += sends;
        Ok(())
    }

    fn tell(&self) {
        let [relay, clients] = self.used.map(|used| used.as_secs_f64() * 1e6 / self.sends as f64);
        say(&format!("  processor time per send: relay {relay:.0} us, load generator {clients:.0} us"));
    }
}

/// How many events shared a commit on average, and how long the relay worked on each group.
fn tell_groups(relay: &Relay, door: &Door) -> Result<()> {
    let events = relay.counted(door, "remora_relay_events_total")?;
    let commits = relay.counted(door, "remora_relay_commit_seconds_count")?;
    let millis = relay.counted(door, "remora_relay_commit_seconds_sum")? * 1000.0;
    say(&format!("  {:.0} events shared a commit, which took {:.2} ms", events / commits, millis / commits));
    Ok(())
}

/// All senders at once for one round: sends per second, and the waits.
async fn relay_round(senders: &mut [Sender]) -> Result<(f64, Samples)> {
    let started = Instant::now();
    let rounds = try_join_all(senders.iter_mut().map(|sender| sender.round(WINDOW, started + ROUND))).await?;
    let elapsed = started.elapsed().as_secs_f64();
    let mut samples = Samples::default();
    rounds.iter().for_each(|round| samples.absorb(&round.to_accepted));
    Ok((rounds.iter().map(|round| round.delivered).sum::<u64>() as f64 / elapsed, samples))
}

/// One sender that waits for each send to be delivered before the next.
pub(crate) async fn lone(report: &mut Report) -> Result<()> {
    say("one lone sender");
    let relay = Relay::start()?;
    let session = "sess_lone".to_owned();
    let proxy = proxy(&relay.proxy_door()?, std::slice::from_ref(&session)).await?;
    let mut sender = Sender::connect(&relay.browser_door("phone")?, 0, &session).await?;
    // The proxy shares the sender's thread: it waits with its answer, or the sender would hear later.
    let bell = Some(Rc::clone(&sender.accepted));
    unless_it_ends(deliver_everything(proxy, bell), compare_lone(&relay, &mut sender, report)).await?;
    tell_groups(&relay, &relay.browser_door("counter")?)
}

async fn compare_lone(relay: &Relay, sender: &mut Sender, report: &mut Report) -> Result<()> {
    sender.round(1, Instant::now() + LONE_ROUND).await?;
    let mut bare = open_bare(relay)?;
    let (mut relay_medians, mut bare_medians) = (Vec::new(), Vec::new());
    let (mut relayed, mut committed) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        let commits = bare_round(&mut bare)?;
        let Round { to_accepted, .. } = sender.round(1, Instant::now() + LONE_ROUND).await?;
        relay_medians.push(to_accepted.median().as_secs_f64());
        bare_medians.push(commits.median().as_secs_f64());
        relayed.absorb(&to_accepted);
        committed.absorb(&commits);
    }
    let ratios = Ratios::of(&relay_medians, &bare_medians);
    let text = |medians: &[f64]| millis(Duration::from_secs_f64(median(medians))) + " ms";
    let (relay_text, bare_text) = (text(&relay_medians), text(&bare_medians));
    report.ratio("lone sender to accepted, median", relay_text, bare_text, &ratios, Aim::AtMost(1.5));
    report.note("lone sender to accepted: p50 / p99 / p99.9", relayed.tail(), committed.tail());
    Ok(())
}

fn bare_round(bare: &mut BareLedger) -> Result<Samples> {
    let (started, mut samples) = (Instant::now(), Samples::default());
    while started.elapsed() < LONE_ROUND {
        samples.add(bare.lone_send()?);
    }
    Ok(samples)
}

fn open_bare(relay: &Relay) -> Result<BareLedger> {
    let pattern = Pattern::from_relay(relay.data_dir())?;
    say(&format!("  the relay writes or changes {} rows for each send", pattern.rows_per_send()));
    BareLedger::open(pattern)
}

/// Runs `work` while `helper` runs beside it; the helper's end is the work's failure.
async fn unless_it_ends(
    helper: impl Future<Output = anyhow::Error>,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    tokio::select! {
        done = work => done,
        error = helper => bail!("the proxy broke: {error:#}"),
    }
}
