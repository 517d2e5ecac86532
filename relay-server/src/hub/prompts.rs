//! Dialogs: open, being answered, resolved, reverted, vanished or expired.

use super::control::{Awaits, Control};
use super::peers::{Audience, PeerKey};
use super::{Hub, Stop, fresh_id, refuse};
use crate::clock::{Millis, timestamp};
use crate::ledger::{LedgerError, NewAudit};
use protocol::browser::RelayToBrowser;
use protocol::config::{AgentControlResult, ControlOutcome};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{ChoiceId, MachineId, PromptId, RequestId, SessionId};
use protocol::prompt::{
    PermissionPrompt, PermissionPromptExpired, PermissionPromptUpdate, PermissionResponse, PromptKey, PromptState,
};
use protocol::proxy::RelayToProxy;
use std::collections::HashSet;

/// The longest `timeout_ms` that is believed: a year.
const LONGEST_TIMEOUT_MS: u64 = 365 * 24 * 3600 * 1000;

/// A dialog that waits for an answer, or for the answer's effect.
#[derive(Clone, Debug)]
pub(super) struct OpenPrompt {
    pub prompt: PermissionPrompt,
    /// When the IDE dismisses it by itself.
    pub expires_at: Option<Millis>,
    /// The answer on its way. A prompt with one is not open: the first answer wins.
    pub answer: Option<Answer>,
}

/// An answer that the proxy has not confirmed yet.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub response: PermissionResponse,
    pub device_name: String,
    /// When the prompt is given up for want of a word from the proxy.
    pub deadline: Millis,
}

impl OpenPrompt {
    pub(super) fn is_open(&self) -> bool {
        self.answer.is_none()
    }

    /// When something is to happen to it by itself.
    pub(super) fn deadline(&self) -> Option<Millis> {
        self.answer.as_ref().map(|answer| answer.deadline).or(self.expires_at)
    }
}

impl Hub {
    /// A proxy shows a dialog, or shows it again after a reconnect.
    pub(super) fn permission_prompt(&mut self, peer: PeerKey, prompt: &PermissionPrompt) -> Result<(), Stop> {
        let live = self.own_session(peer, &prompt.session_id)?;
        if prompt.choices.is_empty() {
            return refuse(ErrorCode::InvalidMessage, "permission_prompt: `choices` needs at least one entry");
        }
        if let Some(choice) = prompt.default_choice.as_ref().filter(|choice| !offers(prompt, choice)) {
            return refuse(
                ErrorCode::InvalidMessage,
                format!("permission_prompt: `default_choice` `{choice}` is not one of the choices"),
            );
        }
        let known = live.prompts.get(&prompt.prompt_id).cloned();
        let machine_id = live.machine_id.clone();
        if known.is_none() {
            self.check_prompt_count(&machine_id)?;
        }
        let mut prompt = prompt.clone();
        // A dialog that is shown again goes on with the time it had.
        let expires_at = match (&known, prompt.timeout_ms) {
            (Some(known), Some(_)) if known.expires_at.is_some() => known.expires_at,
            (_, Some(timeout_ms)) => Some(self.now + timeout_ms.min(LONGEST_TIMEOUT_MS) as Millis),
            (_, None) => None,
        };
        prompt.expires_at = expires_at.map(timestamp);
        match known {
            Some(known) if known.is_open() && known.prompt == prompt => return Ok(()),
            Some(OpenPrompt { answer: Some(answer), .. }) => {
                let error = WireError::new(ErrorCode::ClickNotApplied, "The dialog is still open");
                self.tell_prompt(&prompt, PromptState::Reverted, Some(&answer), Some(error));
            }
            Some(_) | None => {}
        }
        Ok(self.open_prompt(prompt, expires_at)?)
    }

    fn check_prompt_count(&self, machine_id: &MachineId) -> Result<(), Stop> {
        let sessions = self.sessions.iter().filter(|(_, live)| live.machine_id == *machine_id);
        let count: usize = sessions.map(|(_, live)| live.prompts.len()).sum();
        if count < self.limits.max_prompts_per_machine {
            return Ok(());
        }
        refuse(ErrorCode::LimitReached, format!("permission_prompt: this machine has {count} open prompts already"))
    }

