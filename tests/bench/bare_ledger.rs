//! The baseline of the sends: a bare SQLite loop that writes the rows the relay writes.
//!
//! Schema and pragmas are the relay's own. The texts are taken from a send that the relay really
//! recorded, so that the rows are as long; only ids and sequences change from row to row. No JSON is
//! built here, nothing is looked up, and nobody is told.

#![expect(clippy::disallowed_types, reason = "the baseline of a ledger is a database")]

use crate::relay::scratch_dir;
use crate::sender::client_message_id;
use crate::sends::{SENDERS, SESSIONS};
use anyhow::{Context, Result};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SCHEMA: &str = include_str!("../../relay-server/src/ledger/schema/0001_first.sql");

/// What the relay wrote for one send.
pub(crate) struct Pattern {
    message: String,
    token_id: String,
    /// The texts of its events: accepted, delivered.
    events: [String; 2],
    audit: Vec<AuditRow>,
}

/// action, outcome, token_id, device_name, machine_id, session_id, detail.
type AuditRow = (String, String, Option<String>, Option<String>, Option<String>, Option<String>, Option<String>);

impl Pattern {
    /// Reads what a running relay has recorded of its latest delivered send.
    pub(crate) fn from_relay(data_dir: &Path) -> Result<Self> {
        let ledger = Connection::open_with_flags(data_dir.join("ledger.sqlite3"), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let (session_key, client_message_id, message, token_id, accepted, delivered) = ledger
            .query_row(
                "SELECT session_key, message_id, message, token_id, sequence, settled_sequence FROM messages
                 WHERE delivery = 'delivered' ORDER BY message_key DESC LIMIT 1",
                [],
                |row| <(i64, String, String, String, i64, i64)>::try_from(row),
            )
            .context("no send was delivered")?;
        let event = |sequence: i64| {
            let sql = "SELECT event FROM events WHERE session_key = ?1 AND sequence = ?2";
            ledger.query_row(sql, (session_key, sequence), |row| row.get::<_, String>(0))
        };
        let audit = ledger
            .prepare("SELECT action, outcome, token_id, device_name, machine_id, session_id, detail FROM audit WHERE subject = ?1")?
            .query_map([&client_message_id], |row| AuditRow::try_from(row))?
            .collect::<rusqlite::Result<_>>()?;
        Ok(Self { events: [event(accepted)?, event(delivered)?], message, token_id, audit })
    }

    /// How many rows are inserted or changed for one send.
    pub(crate) fn rows_per_send(&self) -> usize {
        // The message, its two events, its change to delivered, and the audit trail.
        4 + self.audit.len()
    }
}

/// A ledger without a relay.
pub(crate) struct BareLedger {
    connection: Connection,
    pattern: Pattern,
    accepted: u64,
    delivered: u64,
    /// The last sequence of each session.
    sequences: [i64; SESSIONS],
    _data_dir: TempDir,
}

impl BareLedger {
    pub(crate) fn open(pattern: Pattern) -> Result<Self> {
        let data_dir = scratch_dir()?;
        let connection = Connection::open(data_dir.path().join("ledger.sqlite3"))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
        connection.set_prepared_statement_cache_capacity(64);
        connection.execute_batch(SCHEMA)?;
        Ok(Self { connection, pattern, accepted: 0, delivered: 0, sequences: [0; SESSIONS], _data_dir: data_dir })
    }

    /// Commits groups of `group` acceptances and as many deliveries for `duration`. Returns sends per second.
    pub(crate) fn sends_per_second(&mut self, group: usize, duration: Duration) -> Result<f64> {
        let (started, before) = (Instant::now(), self.delivered);
        while started.elapsed() < duration {
            self.begin()?;
            for _ in 0..group {
                self.accept()?;
            }
            while self.delivered + (group as u64) < self.accepted {
                self.deliver()?;
            }
            self.commit()?;
        }
        Ok((self.delivered - before) as f64 / started.elapsed().as_secs_f64())
    }

    /// One send by itself, as a lone sender's: returns how long the commit of its acceptance took.
    pub(crate) fn lone_send(&mut self) -> Result<Duration> {
        let started = Instant::now();
        self.begin()?;
        self.accept()?;
        self.commit()?;
        let took = started.elapsed();
        self.begin()?;
        self.deliver()?;
        self.commit()?;
        Ok(took)
    }

    fn begin(&self) -> Result<()> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(())
    }

    fn commit(&self) -> Result<()> {
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        let (session_key, sequence, id) = self.place(self.accepted);
        self.accepted += 1;
        let pattern = &self.pattern;
        self.connection
            .prepare_cached(
                "INSERT INTO messages (session_key, sequence, message_id, revision, at, message, delivery, token_id, settled_sequence)
                 VALUES (?1, ?2, ?3, 1, ?4, ?5, 'accepted', ?6, ?2)",
            )?
            .execute((session_key, sequence, &id, NOW, &pattern.message, &pattern.token_id))?;
        self.append_event(session_key, sequence, &pattern.events[0])?;
        self.append_audit("accepted", &id)
    }

    fn deliver(&mut self) -> Result<()> {
        let (session_key, sequence, id) = self.place(self.delivered);
        self.delivered += 1;
        self.connection
            .prepare_cached("UPDATE messages SET delivery = 'delivered', settled_sequence = ?3 WHERE session_key = ?1 AND message_id = ?2")?
            .execute((session_key, &id, sequence))?;
        self.append_event(session_key, sequence, &self.pattern.events[1])?;
        self.append_audit("delivered", &id)
    }

    /// The rows of the audit trail that the relay wrote with this outcome.
    fn append_audit(&self, wanted: &str, id: &str) -> Result<()> {
        let rows = self.pattern.audit.iter().filter(|row| row.1 == wanted);
        for (action, outcome, token_id, device_name, machine_id, session_id, detail) in rows {
            self.connection
                .prepare_cached(
                    "INSERT INTO audit (at, action, outcome, token_id, device_name, machine_id, session_id, subject, detail)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                )?
                .execute((NOW, action, outcome, token_id, device_name, machine_id, session_id, id, detail))?;
        }
        Ok(())
    }

    /// Where the next row of the n-th send goes: its session, the next sequence there, its id. The
    /// senders take turns, and each has its session and its ids, as in front of the relay.
    fn place(&mut self, number: u64) -> (i64, i64, String) {
        let sender = number as usize % SENDERS;
        let session = sender % SESSIONS;
        self.sequences[session] += 1;
        (session as i64 + 1, self.sequences[session], client_message_id(sender, number / SENDERS as u64))
    }

    fn append_event(&self, session_key: i64, sequence: i64, event: &str) -> Result<()> {
        self.connection
            .prepare_cached("INSERT INTO events (session_key, sequence, at, event) VALUES (?1, ?2, ?3, ?4)")?
            .execute((session_key, sequence, NOW, event))?;
        Ok(())
    }
}

/// Some moment; the length of the number is what counts.
const NOW: i64 = 1_774_000_000_000;
