//! Idle browsers: what each costs the relay in memory.

use crate::broadcaster::{Broadcaster, Style};
use crate::process::Process;
use crate::relay::Relay;
use crate::report::{Aim, Report, say};
use crate::socket::{Door, Socket, browser, proxy};
use anyhow::Result;
use futures_util::{StreamExt, TryStreamExt};
use std::future::Future;
use std::time::Duration;

const COUNTS: [usize; 2] = [1000, 5000];
const CONNECTING_AT_ONCE: usize = 32;

/// Gives the server time to let go of what it needed for the handshakes only.
const SETTLE: Duration = Duration::from_millis(700);

/// Measures all counts, on one relay that fills up.
pub(crate) async fn run(report: &mut Report) -> Result<()> {
    say("memory per idle browser");
    let relay = Relay::start()?;
    let door = relay.browser_door("crowd")?;
    let _proxy = proxy(&relay.proxy_door()?, &["sess_idle".to_owned()]).await?;
    let relayed = fill(relay.process(), &door, |door| async move { browser(&door).await }).await?;
    drop(relay);

    let bare = Broadcaster::start(Style::Plain)?;
    let plain = fill(bare.process(), &bare.browser_door(), |door| async move { Socket::connect(&door).await }).await?;

    for ((count, relay_kib), bare_kib) in COUNTS.into_iter().zip(relayed).zip(plain) {
        let name = format!("memory per idle browser, {count} of them");
        let text = |kib: f64| format!("{kib:.1} KiB");
        let baseline = Some((text(bare_kib), bare_kib));
        report.value(&name, (text(relay_kib), relay_kib), baseline, ("< 20 KiB", Aim::AtMost(20.0)));
    }
    Ok(())
}

/// KiB per browser at each count.
async fn fill<F>(process: Process, door: &Door, connect: impl Fn(Door) -> F) -> Result<Vec<f64>>
where
    F: Future<Output = Result<Socket>>,
{
    // One browser has been there before: what is made once for all is not counted as the first one's.
    drop(connect(door.clone()).await?);
    tokio::time::sleep(SETTLE).await;
    let empty = process.resident_kib()?;
    let mut sockets: Vec<Socket> = Vec::new();
    let mut each = Vec::new();
    for count in COUNTS {
        let missing = count - sockets.len();
        let more: Vec<Socket> = futures_util::stream::iter(0..missing)
            .map(|_| connect(door.clone()))
            .buffer_unordered(CONNECTING_AT_ONCE)
            .try_collect()
            .await?;
        sockets.extend(more);
        tokio::time::sleep(SETTLE).await;
        each.push(process.resident_kib()?.saturating_sub(empty) as f64 / count as f64);
    }
    Ok(each)
}
