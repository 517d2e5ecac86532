//! The hub: one thread that owns the truth.
//!
//! Everything that happens arrives as an [`Input`], is handled in order against memory and ledger,
//! and is spoken of only after the commit: order of commit, of sequence and of publication are the
//! same by construction. Everything that waits goes into one commit. Nothing here is async, reads a
//! clock or touches a socket, so the tests below are plain function calls.
//!
//! [`browser`] and [`proxy`] say what each frame means; [`sessions`], [`delivery`], [`transcript`],
//! [`history`], [`prompts`], [`launches`] and [`control`] hold the rules of each topic; [`access`]
//! and [`files`] answer the HTTP side; [`timers`] ends what took too long.

mod access;
mod browser;
mod control;
mod delivery;
mod files;
mod greeting;
mod history;
mod input;
mod launches;
pub(crate) mod outbox;
mod peers;
mod prompts;
mod proxy;
mod sessions;
mod timers;
mod tracked;
mod transcript;

#[cfg(test)]
mod tests;

pub(crate) use access::{AccessError, Door, Paired, mint_pairing, mint_token};
pub(crate) use files::NewFile;
pub(crate) use input::{Frame, HubHandle, Input, NoAnswer, Question, start};
pub(crate) use peers::PeerKey;

use crate::clock::{Millis, timestamp};
use crate::config::Limits;
use crate::ledger::{Ledger, LedgerError, NewAudit};
use crate::metrics::Metrics;
use control::Control;
use delivery::Unsettled;
use launches::Launch;
use outbox::Item;
use peers::{Audience, Peers};
use protocol::browser::RelayToBrowser;
use protocol::connection::ConnectionError;
use protocol::envelope::{Ids, encode};
use protocol::error::{CloseCode, ErrorCode, WireError};
use protocol::event::SessionEvent;
use protocol::ids::{ClientMessageId, EventId, MessageId, RequestId, Sequence, SessionId, Timestamp};
use protocol::proxy::RelayToProxy;
use sessions::LiveSession;
use std::sync::Arc;
use tracked::Tracked;
use transcript::Tail;

/// The coordinator's whole state.
pub(crate) struct Hub {
    ledger: Ledger,
    limits: Limits,
    metrics: Arc<Metrics>,
    /// The time of the step under way.
    now: Millis,
    server_ts: Timestamp,
    peers: Peers,
    sessions: Tracked<SessionId, LiveSession>,
    /// By the id the proxy knows the launch by.
    launches: Tracked<RequestId, Launch>,
    controls: Tracked<(PeerKey, RequestId), Control>,
    /// Sends that no proxy has answered for yet, by the session's key in the ledger.
    unsettled: Tracked<(i64, ClientMessageId), Unsettled>,
    /// Messages that are still being written.
    tails: Tracked<(SessionId, MessageId), Tail>,
    attempts: access::Attempts,
    /// HTTP answers to be given after the commit.
    answers: Vec<Box<dyn FnOnce() + Send>>,
    /// When something takes too long.
    wake_at: Millis,
    next_housekeeping: Millis,
    /// Proxies that went away while the disk refused to note it.
    unrecorded_departures: Vec<PeerKey>,
    last_complaint: Millis,
    /// The disk has just refused a write: what can go without one goes without.
    degraded: bool,
}

/// Why a frame was not carried out.
enum Stop {
    /// The peer is told; nothing was changed.
    Refused(WireError),
    /// The whole step is taken back.
    Ledger(LedgerError),
}