    /// Stores a dialog as open and shows it to everybody.
    fn open_prompt(&mut self, prompt: PermissionPrompt, expires_at: Option<Millis>) -> Result<(), LedgerError> {
        let live = self.sessions.get_mut(&prompt.session_id).expect("prompts belong to live sessions");
        let key = live.key;
        live.prompts.insert(prompt.prompt_id.clone(), OpenPrompt { prompt: prompt.clone(), expires_at, answer: None });
        self.ledger.keep_prompt(key, &prompt, expires_at)?;
        if let Some(expires_at) = expires_at {
            self.wake_by(expires_at);
        }
        self.broadcast(Audience::Everyone, &RelayToBrowser::PermissionPrompt(prompt));
        Ok(())
    }

    /// A person answers. The first answer wins; a wrong one leaves the dialog open.
    pub(super) fn permission_response(&mut self, peer: PeerKey, response: &PermissionResponse) -> Result<(), Stop> {
        let refused = |hub: &mut Self, error: WireError| {
            hub.audit_answer(peer, response, "refused", Some(&error))?;
            hub.control_failed(peer, response.request_id.clone(), &response.session_id, "permission_response", error);
            Ok(())
        };
        let open = self.sessions.get(&response.session_id).and_then(|live| live.prompts.get(&response.prompt_id));
        let Some(open) = open.filter(|open| open.is_open()) else {
            let error = if self.peers.proxies().next().is_none() {
                self.unreachable(&response.session_id)
            } else {
                WireError::new(
                    ErrorCode::PromptNotFound,
                    "That dialog is not open any more, or somebody has answered it",
                )
            };
            return refused(self, error);
        };
        if let Err(error) = check_answer(&open.prompt, response) {
            return refused(self, error);
        }
        let Some(proxy) = self.proxy_of(&response.session_id) else {
            let error = self.unreachable(&response.session_id);
            return refused(self, error);
        };
        let Some(device_name) = self.peers.get(peer).map(|peer| peer.device_name.clone()) else { return Ok(()) };
        let deadline = self.now + self.limits.send_timeout_ms;
        let request_id = self.begin_control(
            proxy,
            Control {
                browser: peer,
                request_id: response.request_id.clone(),
                session_id: response.session_id.clone(),
                command: "permission_response",
                awaits: Awaits::Prompt(response.prompt_id.clone()),
                deadline,
            },
        )?;
        let answer = Answer { response: response.clone(), device_name, deadline };
        let live = self.sessions.get_mut(&response.session_id).expect("checked above");
        let open = live.prompts.get_mut(&response.prompt_id).expect("checked above");
        open.answer = Some(answer.clone());
        let prompt = open.prompt.clone();
        let session_key = live.key;
        // An answered prompt is not open, also after a restart: it is back only if the proxy says so.
        self.ledger.drop_prompt(session_key, &response.prompt_id)?;
        self.audit_answer(peer, response, "forwarded", None)?;
        self.tell_prompt(&prompt, PromptState::Answering, Some(&answer), None);
        let forwarded = PermissionResponse { request_id: Some(request_id), ..response.clone() };
        self.tell_proxy(proxy, &RelayToProxy::PermissionResponse(forwarded));
        Ok(())
    }

    /// The proxy says what became of an answer.
    pub(super) fn answer_result(
        &mut self,
        session_id: &SessionId,
        prompt_id: &PromptId,
        result: &AgentControlResult,
    ) -> Result<(), LedgerError> {
        let error = result.failure();
        let gone = error.as_ref().is_some_and(|error| error.code == ErrorCode::PromptNotFound.as_str());
        match result.result {
            ControlOutcome::Ok => self.end_prompt(session_id, prompt_id, PromptState::Resolved, None),
            ControlOutcome::Failed if gone => self.end_prompt(session_id, prompt_id, PromptState::Vanished, None),
            ControlOutcome::Failed => self.revert_prompt(session_id, prompt_id, error),
        }
    }

