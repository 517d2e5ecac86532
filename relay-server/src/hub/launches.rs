//! New sessions on request: pending, timed out, answered, or held for a browser that went away.

use super::peers::PeerKey;
use super::{Hub, Stop, refuse};
use crate::clock::{Millis, timestamp};
use crate::ledger::{LedgerError, NewAudit};
use protocol::browser::RelayToBrowser;
use protocol::error::ErrorCode;
use protocol::ids::{MachineId, RequestId};
use protocol::proxy::RelayToProxy;
use protocol::session::{
    LaunchSession, PendingLaunch, Session, SessionLaunchAck, SessionLaunchFailed, SessionLaunching,
};
use protocol::words::{AgentType, SessionStatus};
use serde::{Deserialize, Serialize};

/// Launches that may be under way at once, for everybody together.
const MOST_PENDING: usize = 1000;

/// A launch under way, or its result waiting for the browser that asked. Kept in the ledger as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Launch {
    /// As the browser knows it; the key in the hub's table is the proxy's.
    request_id: RequestId,
    token_id: String,
    device_name: String,
    machine_id: MachineId,
    agent_type: AgentType,
    launched_at: Millis,
    /// Until the result, when it is due; after it, until when it is held.
    deadline: Millis,
    result: Option<LaunchResult>,
    /// The sockets that asked or were told that it is under way. One of them may be dead without
    /// anybody knowing, so all are told.
    #[serde(skip)]
    askers: Vec<PeerKey>,
}

/// What became of a launch.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum LaunchResult {
    Launched(SessionLaunchAck),
    Failed(SessionLaunchFailed),
}

impl Hub {
    pub(super) fn load_launches(&mut self) -> Result<(), LedgerError> {
        for stored in self.ledger.launches()? {
            let (proxys_id, launch): (RequestId, Launch) = serde_json::from_str(&stored)?;
            self.wake_by(launch.deadline);
            self.launches.insert(proxys_id, launch);
        }
        Ok(())
    }

    pub(super) fn launch_session(&mut self, peer: PeerKey, request: &LaunchSession) -> Result<(), Stop> {
        let Some((token_id, device_name)) = self.who(peer) else { return Ok(()) };
        if self.answer_again(peer, &token_id, request) {
            return Ok(());
        }
        let (proxy, machine_id) = match self.launch_target(request.machine_id.as_ref()) {
            Ok(target) => target,
            Err((code, reason)) => {
                let failed = failure(request.request_id.clone(), &request.agent_type, code, reason);
                let machine_id = request.machine_id.as_ref();
                self.audit_launch((&token_id, &device_name), machine_id, request, code.as_str())?;
                self.tell_browser(peer, &RelayToBrowser::SessionLaunchFailed(failed));
                return Ok(());
            }
        };
        if self.launches.len() >= MOST_PENDING {
            return refuse(ErrorCode::RateLimited, "too many launches are under way");
        }
        let proxys_id = self.proxys_request_id(proxy, Some(request.request_id.clone()));
        let launch = Launch {
            request_id: request.request_id.clone(),
            token_id,
            device_name,
            machine_id,
            agent_type: request.agent_type.clone(),
            launched_at: self.now,
            deadline: self.now + self.limits.launch_timeout_ms,
            result: None,
            askers: vec![peer],
        };
        let who = (launch.token_id.as_str(), launch.device_name.as_str());
        self.audit_launch(who, Some(&launch.machine_id), request, "forwarded")?;
        self.keep_launch(proxys_id.clone(), launch)?;
        self.tell_proxy(
            proxy,
            &RelayToProxy::LaunchSession(LaunchSession { request_id: proxys_id, ..request.clone() }),
        );
        self.tell_launching(peer, &request.request_id, &request.agent_type);
        Ok(())
    }

    /// The same request again, from the same device, launches nothing twice.
    fn answer_again(&mut self, peer: PeerKey, token_id: &str, request: &LaunchSession) -> bool {
        let same = self
            .launches
            .keys_where(|_, launch| launch.token_id == token_id && launch.request_id == request.request_id);
        let Some(proxys_id) = same.into_iter().next() else { return false };
        let launch = self.launches.get_mut(&proxys_id).expect("just found");
        launch.askers.push(peer);
        match launch.result.clone() {
            Some(result) => self.tell_result(peer, result),
            None => self.tell_launching(peer, &request.request_id, &request.agent_type),
        }
        true
    }