impl From<LedgerError> for Stop {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

type Step<T = ()> = Result<T, Stop>;

fn refuse<T>(code: ErrorCode, message: impl Into<String>) -> Step<T> {
    Err(Stop::Refused(WireError::new(code, message)))
}

/// A fresh id with a prefix that says what it names.
fn fresh_id(prefix: &str) -> String {
    format!("{prefix}_{}", uuid::Uuid::now_v7().simple())
}

impl Hub {
    /// Takes up the work where the ledger says it was left.
    pub(crate) fn open(
        ledger: Ledger,
        limits: Limits,
        metrics: Arc<Metrics>,
        now: Millis,
    ) -> Result<Self, LedgerError> {
        let mut hub = Self {
            ledger,
            limits,
            metrics,
            now,
            server_ts: timestamp(now),
            peers: Peers::default(),
            sessions: Tracked::new(),
            launches: Tracked::new(),
            controls: Tracked::new(),
            unsettled: Tracked::new(),
            tails: Tracked::new(),
            attempts: access::Attempts::default(),
            answers: Vec::new(),
            wake_at: now,
            next_housekeeping: now,
            unrecorded_departures: Vec::new(),
            last_complaint: Millis::MIN / 2,
            degraded: false,
        };
        hub.sweep_files()?;
        hub.load_sessions()?;
        hub.load_launches()?;
        hub.ledger.commit()?;
        hub.sessions.commit();
        hub.launches.commit();
        hub.unsettled.commit();
        Ok(hub)
    }

    /// Handles a group of inputs in one commit. If the disk refuses it, each is tried alone, so
    /// that those which write nothing are still served and the others are told.
    pub(crate) fn step(&mut self, now: Millis, group: &[Input]) {
        // A clock that was set back must not keep the timers waiting.
        let set_back = now < std::mem::replace(&mut self.now, now);
        self.server_ts = timestamp(now);
        if let Err(error) = self.attempt(group) {
            self.complain(&error);
            self.degraded = true;
            for input in group {
                if let Err(error) = self.attempt(std::slice::from_ref(input)) {
                    self.could_not(input, &error);
                }
            }
            self.degraded = false;
        }
        if now >= self.wake_at || set_back {
            match self.attempt(&[Input::Tick]) {
                Ok(()) => self.ticked(),
                Err(error) => {
                    self.complain(&error);
                    self.wake_at = now + timers::RETRY_MS;
                }
            }
        }
    }

    /// Once a second at most: a disk that refuses everything must not also be filled with complaints.
    fn complain(&mut self, error: &LedgerError) {
        if self.now - self.last_complaint >= timers::RETRY_MS {
            self.last_complaint = self.now;
            tracing::error!(%error, "the ledger refused a step");
        }
    }

    /// When [`Hub::step`] should be called even if nothing comes in.
    pub(crate) fn wake_at(&self) -> Millis {
        self.wake_at
    }

    /// Moves the write-ahead log into the main file, at the end.
    pub(crate) fn finish(&self) {
        if let Err(error) = self.ledger.checkpoint() {
            tracing::warn!(%error, "the ledger was not checkpointed; nothing is lost");
        }
    }

    fn attempt(&mut self, group: &[Input]) -> Result<(), LedgerError> {
        let began = std::time::Instant::now();
        let outcome = group.iter().try_for_each(|input| self.handle(input)).and_then(|()| self.ledger.commit());
        match outcome {
            Ok(wrote) => {
                if wrote {
                    self.metrics.commit_seconds.observe(began.elapsed().as_secs_f64());
                }
                self.sessions.commit();
                self.launches.commit();
                self.controls.commit();
                self.unsettled.commit();
                self.tails.commit();
                self.metrics.frames_dropped.inc_by(self.peers.flush() as u64);
                self.answers.drain(..).for_each(|answer| answer());
                self.metrics.sessions.set(self.sessions.len() as i64);
                Ok(())
            }
            Err(error) => {
                self.ledger.roll_back();
                self.sessions.roll_back();
                self.launches.roll_back();
                self.controls.roll_back();
                self.unsettled.roll_back();
                self.tails.roll_back();
                self.peers.discard();
                self.answers.clear();
                Err(error)
            }
        }
    }

