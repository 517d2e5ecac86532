//! HTTP: the doors, the API, the page, and the upgrade to WebSocket.
//!
//! Every request passes [`access::check_origin`] first. Handlers reach the ledger only through the
//! hub, and a socket reaches the hub only with a [`Door`](crate::hub::Door), the proof of a token.

mod access;
mod api;
mod attachments;
mod counted;
mod listen;
mod listener;
mod page;
mod pump;
mod socket;
mod speaker;
mod tls;

pub(crate) use listen::serve;
pub(crate) use tls::Acceptor;

use crate::config::{Config, Limits, PublicUrl};
use crate::hub::HubHandle;
use crate::ledger::{FILE_NAME, replay::Readers};
use crate::metrics::Metrics;
use axum::Router;
use axum::middleware;
use axum::routing::{delete, get, post};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// What every handler may use.
pub(crate) struct App {
    hub: HubHandle,
    readers: Readers,
    limits: Limits,
    metrics: Arc<Metrics>,
    public_url: Option<PublicUrl>,
    trusted_proxy: Vec<IpAddr>,
    /// Whether the relay itself speaks TLS.
    tls: bool,
    /// One permit per open WebSocket.
    sockets: Arc<Semaphore>,
}

impl App {
    pub(crate) fn new(config: &Config, hub: HubHandle, metrics: Arc<Metrics>) -> Self {
        Self {
            hub,
            readers: Readers::new(config.data_dir.join(FILE_NAME)),
            limits: config.limits.clone(),
            metrics,
            public_url: config.public_url.clone(),
            trusted_proxy: config.trusted_proxy.clone(),
            tls: config.tls.is_some(),
            sockets: Arc::new(Semaphore::new(config.limits.max_sockets)),
        }
    }
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/client-ws", get(socket::client_ws))
        .route("/proxy-ws", get(socket::proxy_ws))
        .route("/healthz", get(api::healthz))
        .route("/readyz", get(api::readyz))
        .route("/metrics", get(api::metrics))
        .route("/api/pair", post(api::pair))
        .route("/api/me", get(api::me))
        .route("/api/devices", get(api::devices))
        .route("/api/devices/{token_id}", delete(api::revoke))
        .route("/api/audit", get(api::audit))
        .route("/api/attachments", post(attachments::upload))
        .route("/api/attachments/{attachment_id}", get(attachments::download))
        .fallback(page::serve)
        .layer(middleware::from_fn_with_state(app.clone(), access::check_origin))
        .with_state(app)
}
