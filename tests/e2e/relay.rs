//! The relay under test: the real binary as a child process, on a port and a directory of its own.

use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// How long anything may take before a test gives up on it. Machines are noisy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The ledger's file in a data directory.
pub(crate) const LEDGER: &str = "ledger.sqlite3";

/// The two kinds of token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Browser,
    Proxy,
}

impl Role {
    /// The word on the wire and on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Browser => "browser",
            Self::Proxy => "proxy",
        }
    }

    /// Where its sockets are opened.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Browser => "/client-ws",
            Self::Proxy => "/proxy-ws",
        }
    }
}

/// A running relay. Dropping it kills the process and removes its data.
pub(crate) struct Relay {
    home: TempDir,
    flags: Vec<String>,
    process: Option<Process>,
}

struct Process {
    child: Child,
    printed: Arc<Printed>,
    address: String,
}

/// What a process has written to its standard output so far.
#[derive(Default)]
struct Printed {
    lines: Mutex<(Vec<String>, bool)>,
    grown: Condvar,
}

impl Relay {
    /// A relay as it comes.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// A relay with more flags.
    pub(crate) fn with(flags: &[&str]) -> Self {
        let mut relay = Self::stopped(flags);
        relay.restart();
        relay
    }

    /// A relay that does not run yet: its data directory can be prepared first.
    pub(crate) fn stopped(flags: &[&str]) -> Self {
        let home = tempfile::Builder::new().prefix("remora-e2e-").tempdir().expect("a temporary directory");
        Self { home, flags: flags.iter().map(|&flag| flag.to_owned()).collect(), process: None }
    }

    /// Starts the binary again on the same data directory, killing what still runs.
    pub(crate) fn restart(&mut self) {
        let mut command = self.serve_command();
        self.run(&mut command);
    }

    /// What `restart` runs.
    pub(crate) fn serve_command(&self) -> Command {
        let mut command = binary();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(self.data_dir()).args(&self.flags);
        command
    }

    /// Runs a command that ends in a serving relay, and waits for its first line.
    pub(crate) fn run(&mut self, command: &mut Command) {
        self.kill9();
        let log = File::options().create(true).append(true).open(self.log_path()).expect("the log file opens");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let printed = Printed::follow(child.stdout.take().expect("stdout is piped"));
        let first = printed.wait_for(|_| true);
        let address = first.as_deref().and_then(address_in);
        self.process = Some(Process { child, printed, address: address.clone().unwrap_or_default() });
        assert!(address.is_some(), "the first line names no address: {first:?}");
    }

    /// `SIGKILL`, at once.
    pub(crate) fn kill9(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }

    /// `SIGTERM`; does not wait for the end.
    pub(crate) fn signal_stop(&self) {
        self.signal("-TERM");
    }

