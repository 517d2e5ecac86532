//! The events of each session, as they were said.

use super::{Ledger, Result};
use crate::clock::Millis;
use protocol::ids::Sequence;

impl Ledger {
    /// Keeps an event. A sequence that exists already is refused by the table's key.
    pub(crate) fn append_event(&mut self, session_key: i64, sequence: Sequence, at: Millis, event: &str) -> Result<()> {
        self.write(
            "INSERT INTO events (session_key, sequence, at, event) VALUES (?1, ?2, ?3, ?4)",
            (session_key, sequence.0 as i64, at, event),
        )?;
        Ok(())
    }

    /// One event, as it was said.
    pub(crate) fn event(&self, session_key: i64, sequence: Sequence) -> Result<Option<String>> {
        self.one(
            "SELECT event FROM events WHERE session_key = ?1 AND sequence = ?2",
            (session_key, sequence.0 as i64),
            |row| row.get(0),
        )
    }

    /// Drops events and messages from before `before`, and remembers up to where.
    pub(crate) fn prune(&mut self, before: Millis) -> Result<usize> {
        self.write(
            "UPDATE sessions SET pruned_sequence = max(pruned_sequence, coalesce(
                 (SELECT max(sequence) FROM events WHERE events.session_key = sessions.session_key AND at < ?1), 0))",
            [before],
        )?;
        // A send that is still under way stays, however old.
        self.write("DELETE FROM messages WHERE at < ?1 AND delivery IS NOT 'accepted'", [before])?;
        self.write(
            "DELETE FROM events WHERE at < ?1 AND sequence <= (SELECT pruned_sequence FROM sessions WHERE sessions.session_key = events.session_key)",
            [before],
        )
    }
}
