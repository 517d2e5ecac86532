//! Tokens and pairing codes. Only their hashes are kept.

use super::{Ledger, Result};
use crate::clock::Millis;
use protocol::connection::PeerRole;
use protocol::ids::MachineId;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// A paired device or proxy.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Token {
    pub token_id: String,
    pub role: PeerRole,
    pub label: String,
    #[serde(skip)]
    pub token_hash: [u8; 32],
    /// A proxy's machine, once it has said hello.
    pub machine_id: Option<MachineId>,
    pub created_at: Millis,
    pub last_used_at: Option<Millis>,
    pub revoked_at: Option<Millis>,
}

/// What is kept of a secret.
pub(crate) fn token_hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

const SELECT: &str =
    "SELECT token_id, role, label, token_hash, machine_id, created_at, last_used_at, revoked_at FROM tokens";

fn token(row: &rusqlite::Row) -> rusqlite::Result<Token> {
    Ok(Token {
        token_id: row.get(0)?,
        role: role(&row.get::<_, String>(1)?),
        label: row.get(2)?,
        token_hash: row.get(3)?,
        machine_id: row.get::<_, Option<String>>(4)?.map(MachineId::new),
        created_at: row.get(5)?,
        last_used_at: row.get(6)?,
        revoked_at: row.get(7)?,
    })
}

fn role(word: &str) -> PeerRole {
    if word == PeerRole::Proxy.as_str() { PeerRole::Proxy } else { PeerRole::Browser }
}

impl Ledger {
    /// Every token that ever was, newest first.
    pub(crate) fn tokens(&self) -> Result<Vec<Token>> {
        self.all(&format!("{SELECT} ORDER BY created_at DESC, token_id"), [], token)
    }

    /// One token, revoked or not.
    pub(crate) fn token(&self, token_id: &str) -> Result<Option<Token>> {
        self.one(&format!("{SELECT} WHERE token_id = ?1"), [token_id], token)
    }

    /// The ids of tokens that no longer work.
    pub(crate) fn revoked_tokens(&self) -> Result<Vec<String>> {
        self.all("SELECT token_id FROM tokens WHERE revoked_at IS NOT NULL", [], |row| row.get(0))
    }

    /// Keeps a new token.
    pub(crate) fn add_token(&mut self, token: &Token) -> Result<()> {
        self.write(
            "INSERT INTO tokens (token_id, role, label, token_hash, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
            (&token.token_id, token.role.as_str(), &token.label, token.token_hash, token.created_at),
        )?;
        Ok(())
    }

    /// Ends a token. False if there is no such token that still works.
    pub(crate) fn revoke_token(&mut self, token_id: &str, at: Millis) -> Result<bool> {
        let changed =
            self.write("UPDATE tokens SET revoked_at = ?2 WHERE token_id = ?1 AND revoked_at IS NULL", (token_id, at))?;
        Ok(changed == 1)
    }

    /// Notes that a token was used.
    pub(crate) fn touch_token(&mut self, token_id: &str, at: Millis) -> Result<()> {
        self.write("UPDATE tokens SET last_used_at = ?2 WHERE token_id = ?1", (token_id, at))?;
        Ok(())
    }

    /// The working token that speaks for a machine.
    pub(crate) fn token_of_machine(&self, machine_id: &MachineId) -> Result<Option<String>> {
        self.one(
            "SELECT token_id FROM tokens WHERE machine_id = ?1 AND revoked_at IS NULL",
            [machine_id.as_str()],
            |row| row.get(0),
        )
    }

    /// Binds a proxy's token to its machine.
    pub(crate) fn bind_token(&mut self, token_id: &str, machine_id: &MachineId) -> Result<()> {
        self.write("UPDATE tokens SET machine_id = ?2 WHERE token_id = ?1", (token_id, machine_id.as_str()))?;
        Ok(())
    }

    /// Keeps a pairing code's hash.
    pub(crate) fn add_pairing(&mut self, code_hash: [u8; 32], role: PeerRole, expires_at: Millis) -> Result<()> {
        self.write(
            "INSERT OR REPLACE INTO pairings (code_hash, role, expires_at) VALUES (?1, ?2, ?3)",
            (code_hash, role.as_str(), expires_at),
        )?;
        Ok(())
    }

    /// Uses up a pairing code: what it was for, if it was good.
    pub(crate) fn take_pairing(&mut self, code_hash: [u8; 32], now: Millis) -> Result<Option<PeerRole>> {
        self.write("DELETE FROM pairings WHERE expires_at <= ?1", [now])?;
        let found: Option<String> =
            self.one("SELECT role FROM pairings WHERE code_hash = ?1", [code_hash], |row| row.get(0))?;
        self.write("DELETE FROM pairings WHERE code_hash = ?1", [code_hash])?;
        Ok(found.as_deref().map(role))
    }
}
