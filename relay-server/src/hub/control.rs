//! Commands to a session's proxy, and the way back of their results to the browser that asked.

use super::peers::PeerKey;
use super::{Hub, Stop, fresh_id, refuse};
use crate::clock::Millis;
use crate::ledger::{LedgerError, NewAudit};
use protocol::browser::{BrowserToRelay, RelayToBrowser};
use protocol::config::{
    AgentConfig, AgentConfigRequest, AgentControlResult, AgentInterrupt, AgentSetModel, ControlOutcome,
};
use protocol::envelope::{Frames, Ids};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{MachineId, PromptId, RequestId, SessionId};
use protocol::proxy::RelayToProxy;
use protocol::session::{CloseSession, SessionClosed};

/// Commands that may wait for one proxy's answer at once.
const MOST_IN_FLIGHT: usize = 1000;

/// A command, from when it is given until the proxy has answered.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    /// Who asked, on which socket, and under which id.
    browser: PeerKey,
    token_id: String,
    device_name: String,
    request_id: Option<RequestId>,
    session_id: SessionId,
    machine_id: Option<MachineId>,
    /// The `type` of the command.
    command: &'static str,
    awaits: Awaits,
    pub(super) deadline: Millis,
}

/// What else tells that a command worked, beside its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    Nothing,
    /// The dialog that it answers.
    Prompt(PromptId),
    /// Any settings of the session.
    Settings,
    /// Settings with this model.
    Model(String),
    /// They came; the result may still follow.
    Confirmed,
}

impl Control {
    /// What the audit trail knows it by.
    fn subject(&self) -> Option<&str> {
        match &self.awaits {
            Awaits::Prompt(prompt_id) => Some(prompt_id.as_str()),
            Awaits::Nothing | Awaits::Settings | Awaits::Model(_) | Awaits::Confirmed => {
                self.request_id.as_ref().map(RequestId::as_str)
            }
        }
    }

    fn result(&self, result: ControlOutcome, error: Option<WireError>) -> RelayToBrowser {
        RelayToBrowser::AgentControlResult(AgentControlResult {
            request_id: self.request_id.clone(),
            session_id: self.session_id.clone(),
            command: self.command.to_owned(),
            result,
            error,
            error_code: None,
        })
    }
}

impl Hub {
    pub(super) fn interrupt(&mut self, peer: PeerKey, command: &AgentInterrupt) -> Result<(), Stop> {
        let AgentInterrupt { request_id, session_id } = command.clone();
        let control = self.control(peer, Some(request_id), &session_id, "agent_interrupt", Awaits::Nothing);
        self.command(&control, None, |request_id| {
            RelayToProxy::AgentInterrupt(AgentInterrupt { request_id, session_id })
        })
    }

    pub(super) fn set_model(&mut self, peer: PeerKey, command: &AgentSetModel) -> Result<(), Stop> {
        let AgentSetModel { request_id, session_id, model_id } = command.clone();
        let awaits = Awaits::Model(model_id.clone());
        let control = self.control(peer, request_id, &session_id, "agent_set_model", awaits);
        self.command(&control, Some(&command.model_id), |request_id| {
            RelayToProxy::AgentSetModel(AgentSetModel { request_id: Some(request_id), session_id, model_id })
        })
    }

    /// The latest settings at once, and a fresh reading as soon as the proxy has made one.
    pub(super) fn config_request(&mut self, peer: PeerKey, command: &AgentConfigRequest) -> Result<(), Stop> {
        let AgentConfigRequest { request_id, session_id } = command.clone();
        if let Some(settings) = self.sessions.get(&session_id).and_then(|live| live.settings.clone()) {
            let config = AgentConfig { session_id: session_id.clone(), settings };
            self.tell_browser(peer, &RelayToBrowser::AgentConfig(config));
        }
        let control = self.control(peer, request_id, &session_id, "agent_config_request", Awaits::Settings);
        self.command(&control, None, |request_id| {
            RelayToProxy::AgentConfigRequest(AgentConfigRequest { request_id: Some(request_id), session_id })
        })
    }

    pub(super) fn close_session(&mut self, peer: PeerKey, command: &CloseSession) -> Result<(), Stop> {
        let CloseSession { request_id, session_id } = command.clone();
        if self.sessions.get(&session_id).is_none() {
            return refuse(ErrorCode::SessionUnknown, format!("There is no open session `{session_id}`"));
        }
        if self.proxy_of(&session_id).is_none() {
            return Err(Stop::Refused(self.unreachable(&session_id)));
        }
        let control = self.control(peer, Some(request_id), &session_id, "close_session", Awaits::Nothing);
        self.command(&control, None, |request_id| RelayToProxy::CloseSession(CloseSession { request_id, session_id }))
    }

