//! `kill -9` at random moments under load, hundreds of times; then everything is counted.
//!
//! Each round starts the relay on the same data, connects a proxy and several phones that talk as
//! fast as they can, and kills it in the middle. The [`Book`] holds what the outside was told. At
//! the end a well-behaved proxy settles what is left, and the relay's own history must agree with
//! every line of the book.

use crate::peer::Peer;
use crate::relay::{Relay, Role};
use crate::world::{announce, events_after, history, observed, send, send_result, session, snapshot};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const SESSIONS: [&str; 3] = ["soak_1", "soak_2", "soak_3"];
const PHONES: usize = 3;
/// Sends of one phone that have not been accepted yet.
const WINDOW: usize = 4;
const ROUNDS: usize = 300;
/// The rounds end here on a slow machine.
const BUDGET: Duration = Duration::from_secs(50);

/// What somebody outside the relay saw.
enum Seen {
    /// A phone is about to send this.
    Sent {
        session: String,
        id: String,
    },
    /// A phone is about to send again what it never heard of.
    Retried {
        id: String,
    },
    /// A browser was told this event.
    Event(Value),
    /// The proxy was given this send.
    Forwarded {
        id: String,
    },
    /// The relay took this result, or this transcript message, and said so.
    ResultTaken {
        id: String,
        result: String,
    },
    MessageTaken {
        session: String,
        id: String,
    },
}

/// Everything the outside was told, over all rounds.
#[derive(Default)]
struct Book {
    sent: HashMap<String, String>,
    /// The answers to these may be events of an earlier round that nobody received then.
    retried: HashSet<String>,
    accepted: HashSet<String>,
    ended: HashMap<String, String>,
    taken_results: HashMap<String, String>,
    taken_messages: HashSet<(String, String)>,
    /// Sequence to event, per session.
    events: HashMap<String, HashMap<u64, String>>,
    /// The highest sequence of earlier rounds, per session.
    highest: HashMap<String, u64>,
    forwarded: HashSet<String>,
}

impl Book {
    fn write(&mut self, seen: Seen) {
        match seen {
            Seen::Sent { session, id } => {
                self.sent.insert(id, session);
            }
            Seen::Retried { id } => {
                self.retried.insert(id);
            }
            Seen::Event(event) => self.write_event(&event),
            Seen::Forwarded { id } => {
                let settled = self.taken_results.get(&id).filter(|result| *result != "failed");
                assert!(settled.is_none(), "{id} is forwarded although its end was taken");
                self.forwarded.insert(id);
            }
            Seen::ResultTaken { id, result } => {
                self.taken_results.insert(id, result);
            }
            Seen::MessageTaken { session, id } => {
                self.taken_messages.insert((session, id));
            }
        }
    }

    fn write_event(&mut self, event: &Value) {
        let Some(sequence) = event["sequence"].as_u64() else { return };
        let session = event["session_id"].as_str().or(event["session"]["session_id"].as_str()).unwrap().to_owned();
        let event_id = event["event_id"].as_str().unwrap().to_owned();
        let highest = self.highest.get(&session).copied().unwrap_or(0);
        let known = self.events.entry(session).or_default().insert(sequence, event_id.clone());
        match known {
            Some(known) => assert_eq!(known, event_id, "sequence {sequence} stands for two events"),
            None if event["client_message_id"].as_str().is_some_and(|id| self.retried.contains(id)) => {}
            None => assert!(sequence > highest, "{event} comes after {highest} was told in an earlier round"),
        }
        let Some(id) = event["client_message_id"].as_str() else { return };
        match event["type"].as_str().unwrap() {
            "message_accepted" => {
                self.accepted.insert(id.to_owned());
            }
            "message_failed" if event["delivery"] == "indeterminate" => {
                self.ended.insert(id.to_owned(), "indeterminate".to_owned());
            }
            end => {
                self.ended.insert(id.to_owned(), end.trim_start_matches("message_").to_owned());
            }
        }
    }

    fn end_round(&mut self) {
        for (session, events) in &self.events {
            self.highest.insert(session.clone(), *events.keys().max().unwrap());
        }
    }

    /// Sends of which no phone ever heard.
    fn unheard(&self) -> Vec<(String, String)> {
        let unheard = |(id, _): &(&String, &String)| !self.accepted.contains(*id) && !self.ended.contains_key(*id);
        self.sent.iter().filter(unheard).map(|(id, session)| (id.clone(), session.clone())).collect()
    }
}

