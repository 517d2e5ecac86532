//! What the relay can be told: by flag, then environment, then a TOML file, then default.

use crate::clock::Millis;
use anyhow::{Context, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// The settings of `relay-server serve`. The same names, with `_` for `-`, may stand in the file.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Address and port to listen on; port 0 takes a free one [default: 127.0.0.1:8787]
    #[arg(long, env = "REMORA_LISTEN", value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Where phones reach the relay, e.g. https://remora.example.org [default: the address listened on]
    #[arg(long, env = "REMORA_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<String>,
    /// Addresses of reverse proxies whose X-Forwarded-For is believed
    #[arg(long, env = "REMORA_TRUSTED_PROXY", value_name = "IP", value_delimiter = ',')]
    pub trusted_proxy: Option<Vec<IpAddr>>,
    /// PEM file with the certificate chain; read again when it changes
    #[arg(long, env = "REMORA_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file with the private key
    #[arg(long, env = "REMORA_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// How often peers should say that they are there [default: 10000]
    #[arg(long, env = "REMORA_HEARTBEAT_INTERVAL_MS", value_name = "MS")]
    pub heartbeat_interval_ms: Option<u64>,
    /// After how long without a word a socket is closed [default: 30000]
    #[arg(long, env = "REMORA_HEARTBEAT_TIMEOUT_MS", value_name = "MS")]
    pub heartbeat_timeout_ms: Option<u64>,
    /// How long a launch may take [default: 30000]
    #[arg(long, env = "REMORA_LAUNCH_TIMEOUT_MS", value_name = "MS")]
    pub launch_timeout_ms: Option<u64>,
    /// How long a proxy may take to say what became of a send or a command [default: 60000]
    #[arg(long, env = "REMORA_SEND_TIMEOUT_MS", value_name = "MS")]
    pub send_timeout_ms: Option<u64>,
    /// Largest frame taken from a socket [default: 8388608]
    #[arg(long, env = "REMORA_MAX_FRAME_BYTES", value_name = "BYTES")]
    pub max_frame_bytes: Option<usize>,
    /// Longest text of one message [default: 2097152]
    #[arg(long, env = "REMORA_MAX_CONTENT_BYTES", value_name = "BYTES")]
    pub max_content_bytes: Option<usize>,
    /// Frames per second taken from one socket; 0 is no limit [default: 10000]
    #[arg(long, env = "REMORA_MAX_FRAMES_PER_SECOND", value_name = "N")]
    pub max_frames_per_second: Option<u32>,
    /// Sockets open at once [default: 10000]
    #[arg(long, env = "REMORA_MAX_SOCKETS", value_name = "N")]
    pub max_sockets: Option<usize>,
    /// Sessions of one machine [default: 1000]
    #[arg(long, env = "REMORA_MAX_SESSIONS_PER_MACHINE", value_name = "N")]
    pub max_sessions_per_machine: Option<usize>,
    /// Open dialogs of one machine [default: 200]
    #[arg(long, env = "REMORA_MAX_PROMPTS_PER_MACHINE", value_name = "N")]
    pub max_prompts_per_machine: Option<usize>,
    /// Largest uploaded file [default: 26214400]
    #[arg(long, env = "REMORA_MAX_ATTACHMENT_BYTES", value_name = "BYTES")]
    pub max_attachment_bytes: Option<u64>,
    /// Uploaded files kept at once [default: 10000]
    #[arg(long, env = "REMORA_MAX_ATTACHMENTS", value_name = "N")]
    pub max_attachments: Option<u64>,
    /// Disk space for all uploaded files [default: 1073741824]
    #[arg(long, env = "REMORA_ATTACHMENT_QUOTA_BYTES", value_name = "BYTES")]
    pub attachment_quota_bytes: Option<u64>,
    /// Drop history and files older than this; 0 keeps them for ever [default: 0]
    #[arg(long, env = "REMORA_RETAIN_DAYS", value_name = "DAYS")]
    pub retain_days: Option<u32>,
}

/// What the hub and the sockets hold peers to.
#[derive(Clone, Debug, Serialize)]
pub struct Limits {
    pub heartbeat_interval_ms: u64,
    pub heartbeat_timeout_ms: u64,
    pub launch_timeout_ms: Millis,
    pub send_timeout_ms: Millis,
    pub max_frame_bytes: usize,
    pub max_content_bytes: usize,
    pub max_frames_per_second: u32,
    pub max_sockets: usize,
    pub max_sessions_per_machine: usize,
    pub max_prompts_per_machine: usize,
    pub max_attachment_bytes: u64,
    pub max_attachments: u64,
    pub attachment_quota_bytes: u64,
    pub retain_days: u32,
    #[serde(skip)]
    pub attachments_dir: PathBuf,
}

/// Everything `serve` needs, settled.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    pub listen: SocketAddr,
    pub data_dir: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<PublicUrl>,
    pub trusted_proxy: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    #[serde(flatten)]
    pub limits: Limits,
}