    /// A command as it was given.
    pub(super) fn control(
        &self,
        browser: PeerKey,
        request_id: Option<RequestId>,
        session_id: &SessionId,
        command: &'static str,
        awaits: Awaits,
    ) -> Control {
        let peer = self.peers.get(browser);
        Control {
            browser,
            token_id: peer.map(|peer| peer.token_id.clone()).unwrap_or_default(),
            device_name: peer.map(|peer| peer.device_name.clone()).unwrap_or_default(),
            request_id,
            session_id: session_id.clone(),
            machine_id: self.sessions.get(session_id).map(|live| live.machine_id.clone()),
            command,
            awaits,
            deadline: self.now + self.limits.send_timeout_ms,
        }
    }

    /// Forwards a command, or says at once why it cannot be.
    fn command(
        &mut self,
        control: &Control,
        detail: Option<&str>,
        frame: impl FnOnce(RequestId) -> RelayToProxy,
    ) -> Result<(), Stop> {
        let Some(proxy) = self.proxy_of(&control.session_id) else {
            let error = self.unreachable(&control.session_id);
            return Ok(self.refuse_control(control, error, detail)?);
        };
        let proxys_id = self.begin_control(proxy, control.clone())?;
        self.audit_control(control, "forwarded", detail)?;
        self.tell_proxy(proxy, &frame(proxys_id));
        Ok(())
    }

    /// Registers a command and returns the id the proxy will know it by: the browser's own, unless
    /// another phone's command with the same id is on its way there.
    pub(super) fn begin_control(&mut self, proxy: PeerKey, control: Control) -> Result<RequestId, Stop> {
        let in_flight = self.controls.iter().filter(|((owner, _), _)| *owner == proxy).count();
        if in_flight >= MOST_IN_FLIGHT {
            return refuse(ErrorCode::RateLimited, format!("{in_flight} commands wait for this machine already"));
        }
        let request_id = self.proxys_request_id(proxy, control.request_id.clone());
        self.wake_by(control.deadline);
        self.controls.insert((proxy, request_id.clone()), control);
        Ok(request_id)
    }

    /// The browser's id if it is free towards this proxy, or a fresh one.
    pub(super) fn proxys_request_id(&self, proxy: PeerKey, wanted: Option<RequestId>) -> RequestId {
        let taken =
            |id: &RequestId| self.launches.get(id).is_some() || self.controls.get(&(proxy, id.clone())).is_some();
        wanted.filter(|id| !taken(id)).unwrap_or_else(|| RequestId::new(fresh_id("req")))
    }

    /// Whether some proxy still owes the result of this command.
    pub(super) fn is_under_way(&self, proxys_id: &RequestId) -> bool {
        self.controls.iter().any(|((_, id), _)| id == proxys_id)
    }

    /// The proxy says how a command ended; only the browser that asked hears it.
    pub(super) fn control_result(&mut self, peer: PeerKey, result: &AgentControlResult) -> Result<(), Stop> {
        let Some(request_id) = result.request_id.clone() else {
            return refuse(ErrorCode::InvalidMessage, "agent_control_result: missing field `request_id`");
        };
        self.own_session(peer, &result.session_id)?;
        let Some(control) = self.controls.remove(&(peer, request_id)) else { return Ok(()) };
        if let Awaits::Prompt(prompt_id) = &control.awaits {
            self.answer_result(&control.session_id, prompt_id, result)?;
        }
        Ok(self.end_control(&control, result.result, result.failure())?)
    }

    /// A `session_closed` ends whatever `close_session` asked for it. Returns the id that a browser
    /// knows it by.
    pub(super) fn finish_close(
        &mut self,
        peer: PeerKey,
        closed: &SessionClosed,
    ) -> Result<Option<RequestId>, LedgerError> {
        let mut told = closed.request_id.clone();
        let asked = self.controls.keys_where(|(owner, _), control| {
            *owner == peer && control.session_id == closed.session_id && control.command == "close_session"
        });
        for key in asked {
            let Some(control) = self.controls.remove(&key) else { continue };
            self.audit_control(&control, "ok", None)?;
            if told.is_none() || told.as_ref() == Some(&key.1) {
                told = control.request_id;
            }
        }
        Ok(told)
    }

    /// Says at once that a command came to nothing.
    pub(super) fn refuse_control(
        &mut self,
        control: &Control,
        error: WireError,
        detail: Option<&str>,
    ) -> Result<(), LedgerError> {
        self.audit_control(control, &error.code, detail)?;
        self.tell_browser(control.browser, &control.result(ControlOutcome::Failed, Some(error)));
        Ok(())
    }

    /// Tells the asker, and the audit trail, how a command ended.
    fn end_control(
        &mut self,
        control: &Control,
        result: ControlOutcome,
        error: Option<WireError>,
    ) -> Result<(), LedgerError> {
        let outcome = match (&error, result) {
            (Some(error), _) => error.code.clone(),
            (None, ControlOutcome::Ok) => "ok".to_owned(),
            (None, ControlOutcome::Failed) => "failed".to_owned(),
        };
        self.audit_control(control, &outcome, None)?;
        self.tell_browser(control.browser, &control.result(result, error));
        Ok(())
    }