/// Connects to a relay that may die at any moment.
async fn connect(address: &str, role: Role, token: &str) -> Option<Peer> {
    let stream = TcpStream::connect(address).await.ok()?;
    let headers = [("Authorization", format!("Bearer {token}"))];
    let mut peer = Peer::try_over(Box::new(stream), address, role, &headers).await.ok()?;
    peer.try_send(json!({"type": "connection_hello", "peer_role": role.word(), "client_name": "soak"})).await;
    peer.wait_where(|frame| frame["type"] == "connection_ack").await?;
    Some(peer)
}

/// A phone that sends as fast as its window allows, until the relay is gone.
async fn phone(
    address: String,
    token: String,
    name: String,
    retries: Vec<(String, String)>,
    book: UnboundedSender<Seen>,
) {
    let Some(mut peer) = connect(&address, Role::Browser, &token).await else { return };
    let mut open = HashSet::new();
    let mut queue = retries;
    for number in 0.. {
        while open.len() < WINDOW {
            let (id, session) = match queue.pop() {
                Some((id, session)) => {
                    book.send(Seen::Retried { id: id.clone() }).ok();
                    (id, session)
                }
                None => {
                    let (id, session) = (format!("{name}-{number}-{}", open.len()), SESSIONS[number % 3].to_owned());
                    book.send(Seen::Sent { session: session.clone(), id: id.clone() }).ok();
                    (id, session)
                }
            };
            open.insert(id.clone());
            if !peer.try_send(send(&session, &id, "soak")).await {
                return;
            }
        }
        let Some(frame) = peer.wait_where(|_| true).await else { return };
        if let Some(id) = frame["client_message_id"].as_str() {
            open.remove(id);
        }
        book.send(Seen::Event(frame)).ok();
    }
}

/// A proxy that answers most sends in some way, and talks itself, until the relay is gone.
async fn proxy(address: String, token: String, name: String, book: UnboundedSender<Seen>) {
    let Some(mut peer) = connect(&address, Role::Proxy, &token).await else { return };
    peer.try_send(snapshot(SESSIONS.map(session))).await;
    for number in 0.. {
        let Some(frame) = peer.wait_where(|_| true).await else { return };
        if frame["type"] == "proxy_ack" {
            book.send(taken(frame["request_id"].as_str().unwrap())).ok();
        }
        if frame["type"] != "send_message" {
            continue;
        }
        let (id, session) = (frame["client_message_id"].as_str().unwrap(), frame["session_id"].as_str().unwrap());
        book.send(Seen::Forwarded { id: id.to_owned() }).ok();
        let said = format!("{name}-{number}");
        let mut message = observed(session, &said, "soak");
        message["request_id"] = json!(format!("message/{session}/{said}"));
        peer.try_send(message).await;
        if let Some(result) =
            [Some("delivered"), Some("delivered"), Some("failed"), Some("indeterminate"), None][number % 5]
        {
            let mut frame = send_result(session, id, result);
            frame["request_id"] = json!(format!("result/{id}/{result}"));
            peer.try_send(frame).await;
        }
    }
}

/// What an acknowledged `request_id` stands for.
fn taken(request_id: &str) -> Seen {
    let mut words = request_id.splitn(3, '/');
    let (kind, first, second) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    match kind {
        "message" => Seen::MessageTaken { session: first.to_owned(), id: second.to_owned() },
        _ => Seen::ResultTaken { id: first.to_owned(), result: second.to_owned() },
    }
}

/// One life of the relay, cut short.
async fn round(relay: &mut Relay, number: usize, tokens: &[String], book: &mut Book) {
    relay.restart();
    let (sender, receiver): (_, UnboundedReceiver<Seen>) = unbounded_channel();
    let address = relay.address().to_owned();
    let mut retries = book.unheard();
    retries.truncate(PHONES * 2);
    let mut peers = vec![tokio::spawn(proxy(address.clone(), tokens[0].clone(), format!("r{number}"), sender.clone()))];
    for (index, token) in tokens[1..].iter().enumerate() {
        let retries = retries.split_off(retries.len().saturating_sub(2));
        let name = format!("r{number}p{index}");
        peers.push(tokio::spawn(phone(address.clone(), token.clone(), name, retries, sender.clone())));
    }
    drop(sender);
    tokio::time::sleep(Duration::from_millis(rand::random_range(2..120))).await;
    relay.kill9();
    for peer in peers {
        peer.await.expect("no peer finds a rule broken");
    }
    let mut receiver = receiver;
    while let Some(seen) = receiver.recv().await {
        book.write(seen);
    }
    book.end_round();
}