    /// The machine asked for, or the only one.
    fn launch_target(&self, wanted: Option<&MachineId>) -> Result<(PeerKey, MachineId), (ErrorCode, &'static str)> {
        let proxies: Vec<_> = self.peers.proxies().map(|(key, machine)| (key, machine.machine_id.clone())).collect();
        match (wanted, proxies.as_slice()) {
            (_, []) => Err((ErrorCode::NoProxyConnected, "No machine is connected to the relay")),
            (Some(wanted), proxies) => proxies
                .iter()
                .find(|(_, machine_id)| machine_id == wanted)
                .cloned()
                .ok_or((ErrorCode::NoProxyConnected, "That machine is not connected to the relay")),
            (None, [only]) => Ok(only.clone()),
            (None, _) => Err((ErrorCode::InvalidMessage, "Several machines are connected: say which, in `machine_id`")),
        }
    }

    fn tell_launching(&mut self, peer: PeerKey, request_id: &RequestId, agent_type: &AgentType) {
        let (request_id, agent_type) = (request_id.clone(), agent_type.clone());
        self.tell_browser(peer, &RelayToBrowser::SessionLaunching(SessionLaunching { request_id, agent_type }));
    }

    /// A proxy has a new session. Whoever asked hears of it; everybody sees it.
    pub(super) fn launch_ack(&mut self, peer: PeerKey, ack: &SessionLaunchAck) -> Result<(), Stop> {
        let launch = self.launch_of(peer, &ack.request_id)?;
        if self.sessions.get(&ack.session_id).is_none_or(|live| live.owner != Some(peer)) {
            let agent_type = ack.agent_type.clone().or_else(|| launch.as_ref().map(|launch| launch.agent_type.clone()));
            let session = self.sessions.get(&ack.session_id).map(|live| live.session.clone());
            let session = session.unwrap_or_else(|| minimal(ack, agent_type));
            self.bring_up(peer, &Session { status: SessionStatus::HEALTHY, ..session })?;
        }
        let Some(launch) = launch else { return Ok(()) };
        let result = SessionLaunchAck {
            request_id: launch.request_id.clone(),
            agent_type: Some(launch.agent_type),
            ..ack.clone()
        };
        Ok(self.end_launch(&ack.request_id, LaunchResult::Launched(result))?)
    }

    /// A proxy could not launch.
    pub(super) fn launch_failed(&mut self, peer: PeerKey, failed: &SessionLaunchFailed) -> Result<(), Stop> {
        let Some(launch) = self.launch_of(peer, &failed.request_id)? else { return Ok(()) };
        let result = SessionLaunchFailed {
            request_id: launch.request_id.clone(),
            agent_type: Some(launch.agent_type),
            ..failed.clone()
        };
        Ok(self.end_launch(&failed.request_id, LaunchResult::Failed(result))?)
    }

    /// A pending launch that was sent to this proxy's machine.
    fn launch_of(&self, peer: PeerKey, proxys_id: &RequestId) -> Result<Option<Launch>, Stop> {
        let machine_id = self.machine_of(peer)?;
        let launch = self.launches.get(proxys_id).filter(|launch| launch.result.is_none());
        Ok(launch.filter(|launch| launch.machine_id == machine_id).cloned())
    }

    /// Tells the asker, or holds the result for its return.
    fn end_launch(&mut self, proxys_id: &RequestId, result: LaunchResult) -> Result<(), LedgerError> {
        let Some(mut launch) = self.launches.get(proxys_id).cloned() else { return Ok(()) };
        let (outcome, session_id, detail) = match &result {
            LaunchResult::Launched(ack) => ("ok", Some(ack.session_id.as_str()), None),
            LaunchResult::Failed(failed) => (failed.error_code.as_str(), None, Some(failed.reason.as_str())),
        };
        self.audit(&NewAudit {
            action: "launch_session",
            outcome,
            token_id: Some(&launch.token_id),
            device_name: Some(&launch.device_name),
            machine_id: Some(launch.machine_id.as_str()),
            session_id,
            subject: Some(launch.request_id.as_str()),
            detail,
        })?;
        let mut askers = std::mem::take(&mut launch.askers);
        askers.retain(|asker| self.peers.get(*asker).is_some());
        if askers.is_empty() {
            launch.result = Some(result);
            launch.deadline = self.now + self.limits.launch_timeout_ms;
            return self.keep_launch(proxys_id.clone(), launch);
        }
        for asker in askers {
            self.tell_result(asker, result.clone());
        }
        self.forget_launch(proxys_id)
    }

    fn forget_launch(&mut self, proxys_id: &RequestId) -> Result<(), LedgerError> {
        self.launches.remove(proxys_id);
        self.ledger.drop_launch(proxys_id)
    }

