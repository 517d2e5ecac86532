//! Open dialogs and launches under way: what must survive a restart though it is not history.

use super::{Ledger, Result};
use crate::clock::Millis;
use protocol::ids::{PromptId, RequestId};
use protocol::prompt::PermissionPrompt;

impl Ledger {
    /// The dialogs of a session that wait, with the times they dismiss themselves.
    pub(crate) fn prompts(&self, session_key: i64) -> Result<Vec<(PermissionPrompt, Option<Millis>)>> {
        let rows: Vec<(String, Option<Millis>)> =
            self.all("SELECT prompt, expires_at FROM prompts WHERE session_key = ?1", [session_key], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        rows.into_iter().map(|(prompt, expires_at)| Ok((serde_json::from_str(&prompt)?, expires_at))).collect()
    }

    /// Keeps a dialog.
    pub(crate) fn keep_prompt(
        &mut self,
        session_key: i64,
        prompt: &PermissionPrompt,
        expires_at: Option<Millis>,
    ) -> Result<()> {
        self.write(
            "INSERT OR REPLACE INTO prompts (session_key, prompt_id, prompt, expires_at) VALUES (?1, ?2, ?3, ?4)",
            (session_key, prompt.prompt_id.as_str(), serde_json::to_string(prompt)?, expires_at),
        )?;
        Ok(())
    }

    /// Forgets a dialog that is over.
    pub(crate) fn drop_prompt(&mut self, session_key: i64, prompt_id: &PromptId) -> Result<()> {
        self.write("DELETE FROM prompts WHERE session_key = ?1 AND prompt_id = ?2", (session_key, prompt_id.as_str()))?;
        Ok(())
    }

    /// Every launch under way or held, as the hub wrote it.
    pub(crate) fn launches(&self) -> Result<Vec<String>> {
        self.all("SELECT launch FROM launches", [], |row| row.get(0))
    }

    /// Keeps a launch under the id the proxy knows it by.
    pub(crate) fn keep_launch(&mut self, request_id: &RequestId, launch: &str) -> Result<()> {
        self.write(
            "INSERT OR REPLACE INTO launches (request_id, launch) VALUES (?1, ?2)",
            (request_id.as_str(), launch),
        )?;
        Ok(())
    }

    /// Forgets a launch that is over.
    pub(crate) fn drop_launch(&mut self, request_id: &RequestId) -> Result<()> {
        self.write("DELETE FROM launches WHERE request_id = ?1", [request_id.as_str()])?;
        Ok(())
    }
}
