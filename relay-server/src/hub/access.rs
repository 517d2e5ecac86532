//! Who may come in: tokens, pairing codes, and lock-outs for those who guess.

use super::Hub;
use super::input::Question;
use crate::clock::Millis;
use crate::ledger::{Ledger, LedgerError, NewAudit, Token, token_hash};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use protocol::connection::PeerRole;
use std::collections::HashMap;
use std::net::IpAddr;
use subtle::ConstantTimeEq;

/// How long a pairing code is good for.
pub(super) const PAIRING_MS: Millis = 5 * 60 * 1000;

/// How long someone who guessed too often is not listened to.
const LOCKOUT_MS: Millis = 5 * 60 * 1000;

/// Wrong codes from one address before it is locked out.
const MOST_WRONG_FROM_ONE: u32 = 5;

/// Wrong codes from everybody before all are locked out: guessing from many addresses does not pay.
const MOST_WRONG_FROM_ALL: u32 = 50;

/// Addresses remembered; beyond, only the count for all goes on.
const MOST_ADDRESSES: usize = 1000;

/// Letters and digits that cannot be taken for one another.
const CODE_ALPHABET: &[u8] = b"ABCDEFGHJKMNPQRSTUVWXYZ23456789";
const CODE_LENGTH: usize = 8;

/// Proof that a token was checked. Only this opens the hub to a socket.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub token_id: String,
    pub role: PeerRole,
    pub label: String,
}

/// A new device or proxy. The only time its token is in the clear.
pub(crate) struct Paired {
    pub token: Token,
    pub secret: String,
}

/// Why someone was not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccessError {
    #[error("no such token, or it was revoked: pair this device again")]
    UnknownToken,
    #[error("that code is wrong or has expired: make a new one with `relay-server pair`")]
    WrongCode,
    #[error("too many wrong codes: wait {0} seconds, then try again")]
    LockedOut(i64),
}

/// Makes a token and notes it in the ledger. Returns it with its secret, which is kept nowhere.
pub(crate) fn mint_token(ledger: &mut Ledger, role: PeerRole, label: &str, now: Millis) -> Result<Paired, LedgerError> {
    let token_id = hex(&rand::random::<[u8; 8]>());
    let letter = match role {
        PeerRole::Browser => 'b',
        PeerRole::Proxy => 'p',
    };
    let secret = format!("remora_{letter}_{token_id}_{}", BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()));
    let token = Token {
        token_id,
        role,
        label: label.to_owned(),
        token_hash: token_hash(&secret),
        machine_id: None,
        created_at: now,
        last_used_at: None,
        revoked_at: None,
    };
    ledger.add_token(&token)?;
    Ok(Paired { token, secret })
}

