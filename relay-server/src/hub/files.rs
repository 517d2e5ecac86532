//! Uploaded files: who may have them, and when they go.

use super::access::Door;
use super::{Hub, fresh_id};
use crate::ledger::{LedgerError, NewAudit, StoredAttachment};
use protocol::connection::PeerRole;
use protocol::ids::AttachmentId;
use std::path::Path;
use std::time::Duration;

/// A file that lies on disk under its hash and is to be remembered.
#[derive(Clone, Debug)]
pub(crate) struct NewFile {
    pub sha256: String,
    pub name: String,
    pub media_type: String,
    pub size_bytes: u64,
    pub by: Door,
}

impl Hub {
    pub(super) fn keep_file(&mut self, file: &NewFile) -> Result<Option<StoredAttachment>, LedgerError> {
        let (count, used) = self.ledger.attachment_totals()?;
        let limits = &self.limits;
        if count >= limits.max_attachments || used + file.size_bytes > limits.attachment_quota_bytes {
            return Ok(None);
        }
        let kept = StoredAttachment {
            attachment_id: AttachmentId::new(fresh_id("att")),
            sha256: file.sha256.clone(),
            name: file.name.clone(),
            media_type: file.media_type.clone(),
            size_bytes: file.size_bytes,
            token_id: file.by.token_id.clone(),
            created_at: self.now,
        };
        self.ledger.add_attachment(&kept)?;
        self.audit(&NewAudit {
            action: "upload",
            outcome: "ok",
            token_id: Some(&file.by.token_id),
            device_name: Some(&file.by.label),
            subject: Some(kept.attachment_id.as_str()),
            detail: Some(&file.name),
            ..NewAudit::default()
        })?;
        Ok(Some(kept))
    }

    /// A browser may fetch any file; a proxy only what was sent to a session of its machine.
    pub(super) fn file_for(
        &self,
        attachment_id: &AttachmentId,
        by: &Door,
    ) -> Result<Option<StoredAttachment>, LedgerError> {
        let Some(file) = self.ledger.attachment(attachment_id)? else { return Ok(None) };
        if by.role == PeerRole::Browser {
            return Ok(Some(file));
        }
        let machine_id = self.ledger.token(&by.token_id)?.and_then(|token| token.machine_id);
        let Some(machine_id) = machine_id else { return Ok(None) };
        Ok(self.ledger.attachment_is_for(attachment_id, &machine_id)?.then_some(file))
    }

    /// Removes what earlier lives of the relay left behind: uploads that broke off, and files that
    /// were written but never noted.
    pub(super) fn sweep_files(&self) -> Result<(), LedgerError> {
        let known = self.ledger.attachment_hashes()?;
        let Ok(files) = std::fs::read_dir(&self.limits.attachments_dir) else { return Ok(()) };
        for file in files.flatten() {
            if !file.file_name().to_str().is_some_and(|name| known.contains(name)) {
                let _ = std::fs::remove_file(file.path());
            }
        }
        Ok(())
    }

    /// Deletes the bytes of files that nobody knows any more.
    pub(super) fn remove_files(&mut self, hashes: Vec<String>) {
        let folder = self.limits.attachments_dir.clone();
        // After the commit: a file that the ledger still knows must not be gone.
        self.answers.push(Box::new(move || {
            for hash in hashes.into_iter().filter(|hash| !is_fresh(&folder.join(hash))) {
                if let Err(error) = std::fs::remove_file(folder.join(&hash)) {
                    tracing::warn!(%error, hash, "an attachment could not be removed");
                }
            }
        }));
    }
}

/// Written within the hour: perhaps by an upload that is about to be noted.
fn is_fresh(file: &Path) -> bool {
    let age = std::fs::metadata(file).and_then(|file| file.modified()).map(|modified| modified.elapsed());
    age.is_ok_and(|age| age.is_ok_and(|age| age < Duration::from_secs(3600)))
}