    fn tell_result(&mut self, peer: PeerKey, result: LaunchResult) {
        let frame = match result {
            LaunchResult::Launched(ack) => RelayToBrowser::SessionLaunchAck(ack),
            LaunchResult::Failed(failed) => RelayToBrowser::SessionLaunchFailed(failed),
        };
        self.tell_browser(peer, &frame);
    }

    /// A device is back: its launches under way, which are now this socket's to hear of.
    pub(super) fn take_pending_launches(&mut self, peer: PeerKey, token_id: &str) -> Vec<PendingLaunch> {
        let mut pending = Vec::new();
        for proxys_id in self.launches.keys_where(|_, launch| launch.token_id == token_id && launch.result.is_none()) {
            let launch = self.launches.get_mut(&proxys_id).expect("just found");
            launch.askers.retain(|asker| *asker != peer && self.peers.get(*asker).is_some());
            launch.askers.push(peer);
            pending.push(PendingLaunch {
                request_id: launch.request_id.clone(),
                agent_type: launch.agent_type.clone(),
                machine_id: Some(launch.machine_id.clone()),
                launched_at: timestamp(launch.launched_at),
                timeout_at: timestamp(launch.deadline),
            });
        }
        pending
    }

    /// A device is back: the results that were held for it. On a full disk they stay held, because
    /// reading must go on then.
    pub(super) fn tell_held_results(&mut self, peer: PeerKey, token_id: &str) -> Result<(), LedgerError> {
        if self.degraded {
            return Ok(());
        }
        for proxys_id in self.launches.keys_where(|_, launch| launch.token_id == token_id) {
            if let Some(result) = self.launches.get(&proxys_id).and_then(|launch| launch.result.clone()) {
                self.tell_result(peer, result);
                self.forget_launch(&proxys_id)?;
            }
        }
        Ok(())
    }

    /// Launches that took too long fail; results nobody came back for are forgotten.
    pub(super) fn time_out_launches(&mut self) -> Result<(), LedgerError> {
        let now = self.now;
        for proxys_id in self.launches.keys_where(|_, launch| launch.deadline <= now) {
            let launch = self.launches.get(&proxys_id).expect("just found");
            if launch.result.is_some() {
                self.forget_launch(&proxys_id)?;
                continue;
            }
            let reason = "The machine did not report a new session in time";
            let failed = failure(launch.request_id.clone(), &launch.agent_type, ErrorCode::LaunchTimeout, reason);
            self.end_launch(&proxys_id, LaunchResult::Failed(failed))?;
        }
        Ok(())
    }

    pub(super) fn first_launch_deadline(&self) -> Option<Millis> {
        self.launches.iter().map(|(_, launch)| launch.deadline).min()
    }

    fn keep_launch(&mut self, proxys_id: RequestId, launch: Launch) -> Result<(), LedgerError> {
        self.ledger.keep_launch(&proxys_id, &serde_json::to_string(&(&proxys_id, &launch))?)?;
        self.wake_by(launch.deadline);
        self.launches.insert(proxys_id, launch);
        Ok(())
    }

    fn audit_launch(
        &mut self,
        (token_id, device_name): (&str, &str),
        machine_id: Option<&MachineId>,
        request: &LaunchSession,
        outcome: &str,
    ) -> Result<(), LedgerError> {
        let detail = format!("{} {}", request.agent_type, request.workspace_path.as_deref().unwrap_or_default());
        self.audit(&NewAudit {
            action: "launch_session",
            outcome,
            token_id: Some(token_id),
            device_name: Some(device_name),
            machine_id: machine_id.map(MachineId::as_str),
            session_id: None,
            subject: Some(request.request_id.as_str()),
            detail: Some(detail.trim_end()),
        })
    }
}

fn failure(request_id: RequestId, agent_type: &AgentType, code: ErrorCode, reason: &str) -> SessionLaunchFailed {
    let agent_type = Some(agent_type.clone());
    SessionLaunchFailed { request_id, agent_type, reason: reason.to_owned(), error_code: code.as_str().to_owned() }
}

/// All that is known of a session that so far only a launch ack has named.
fn minimal(ack: &SessionLaunchAck, agent_type: Option<AgentType>) -> Session {
    Session {
        session_id: ack.session_id.clone(),
        agent_type: agent_type.unwrap_or(AgentType::UNKNOWN),
        display_name: None,
        window_title: None,
        workspace_name: None,
        workspace_path: None,
        machine_id: None,
        machine_label: None,
        target_signature: None,
        target_id: None,
        last_seen_at: None,
        status: SessionStatus::HEALTHY,
        activity: None,
    }
}
