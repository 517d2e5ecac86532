//! What is known of uploaded files. The bytes lie beside the ledger, named by their hash.

use super::{Ledger, Result};
use crate::clock::Millis;
use protocol::ids::{AttachmentId, MachineId};
use std::collections::HashSet;

/// An uploaded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredAttachment {
    pub attachment_id: AttachmentId,
    /// Names the file on disk.
    pub sha256: String,
    /// What the person called it; never a path.
    pub name: String,
    pub media_type: String,
    pub size_bytes: u64,
    pub token_id: String,
    pub created_at: Millis,
}

const SELECT: &str =
    "SELECT attachment_id, sha256, name, media_type, size_bytes, token_id, created_at FROM attachments";

fn attachment(row: &rusqlite::Row) -> rusqlite::Result<StoredAttachment> {
    Ok(StoredAttachment {
        attachment_id: AttachmentId::new(row.get::<_, String>(0)?),
        sha256: row.get(1)?,
        name: row.get(2)?,
        media_type: row.get(3)?,
        size_bytes: row.get::<_, i64>(4)? as u64,
        token_id: row.get(5)?,
        created_at: row.get(6)?,
    })
}

impl Ledger {
    /// Keeps an uploaded file's description.
    pub(crate) fn add_attachment(&mut self, attachment: &StoredAttachment) -> Result<()> {
        self.write(
            "INSERT INTO attachments (attachment_id, sha256, name, media_type, size_bytes, token_id, created_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            (
                attachment.attachment_id.as_str(),
                &attachment.sha256,
                &attachment.name,
                &attachment.media_type,
                attachment.size_bytes as i64,
                &attachment.token_id,
                attachment.created_at,
            ),
        )?;
        Ok(())
    }

    /// An uploaded file by its id.
    pub(crate) fn attachment(&self, attachment_id: &AttachmentId) -> Result<Option<StoredAttachment>> {
        self.one(&format!("{SELECT} WHERE attachment_id = ?1"), [attachment_id.as_str()], attachment)
    }

    /// How many files there are, and their bytes, those of equal content counted once.
    pub(crate) fn attachment_totals(&self) -> Result<(u64, u64)> {
        let totals = self.one(
            "SELECT (SELECT count(*) FROM attachments),
                    (SELECT coalesce(sum(size_bytes), 0) FROM (SELECT max(size_bytes) AS size_bytes FROM attachments GROUP BY sha256))",
            [],
            |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64)),
        )?;
        Ok(totals.unwrap_or_default())
    }

    /// The names of all files on disk that are known.
    pub(crate) fn attachment_hashes(&self) -> Result<HashSet<String>> {
        Ok(self.all("SELECT DISTINCT sha256 FROM attachments", [], |row| row.get(0))?.into_iter().collect())
    }

    /// Notes that a send to a session carries this file. Unknown ids are nobody's file and are passed over.
    pub(crate) fn use_attachment(&mut self, attachment_id: &AttachmentId, session_key: i64) -> Result<()> {
        self.write(
            "INSERT OR IGNORE INTO attachment_uses (attachment_id, session_key)
             SELECT attachment_id, ?2 FROM attachments WHERE attachment_id = ?1",
            (attachment_id.as_str(), session_key),
        )?;
        Ok(())
    }

    /// Whether a send to one of this machine's sessions carries the file.
    pub(crate) fn attachment_is_for(&self, attachment_id: &AttachmentId, machine_id: &MachineId) -> Result<bool> {
        let found = self.one(
            "SELECT 1 FROM attachment_uses JOIN sessions USING (session_key) WHERE attachment_id = ?1 AND machine_id = ?2",
            (attachment_id.as_str(), machine_id.as_str()),
            |_| Ok(()),
        )?;
        Ok(found.is_some())
    }

    /// Forgets files that no send carries from before `unused_before`, and all from before
    /// `before`. Returns the hashes that no file has any more.
    pub(crate) fn drop_attachments(&mut self, unused_before: Millis, before: Millis) -> Result<Vec<String>> {
        let condition =
            "created_at < ?2 OR (created_at < ?1 AND attachment_id NOT IN (SELECT attachment_id FROM attachment_uses))";
        let hashes: Vec<String> = self.all(
            &format!("SELECT DISTINCT sha256 FROM attachments WHERE {condition}"),
            (unused_before, before),
            |row| row.get(0),
        )?;
        if hashes.is_empty() {
            return Ok(hashes);
        }
        self.write(&format!("DELETE FROM attachments WHERE {condition}"), (unused_before, before))?;
        self.write(
            "DELETE FROM attachment_uses WHERE attachment_id NOT IN (SELECT attachment_id FROM attachments)",
            [],
        )?;
        let mut gone = Vec::new();
        for hash in hashes {
            if self.one("SELECT 1 FROM attachments WHERE sha256 = ?1", [&hash], |_| Ok(()))?.is_none() {
                gone.push(hash);
            }
        }
        Ok(gone)
    }
}