    /// An answer was not applied: the dialog is open again, under its id.
    pub(super) fn revert_prompt(
        &mut self,
        session_id: &SessionId,
        prompt_id: &PromptId,
        error: Option<WireError>,
    ) -> Result<(), LedgerError> {
        let live = self.sessions.get_mut(session_id);
        let Some(open) = live.and_then(|live| live.prompts.get_mut(prompt_id)) else { return Ok(()) };
        let Some(answer) = open.answer.take() else { return Ok(()) };
        let (prompt, expires_at) = (open.prompt.clone(), open.expires_at);
        self.tell_prompt(&prompt, PromptState::Reverted, Some(&answer), error);
        self.open_prompt(prompt, expires_at)
    }

    /// A dialog is over.
    pub(super) fn end_prompt(
        &mut self,
        session_id: &SessionId,
        prompt_id: &PromptId,
        state: PromptState,
        error: Option<WireError>,
    ) -> Result<(), LedgerError> {
        let Some(open) = self.take_prompt(session_id, prompt_id)? else { return Ok(()) };
        self.tell_prompt(&open.prompt, state, open.answer.as_ref(), error);
        Ok(())
    }

    fn take_prompt(&mut self, session_id: &SessionId, prompt_id: &PromptId) -> Result<Option<OpenPrompt>, LedgerError> {
        let Some(live) = self.sessions.get_mut(session_id) else { return Ok(None) };
        let Some(open) = live.prompts.remove(prompt_id) else { return Ok(None) };
        let key = live.key;
        self.ledger.drop_prompt(key, prompt_id)?;
        Ok(Some(open))
    }

    pub(super) fn drop_all_prompts(&mut self, session_id: &SessionId) -> Result<(), LedgerError> {
        let Some(live) = self.sessions.get(session_id) else { return Ok(()) };
        for prompt_id in live.prompts.keys().cloned().collect::<Vec<_>>() {
            self.end_prompt(session_id, &prompt_id, PromptState::Vanished, None)?;
        }
        Ok(())
    }

    /// A proxy lists every dialog it sees: its others have vanished.
    pub(super) fn keep_only_prompts(&mut self, machine_id: &MachineId, seen: &[PromptKey]) -> Result<(), LedgerError> {
        let seen: HashSet<_> = seen.iter().map(|key| (&key.session_id, &key.prompt_id)).collect();
        let mut vanished = Vec::new();
        for (session_id, live) in self.sessions.iter().filter(|(_, live)| live.machine_id == *machine_id) {
            let missing = live.prompts.keys().filter(|prompt_id| !seen.contains(&(session_id, *prompt_id)));
            vanished.extend(missing.map(|prompt_id| (session_id.clone(), prompt_id.clone())));
        }
        for (session_id, prompt_id) in vanished {
            self.end_prompt(&session_id, &prompt_id, PromptState::Vanished, None)?;
        }
        Ok(())
    }

    /// A proxy reports that a dialog went away without an answer of ours.
    pub(super) fn prompt_update(&mut self, peer: PeerKey, update: &PermissionPromptUpdate) -> Result<(), Stop> {
        self.own_session(peer, &update.session_id)?;
        if update.state != PromptState::Vanished {
            return refuse(ErrorCode::InvalidMessage, "permission_prompt_update: a proxy may only say `vanished`");
        }
        Ok(self.end_prompt(&update.session_id, &update.prompt_id, PromptState::Vanished, None)?)
    }

    /// The IDE's own dialog has dismissed itself. This is the one case in which the relay answers:
    /// with the choice the IDE applies anyway, and only if the proxy announced it.
    pub(super) fn expire_prompt(&mut self, session_id: &SessionId, prompt_id: &PromptId) -> Result<(), LedgerError> {
        let proxy = self.proxy_of(session_id);
        let Some(open) = self.take_prompt(session_id, prompt_id)? else { return Ok(()) };
        let applied_choice = open.prompt.default_choice.clone().filter(|_| proxy.is_some());
        if let (Some(proxy), Some(choice_id)) = (proxy, &applied_choice) {
            let response = PermissionResponse {
                request_id: Some(RequestId::new(fresh_id("expiry"))),
                session_id: session_id.clone(),
                prompt_id: prompt_id.clone(),
                choice_id: Some(choice_id.clone()),
                choice_ids: None,
                text: None,
            };
            self.tell_proxy(proxy, &RelayToProxy::PermissionResponse(response));
        }
        let detail = answer_detail(&open.prompt, applied_choice.as_ref(), None, None);
        self.audit(&NewAudit {
            action: "permission_response",
            outcome: "expired",
            session_id: Some(session_id.as_str()),
            subject: Some(prompt_id.as_str()),
            detail: Some(&detail),
            ..NewAudit::default()
        })?;
        let (session_id, prompt_id) = (session_id.clone(), prompt_id.clone());
        let expired = PermissionPromptExpired { session_id, prompt_id, applied_choice };
        self.broadcast(Audience::Everyone, &RelayToBrowser::PermissionPromptExpired(expired));
        Ok(())
    }

