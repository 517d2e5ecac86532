//! What the relay counts, in Prometheus' text format.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use protocol::connection::PeerRole;

/// All counters of one relay.
pub(crate) struct Metrics {
    registry: Registry,
    connections: Family<Role, Gauge>,
    pub sessions: Gauge,
    pub events: Counter,
    /// From the first input of a group to the end of its commit.
    pub commit_seconds: Histogram,
    /// Frames that were not queued for a browser that reads too slowly.
    pub frames_dropped: Counter,
    /// From accepted to settled.
    pub delivery_seconds: Histogram,
    pub frames_refused: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Role {
    role: &'static str,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("remora_relay");
        let connections = Family::<Role, Gauge>::default();
        registry.register("connections", "Open sockets by role", connections.clone());
        let sessions = Gauge::default();
        registry.register("sessions", "Sessions that are not closed", sessions.clone());
        let events = Counter::default();
        registry.register("events", "Events written to the ledger", events.clone());
        let commit_seconds = Histogram::new(exponential_buckets(0.0001, 2.0, 16));
        registry.register_with_unit("commit", "Time from input to commit", Unit::Seconds, commit_seconds.clone());
        let frames_dropped = Counter::default();
        registry.register("queue_drops", "Frames not queued for slow browsers", frames_dropped.clone());
        let delivery_seconds = Histogram::new(exponential_buckets(0.01, 2.0, 14));
        registry.register_with_unit(
            "delivery",
            "Time from accepted to settled",
            Unit::Seconds,
            delivery_seconds.clone(),
        );
        let frames_refused = Counter::default();
        registry.register("frames_refused", "Frames that were not understood or too many", frames_refused.clone());
        Self {
            registry,
            connections,
            sessions,
            events,
            commit_seconds,
            frames_dropped,
            delivery_seconds,
            frames_refused,
        }
    }

    pub(crate) fn connected(&self, role: PeerRole) {
        self.connections.get_or_create(&Role { role: role.as_str() }).inc();
    }

    pub(crate) fn disconnected(&self, role: PeerRole) {
        self.connections.get_or_create(&Role { role: role.as_str() }).dec();
    }

    /// Everything, as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &self.registry) {
            tracing::error!(%error, "metrics could not be written");
        }
        text
    }
}
