//! Browsers that send, and the proxy that takes what they send.

use crate::numbers::Samples;
use crate::socket::{Door, READ_BYTES, Socket, browser, write_all};
use crate::wire::push_text_frame;
use anyhow::{Result, ensure};
use memchr::memmem;
use serde_json::json;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// After this long without an answer, something is lost.
const PATIENCE: Duration = Duration::from_secs(20);

/// A line or two, as people type on a phone.
const CONTENT: &str = "Please run the tests again, and if they pass, commit with a message that says why.";

/// One phone with its own token, looking at one session.
pub(crate) struct Sender {
    number: usize,
    socket: Socket,
    /// Begins every id of this sender, so that its own events are found without parsing the others'.
    prefix: String,
    session_id: String,
    next: u64,
    under_way: HashMap<String, Send>,
    scratch: Vec<u8>,
    /// Rung whenever a send is accepted.
    pub(crate) accepted: Rc<Notify>,
}

struct Send {
    sent: Instant,
    accepted: bool,
}

/// What one sender saw in one round.
#[derive(Default)]
pub(crate) struct Round {
    pub(crate) delivered: u64,
    pub(crate) to_accepted: Samples,
}

impl Sender {
    /// Connects, and says which session it looks at.
    pub(crate) async fn connect(door: &Door, number: usize, session_id: &str) -> Result<Self> {
        let socket = browser(door).await?;
        let interest = json!({ "type": "session_interest", "protocol_version": 1, "sessions": [session_id] });
        socket.say(&interest.to_string()).await?;
        let prefix = prefix(number);
        let scratch = vec![0; READ_BYTES];
        Ok(Self {
            number,
            socket,
            prefix,
            session_id: session_id.into(),
            next: 0,
            under_way: HashMap::new(),
            scratch,
            accepted: Rc::default(),
        })
    }

    /// Keeps `window` sends under way until `end`, then waits until each has been delivered.
    pub(crate) async fn round(&mut self, window: usize, end: Instant) -> Result<Round> {
        let mut round = Round::default();
        self.send(window).await?;
        while !self.under_way.is_empty() {
            let before = self.under_way.len();
            let heard = tokio::time::timeout(PATIENCE, self.listen(&mut round)).await;
            ensure!(heard.is_ok(), "{} sends of {} have no answer", self.under_way.len(), self.prefix);
            heard??;
            if Instant::now() < end {
                self.send(before - self.under_way.len()).await?;
            }
        }
        Ok(round)
    }

    async fn send(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            let id = client_message_id(self.number, self.next);
            self.next += 1;
            let frame = format!(
                r#"{{"type":"send_message","protocol_version":1,"client_message_id":"{id}","session_id":"{}","content":"{CONTENT}","created_at":"2026-03-19T10:16:30.000Z"}}"#,
                self.session_id
            );
            self.under_way.insert(id, Send { sent: Instant::now(), accepted: false });
            self.socket.say(&frame).await?;
        }
        Ok(())
    }

    async fn listen(&mut self, round: &mut Round) -> Result<()> {
        let Self { socket, prefix, under_way, scratch, accepted, .. } = self;
        let mut outcome = Ok(());
        let before = round.to_accepted.count();
        socket
            .read_messages(scratch, |message| {
                if outcome.is_ok() && memmem::find(message, prefix.as_bytes()).is_some() {
                    outcome = take(message, under_way, round);
                }
            })
            .await?;
        if round.to_accepted.count() > before {
            accepted.notify_one();
        }
        outcome
    }
}

/// The n-th id of a sender. Random after the prefix, as phones' ids are: where a row lands in an index matters.
pub(crate) fn client_message_id(sender: usize, number: u64) -> String {
    // SplitMix64: every number gives another 64 bits, without order.
    let mut bits = (sender as u64) << 40 | number;
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        bits = (bits ^ (bits >> 30)).wrapping_mul(factor).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }
    format!("{}{:016x}", prefix(sender), bits ^ (bits >> 31))
}

fn prefix(sender: usize) -> String {
    format!("s{sender:03}-")
}

/// Takes an event about one of the sender's own sends: accepted once, then delivered once.
fn take(message: &[u8], under_way: &mut HashMap<String, Send>, round: &mut Round) -> Result<()> {
    let told = || String::from_utf8_lossy(message).into_owned();
    let id = text_field(message, "client_message_id").unwrap_or_default();
    let Some(send) = under_way.get_mut(id) else { anyhow::bail!("an event of a send that is over: {}", told()) };
    match text_field(message, "type") {
        Some("message_accepted") => {
            ensure!(!send.accepted, "accepted twice: {}", told());
            send.accepted = true;
            round.to_accepted.add(send.sent.elapsed());
        }
        Some("message_delivered") => {
            ensure!(send.accepted, "delivered before it was accepted: {}", told());
            under_way.remove(id);
            round.delivered += 1;
        }
        _ => anyhow::bail!("unexpected: {}", told()),
    }
    Ok(())
}

/// A proxy that says of every send that it was delivered; if there is a bell, after it has rung.
/// Ends with the error that ended it.
pub(crate) async fn deliver_everything(mut socket: Socket, bell: Option<Rc<Notify>>) -> anyhow::Error {
    let mut scratch = vec![0; READ_BYTES];
    let mut answers = Vec::new();
    loop {
        let mut refused = None;
        let heard = socket.read_messages(&mut scratch, |message| match text_field(message, "type") {
            Some("send_message") => push_text_frame(&mut answers, &send_result(message)),
            Some("connection_error") => refused = Some(String::from_utf8_lossy(message).into_owned()),
            _ => {}
        });
        if let Err(error) = heard.await {
            return error;
        }
        if let Some(refused) = refused {
            return anyhow::anyhow!("the proxy was refused: {refused}");
        }
        if answers.is_empty() {
            continue;
        }
        if let Some(bell) = &bell {
            bell.notified().await;
        }
        if let Err(error) = write_all(&socket.stream, &answers).await {
            return error;
        }
        answers.clear();
    }
}

/// As our own proxy answers: with a `request_id`, because it must not be lost.
fn send_result(message: &[u8]) -> String {
    let session_id = text_field(message, "session_id").unwrap_or_default();
    let client_message_id = text_field(message, "client_message_id").unwrap_or_default();
    format!(
        r#"{{"type":"proxy_send_result","protocol_version":1,"request_id":"r-{client_message_id}","session_id":"{session_id}","client_message_id":"{client_message_id}","result":"delivered","delivered_at":"2026-03-19T10:16:32.000Z"}}"#
    )
}

/// The first text field of this name. Good enough for frames whose texts hold no quotes.
fn text_field<'a>(message: &'a [u8], name: &str) -> Option<&'a str> {
    let needle = format!("\"{name}\":\"");
    let start = memmem::find(message, needle.as_bytes())? + needle.len();
    let length = memchr::memchr(b'"', &message[start..])?;
    std::str::from_utf8(&message[start..start + length]).ok()
}
