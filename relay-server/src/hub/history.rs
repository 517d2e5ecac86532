//! Histories: snapshots, deltas and resumed cursors.
//!
//! The hub does not read them. It puts a marker with the present `last_sequence` into the peer's
//! queue; the socket reads the rows when the marker's turn has come. Everything queued before it is
//! in the answer, everything after it is not: no event is missed and none comes twice.

use super::outbox::{History, Item};
use super::peers::PeerKey;
use super::{Hub, Stop, refuse};
use crate::ledger::LedgerError;
use crate::ledger::replay::{Part, Progress};
use protocol::browser::RelayToBrowser;
use protocol::connection::Cursor;
use protocol::envelope::encode;
use protocol::error::ErrorCode;
use protocol::ids::{RequestId, Sequence, SessionId};
use protocol::message::{HistoryDelta, HistoryRequest, HistorySnapshot, Verdict};

/// What must be known of a session to read its history; closed ones have one too.
#[derive(Clone, Copy, Debug)]
struct Extent {
    key: i64,
    last: Sequence,
    pruned: Sequence,
}

/// How an answer is addressed.
struct Address<'a> {
    peer: PeerKey,
    session_id: &'a SessionId,
    request_id: Option<RequestId>,
    verdict: Option<Verdict>,
}

impl Hub {
    pub(super) fn history_request(
        &mut self,
        peer: PeerKey,
        request_id: Option<&RequestId>,
        request: &HistoryRequest,
    ) -> Result<(), Stop> {
        let session_id = &request.session_id;
        let Some(extent) = self.extent(session_id)? else {
            return refuse(ErrorCode::SessionUnknown, format!("There is no session `{session_id}`"));
        };
        let address = Address { peer, session_id, request_id: request_id.cloned(), verdict: None };
        match request.after_sequence {
            None => {
                let part = Part::Messages { before: request.before_sequence, limit: request.limit };
                self.tell_snapshot(&address, extent, part);
            }
            Some(after) if after > extent.last || !self.is_our_epoch(request.ledger_epoch.as_ref()) => {
                return refuse(
                    ErrorCode::ResumeCursorInvalid,
                    format!("after_sequence {after} is not of this ledger: ask for a snapshot"),
                );
            }
            Some(after) if after < extent.pruned => {
                return refuse(
                    ErrorCode::HistoryNotAvailable,
                    format!("events up to {} are no longer kept: ask for a snapshot", extent.pruned),
                );
            }
            Some(after) => self.tell_delta(&address, extent, after),
        }
        self.tell_tails(peer, session_id);
        Ok(())
    }

    /// Continues from a cursor, or says that it is worthless and starts afresh.
    pub(super) fn resume(&mut self, peer: PeerKey, cursor: &Cursor) -> Result<(), LedgerError> {
        let session_id = &cursor.session_id;
        let nothing = Extent { key: 0, last: Sequence(0), pruned: Sequence(0) };
        let known = self.extent(session_id)?;
        let extent = known.unwrap_or(nothing);
        let after = cursor.last_sequence;
        let good = known.is_some()
            && after <= extent.last
            && after >= extent.pruned
            && self.is_our_epoch(cursor.ledger_epoch.as_ref());
        let verdict = Some(if good { Verdict::Ok } else { Verdict::Gap });
        let address = Address { peer, session_id, request_id: None, verdict };
        if good {
            self.tell_delta(&address, extent, after);
        } else {
            self.tell_snapshot(&address, extent, Part::Messages { before: None, limit: None });
        }
        Ok(())
    }

    fn extent(&self, session_id: &SessionId) -> Result<Option<Extent>, LedgerError> {
        if let Some(live) = self.sessions.get(session_id) {
            return Ok(Some(Extent { key: live.key, last: live.last_sequence, pruned: live.pruned_sequence }));
        }
        let stored = self.ledger.session(session_id)?;
        Ok(stored.map(|stored| Extent {
            key: stored.session_key,
            last: stored.last_sequence,
            pruned: stored.pruned_sequence,
        }))
    }

    fn is_our_epoch(&self, epoch: Option<&protocol::ids::Epoch>) -> bool {
        epoch.is_none_or(|epoch| epoch == self.ledger.epoch())
    }

    fn tell_delta(&mut self, address: &Address, extent: Extent, after: Sequence) {
        let frame = RelayToBrowser::HistoryDelta(HistoryDelta {
            request_id: address.request_id.clone(),
            session_id: address.session_id.clone(),
            ledger_epoch: self.ledger.epoch().clone(),
            from_sequence: after,
            last_sequence: extent.last,
            verdict: address.verdict,
            events: Vec::new(),
        });
        self.tell_history(
            address.peer,
            &frame,
            Progress::new(extent.key, Part::EventsAfter(after), extent.last),
            false,
        );
    }

    fn tell_snapshot(&mut self, address: &Address, extent: Extent, part: Part) {
        let frame = RelayToBrowser::HistorySnapshot(HistorySnapshot {
            request_id: address.request_id.clone(),
            session_id: address.session_id.clone(),
            ledger_epoch: self.ledger.epoch().clone(),
            last_sequence: extent.last,
            verdict: address.verdict,
            messages: Vec::new(),
            first_sequence: None,
            has_more: None,
        });
        self.tell_history(address.peer, &frame, Progress::new(extent.key, part, extent.last), true);
    }

    /// Queues a frame whose list, the last field, is still empty: the rows go in there.
    fn tell_history(&mut self, peer: PeerKey, frame: &RelayToBrowser, progress: Progress, paged: bool) {
        let mut opening = encode(frame, Some(&self.server_ts));
        debug_assert!(opening.ends_with("[]}"), "the list must be the last field: {opening}");
        opening.truncate(opening.len() - "]}".len());
        self.peers.tell(peer, Item::History(Box::new(History { opening, progress, paged })));
    }
}
