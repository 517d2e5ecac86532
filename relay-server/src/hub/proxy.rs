//! What each frame from a proxy means.

use super::peers::PeerKey;
use super::{Hub, Stop, refuse};
use protocol::envelope::Ids;
use protocol::error::ErrorCode;
use protocol::proxy::{ProxyAck, ProxyToRelay, RelayToProxy};

impl Hub {
    pub(super) fn proxy_frame(&mut self, peer: PeerKey, ids: &Ids, frame: &ProxyToRelay) -> Result<(), Stop> {
        match frame {
            ProxyToRelay::ConnectionHello(_) => {
                return refuse(ErrorCode::InvalidMessage, "connection_hello was said already");
            }
            // Answering an error with an error could go on for ever.
            ProxyToRelay::ConnectionError(_) => return Ok(()),
            ProxyToRelay::Heartbeat(heartbeat) => {
                self.heartbeat(peer, heartbeat);
                return Ok(());
            }
            ProxyToRelay::ProxySessionSnapshot(snapshot) => self.session_snapshot(peer, ids, snapshot)?,
            ProxyToRelay::ProxyMessage(message) => self.proxy_message(peer, message)?,
            ProxyToRelay::ProxyMessageUpdate(update) => self.message_update(peer, update)?,
            ProxyToRelay::ProxySendResult(result) => self.send_result(peer, result)?,
            ProxyToRelay::ProxyStatus(status) => self.proxy_status(peer, status)?,
            ProxyToRelay::SessionLaunchAck(ack) => self.launch_ack(peer, ack)?,
            ProxyToRelay::SessionLaunchFailed(failed) => self.launch_failed(peer, failed)?,
            ProxyToRelay::SessionClosed(closed) => self.session_closed(peer, closed)?,
            ProxyToRelay::PermissionPrompt(prompt) => self.permission_prompt(peer, prompt)?,
            ProxyToRelay::PermissionPromptUpdate(update) => self.prompt_update(peer, update)?,
            ProxyToRelay::AgentConfig(config) => self.agent_config(peer, config)?,
            ProxyToRelay::AgentControlResult(result) => self.control_result(peer, result)?,
        }
        if let Some(request_id) = &ids.request_id {
            self.tell_proxy(peer, &RelayToProxy::ProxyAck(ProxyAck { request_id: request_id.clone() }));
        }
        Ok(())
    }
}