    /// A proxy went away with commands unanswered. A dialog that was being answered stays so: the
    /// proxy says on its return whether it is still open, and until then nobody could answer anyway.
    pub(super) fn fail_controls_of(&mut self, proxy: PeerKey) -> Result<(), LedgerError> {
        let error = WireError::new(ErrorCode::NoProxyConnected, "The machine went away before it answered");
        self.give_up(|owner, _| owner == proxy, &error)
    }

    /// The proxy has had its time.
    pub(super) fn time_out_controls(&mut self) -> Result<(), LedgerError> {
        let now = self.now;
        let error = WireError::new(ErrorCode::NotVerified, "The machine did not say in time whether it worked");
        self.give_up(|_, control| control.deadline <= now, &error)
    }

    /// No result will come for these. One that was confirmed by the settings needs none.
    fn give_up(&mut self, which: impl Fn(PeerKey, &Control) -> bool, error: &WireError) -> Result<(), LedgerError> {
        for key in self.controls.keys_where(|(owner, _), control| which(*owner, control)) {
            let Some(control) = self.controls.remove(&key) else { continue };
            if control.awaits != Awaits::Confirmed {
                self.end_control(&control, ControlOutcome::Failed, Some(error.clone()))?;
            }
        }
        Ok(())
    }

    /// Settings are what a request for them waits for, and the proof that a model was changed.
    pub(super) fn confirm_controls(&mut self, proxy: PeerKey, config: &AgentConfig) -> Result<(), LedgerError> {
        let model = Awaits::Model(config.settings.model_id.clone());
        let confirmed = self.controls.keys_where(|(owner, _), control| {
            *owner == proxy
                && control.session_id == config.session_id
                && (control.awaits == Awaits::Settings || control.awaits == model)
        });
        for key in confirmed {
            let control = self.controls.get_mut(&key).expect("just found");
            control.awaits = Awaits::Confirmed;
            let control = control.clone();
            self.audit_control(&control, "ok", Some(&config.settings.model_id))?;
        }
        Ok(())
    }

    /// One line of the trail for a command: what, by whom, to which session.
    pub(super) fn audit_control(
        &mut self,
        control: &Control,
        outcome: &str,
        detail: Option<&str>,
    ) -> Result<(), LedgerError> {
        self.audit(&NewAudit {
            action: control.command,
            outcome,
            token_id: Some(&control.token_id),
            device_name: Some(&control.device_name),
            machine_id: control.machine_id.as_ref().map(MachineId::as_str),
            session_id: Some(control.session_id.as_str()),
            subject: control.subject(),
            detail,
        })
    }

    /// One line of the trail for an act that was refused before anything came of it.
    pub(super) fn audit_refusal(
        &mut self,
        peer: PeerKey,
        ids: &Ids,
        frame: &BrowserToRelay,
        error: &WireError,
    ) -> Result<(), LedgerError> {
        match frame {
            BrowserToRelay::SendMessage(_)
            | BrowserToRelay::LaunchSession(_)
            | BrowserToRelay::CloseSession(_)
            | BrowserToRelay::PermissionResponse(_)
            | BrowserToRelay::AgentInterrupt(_)
            | BrowserToRelay::AgentConfigRequest(_)
            | BrowserToRelay::AgentSetModel(_) => {}
            BrowserToRelay::ConnectionHello(_)
            | BrowserToRelay::ConnectionError(_)
            | BrowserToRelay::Heartbeat(_)
            | BrowserToRelay::SessionInterest(_)
            | BrowserToRelay::HistoryRequest(_) => return Ok(()),
        }
        let Some((token_id, device_name)) = self.who(peer) else { return Ok(()) };
        let subject = ids.client_message_id.as_ref().map(|id| id.as_str());
        self.audit(&NewAudit {
            action: audit_action(frame),
            outcome: &error.code,
            token_id: Some(&token_id),
            device_name: Some(&device_name),
            session_id: ids.session_id.as_ref().map(SessionId::as_str),
            subject: subject.or(ids.request_id.as_ref().map(RequestId::as_str)),
            detail: Some(&error.message),
            ..NewAudit::default()
        })
    }

    /// The token and the name of a connected device.
    pub(super) fn who(&self, peer: PeerKey) -> Option<(String, String)> {
        self.peers.get(peer).map(|peer| (peer.token_id.clone(), peer.device_name.clone()))
    }
}

/// The trail's word for an act: a send is a `send`, everything else goes by its frame's type.
fn audit_action(frame: &BrowserToRelay) -> &'static str {
    if matches!(frame, BrowserToRelay::SendMessage(_)) { "send" } else { frame.frame_type() }
}
