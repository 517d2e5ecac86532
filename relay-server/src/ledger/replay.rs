//! Long histories and the audit trail, read on connections of their own, page by page, so that
//! neither the hub nor the memory feels their length.

#![expect(clippy::disallowed_types, reason = "readers own their database connections")]

use super::Result;
use super::audit::{self, AuditEntry, AuditFilter};
use protocol::ids::Sequence;
use rusqlite::{Connection, OpenFlags};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A page ends with the row that takes it past this: big enough to be quick, small enough to hold
/// a few hundred at once.
const PAGE_BYTES: usize = 64 * 1024;

/// Kept for the next reader; more at once are opened and closed again.
const MOST_IDLE_READERS: usize = 4;

/// What to read of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Events after a sequence.
    EventsAfter(Sequence),
    /// Messages, the newest `limit` of those before a sequence.
    Messages { before: Option<Sequence>, limit: Option<u32> },
}

/// Where a reader stands.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    session_key: i64,
    part: Part,
    /// Later rows than this are news and reach the peer live.
    upto: Sequence,
    /// The last row read; `None` before the first page.
    position: Option<Sequence>,
    /// The oldest message of the answer, once known.
    pub first: Option<Sequence>,
    /// Whether older messages exist than those asked for.
    pub has_more: bool,
    /// Whether everything was read.
    pub done: bool,
}

impl Progress {
    /// At the beginning.
    pub(crate) fn new(session_key: i64, part: Part, upto: Sequence) -> Self {
        Self { session_key, part, upto, position: None, first: None, has_more: false, done: false }
    }
}

/// A shared handle to the readers.
#[derive(Clone)]
pub(crate) struct Readers {
    path: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    /// Readers of the ledger in this file.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, idle: Arc::default() }
    }

    /// Appends the next page to `page`: JSON objects with commas between, and one in front if the
    /// answer has begun already. Blocks on the disk.
    pub(crate) fn read(&self, progress: &mut Progress, page: &mut Vec<u8>) -> Result<()> {
        self.with_connection(|connection| match progress.part {
            Part::EventsAfter(after) => read_events(connection, progress, after, page),
            Part::Messages { before, limit } => read_messages(connection, progress, before, limit, page),
        })
    }

    /// The newest audit entries that fit. Blocks on the disk: the trail may be long.
    pub(crate) fn audit_entries(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>> {
        self.with_connection(|connection| audit::entries(connection, filter))
    }

    fn with_connection<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let connection = match self.idle().pop() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let outcome = read(&connection);
        let mut idle = self.idle();
        if idle.len() < MOST_IDLE_READERS {
            idle.push(connection);
        }
        outcome
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open_with_flags(
            &self.path,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        connection.busy_timeout(super::BUSY_TIMEOUT)?;
        Ok(connection)
    }
}

fn read_events(connection: &Connection, progress: &mut Progress, after: Sequence, page: &mut Vec<u8>) -> Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT sequence, event FROM events WHERE session_key = ?1 AND sequence > ?2 AND sequence <= ?3 ORDER BY sequence",
    )?;
    let from = progress.position.unwrap_or(after);
    let mut rows = statement.query((progress.session_key, from.0 as i64, progress.upto.0 as i64))?;
    while let Some(row) = rows.next()? {
        append(progress, page, row.get::<_, i64>(0)?, row.get_ref(1)?.as_bytes().unwrap_or_default(), None);
        if page.len() >= PAGE_BYTES {
            return Ok(());
        }
    }
    progress.done = true;
    Ok(())
}

fn read_messages(
    connection: &Connection,
    progress: &mut Progress,
    before: Option<Sequence>,
    limit: Option<u32>,
    page: &mut Vec<u8>,
) -> Result<()> {
    let end = before.map_or(progress.upto.0, |before| progress.upto.0.min(before.0.saturating_sub(1))) as i64;
    let mut after = progress.position.map_or(0, |position| position.0 as i64);
    if let (None, Some(limit)) = (progress.position, limit) {
        // The newest message that is too old for this answer, if there is one.
        let mut statement = connection.prepare_cached(
            "SELECT sequence FROM messages WHERE session_key = ?1 AND sequence <= ?2 ORDER BY sequence DESC LIMIT 1 OFFSET ?3",
        )?;
        let mut rows = statement.query((progress.session_key, end, limit))?;
        if let Some(row) = rows.next()? {
            after = row.get(0)?;
            progress.has_more = true;
        }
    }
    let mut statement = connection.prepare_cached(
        "SELECT sequence, message, delivery FROM messages WHERE session_key = ?1 AND sequence > ?2 AND sequence <= ?3 ORDER BY sequence",
    )?;
    let mut rows = statement.query((progress.session_key, after, end))?;
    while let Some(row) = rows.next()? {
        let delivery = row.get_ref(2)?.as_str_or_null().ok().flatten();
        append(progress, page, row.get::<_, i64>(0)?, row.get_ref(1)?.as_bytes().unwrap_or_default(), delivery);
        if page.len() >= PAGE_BYTES {
            return Ok(());
        }
    }
    progress.done = true;
    Ok(())
}

/// Adds one row. A send's status is not part of its stored JSON, so it is put in before the brace.
fn append(progress: &mut Progress, page: &mut Vec<u8>, sequence: i64, json: &[u8], delivery: Option<&str>) {
    let sequence = Sequence(sequence as u64);
    if progress.position.replace(sequence).is_some() {
        page.push(b',');
    }
    progress.first.get_or_insert(sequence);
    match (delivery, json.strip_suffix(b"}")) {
        (Some(delivery), Some(open)) => {
            page.extend_from_slice(open);
            page.extend_from_slice(br#","status":""#);
            page.extend_from_slice(delivery.as_bytes());
            page.extend_from_slice(br#""}"#);
        }
        _ => page.extend_from_slice(json),
    }
}