    fn handle(&mut self, input: &Input) -> Result<(), LedgerError> {
        match input {
            Input::Hello { peer, door, hello, outbox } => {
                self.hello(*peer, door, hello, outbox)?;
            }
            // A peer that was turned away is no longer heard.
            Input::Frame { peer, .. } if self.peers.get(*peer).is_none() => {}
            Input::Frame { peer, ids, frame } => {
                let outcome = match frame {
                    Frame::FromBrowser(frame) => self.browser_frame(*peer, ids, frame),
                    Frame::FromProxy(frame) => self.proxy_frame(*peer, ids, frame),
                };
                match outcome {
                    Ok(()) => {}
                    Err(Stop::Refused(error)) => {
                        if let Frame::FromBrowser(frame) = frame {
                            self.audit_refusal(*peer, ids, frame, &error)?;
                        }
                        self.refused(*peer, error, ids);
                    }
                    Err(Stop::Ledger(error)) => return Err(error),
                }
            }
            Input::CatchUp { peer } => self.catch_up(*peer)?,
            Input::Gone { peer } => self.gone(*peer)?,
            Input::Question(question) => self.answer_question(question)?,
            Input::Tick => self.tick()?,
            Input::Shutdown => self.close_everyone(),
            Input::Finish => {}
        }
        Ok(())
    }

    /// An input came to nothing because the disk refused it: whoever sent it must not wait.
    fn could_not(&mut self, input: &Input, error: &LedgerError) {
        match input {
            Input::Hello { outbox, .. } => outbox.close(CloseCode::Restarting),
            Input::Frame {
                peer,
                frame: Frame::FromBrowser(protocol::browser::BrowserToRelay::SendMessage(send)),
                ..
            } => {
                self.fail_unrecorded(*peer, send, ErrorCode::StorageFull, error.to_string());
            }
            Input::Frame { peer, ids, .. } => {
                self.refused(*peer, WireError::new(ErrorCode::StorageFull, error.to_string()), ids);
            }
            Input::Gone { peer } => self.unrecorded_departures.push(*peer),
            // A question's asker hears it by the answer never coming; the rest has nobody to tell.
            Input::Question(_) | Input::CatchUp { .. } | Input::Tick | Input::Shutdown | Input::Finish => {}
        }
        self.peers.flush();
    }

    fn close_everyone(&mut self) {
        for (_, peer) in self.peers.iter() {
            peer.outbox.close(CloseCode::Restarting);
        }
    }

    fn refused(&mut self, peer: PeerKey, error: WireError, ids: &Ids) {
        // Both directions write this frame alike.
        let error = ConnectionError { error, ids: ids.clone() };
        self.tell_browser(peer, &RelayToBrowser::ConnectionError(error));
    }

    fn tell_browser(&mut self, peer: PeerKey, frame: &RelayToBrowser) {
        let text = encode(frame, Some(&self.server_ts));
        self.peers.tell(peer, Item::Answer(text.into()));
    }

    fn tell_proxy(&mut self, peer: PeerKey, frame: &RelayToProxy) {
        let text = encode(frame, Some(&self.server_ts));
        self.peers.tell(peer, Item::Answer(text.into()));
    }

    /// Says what is so in a session now. It has no sequence and is not kept.
    fn broadcast(&mut self, session_id: &SessionId, audience: Audience, frame: &RelayToBrowser) {
        let text = encode(frame, Some(&self.server_ts));
        self.peers.broadcast(session_id, audience, &Item::State(text.into()));
    }

    /// Keeps an event under the session's next sequence, and says it after the commit.
    fn emit(
        &mut self,
        session_id: &SessionId,
        audience: Audience,
        event: impl FnOnce(EventId, Sequence) -> SessionEvent,
    ) -> Result<Sequence, LedgerError> {
        let session = self.sessions.get_mut(session_id).expect("events are emitted for live sessions only");
        session.last_sequence.0 += 1;
        let (session_key, sequence) = (session.key, session.last_sequence);
        let event = event(EventId::new(fresh_id("evt")), sequence);
        let text = encode(&event, Some(&self.server_ts));
        self.ledger.append_event(session_key, sequence, self.now, &text)?;
        self.metrics.events.inc();
        self.peers.broadcast(session_id, audience, &Item::Event(session_key, sequence, text.into()));
        Ok(sequence)
    }

    fn audit(&mut self, entry: &NewAudit) -> Result<(), LedgerError> {
        self.ledger.audit(entry, self.now)
    }

    /// Makes sure that [`Hub::tick`] runs at this time at the latest.
    fn wake_by(&mut self, deadline: Millis) {
        self.wake_at = self.wake_at.min(deadline);
    }
}