/// A certificate and its key.
#[derive(Clone, Debug, Serialize)]
pub struct TlsFiles {
    pub tls_cert: PathBuf,
    pub tls_key: PathBuf,
}

/// Where phones reach the relay: a scheme and an authority, no path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct PublicUrl {
    pub https: bool,
    /// Host and, if given, port, in lower case.
    pub authority: String,
}

impl PublicUrl {
    pub fn parse(url: &str) -> anyhow::Result<Self> {
        let (https, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => bail!("public_url must begin with https:// or http://, e.g. https://remora.example.org"),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.is_empty() || authority.contains(['/', '?', '#', '@', ' ']) {
            bail!("public_url is a scheme, a host and maybe a port, e.g. https://remora.example.org: no path, no user");
        }
        Ok(Self { https, authority: authority.to_ascii_lowercase() })
    }
}

impl std::fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.https { "https" } else { "http" }, self.authority)
    }
}

impl From<PublicUrl> for String {
    fn from(url: PublicUrl) -> Self {
        url.to_string()
    }
}

impl Settings {
    /// Reads a settings file. An unknown key is an error.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("cannot use {}", path.display()))
    }

    /// Settles every value: these settings first (flags and environment), then the file's, then defaults.
    pub fn resolve(self, file: Self, data_dir: PathBuf) -> anyhow::Result<Config> {
        macro_rules! settle {
            ($($name:ident = $default:expr),* $(,)?) => { $(let $name = self.$name.or(file.$name).unwrap_or($default);)* };
        }
        settle! {
            listen = SocketAddr::from(([127, 0, 0, 1], 8787)),
            trusted_proxy = Vec::new(),
            heartbeat_interval_ms = 10_000,
            heartbeat_timeout_ms = 30_000,
            launch_timeout_ms = 30_000,
            send_timeout_ms = 60_000,
            max_frame_bytes = 8 << 20,
            max_content_bytes = 2 << 20,
            max_frames_per_second = 10_000,
            max_sockets = 10_000,
            max_sessions_per_machine = 1000,
            max_prompts_per_machine = 200,
            max_attachment_bytes = 25 << 20,
            max_attachments = 10_000,
            attachment_quota_bytes = 1 << 30,
            retain_days = 0,
        }
        if heartbeat_timeout_ms <= heartbeat_interval_ms {
            bail!(
                "heartbeat_timeout_ms ({heartbeat_timeout_ms}) must be longer than heartbeat_interval_ms ({heartbeat_interval_ms})"
            );
        }
        let public_url = self.public_url.or(file.public_url).map(|url| PublicUrl::parse(&url)).transpose()?;
        let tls = match (self.tls_cert.or(file.tls_cert), self.tls_key.or(file.tls_key)) {
            (Some(tls_cert), Some(tls_key)) => Some(TlsFiles { tls_cert, tls_key }),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => bail!("tls_cert and tls_key go together"),
        };
        let limits = Limits {
            heartbeat_interval_ms,
            heartbeat_timeout_ms,
            launch_timeout_ms: Millis::try_from(launch_timeout_ms).context("launch_timeout_ms is too large")?,
            send_timeout_ms: Millis::try_from(send_timeout_ms).context("send_timeout_ms is too large")?,
            max_frame_bytes,
            max_content_bytes,
            max_frames_per_second,
            max_sockets,
            max_sessions_per_machine,
            max_prompts_per_machine,
            max_attachment_bytes,
            max_attachments,
            attachment_quota_bytes,
            retain_days,
            attachments_dir: data_dir.join("attachments"),
        };
        Ok(Config { listen, data_dir, public_url, trusted_proxy, tls, limits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_nearer_wins() {
        let flags = Settings { heartbeat_interval_ms: Some(1), ..Settings::default() };
        let file = Settings { heartbeat_interval_ms: Some(2), send_timeout_ms: Some(3), ..Settings::default() };
        let limits = flags.resolve(file, PathBuf::new()).unwrap().limits;
        assert_eq!((limits.heartbeat_interval_ms, limits.send_timeout_ms), (1, 3));
        assert_eq!(limits.heartbeat_timeout_ms, 30_000);
    }

    #[test]
    fn an_unknown_key_in_the_file_is_an_error() {
        let error = toml::from_str::<Settings>("lisen = \"127.0.0.1:1\"").unwrap_err();
        assert!(error.to_string().contains("unknown field `lisen`"), "{error}");
    }

    #[test]
    fn a_public_url_is_a_scheme_and_an_authority() {
        assert_eq!(PublicUrl::parse("https://Remora.example.org/").unwrap().to_string(), "https://remora.example.org");
        assert!(!PublicUrl::parse("http://127.0.0.1:8787").unwrap().https);
        for wrong in ["remora.example.org", "https://", "https://a/b", "https://user@a", "ftp://a"] {
            assert!(PublicUrl::parse(wrong).is_err(), "{wrong}");
        }
    }
}