/// Makes a one-time pairing code and notes its hash.
pub(crate) fn mint_pairing(ledger: &mut Ledger, role: PeerRole, now: Millis) -> Result<String, LedgerError> {
    use rand::RngExt;
    let mut random = rand::rng();
    let code: String =
        (0..CODE_LENGTH).map(|_| char::from(CODE_ALPHABET[random.random_range(0..CODE_ALPHABET.len())])).collect();
    ledger.add_pairing(token_hash(&code), role, now + PAIRING_MS)?;
    Ok(format!("{}-{}", &code[..CODE_LENGTH / 2], &code[CODE_LENGTH / 2..]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Wrong codes so far.
#[derive(Default)]
pub(super) struct Attempts {
    by_address: HashMap<IpAddr, Strikes>,
    all: Strikes,
}

#[derive(Clone, Copy, Default)]
struct Strikes {
    wrong: u32,
    last: Millis,
}

impl Strikes {
    fn add(&mut self, now: Millis) {
        if now - self.last >= LOCKOUT_MS {
            self.wrong = 0;
        }
        self.wrong += 1;
        self.last = now;
    }

    fn locked_for(&self, most: u32, now: Millis) -> Option<Millis> {
        let left = self.last + LOCKOUT_MS - now;
        (self.wrong >= most && left > 0).then_some(left)
    }
}

impl Attempts {
    fn locked_for(&self, from: IpAddr, now: Millis) -> Option<Millis> {
        let one = self.by_address.get(&from).and_then(|strikes| strikes.locked_for(MOST_WRONG_FROM_ONE, now));
        one.max(self.all.locked_for(MOST_WRONG_FROM_ALL, now))
    }

    fn wrong(&mut self, from: IpAddr, now: Millis) {
        self.all.add(now);
        self.by_address.retain(|_, strikes| now - strikes.last < LOCKOUT_MS);
        if self.by_address.len() < MOST_ADDRESSES || self.by_address.contains_key(&from) {
            self.by_address.entry(from).or_default().add(now);
        }
    }
}

impl Hub {
    pub(super) fn answer_question(&mut self, question: &Question) -> Result<(), LedgerError> {
        match question {
            Question::Authorize { token, reply } => {
                let door = self.authorize(token)?;
                self.answer(reply, door);
            }
            Question::Pair { code, device_name, from, reply } => {
                let paired = self.pair(code, device_name, *from)?;
                self.answer(reply, paired);
            }
            Question::Devices { reply } => {
                let tokens = self.ledger.tokens()?;
                self.answer(reply, tokens);
            }
            Question::Revoke { token_id, by, reply } => {
                let revoked = self.revoke(token_id, by)?;
                self.answer(reply, revoked);
            }
            Question::FileTotals { reply } => {
                let totals = self.ledger.attachment_totals()?;
                self.answer(reply, totals);
            }
            Question::KeepFile { file, reply } => {
                let kept = self.keep_file(file)?;
                self.answer(reply, kept);
            }
            Question::File { attachment_id, by, reply } => {
                let file = self.file_for(attachment_id, by)?;
                self.answer(reply, file);
            }
        }
        Ok(())
    }

    /// Checks a token against the hash that is kept, in constant time.
    fn authorize(&self, secret: &str) -> Result<Result<Door, AccessError>, LedgerError> {
        let token_id = secret.strip_prefix("remora_").and_then(|rest| rest.split('_').nth(1));
        let Some(token) = token_id.map(|token_id| self.ledger.token(token_id)).transpose()?.flatten() else {
            return Ok(Err(AccessError::UnknownToken));
        };
        let same: bool = token.token_hash.ct_eq(&token_hash(secret)).into();
        if !same || token.revoked_at.is_some() {
            return Ok(Err(AccessError::UnknownToken));
        }
        Ok(Ok(Door { token_id: token.token_id, role: token.role, label: token.label }))
    }

    /// Trades a one-time code for a token.
    fn pair(
        &mut self,
        code: &str,
        device_name: &str,
        from: IpAddr,
    ) -> Result<Result<Paired, AccessError>, LedgerError> {
        if let Some(left) = self.attempts.locked_for(from, self.now) {
            return Ok(Err(AccessError::LockedOut(left / 1000 + 1)));
        }
        let code: String = code.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase();
        let Some(role) = self.ledger.take_pairing(token_hash(&code), self.now)? else {
            self.attempts.wrong(from, self.now);
            let detail = format!("from {from}");
            let entry = NewAudit { action: "pair", outcome: "refused", detail: Some(&detail), ..NewAudit::default() };
            self.audit(&entry)?;
            return Ok(Err(AccessError::WrongCode));
        };
        let paired = mint_token(&mut self.ledger, role, device_name, self.now)?;
        let detail = format!("{} from {from}", role.as_str());
        self.audit(&NewAudit {
            action: "pair",
            outcome: "ok",
            token_id: Some(&paired.token.token_id),
            device_name: Some(device_name),
            detail: Some(&detail),
            ..NewAudit::default()
        })?;
        Ok(Ok(paired))
    }

    fn revoke(&mut self, token_id: &str, by: &Door) -> Result<bool, LedgerError> {
        if !self.ledger.revoke_token(token_id, self.now)? {
            return Ok(false);
        }
        self.audit(&NewAudit {
            action: "revoke",
            outcome: "ok",
            token_id: Some(&by.token_id),
            device_name: Some(&by.label),
            subject: Some(token_id),
            ..NewAudit::default()
        })?;
        self.close_sockets_of(token_id)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessing_locks_out_one_address_for_a_while() {
        let (guesser, owner) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let mut attempts = Attempts::default();
        for now in 0..5 {
            assert_eq!(attempts.locked_for(guesser, now), None);
            attempts.wrong(guesser, now);
        }
        assert!(attempts.locked_for(guesser, 5).is_some());
        assert_eq!(attempts.locked_for(owner, 5), None);
        assert_eq!(attempts.locked_for(guesser, 4 + LOCKOUT_MS), None);
    }

    #[test]
    fn guessing_from_many_addresses_locks_out_everybody() {
        let mut attempts = Attempts::default();
        for guess in 0..50u8 {
            attempts.wrong([10, 0, 1, guess].into(), 0);
        }
        assert!(attempts.locked_for([10, 0, 0, 2].into(), 1).is_some());
    }

    #[test]
    fn a_token_holds_256_random_bits_and_only_its_hash_is_kept() {
        let mut ledger = Ledger::in_memory().unwrap();
        let paired = mint_token(&mut ledger, PeerRole::Browser, "phone", 1).unwrap();
        let random = paired.secret.splitn(4, '_').last().unwrap();
        assert_eq!(BASE64_URL_SAFE_NO_PAD.decode(random).unwrap().len(), 32);
        let kept = ledger.token(&paired.token.token_id).unwrap().unwrap();
        assert_eq!(kept.token_hash, token_hash(&paired.secret));
    }

    #[test]
    fn a_code_works_once() {
        let mut ledger = Ledger::in_memory().unwrap();
        let code = mint_pairing(&mut ledger, PeerRole::Proxy, 0).unwrap().replace('-', "");
        assert_eq!(ledger.take_pairing(token_hash(&code), 1).unwrap(), Some(PeerRole::Proxy));
        assert_eq!(ledger.take_pairing(token_hash(&code), 2).unwrap(), None);
        let code = mint_pairing(&mut ledger, PeerRole::Proxy, 0).unwrap().replace('-', "");
        assert_eq!(ledger.take_pairing(token_hash(&code), PAIRING_MS).unwrap(), None, "expired");
    }
}