    fn tell_prompt(
        &mut self,
        prompt: &PermissionPrompt,
        state: PromptState,
        answer: Option<&Answer>,
        error: Option<WireError>,
    ) {
        let update = PermissionPromptUpdate {
            session_id: prompt.session_id.clone(),
            prompt_id: prompt.prompt_id.clone(),
            state,
            choice_id: answer.and_then(|answer| answer.response.choice_id.clone()),
            device_name: answer.map(|answer| answer.device_name.clone()),
            error,
        };
        self.broadcast(Audience::Everyone, &RelayToBrowser::PermissionPromptUpdate(update));
    }

    fn audit_answer(
        &mut self,
        peer: PeerKey,
        response: &PermissionResponse,
        outcome: &str,
        error: Option<&WireError>,
    ) -> Result<(), LedgerError> {
        let live = self.sessions.get(&response.session_id);
        let prompt = live.and_then(|live| live.prompts.get(&response.prompt_id)).map(|open| open.prompt.clone());
        let mut detail = prompt.map_or_else(String::new, |prompt| {
            let choices = response.choice_ids.as_deref();
            answer_detail(&prompt, response.choice_id.as_ref(), choices, response.text.as_deref())
        });
        if let Some(error) = error {
            detail.push_str(&format!(" ({}: {})", error.code, error.message));
        }
        let command = ("permission_response", response.prompt_id.as_str());
        self.audit_command(peer, command, &response.session_id, outcome, Some(&detail))
    }
}

fn offers(prompt: &PermissionPrompt, choice_id: &ChoiceId) -> bool {
    prompt.choices.iter().any(|choice| choice.choice_id == *choice_id)
}

/// Whether the dialog offers this answer.
fn check_answer(prompt: &PermissionPrompt, response: &PermissionResponse) -> Result<(), WireError> {
    let wrong =
        |message: String| Err(WireError::new(ErrorCode::InvalidMessage, format!("permission_response: {message}")));
    let several = response.choice_ids.as_deref().unwrap_or_default();
    if response.choice_id.is_none() && several.is_empty() && response.text.is_none() {
        return wrong("missing field `choice_id`".into());
    }
    if let Some(choice) = response.choice_id.iter().chain(several).find(|choice| !offers(prompt, choice)) {
        let offered: Vec<_> = prompt.choices.iter().map(|choice| choice.choice_id.as_str()).collect();
        return wrong(format!("`{choice}` is not offered; the choices are {}", offered.join(", ")));
    }
    if !several.is_empty() && prompt.multi_select != Some(true) {
        return wrong("this dialog takes one choice, in `choice_id`".into());
    }
    if response.text.is_some() && prompt.free_text != Some(true) {
        return wrong("this dialog takes no `text`".into());
    }
    Ok(())
}

/// What the audit trail says of an answer: what was asked, and what was chosen.
fn answer_detail(
    prompt: &PermissionPrompt,
    choice: Option<&ChoiceId>,
    choices: Option<&[ChoiceId]>,
    text: Option<&str>,
) -> String {
    let mut detail = prompt.prompt_text.clone();
    if let Some(command) = &prompt.command {
        detail.push_str(&format!(" [{command}]"));
    }
    let label = |id: &ChoiceId| {
        let choice = prompt.choices.iter().find(|choice| choice.choice_id == *id);
        choice.map_or_else(|| id.to_string(), |choice| format!("{id} ({})", choice.label))
    };
    let chosen: Vec<String> = choice.into_iter().chain(choices.into_iter().flatten()).map(label).collect();
    detail.push_str(&format!(" => {}", chosen.join(", ")));
    if let Some(text) = text {
        detail.push_str(&format!(" \"{text}\""));
    }
    detail
}
