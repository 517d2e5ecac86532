//! The audit trail: who did what, when, from which device, and what came of it. Append-only.

#![expect(clippy::disallowed_types, reason = "readers own their database connections")]

use super::{Ledger, Result};
use crate::clock::Millis;
use rusqlite::Connection;
use serde::Serialize;

/// An entry to be written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NewAudit<'a> {
    pub action: &'a str,
    pub outcome: &'a str,
    pub token_id: Option<&'a str>,
    pub device_name: Option<&'a str>,
    pub machine_id: Option<&'a str>,
    pub session_id: Option<&'a str>,
    /// The id of the send, prompt, launch or command.
    pub subject: Option<&'a str>,
    pub detail: Option<&'a str>,
}

/// An entry as it stands in the trail.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AuditEntry {
    pub audit_id: i64,
    pub at: Millis,
    pub action: String,
    pub outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Which entries to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditFilter {
    pub action: Option<String>,
    pub session_id: Option<String>,
    pub machine_id: Option<String>,
    pub token_id: Option<String>,
    /// Only entries with a smaller `audit_id`: the next page.
    pub before: Option<i64>,
    /// Only entries from this time on.
    pub since: Option<Millis>,
    pub limit: u32,
}

impl Ledger {
    /// Adds an entry.
    pub(crate) fn audit(&mut self, entry: &NewAudit, at: Millis) -> Result<()> {
        self.write(
            "INSERT INTO audit (at, action, outcome, token_id, device_name, machine_id, session_id, subject, detail)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            (
                at,
                entry.action,
                entry.outcome,
                entry.token_id,
                entry.device_name,
                entry.machine_id,
                entry.session_id,
                entry.subject,
                entry.detail,
            ),
        )?;
        Ok(())
    }

    /// The newest entries that fit, newest first.
    pub(crate) fn audit_entries(&self, filter: &AuditFilter) -> Result<Vec<AuditEntry>> {
        entries(&self.connection, filter)
    }
}

/// As [`Ledger::audit_entries`], on any connection.
pub(super) fn entries(connection: &Connection, filter: &AuditFilter) -> Result<Vec<AuditEntry>> {
    let mut statement = connection.prepare_cached(
            "SELECT audit_id, at, action, outcome, token_id, device_name, machine_id, session_id, subject, detail FROM audit
             WHERE (?1 IS NULL OR action = ?1) AND (?2 IS NULL OR session_id = ?2) AND (?3 IS NULL OR machine_id = ?3)
               AND (?4 IS NULL OR token_id = ?4) AND (?5 IS NULL OR audit_id < ?5) AND (?6 IS NULL OR at >= ?6)
             ORDER BY audit_id DESC LIMIT ?7",
    )?;
    let rows = statement.query_map(
        (
            &filter.action,
            &filter.session_id,
            &filter.machine_id,
            &filter.token_id,
            filter.before,
            filter.since,
            filter.limit,
        ),
        |row| {
            Ok(AuditEntry {
                audit_id: row.get(0)?,
                at: row.get(1)?,
                action: row.get(2)?,
                outcome: row.get(3)?,
                token_id: row.get(4)?,
                device_name: row.get(5)?,
                machine_id: row.get(6)?,
                session_id: row.get(7)?,
                subject: row.get(8)?,
                detail: row.get(9)?,
            })
        },
    )?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trail_can_be_added_to_but_not_changed() {
        let mut ledger = Ledger::in_memory().unwrap();
        ledger.audit(&NewAudit { action: "pair", outcome: "ok", ..NewAudit::default() }, 1).unwrap();
        assert!(ledger.write("UPDATE audit SET outcome = 'other'", []).is_err());
        assert!(ledger.write("DELETE FROM audit", []).is_err());
        let entries = ledger.audit_entries(&AuditFilter { limit: 10, ..AuditFilter::default() }).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].outcome, "ok");
    }

    #[test]
    fn the_trail_is_read_by_filter_and_page() {
        let mut ledger = Ledger::in_memory().unwrap();
        for (at, action) in [(1, "send"), (2, "launch"), (3, "send"), (4, "send")] {
            ledger.audit(&NewAudit { action, outcome: "ok", ..NewAudit::default() }, at).unwrap();
        }
        let mut filter = AuditFilter { action: Some("send".into()), limit: 2, ..AuditFilter::default() };
        let times = |entries: Vec<AuditEntry>| entries.iter().map(|entry| entry.at).collect::<Vec<_>>();
        let page = ledger.audit_entries(&filter).unwrap();
        filter.before = Some(page[1].audit_id);
        assert_eq!(times(page), [4, 3]);
        assert_eq!(times(ledger.audit_entries(&filter).unwrap()), [1]);
    }
}
