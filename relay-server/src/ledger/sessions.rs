//! Sessions: their description, settings and numbering.

use super::{Ledger, Result};
use crate::clock::Millis;
use protocol::config::AgentSettings;
use protocol::ids::{MachineId, Sequence, SessionId};
use protocol::session::Session;

/// A session as the ledger knows it.
pub(crate) struct StoredSession {
    pub session_key: i64,
    pub machine_id: MachineId,
    pub session: Session,
    pub settings: Option<AgentSettings>,
    pub last_sequence: Sequence,
    /// Events up to here are no longer kept.
    pub pruned_sequence: Sequence,
}

const SELECT: &str = "SELECT session_key, machine_id, session, settings, pruned_sequence,
    max(pruned_sequence, coalesce((SELECT max(sequence) FROM events WHERE events.session_key = sessions.session_key), 0))
    FROM sessions";

type Columns = (i64, String, String, Option<String>, i64, i64);

fn columns(row: &rusqlite::Row) -> rusqlite::Result<Columns> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
}

fn stored((session_key, machine_id, session, settings, pruned, last): Columns) -> Result<StoredSession> {
    Ok(StoredSession {
        session_key,
        machine_id: MachineId::new(machine_id),
        session: serde_json::from_str(&session)?,
        settings: settings.map(|settings| serde_json::from_str(&settings)).transpose()?,
        last_sequence: Sequence(last as u64),
        pruned_sequence: Sequence(pruned as u64),
    })
}

impl Ledger {
    /// Every session that is not closed.
    pub(crate) fn live_sessions(&self) -> Result<Vec<StoredSession>> {
        let rows = self.all(&format!("{SELECT} WHERE closed_at IS NULL ORDER BY session_key"), [], columns)?;
        rows.into_iter().map(stored).collect()
    }

    /// Any session, closed ones too.
    pub(crate) fn session(&self, session_id: &SessionId) -> Result<Option<StoredSession>> {
        self.one(&format!("{SELECT} WHERE session_id = ?1"), [session_id.as_str()], columns)?.map(stored).transpose()
    }

    /// The id of the session with this key.
    pub(crate) fn session_id(&self, session_key: i64) -> Result<Option<SessionId>> {
        let sql = "SELECT session_id FROM sessions WHERE session_key = ?1";
        self.one(sql, [session_key], |row| row.get(0).map(|id: String| SessionId::new(id)))
    }

    /// Adds a session and returns its key.
    pub(crate) fn add_session(&mut self, machine_id: &MachineId, session: &Session) -> Result<i64> {
        self.write(
            "INSERT INTO sessions (session_id, machine_id, session) VALUES (?1, ?2, ?3)",
            (session.session_id.as_str(), machine_id.as_str(), serde_json::to_string(session)?),
        )?;
        Ok(self.connection.last_insert_rowid())
    }

    /// Replaces a session's description; a closed one is open again.
    pub(crate) fn describe_session(&mut self, session_key: i64, session: &Session) -> Result<()> {
        self.write(
            "UPDATE sessions SET session = ?2, closed_at = NULL WHERE session_key = ?1",
            (session_key, serde_json::to_string(session)?),
        )?;
        Ok(())
    }

    /// Takes a session out of the live ones. Its history stays.
    pub(crate) fn close_session(&mut self, session_key: i64, at: Millis) -> Result<()> {
        self.write("UPDATE sessions SET closed_at = ?2 WHERE session_key = ?1", (session_key, at))?;
        Ok(())
    }

    /// Keeps the latest settings read from the agent.
    pub(crate) fn keep_settings(&mut self, session_key: i64, settings: &AgentSettings) -> Result<()> {
        self.write(
            "UPDATE sessions SET settings = ?2 WHERE session_key = ?1",
            (session_key, serde_json::to_string(settings)?),
        )?;
        Ok(())
    }
}
