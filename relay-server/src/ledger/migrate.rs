//! Schema versions, forward only, and the ledger's epoch.

use super::{LedgerError, Result};
use protocol::ids::Epoch;
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;

/// Every schema step in order. Steps are added at the end and never edited.
const STEPS: &[&str] = &[include_str!("schema/0001_first.sql")];

/// Brings the ledger to the newest schema. Before it changes an old one, it keeps a copy beside it.
pub(super) fn run(connection: &mut Connection, path: Option<&Path>) -> Result<()> {
    let known = STEPS.len() as u32;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > known {
        return Err(LedgerError::Newer { found, known });
    }
    if found == known {
        return Ok(());
    }
    if let Some(path) = path
        && found > 0
    {
        let copy = path.with_extension(format!("before-version-{known}.sqlite3"));
        // A second connection: copying is not possible inside our transaction, which holds others off.
        copy_to(&Connection::open(path)?, &copy)?;
    }
    for step in &STEPS[found as usize..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(())
}

/// The ledger's epoch; a new one for a new ledger and for a restored copy.
pub(super) fn epoch(connection: &Connection) -> Result<Epoch> {
    let read = |key: &str| -> Result<Option<String>> {
        Ok(connection.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0)).optional()?)
    };
    if read("stamped_copy")?.is_none()
        && let Some(epoch) = read("ledger_epoch")?
    {
        return Ok(Epoch::new(epoch));
    }
    let epoch = uuid::Uuid::now_v7().to_string();
    let transaction = connection.unchecked_transaction()?;
    transaction.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('ledger_epoch', ?1)", [&epoch])?;
    transaction.execute("DELETE FROM meta WHERE key = 'stamped_copy'", [])?;
    transaction.commit()?;
    Ok(Epoch::new(epoch))
}

/// Writes a copy as of one moment, however busy the ledger is.
pub(super) fn copy_to(connection: &Connection, target: &Path) -> Result<()> {
    connection.execute("VACUUM INTO ?1", [target.to_string_lossy()])?;
    Ok(())
}

/// Marks a ledger as a copy: whoever opens it starts a new epoch.
pub(super) fn stamp_copy(copy: &Connection) -> Result<()> {
    copy.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('stamped_copy', 'yes')", [])?;
    // The copy is one file: no write-ahead log stays beside it.
    copy.pragma_update(None, "journal_mode", "delete")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{FILE_NAME, Ledger};
    use super::*;

    #[test]
    fn the_epoch_stays_until_a_copy_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let first = Ledger::open(folder.path()).unwrap().epoch().clone();
        let ledger = Ledger::open(folder.path()).unwrap();
        assert_eq!(ledger.epoch(), &first);

        let restored = tempfile::tempdir().unwrap();
        ledger.backup(&restored.path().join(FILE_NAME)).unwrap();
        let second = Ledger::open(restored.path()).unwrap().epoch().clone();
        assert_ne!(second, first);
        assert_eq!(Ledger::open(restored.path()).unwrap().epoch(), &second);
    }

    #[test]
    fn a_ledger_of_a_newer_relay_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        drop(Ledger::open(folder.path()).unwrap());
        let connection = Connection::open(folder.path().join(FILE_NAME)).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        let error = Ledger::open(folder.path()).err().unwrap();
        assert!(matches!(error, LedgerError::Newer { found: 99, .. }), "{error}");
    }
}
