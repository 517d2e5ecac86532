//! TLS from PEM files, read again when they change, so that a renewed certificate needs no restart.

use crate::config::TlsFiles;
use anyhow::Context;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often the files are looked at, at most.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Accepts TLS connections with the newest certificate.
#[derive(Clone)]
pub(crate) struct Acceptor(Arc<Mutex<Loaded>>);

struct Loaded {
    files: TlsFiles,
    config: Arc<ServerConfig>,
    changed: Option<(SystemTime, SystemTime)>,
    looked: Instant,
}

impl Acceptor {
    pub(crate) fn open(files: &TlsFiles) -> anyhow::Result<Self> {
        let config = load(files)?;
        let changed = changed(files);
        Ok(Self(Arc::new(Mutex::new(Loaded { files: files.clone(), config, changed, looked: Instant::now() }))))
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.newest()).accept(stream).await
    }

    fn newest(&self) -> Arc<ServerConfig> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if loaded.looked.elapsed() >= LOOK_AGAIN {
            loaded.looked = Instant::now();
            let changed = changed(&loaded.files);
            if changed != loaded.changed {
                match load(&loaded.files) {
                    Ok(config) => {
                        tracing::info!("the certificate was read again");
                        loaded.config = config;
                        loaded.changed = changed;
                    }
                    // Half-written files are looked at again soon; until then the old one serves.
                    Err(error) => tracing::warn!("the new certificate cannot be used yet: {error:#}"),
                }
            }
        }
        loaded.config.clone()
    }
}

fn changed(files: &TlsFiles) -> Option<(SystemTime, SystemTime)> {
    let time = |path: &Path| std::fs::metadata(path).and_then(|file| file.modified()).ok();
    Some((time(&files.tls_cert)?, time(&files.tls_key)?))
}

fn load(files: &TlsFiles) -> anyhow::Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(&files.tls_cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read a certificate from {}", files.tls_cert.display()))?;
    if chain.is_empty() {
        anyhow::bail!("there is no certificate in {}", files.tls_cert.display());
    }
    let key = PrivateKeyDer::from_pem_file(&files.tls_key)
        .with_context(|| format!("cannot read a private key from {}", files.tls_key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("the certificate and the key do not fit")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
