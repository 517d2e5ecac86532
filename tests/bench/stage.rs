//! One server with one pusher and a crowd: the relay or a bare broadcaster, driven alike.

use crate::crowd::{CHUNK, Crowd};
use crate::numbers::Samples;
use crate::process::Process;
use crate::socket::{Door, READ_BYTES, Socket, browser, proxy, write_all};
use crate::wire::push_text_frame;
use anyhow::Result;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, spawn_local};

/// Events under way to the slowest browser at most. What has arrived may still count as waiting in
/// the relay, so this must stay well below what its queue for one browser takes.
const WINDOW: u64 = 256;

/// The same where the rate is given and the events may be longer: a machine that stands still for a
/// moment must not make a live browser look slow.
const PACED_WINDOW: u64 = 128;

/// The session whose events are fanned out.
const SESSION: &str = "sess_fanout";

/// Makes the text of the n-th event.
type Script = Box<dyn Fn(u64) -> String>;

/// A server under load.
pub(crate) struct Stage {
    process: Process,
    crowd: Crowd,
    pusher: Rc<TcpStream>,
    script: Script,
    pushed: u64,
    drain: JoinHandle<()>,
}

/// What one burst came to.
pub(crate) struct Burst {
    /// Events times browsers.
    pub(crate) deliveries: f64,
    pub(crate) elapsed: Duration,
    /// The server's processor time.
    pub(crate) cpu: Duration,
}

impl Burst {
    pub(crate) fn per_second(&self) -> f64 {
        self.deliveries / self.elapsed.as_secs_f64()
    }

    /// Processor microseconds of the server for each delivery.
    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.deliveries
    }
}

impl Stage {
    /// The relay, with a proxy that shows one session and browsers that want everything.
    pub(crate) async fn relay(
        process: Process,
        proxy_door: &Door,
        browser_door: &Door,
        browsers: usize,
        content: &str,
    ) -> Result<Self> {
        let socket = proxy(proxy_door, &[SESSION.to_owned()]).await?;
        let crowd = Crowd::gather(browsers, browser_door, |door| async move { browser(&door).await }).await?;
        let content = content.to_owned();
        Ok(Self::new(process, socket, crowd, Box::new(move |number| proxy_message(SESSION, number, &content))))
    }

    /// A broadcaster that is given frames of `size` bytes, as long as the relay's.
    pub(crate) async fn broadcaster(
        process: Process,
        pusher_door: &Door,
        browser_door: &Door,
        browsers: usize,
        size: usize,
    ) -> Result<Self> {
        let socket = Socket::connect(pusher_door).await?;
        let crowd = Crowd::gather(browsers, browser_door, |door| async move { Socket::connect(&door).await }).await?;
        Ok(Self::new(process, socket, crowd, Box::new(move |number| format!("{number:0size$}"))))
    }

    fn new(process: Process, socket: Socket, crowd: Crowd, script: Script) -> Self {
        let pusher = Rc::clone(&socket.stream);
        let drain = spawn_local(drain(socket, crowd.alarm()));
        Self { process, crowd, pusher, script, pushed: 0, drain }
    }

    /// Pushes as fast as the slowest browser takes it, for about `duration`, until all have it all.
    pub(crate) async fn burst(&mut self, duration: Duration) -> Result<Burst> {
        let (started, cpu_before, pushed_before) = (Instant::now(), self.process.cpu_time()?, self.pushed);
        while started.elapsed() < duration {
            self.crowd.reach((self.pushed + CHUNK).saturating_sub(WINDOW)).await?;
            self.push(CHUNK).await?;
        }
        self.crowd.reach(self.pushed).await?;
        let elapsed = started.elapsed();
        self.crowd.check(self.pushed)?;
        let cpu = self.process.cpu_time()? - cpu_before;
        let deliveries = (self.pushed - pushed_before) as f64 * self.crowd.browsers() as f64;
        Ok(Burst { deliveries, elapsed, cpu })
    }

    /// Pushes `events` one by one, `rate` a second, and times each on its way to each browser.
    pub(crate) async fn paced(&mut self, events: u64, rate: u64) -> Result<Samples> {
        let events = events.next_multiple_of(CHUNK);
        self.crowd.begin_timing(self.pushed);
        let mut ticks = tokio::time::interval(Duration::from_nanos(1_000_000_000 / rate));
        for _ in 0..events {
            ticks.tick().await;
            self.crowd.reach((self.pushed + 1).saturating_sub(PACED_WINDOW)).await?;
            self.crowd.note_pushes(1);
            self.push(1).await?;
        }
        self.crowd.reach(self.pushed).await?;
        self.crowd.check(self.pushed)?;
        Ok(self.crowd.end_timing())
    }

    async fn push(&mut self, count: u64) -> Result<()> {
        let mut frames = Vec::new();
        for number in self.pushed..self.pushed + count {
            push_text_frame(&mut frames, &(self.script)(number));
        }
        self.pushed += count;
        write_all(&self.pusher, &frames).await
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.drain.abort();
    }
}

/// A transcript message as our own proxy sends it: with an id, so that a repeat would be recognised.
pub(crate) fn proxy_message(session_id: &str, number: u64, content: &str) -> String {
    format!(
        r#"{{"type":"proxy_message","protocol_version":1,"session_id":"{session_id}","message":{{"message_id":"msg_{number:09}","role":"assistant","content":"{content}","created_at":"2026-03-19T10:17:10.000Z"}}}}"#
    )
}

/// Takes in what the server says to the pusher; an error among it ends the measurement.
async fn drain(mut socket: Socket, alarm: impl Fn(String)) {
    let mut scratch = vec![0; READ_BYTES];
    loop {
        let heard = socket.read_messages(&mut scratch, |message| {
            if memchr::memmem::find(message, b"connection_error").is_some() {
                alarm(String::from_utf8_lossy(message).into_owned());
            }
        });
        if let Err(error) = heard.await {
            return alarm(format!("the pusher's socket: {error}"));
        }
    }
}