    /// Any other signal.
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.pid().to_string()]).status().expect("kill runs");
        assert!(status.success());
    }

    /// `SIGTERM`, and waits for a clean end.
    pub(crate) fn terminate(&mut self) {
        self.signal_stop();
        self.wait();
    }

    /// Waits for a clean end.
    pub(crate) fn wait(&mut self) {
        let process = self.process.as_mut().expect("the relay runs");
        process.printed.wait_for_end();
        assert!(process.child.wait().expect("it ends").success(), "SIGTERM is a clean end");
        self.process = None;
    }

    /// `host:port` of the running relay.
    pub(crate) fn address(&self) -> &str {
        &self.process.as_ref().expect("the relay runs").address
    }

    /// The process, for looking at what it costs.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("the relay runs").child.id()
    }

    /// The first line on stdout that fits.
    pub(crate) fn printed(&self, fits: impl Fn(&str) -> bool) -> String {
        self.process.as_ref().expect("the relay runs").printed.wait_for(fits).expect("the relay prints such a line")
    }

    /// Where the ledger lies.
    pub(crate) fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// A place beside the data directory that goes away with the relay.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Everything the relay has written to stderr since the first start.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    fn log_path(&self) -> PathBuf {
        self.home.path().join("stderr.log")
    }

    /// Resident memory of the process, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the process lives");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS is told");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("VmRSS is a number")
    }

    /// Runs another command of the binary on this relay's data, and returns what it did.
    pub(crate) fn try_cli(&self, arguments: &[&str]) -> Output {
        binary().args(arguments).arg("--data-dir").arg(self.data_dir()).output().expect("the command runs")
    }

    /// Runs another command of the binary on this relay's data, and returns its stdout.
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        let output = self.try_cli(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "relay-server {arguments:?}: {stderr}");
        String::from_utf8(output.stdout).expect("stdout is UTF-8")
    }

    /// A new token.
    pub(crate) fn token(&self, role: Role, label: &str) -> String {
        last_word(&self.cli(&["token", "create", "--role", role.word(), "--label", label]))
    }

    /// Changes the ledger behind the relay's back, where time or another version must be made up.
    #[expect(clippy::disallowed_types, reason = "a test may make up what would take days")]
    pub(crate) fn tamper(&self, sql: &str) {
        let ledger = rusqlite::Connection::open(self.data_dir().join(LEDGER)).expect("the ledger opens");
        ledger.busy_timeout(PATIENCE).expect("a timeout can be set");
        ledger.execute(sql, []).expect("the ledger takes it");
    }

    /// The trail as the command line tells it.
    pub(crate) fn audit(&self) -> Vec<Value> {
        let text = self.cli(&["audit", "--json", "--limit", "100000"]);
        text.lines().map(|line| serde_json::from_str(line).expect("one JSON object per line")).collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.kill9();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<_> = log.lines().rev().take(60).collect();
            eprintln!("--- the relay's log, last lines ---");
            tail.iter().rev().for_each(|line| eprintln!("{line}"));
        }
    }
}

impl Printed {
    /// Reads the pipe to its end, so that the relay never blocks on it.
    fn follow(stdout: ChildStdout) -> Arc<Self> {
        let printed = Arc::new(Self::default());
        let writer = Arc::clone(&printed);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                writer.lines.lock().unwrap().0.push(line);
                writer.grown.notify_all();
            }
            writer.lines.lock().unwrap().1 = true;
            writer.grown.notify_all();
        });
        printed
    }

    fn wait_for(&self, fits: impl Fn(&str) -> bool) -> Option<String> {
        let found = |lines: &[String]| lines.iter().find(|line| fits(line)).cloned();
        let lines = self.lines.lock().unwrap();
        let (lines, _) =
            self.grown.wait_timeout_while(lines, PATIENCE, |(lines, ended)| !*ended && found(lines).is_none()).unwrap();
        found(&lines.0)
    }

    fn wait_for_end(&self) {
        let lines = self.lines.lock().unwrap();
        let (_lines, timeout) = self.grown.wait_timeout_while(lines, PATIENCE, |(_, ended)| !*ended).unwrap();
        assert!(!timeout.timed_out(), "the relay does not end");
    }
}

/// `host:port` out of a line that holds `http://host:port` or `https://host:port`.
fn address_in(line: &str) -> Option<String> {
    let url = line.split_whitespace().find_map(|word| word.split_once("://").map(|(_, rest)| rest))?;
    Some(url.trim_end_matches('/').to_owned())
}

/// The last word of a command's output.
pub(crate) fn last_word(text: &str) -> String {
    text.split_whitespace().next_back().expect("the command prints something").to_owned()
}

/// The binary, ready for arguments, without the environment's own settings.
pub(crate) fn binary() -> Command {
    let mut command = Command::new(binary_path());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("REMORA_")) {
        command.env_remove(name);
    }
    command
}

fn binary_path() -> PathBuf {
    if let Some(path) = std::env::var_os("REMORA_RELAY_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().expect("a test knows itself");
    let path = test.parent().and_then(Path::parent).expect("tests lie in deps").join("relay-server");
    assert!(path.exists(), "{} is missing: run `cargo build -p relay-server` first", path.display());
    path
}
