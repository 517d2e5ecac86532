//! Commands to a session's proxy, and the way back of their results to the browser that asked.

use super::peers::PeerKey;
use super::{Hub, Stop, fresh_id, refuse};
use crate::clock::Millis;
use crate::ledger::{LedgerError, NewAudit};
use protocol::browser::RelayToBrowser;
use protocol::config::{
    AgentConfig, AgentConfigRequest, AgentControlResult, AgentInterrupt, AgentSetModel, ControlOutcome,
};
use protocol::error::{ErrorCode, WireError};
use protocol::ids::{PromptId, RequestId, SessionId};
use protocol::proxy::RelayToProxy;
use protocol::session::{CloseSession, SessionClosed};

/// Commands that may wait for one proxy's answer at once.
const MOST_IN_FLIGHT: usize = 1000;

/// A command that the proxy has not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Control {
    /// Who asked, and under which id.
    pub browser: PeerKey,
    pub request_id: Option<RequestId>,
    pub session_id: SessionId,
    /// The `type` of the command.
    pub command: &'static str,
    pub awaits: Awaits,
    pub deadline: Millis,
}

/// What else tells that a command worked, beside its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
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

impl Awaits {
    /// What the audit trail should know of it.
    fn detail(&self) -> Option<&str> {
        if let Self::Model(model_id) = self { Some(model_id) } else { None }
    }
}

impl Hub {
    pub(super) fn interrupt(&mut self, peer: PeerKey, command: &AgentInterrupt) -> Result<(), Stop> {
        let request_id = Some(command.request_id.clone());
        self.command(peer, request_id, &command.session_id, "agent_interrupt", Awaits::Nothing, |request_id| {
            RelayToProxy::AgentInterrupt(AgentInterrupt { request_id, session_id: command.session_id.clone() })
        })
    }

    pub(super) fn set_model(&mut self, peer: PeerKey, command: &AgentSetModel) -> Result<(), Stop> {
        let (request_id, awaits) = (command.request_id.clone(), Awaits::Model(command.model_id.clone()));
        self.command(peer, request_id, &command.session_id, "agent_set_model", awaits, |request_id| {
            RelayToProxy::AgentSetModel(AgentSetModel { request_id: Some(request_id), ..command.clone() })
        })
    }

    /// The latest settings at once, and a fresh reading as soon as the proxy has made one.
    pub(super) fn config_request(&mut self, peer: PeerKey, command: &AgentConfigRequest) -> Result<(), Stop> {
        let session_id = &command.session_id;
        if let Some(settings) = self.sessions.get(session_id).and_then(|live| live.settings.clone()) {
            let config = AgentConfig { session_id: session_id.clone(), settings };
            self.tell_browser(peer, &RelayToBrowser::AgentConfig(config));
        }
        let request_id = command.request_id.clone();
        self.command(peer, request_id, session_id, "agent_config_request", Awaits::Settings, |request_id| {
            let request_id = Some(request_id);
            RelayToProxy::AgentConfigRequest(AgentConfigRequest { request_id, session_id: session_id.clone() })
        })
    }

    pub(super) fn close_session(&mut self, peer: PeerKey, command: &CloseSession) -> Result<(), Stop> {
        let CloseSession { request_id, session_id } = command;
        if self.sessions.get(session_id).is_none() {
            return refuse(ErrorCode::SessionUnknown, format!("There is no open session `{session_id}`"));
        }
        let Some(proxy) = self.proxy_of(session_id) else {
            return Err(Stop::Refused(self.unreachable(session_id)));
        };
        let request_id = Some(request_id.clone());
        self.send_command(peer, proxy, request_id, session_id, "close_session", Awaits::Nothing, |request_id| {
            RelayToProxy::CloseSession(CloseSession { request_id, session_id: session_id.clone() })
        })
    }

    /// Forwards a command, or says at once why it cannot be.
    fn command(
        &mut self,
        peer: PeerKey,
        request_id: Option<RequestId>,
        session_id: &SessionId,
        command: &'static str,
        awaits: Awaits,
        frame: impl FnOnce(RequestId) -> RelayToProxy,
    ) -> Result<(), Stop> {
        let Some(proxy) = self.proxy_of(session_id) else {
            let error = self.unreachable(session_id);
            let subject = request_id.as_ref().map_or("", RequestId::as_str).to_owned();
            self.audit_command(peer, (command, &subject), session_id, &error.code, awaits.detail())?;
            self.control_failed(peer, request_id, session_id, command, error);
            return Ok(());
        };
        self.send_command(peer, proxy, request_id, session_id, command, awaits, frame)
    }

