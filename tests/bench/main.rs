//! `scripts/bench relay`: what the relay costs, as ratios to what the same work costs bare.
//!
//! Every number stands beside a baseline that was measured in the same run, in turns with it,
//! because a shared machine is a different machine every minute. Nothing here judges speed; but a
//! lost event or a wrong count ends the run with an error. docs/PERFORMANCE.md says what is
//! measured and why.

mod bare_ledger;
mod bare_replay;
mod broadcaster;
mod crowd;
mod fanout;
mod idle;
mod numbers;
mod process;
mod relay;
mod replay;
mod report;
mod sender;
mod sends;
mod socket;
mod stage;
mod stalled;
mod wire;

use anyhow::{Context, Result, bail};
use report::{Report, say};

const SCENARIOS: [&str; 6] = ["sends", "lone", "fanout", "replay", "idle", "stalled"];

fn main() -> Result<()> {
    // `cargo bench` adds a word of its own.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [broadcaster::SUBCOMMAND, style] => broadcaster::serve(style),
        [] => measure(&SCENARIOS),
        ["--only", names] => measure(&chosen(names)?),
        _ => bail!("usage: scripts/bench relay [--only {}]", SCENARIOS.join(",")),
    }
}

fn chosen(names: &str) -> Result<Vec<&str>> {
    let names: Vec<&str> = names.split(',').collect();
    match names.iter().find(|name| !SCENARIOS.contains(name)) {
        Some(unknown) => bail!("no scenario {unknown}: there are {}", SCENARIOS.join(", ")),
        None => Ok(names),
    }
}

/// One thread for all the clients: the other cores belong to what is measured.
fn measure(scenarios: &[&str]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut report = Report::default();
    for scenario in scenarios {
        let clients = tokio::task::LocalSet::new();
        let ran = clients.block_on(&runtime, async {
            match *scenario {
                "sends" => sends::crowd(&mut report).await,
                "lone" => sends::lone(&mut report).await,
                "fanout" => fanout::run(&mut report).await,
                "replay" => replay::run(&mut report).await,
                "idle" => idle::run(&mut report).await,
                "stalled" => stalled::run(&mut report).await,
                unknown => bail!("no scenario {unknown}"),
            }
        });
        ran.with_context(|| format!("scenario {scenario} broke"))?;
    }
    say(&format!("\n{}", report.table()));
    Ok(())
}
