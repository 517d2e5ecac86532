//! Remora's relay: it remembers in a ledger what proxies see and phones say, and carries it between
//! them.
//!
//! Reading order: [`config`] is what it can be told; [`ledger`] is the one SQLite file and the only
//! place with SQL; [`hub`] is the thread that owns the truth; [`web`] is HTTP, sockets and doors.
//! Arrows point one way: web → hub → ledger, never back, never skipping. [`cli`] is what a person
//! types.

pub mod cli;
mod clock;
pub mod config;
mod hub;
mod ledger;
mod metrics;
mod web;

use anyhow::Context;
use config::Config;
use hub::{Hub, HubHandle, Input};
use ledger::Ledger;
use metrics::Metrics;
use std::fs::File;
use std::future::Future;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::net::TcpListener;

/// A relay that holds its data directory.
pub struct Relay {
    config: Config,
    hub: HubHandle,
    hub_thread: JoinHandle<()>,
    acceptor: Option<web::Acceptor>,
    metrics: Arc<Metrics>,
    /// Held as long as the relay lives: two relays on one ledger would each tell half the truth.
    _lock: File,
}

impl Relay {
    /// Opens the ledger and starts the hub.
    pub fn open(config: Config) -> anyhow::Result<Self> {
        let acceptor = config.tls.as_ref().map(web::Acceptor::open).transpose()?;
        let lock = lock(&config)?;
        let ledger = Ledger::open(&config.data_dir)?;
        let metrics = Arc::new(Metrics::new());
        let hub = Hub::open(ledger, config.limits.clone(), metrics.clone(), clock::now())?;
        let (hub, hub_thread) = hub::start(hub)?;
        Ok(Self { config, hub, hub_thread, acceptor, metrics, _lock: lock })
    }

    /// Serves until `stop` completes, then says goodbye to everybody and leaves the ledger tidy.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let app = Arc::new(web::App::new(&self.config, self.hub.clone(), self.metrics));
        let hub = self.hub.clone();
        let stop = async move {
            tokio::select! {
                () = stop => {}
                // Better dead than a relay that answers nobody: whoever watches it starts it again.
                () = hub.ended() => {}
            }
        };
        web::serve(app, listener, self.acceptor, stop).await;
        self.hub.send(Input::Finish).await;
        tokio::task::spawn_blocking(|| self.hub_thread.join()).await?.ok().context("the hub's thread panicked")
    }
}

fn lock(config: &Config) -> anyhow::Result<File> {
    ledger::create_private(&config.data_dir).with_context(|| format!("cannot create {}", config.data_dir.display()))?;
    let path = config.data_dir.join("relay.lock");
    let file = File::create(&path).with_context(|| format!("cannot write to {}", config.data_dir.display()))?;
    file.try_lock().with_context(|| {
        format!(
            "another relay is running on {}: stop it, or give this one another --data-dir",
            config.data_dir.display()
        )
    })?;
    Ok(file)
}