    #[expect(clippy::too_many_arguments, reason = "a command is just this many things; they are used once, here")]
    fn send_command(
        &mut self,
        peer: PeerKey,
        proxy: PeerKey,
        request_id: Option<RequestId>,
        session_id: &SessionId,
        command: &'static str,
        awaits: Awaits,
        frame: impl FnOnce(RequestId) -> RelayToProxy,
    ) -> Result<(), Stop> {
        let detail = awaits.detail().map(str::to_owned);
        let proxys_id = self.begin_control(
            proxy,
            Control {
                browser: peer,
                request_id,
                session_id: session_id.clone(),
                command,
                awaits,
                deadline: self.now + self.limits.send_timeout_ms,
            },
        )?;
        self.audit_command(peer, (command, proxys_id.as_str()), session_id, "forwarded", detail.as_deref())?;
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
        self.end_control(control, result.failure(), result.result)?;
        Ok(())
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
            if told.is_none() || told.as_ref() == Some(&key.1) {
                told = control.request_id;
            }
            let subject = key.1.as_str();
            self.audit_command(control.browser, ("close_session", subject), &closed.session_id, "ok", None)?;
        }
        Ok(told)
    }

    /// Tells the asker, and the audit trail, how a command ended.
    fn end_control(
        &mut self,
        control: Control,
        error: Option<WireError>,
        result: ControlOutcome,
    ) -> Result<(), LedgerError> {
        let outcome = error.as_ref().map_or("ok", |error| error.code.as_str()).to_owned();
        let subject = match (&control.awaits, &control.request_id) {
            (Awaits::Prompt(prompt_id), _) => prompt_id.to_string(),
            (_, Some(request_id)) => request_id.to_string(),
            (_, None) => String::new(),
        };
        let command = (control.command, subject.as_str());
        self.audit_command(control.browser, command, &control.session_id, &outcome, None)?;
        let frame = AgentControlResult {
            request_id: control.request_id,
            session_id: control.session_id,
            command: control.command.to_owned(),
            result,
            error,
            error_code: None,
        };
        self.tell_browser(control.browser, &RelayToBrowser::AgentControlResult(frame));
        Ok(())
    }

    /// Says at once that a command came to nothing.
    pub(super) fn control_failed(
        &mut self,
        peer: PeerKey,
        request_id: Option<RequestId>,
        session_id: &SessionId,
        command: &str,
        error: WireError,
    ) {
        let frame = AgentControlResult {
            request_id,
            session_id: session_id.clone(),
            command: command.to_owned(),
            result: ControlOutcome::Failed,
            error: Some(error),
            error_code: None,
        };
        self.tell_browser(peer, &RelayToBrowser::AgentControlResult(frame));
    }

    /// A proxy went away with commands unanswered. A dialog that was being answered stays so: the
    /// proxy says on its return whether it is still open, and until then nobody could answer anyway.
    pub(super) fn fail_controls_of(&mut self, proxy: PeerKey) -> Result<(), LedgerError> {
        for key in self.controls.keys_where(|(owner, _), _| *owner == proxy) {
            let Some(control) = self.controls.remove(&key) else { continue };
            let error = WireError::new(ErrorCode::NoProxyConnected, "The machine went away before it answered");
            self.give_up(control, error)?;
        }
        Ok(())
    }

    /// The proxy has had its time.
    pub(super) fn time_out_controls(&mut self) -> Result<(), LedgerError> {
        let now = self.now;
        for key in self.controls.keys_where(|_, control| control.deadline <= now) {
            let Some(control) = self.controls.remove(&key) else { continue };
            let error = WireError::new(ErrorCode::NotVerified, "The machine did not say in time whether it worked");
            self.give_up(control, error)?;
        }
        Ok(())
    }

    /// No result will come. One that was confirmed by the settings needs none.
    fn give_up(&mut self, control: Control, error: WireError) -> Result<(), LedgerError> {
        if control.awaits == Awaits::Confirmed {
            return Ok(());
        }
        self.end_control(control, Some(error), ControlOutcome::Failed)
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
            let (browser, command) = (control.browser, control.command);
            self.audit_command(
                browser,
                (command, key.1.as_str()),
                &config.session_id,
                "ok",
                Some(&config.settings.model_id),
            )?;
        }
        Ok(())
    }

    /// One line of the trail for a command: what, by whom, to which session.
    pub(super) fn audit_command(
        &mut self,
        peer: PeerKey,
        (action, subject): (&str, &str),
        session_id: &SessionId,
        outcome: &str,
        detail: Option<&str>,
    ) -> Result<(), LedgerError> {
        let who = self.peers.get(peer).map(|peer| (peer.token_id.clone(), peer.device_name.clone()));
        let machine_id = self.sessions.get(session_id).map(|live| live.machine_id.clone());
        self.audit(&NewAudit {
            action,
            outcome,
            token_id: who.as_ref().map(|who| who.0.as_str()),
            device_name: who.as_ref().map(|who| who.1.as_str()),
            machine_id: machine_id.as_ref().map(|id| id.as_str()),
            session_id: Some(session_id.as_str()),
            subject: Some(subject),
            detail,
        })
    }
}