/// A calm end: what is left is settled, and what no phone ever heard of is sent again.
async fn settle_all(relay: &mut Relay, tokens: &[String], book: &mut Book) -> Peer {
    relay.restart();
    let mut proxy = Peer::as_device(relay, Role::Proxy, &tokens[0]).await;
    let mut browser = Peer::as_device(relay, Role::Browser, &tokens[1]).await;
    announce(&mut proxy, &SESSIONS).await;
    let mut kept = HashSet::new();
    for session in SESSIONS {
        let transcript = history(&mut browser, session).await;
        kept.extend(transcript["messages"].as_array().unwrap().iter().map(|message| message["message_id"].clone()));
    }
    for id in book.accepted.union(&book.forwarded) {
        assert!(kept.contains(&json!(id)), "{id} was spoken of before it was on disk");
    }
    for (id, session) in book.unheard() {
        browser.send(send(&session, &id, "soak")).await;
        browser.expect_like(json!({"client_message_id": id, "session_id": session})).await;
    }
    for frame in proxy.heard().await.into_iter().filter(|frame| frame["type"] == "send_message") {
        let (id, session) = (frame["client_message_id"].as_str().unwrap(), frame["session_id"].as_str().unwrap());
        book.write(Seen::Forwarded { id: id.to_owned() });
        crate::world::acknowledged(&mut proxy, send_result(session, id, "delivered")).await;
    }
    browser
}

/// Compares the relay's history of a session with the book.
async fn audit(browser: &mut Peer, session: &str, book: &Book) {
    let transcript = history(browser, session).await;
    let mut statuses: HashMap<&str, Vec<&str>> = HashMap::new();
    for message in transcript["messages"].as_array().unwrap() {
        let status = message["status"].as_str().unwrap_or("said");
        statuses.entry(message["message_id"].as_str().unwrap()).or_default().push(status);
    }
    for (id, _) in book.sent.iter().filter(|(_, home)| *home == session) {
        let told = statuses.get(id.as_str()).map(Vec::as_slice);
        let Some([status]) = told else { panic!("{id} is in the history as {told:?}") };
        assert!(["delivered", "failed", "indeterminate"].contains(status), "{id} is in limbo: {status}");
        for promised in [book.ended.get(id), book.taken_results.get(id)].into_iter().flatten() {
            assert!(promised == status || promised == "failed", "{id} was {promised} and is {status}");
        }
    }
    for (_, id) in book.taken_messages.iter().filter(|(home, _)| home == session) {
        assert_eq!(statuses.get(id.as_str()).map(Vec::len), Some(1), "{id} was taken and is not kept once");
    }
    let events = events_after(browser, session, 0).await;
    assert!(events.is_sorted_by(|a, b| a["sequence"].as_u64() < b["sequence"].as_u64()), "sequences grow");
    let kept: HashMap<_, _> =
        events.iter().map(|event| (event["sequence"].as_u64().unwrap(), &event["event_id"])).collect();
    for (sequence, event_id) in book.events.get(session).into_iter().flatten() {
        assert_eq!(
            kept.get(sequence).and_then(|kept| kept.as_str()),
            Some(event_id.as_str()),
            "{sequence} was told and lost"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_hundreds_of_kills_every_accepted_send_is_accounted_for() {
    let mut relay = Relay::stopped(&["--max-frames-per-second", "0"]);
    let mut tokens = vec![relay.token(Role::Proxy, "desk")];
    tokens.extend((0..PHONES).map(|number| relay.token(Role::Browser, &format!("phone {number}"))));
    let mut book = Book::default();
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < ROUNDS && start.elapsed() < BUDGET {
        round(&mut relay, rounds, &tokens, &mut book).await;
        rounds += 1;
    }
    let mut browser = settle_all(&mut relay, &tokens, &mut book).await;
    for session in SESSIONS {
        audit(&mut browser, session, &book).await;
    }
    let (sent, accepted, said) = (book.sent.len(), book.accepted.len(), book.taken_messages.len());
    eprintln!(
        "{rounds} rounds in {:?}: {sent} sent, {accepted} heard accepted, {} forwarded, {said} said",
        start.elapsed(),
        book.forwarded.len()
    );
    assert!(rounds >= 50 && accepted > rounds && said > rounds, "{rounds} rounds, {accepted} accepted, {said} said");
}
