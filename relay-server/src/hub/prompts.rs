//! Dialogs: open, being answered, resolved, reverted, vanished or expired.

use super::control::Awaits;
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
    /// As the proxy knows it.
    pub(super) request_id: RequestId,
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
        if serde_json::to_string(prompt).is_ok_and(|text| text.len() > self.limits.max_content_bytes) {
            let message = format!("permission_prompt: longer than {} bytes", self.limits.max_content_bytes);
            return refuse(ErrorCode::ContentTooLarge, message);
        }
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
            Some(known) if known.is_open() && same_dialog(&known.prompt, &prompt) => return Ok(()),
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
        let session_id = prompt.session_id.clone();
        self.broadcast(&session_id, Audience::Everyone, &RelayToBrowser::PermissionPrompt(prompt));
        Ok(())
    }

    /// A person answers. The first answer wins; a wrong one leaves the dialog open.
    pub(super) fn permission_response(&mut self, peer: PeerKey, response: &PermissionResponse) -> Result<(), Stop> {
        let PermissionResponse { session_id, prompt_id, .. } = response;
        let awaits = Awaits::Prompt(prompt_id.clone());
        let control = self.control(peer, response.request_id.clone(), session_id, "permission_response", awaits);
        let known = self.sessions.get(session_id).and_then(|live| live.prompts.get(prompt_id)).cloned();
        let detail = known.as_ref().map(|known| answer_detail(&known.prompt, response));
        let (known, proxy) = match self.answerable(known, response) {
            Ok(answerable) => answerable,
            Err(error) => return Ok(self.refuse_control(&control, error, detail.as_deref())?),
        };
        let request_id = self.begin_control(proxy, control.clone())?;
        self.audit_control(&control, "forwarded", detail.as_deref())?;
        let deadline = control.deadline;
        let device_name = self.who(peer).map(|(_, device_name)| device_name).unwrap_or_default();
        let answer = Answer { request_id: request_id.clone(), response: response.clone(), device_name, deadline };
        let live = self.sessions.get_mut(session_id).expect("its prompt was just found");
        let session_key = live.key;
        let open = OpenPrompt { answer: Some(answer.clone()), ..known };
        let prompt = open.prompt.clone();
        live.prompts.insert(prompt_id.clone(), open);
        // An answered prompt is not open, also after a restart: it is back only if the proxy says so.
        self.ledger.drop_prompt(session_key, prompt_id)?;
        self.tell_prompt(&prompt, PromptState::Answering, Some(&answer), None);
        let forwarded = PermissionResponse { request_id: Some(request_id), ..response.clone() };
        self.tell_proxy(proxy, &RelayToProxy::PermissionResponse(forwarded));
        Ok(())
    }

    /// The open dialog and the proxy that can answer it, or why not.
    fn answerable(
        &self,
        known: Option<OpenPrompt>,
        response: &PermissionResponse,
    ) -> Result<(OpenPrompt, PeerKey), WireError> {
        if self.peers.proxies().next().is_none() {
            return Err(self.unreachable(&response.session_id));
        }
        let Some(known) = known.filter(OpenPrompt::is_open) else {
            let message = "That dialog is not open any more, or somebody has answered it";
            return Err(WireError::new(ErrorCode::PromptNotFound, message));
        };
        check_answer(&known.prompt, response)?;
        let proxy = self.proxy_of(&response.session_id).ok_or_else(|| self.unreachable(&response.session_id))?;
        Ok((known, proxy))
    }

    /// The proxy says what became of an answer.
    pub(super) fn answer_result(
        &mut self,
        session_id: &SessionId,
        prompt_id: &PromptId,
        result: &AgentControlResult,
    ) -> Result<(), LedgerError> {
        let live = self.sessions.get(session_id);
        let answer = live.and_then(|live| live.prompts.get(prompt_id)?.answer.as_ref());
        if answer.map(|answer| Some(&answer.request_id)) != Some(result.request_id.as_ref()) {
            // Of an answer that was given up: another one may be on its way by now.
            return Ok(());
        }
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
        let (mut vanished, mut still_there) = (Vec::new(), Vec::new());
        for (session_id, live) in self.sessions.iter().filter(|(_, live)| live.machine_id == *machine_id) {
            for (prompt_id, prompt) in &live.prompts {
                let key = (session_id.clone(), prompt_id.clone());
                if !seen.contains(&(session_id, prompt_id)) {
                    vanished.push(key);
                } else if prompt.answer.as_ref().is_some_and(|answer| !self.is_under_way(&answer.request_id)) {
                    still_there.push(key);
                }
            }
        }
        for (session_id, prompt_id) in vanished {
            self.end_prompt(&session_id, &prompt_id, PromptState::Vanished, None)?;
        }
        for (session_id, prompt_id) in still_there {
            // Its answer was lost with an earlier connection.
            let error = WireError::new(ErrorCode::ClickNotApplied, "The dialog is still open");
            self.revert_prompt(&session_id, &prompt_id, Some(error))?;
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
        let response = PermissionResponse {
            request_id: Some(RequestId::new(fresh_id("expiry"))),
            session_id: session_id.clone(),
            prompt_id: prompt_id.clone(),
            choice_id: applied_choice.clone(),
            choice_ids: None,
            text: None,
        };
        let detail = answer_detail(&open.prompt, &response);
        if let (Some(proxy), Some(_)) = (proxy, &applied_choice) {
            self.tell_proxy(proxy, &RelayToProxy::PermissionResponse(response));
        }
        let machine_id = self.sessions.get(session_id).map(|live| live.machine_id.clone());
        self.audit(&NewAudit {
            action: "permission_response",
            outcome: "expired",
            machine_id: machine_id.as_ref().map(MachineId::as_str),
            session_id: Some(session_id.as_str()),
            subject: Some(prompt_id.as_str()),
            detail: Some(&detail),
            ..NewAudit::default()
        })?;
        let prompt_id = prompt_id.clone();
        let expired = PermissionPromptExpired { session_id: session_id.clone(), prompt_id, applied_choice };
        self.broadcast(session_id, Audience::Everyone, &RelayToBrowser::PermissionPromptExpired(expired));
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
        self.broadcast(&prompt.session_id, Audience::Everyone, &RelayToBrowser::PermissionPromptUpdate(update));
    }
}

/// Equal but for when they were looked at.
fn same_dialog(old: &PermissionPrompt, new: &PermissionPrompt) -> bool {
    let timeless = |prompt: &PermissionPrompt| PermissionPrompt { detected_at: None, ..prompt.clone() };
    timeless(old) == timeless(new)
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
fn answer_detail(prompt: &PermissionPrompt, response: &PermissionResponse) -> String {
    let mut detail = prompt.prompt_text.clone();
    if let Some(command) = &prompt.command {
        detail.push_str(&format!(" [{command}]"));
    }
    let label = |id: &ChoiceId| {
        let choice = prompt.choices.iter().find(|choice| choice.choice_id == *id);
        choice.map_or_else(|| id.to_string(), |choice| format!("{id} ({})", choice.label))
    };
    let chosen: Vec<String> =
        response.choice_id.iter().chain(response.choice_ids.iter().flatten()).map(label).collect();
    detail.push_str(&format!(" => {}", chosen.join(", ")));
    if let Some(text) = &response.text {
        detail.push_str(&format!(" \"{text}\""));
    }
    detail
}
