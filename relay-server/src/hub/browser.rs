//! What each frame from a browser means.

use super::peers::PeerKey;
use super::{Hub, Stop, refuse};
use protocol::browser::{BrowserToRelay, RelayToBrowser};
use protocol::connection::{Heartbeat, HeartbeatAck, SessionInterest};
use protocol::envelope::Ids;
use protocol::error::ErrorCode;
use protocol::ids::SessionId;

impl Hub {
    pub(super) fn browser_frame(&mut self, peer: PeerKey, ids: &Ids, frame: &BrowserToRelay) -> Result<(), Stop> {
        match frame {
            BrowserToRelay::ConnectionHello(_) => {
                refuse(ErrorCode::InvalidMessage, "connection_hello was said already")
            }
            // Answering an error with an error could go on for ever.
            BrowserToRelay::ConnectionError(_) => Ok(()),
            BrowserToRelay::Heartbeat(heartbeat) => {
                self.heartbeat(peer, heartbeat);
                Ok(())
            }
            BrowserToRelay::SessionInterest(interest) => {
                self.session_interest(peer, interest);
                Ok(())
            }
            BrowserToRelay::SendMessage(send) => self.send_message(peer, send),
            BrowserToRelay::HistoryRequest(request) => self.history_request(peer, ids.request_id.as_ref(), request),
            BrowserToRelay::LaunchSession(launch) => self.launch_session(peer, launch),
            BrowserToRelay::CloseSession(close) => self.close_session(peer, close),
            BrowserToRelay::PermissionResponse(response) => self.permission_response(peer, response),
            BrowserToRelay::AgentInterrupt(command) => self.interrupt(peer, command),
            BrowserToRelay::AgentConfigRequest(command) => self.config_request(peer, command),
            BrowserToRelay::AgentSetModel(command) => self.set_model(peer, command),
        }
    }

    /// Answered by the hub, in order with everything else: a heartbeat proves that all of it works.
    pub(super) fn heartbeat(&mut self, peer: PeerKey, heartbeat: &Heartbeat) {
        let Some(connection_id) = self.peers.get(peer).map(|peer| peer.connection_id.clone()) else { return };
        let ack =
            RelayToBrowser::HeartbeatAck(HeartbeatAck { request_id: heartbeat.request_id.clone(), connection_id });
        self.tell_browser(peer, &ack);
    }

    /// From now on only these transcripts; what grows in the newly chosen ones is told at once.
    fn session_interest(&mut self, key: PeerKey, interest: &SessionInterest) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let news: Vec<SessionId> =
            interest.sessions.iter().filter(|session_id| !peer.is_interested(session_id)).cloned().collect();
        peer.choose(interest.sessions.clone());
        for session_id in news {
            self.tell_tails(key, &session_id);
        }
    }
}
