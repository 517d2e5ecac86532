//! The real relay, started as a person would start it: a release binary, its own data directory.

use crate::process::Process;
use crate::socket::Door;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Long enough that no heartbeat falls due in a run: what is measured is the relay, not its patience.
const HEARTBEAT_INTERVAL_MS: &str = "300000";
const HEARTBEAT_TIMEOUT_MS: &str = "600000";

/// A running relay; ended and its data removed when it is dropped.
pub(crate) struct Relay {
    child: Child,
    address: SocketAddr,
    data_dir: TempDir,
}

impl Relay {
    /// Starts a relay on a free loopback port with an empty ledger.
    pub(crate) fn start() -> Result<Self> {
        let data_dir = scratch_dir()?;
        let mut child = Command::new(binary()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--public-url", "http://127.0.0.1"])
            .arg("--data-dir")
            .arg(data_dir.path())
            .args(["--heartbeat-interval-ms", HEARTBEAT_INTERVAL_MS, "--heartbeat-timeout-ms", HEARTBEAT_TIMEOUT_MS])
            .args(["--max-frames-per-second", "0"])
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting relay-server")?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        match first_address(stdout) {
            Ok(address) => Ok(Self { child, address, data_dir }),
            Err(error) => {
                end(&mut child);
                Err(error)
            }
        }
    }

    /// The relay as the kernel sees it.
    pub(crate) fn process(&self) -> Process {
        Process::new(self.child.id())
    }

    /// Where the ledger is.
    pub(crate) fn data_dir(&self) -> &Path {
        self.data_dir.path()
    }

    /// A new device's way in.
    pub(crate) fn browser_door(&self, label: &str) -> Result<Door> {
        self.door("browser", "/client-ws", label)
    }

    /// A new dev box's way in.
    pub(crate) fn proxy_door(&self) -> Result<Door> {
        self.door("proxy", "/proxy-ws", "dev-box")
    }

    fn door(&self, role: &str, path: &'static str, label: &str) -> Result<Door> {
        let output = Command::new(binary()?)
            .args(["token", "create", "--role", role, "--label", label, "--data-dir"])
            .arg(self.data_dir.path())
            .output()?;
        let words = String::from_utf8(output.stdout)?;
        ensure!(output.status.success(), "token create failed: {}", String::from_utf8_lossy(&output.stderr));
        let token = words.split_whitespace().last().context("token create printed nothing")?.to_owned();
        Ok(Door { address: self.address, path, token, receive_buffer_bytes: None })
    }

    /// One number from `/metrics`, by the whole name in front of it.
    pub(crate) fn counted(&self, door: &Door, name: &str) -> Result<f64> {
        let mut stream = TcpStream::connect(self.address)?;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
            self.address, door.token
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.with_context(|| format!("no {name} in {answer}"))?.trim().parse().context("a counter is a number")
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends a child that this bench started, and waits until it is gone.
pub(crate) fn end(child: &mut Child) {
    // An error here means that it has ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// Reads the address from the first line; the rest of the output is taken and thrown away.
pub(crate) fn first_address(stdout: impl Read + Send + 'static) -> Result<SocketAddr> {
    let mut lines = BufReader::new(stdout);
    let mut line = String::new();
    lines.read_line(&mut line)?;
    let address = line.split("http://").nth(1).with_context(|| format!("no address in {line:?}"))?;
    let address = address.split_whitespace().next().unwrap_or_default().trim_end_matches('/').parse()?;
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    Ok(address)
}

/// A directory on the disk of the build, never in memory: a commit must cost what it costs.
pub(crate) fn scratch_dir() -> Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("bench-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?)
}

/// The release binary lies two directories above this one: `release/deps/relay-…`.
fn binary() -> Result<PathBuf> {
    let bench = std::env::current_exe()?;
    let release = bench.ancestors().nth(2).context("the bench lies in the target directory")?;
    let binary = release.join("relay-server");
    ensure!(binary.exists(), "{} is missing: use scripts/bench, which builds it", binary.display());
    Ok(binary)
}
