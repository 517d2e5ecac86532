//! The ledger: everything the relay must not forget, in one SQLite file.
//!
//! This module family is the only one that knows SQL. A [`Ledger`] belongs to one thread; writes
//! gather in a transaction that begins by itself and ends with [`Ledger::commit`] or
//! [`Ledger::roll_back`]. Readers of long histories have connections of their own ([`replay`]).

#![expect(clippy::disallowed_types, reason = "the ledger owns the database connection")]

mod access;
mod attachments;
mod audit;
mod events;
mod messages;
mod migrate;
mod prompts;
pub(crate) mod replay;
mod sessions;

pub(crate) use access::{Token, token_hash};
pub(crate) use attachments::StoredAttachment;
pub(crate) use audit::{AuditEntry, AuditFilter, NewAudit};
pub(crate) use messages::{NewSend, StoredSend};
pub(crate) use sessions::StoredSession;

use protocol::ids::Epoch;
use rusqlite::{Connection, ErrorCode as SqliteCode, OptionalExtension, Params, Row};
use std::path::Path;
use std::time::Duration;

/// The ledger's file in the data directory.
pub(crate) const FILE_NAME: &str = "ledger.sqlite3";

/// How long a statement waits for another process (a `token create`, say) to finish its own.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What the ledger could not do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerError {
    /// The disk takes nothing more. Nothing was changed; it may work again later.
    #[error("the disk does not take what is written to the ledger ({0})")]
    Full(rusqlite::Error),
    /// The file was written by a newer relay.
    #[error(
        "the ledger is of version {found}, this relay knows versions up to {known}: start the newer relay again, or restore the copy made before its first start"
    )]
    Newer { found: u32, known: u32 },
    #[error("the ledger holds what this relay cannot read: {0}")]
    Unreadable(#[from] serde_json::Error),
    #[error("the ledger's folder: {0}")]
    Folder(#[from] std::io::Error),
    #[error(transparent)]
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for LedgerError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            // A quota or a file size limit shows as a failed write, not as a full disk.
            Some(SqliteCode::DiskFull | SqliteCode::SystemIoFailure) => Self::Full(error),
            _ => Self::Sqlite(error),
        }
    }
}

pub(crate) type Result<T, E = LedgerError> = std::result::Result<T, E>;

/// The writer's side of the ledger.
pub(crate) struct Ledger {
    connection: Connection,
    epoch: Epoch,
    /// Whether a transaction is open.
    writing: bool,
}

impl Ledger {
    /// Opens or creates the ledger in a data directory, and brings it to the present schema.
    pub(crate) fn open(data_dir: &Path) -> Result<Self> {
        create_private(data_dir)?;
        let path = data_dir.join(FILE_NAME);
        let connection = Connection::open(&path)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // An accepted message survives a power cut: every commit waits for the disk.
        connection.pragma_update(None, "synchronous", "full")?;
        // 16 MiB between checkpoints: fewer pauses than SQLite's 4 MiB.
        connection.pragma_update(None, "wal_autocheckpoint", 4000)?;
        Self::prepare(connection, Some(&path))
    }

    /// A ledger that forgets everything: for tests.
    #[cfg(test)]
    pub(crate) fn in_memory() -> Result<Self> {
        Self::prepare(Connection::open_in_memory()?, None)
    }

    fn prepare(mut connection: Connection, path: Option<&Path>) -> Result<Self> {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(64);
        migrate::run(&mut connection, path)?;
        let epoch = migrate::epoch(&connection)?;
        Ok(Self { connection, epoch, writing: false })
    }

    /// Changes only when history was lost.
    pub(crate) fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Makes everything written since the last commit durable. Says whether there was anything.
    pub(crate) fn commit(&mut self) -> Result<bool> {
        if !std::mem::take(&mut self.writing) {
            return Ok(false);
        }
        if let Err(error) = self.connection.execute_batch("COMMIT") {
            self.abandon();
            return Err(error.into());
        }
        Ok(true)
    }

    /// Undoes everything written since the last commit.
    pub(crate) fn roll_back(&mut self) {
        if std::mem::take(&mut self.writing) {
            self.abandon();
        }
    }

    fn abandon(&self) {
        // SQLite has rolled back by itself after some errors; then there is nothing left to undo.
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "could not roll back");
        }
    }

    /// Moves what the write-ahead log holds into the main file.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }

    /// Writes a consistent copy to `target` while others go on, stamped so that a relay that opens
    /// it knows it has lost history.
    pub(crate) fn backup(&self, target: &Path) -> Result<()> {
        migrate::copy_to(&self.connection, target)?;
        let copy = Connection::open(target)?;
        migrate::stamp_copy(&copy)
    }

    fn write(&mut self, sql: &str, params: impl Params) -> Result<usize> {
        if !self.writing {
            self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            self.writing = true;
        }
        Ok(self.connection.prepare_cached(sql)?.execute(params)?)
    }

    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        Ok(self.connection.prepare_cached(sql)?.query_row(params, read).optional()?)
    }

    fn all<T>(&self, sql: &str, params: impl Params, read: impl FnMut(&Row) -> rusqlite::Result<T>) -> Result<Vec<T>> {
        Ok(self.connection.prepare_cached(sql)?.query_map(params, read)?.collect::<rusqlite::Result<_>>()?)
    }
}

/// Creates the data directory for its owner's eyes only: transcripts are nobody else's business.
pub(crate) fn create_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
impl Ledger {
    /// Makes the next writes fail as on a full disk, or work again with `None`.
    pub(crate) fn limit_pages(&self, pages: Option<u32>) {
        let pages = pages.map_or(i64::from(u32::MAX) - 1, i64::from);
        self.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(())).unwrap();
    }
}
