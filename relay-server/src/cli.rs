//! What a person types.

use crate::config::{Config, Settings};
use crate::hub::{mint_pairing, mint_token};
use crate::ledger::{AuditEntry, AuditFilter, FILE_NAME, Ledger, NewAudit};
use crate::{Relay, clock};
use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use protocol::connection::PeerRole;
use std::io::{IsTerminal, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use tokio::net::TcpListener;

/// Remora's relay: keeps the ledger, and carries words between your dev boxes and your phones.
#[derive(Parser)]
#[command(version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the relay
    Serve(Box<Serve>),
    /// Make a one-time code, and a QR code for the phone, to pair a device or a dev box
    Pair(Pair),
    /// Make, list and revoke access tokens
    #[command(subcommand)]
    Token(TokenCommand),
    /// Show who did what, from which device, with what outcome
    Audit(Audit),
    /// Write a consistent copy of the ledger, also while the relay runs
    Backup(Backup),
}

#[derive(Args)]
struct DataDir {
    /// Where the ledger and the uploaded files are kept
    #[arg(long, env = "REMORA_DATA_DIR", value_name = "DIR", default_value = "remora-data")]
    data_dir: PathBuf,
}

impl DataDir {
    /// The ledger that is there. A mistyped folder must not look like an empty one.
    fn ledger(&self) -> anyhow::Result<Ledger> {
        if !self.data_dir.join(FILE_NAME).exists() {
            bail!("there is no ledger in {}: name the relay's folder with --data-dir", self.data_dir.display());
        }
        Ok(Ledger::open(&self.data_dir)?)
    }
}

#[derive(Args)]
struct Serve {
    #[command(flatten)]
    data_dir: DataDir,
    #[command(flatten)]
    settings: Settings,
    /// A TOML file with the same settings, e.g. `send_timeout_ms = 90000` [default: relay.toml in the data directory]
    #[arg(long, env = "REMORA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Show what would be used, and exit
    #[arg(long)]
    print_config: bool,
}

#[derive(Args)]
struct Pair {
    #[command(flatten)]
    data_dir: DataDir,
    /// What the code is for: a phone's browser, or a dev box's proxy
    #[arg(long, value_enum, default_value = "browser")]
    role: Role,
    /// Where phones reach the relay [default: what the relay was last started with]
    #[arg(long, env = "REMORA_PUBLIC_URL", value_name = "URL")]
    public_url: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Role {
    Browser,
    Proxy,
}

impl From<Role> for PeerRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Browser => Self::Browser,
            Role::Proxy => Self::Proxy,
        }
    }
}

#[derive(Subcommand)]
enum TokenCommand {
    /// Make a token; it is shown once, as the last word
    Create {
        #[command(flatten)]
        data_dir: DataDir,
        /// Which door it opens: /client-ws or /proxy-ws
        #[arg(long, value_enum)]
        role: Role,
        /// A name to know it by
        #[arg(long, value_name = "NAME")]
        label: String,
    },
    /// List all tokens, without their secrets
    List {
        #[command(flatten)]
        data_dir: DataDir,
    },
    /// End a token; its sockets close within a second
    Revoke {
        #[command(flatten)]
        data_dir: DataDir,
        /// The id that `token list` shows
        #[arg(value_name = "TOKEN_ID")]
        token_id: String,
    },
}

#[derive(Args)]
struct Audit {
    #[command(flatten)]
    data_dir: DataDir,
    /// Only this action: login, pair, revoke, send, permission_response, launch_session, close_session, ...
    #[arg(long)]
    action: Option<String>,
    /// Only this session
    #[arg(long, value_name = "SESSION_ID")]
    session: Option<String>,
    /// Only this machine
    #[arg(long, value_name = "MACHINE_ID")]
    machine: Option<String>,
    /// Only what this token did
    #[arg(long, value_name = "TOKEN_ID")]
    token: Option<String>,
    /// Only the last so many hours
    #[arg(long, value_name = "HOURS")]
    hours: Option<u32>,
    /// At most so many entries, the newest
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Backup {
    #[command(flatten)]
    data_dir: DataDir,
    /// The file to write; it must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Does what was asked.
pub fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Serve(serve) => self::serve(*serve),
        Command::Pair(pair) => self::pair(&pair),
        Command::Token(TokenCommand::Create { data_dir, role, label }) => create_token(&data_dir, role.into(), &label),
        Command::Token(TokenCommand::List { data_dir }) => list_tokens(&data_dir),
        Command::Token(TokenCommand::Revoke { data_dir, token_id }) => revoke_token(&data_dir, &token_id),
        Command::Audit(audit) => self::audit(&audit),
        Command::Backup(backup) => self::backup(&backup),
    }
}

/// Writes a line for a person. A closed pipe is no reason to fail.
fn say(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn serve(serve: Serve) -> anyhow::Result<()> {
    let data_dir = serve.data_dir.data_dir;
    let beside = data_dir.join("relay.toml");
    let file = match serve.config {
        Some(path) => Settings::read(&path)?,
        None if beside.exists() => Settings::read(&beside)?,
        None => Settings::default(),
    };
    let config = serve.settings.resolve(file, data_dir)?;
    if serve.print_config {
        say(toml::to_string_pretty(&config)?.trim_end());
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("cannot listen on {}: is another program using that port?", config.listen))?;
        let stop = stop_signal()?;
        let listening = listener.local_addr()?;
        let relay = Relay::open(config.clone())?;
        let phones = phones_url(&config, listening);
        // For a later `pair`; before the first line, because whoever waits for that may pair at once.
        std::fs::write(url_file(&config.data_dir), &phones)?;
        say(format!("Remora relay listening on {}", url(&config, listening)));
        first_start(&config, &phones)?;
        relay.serve(listener, stop).await
    })
}

fn url(config: &Config, address: SocketAddr) -> String {
    format!("{}://{address}", if config.tls.is_some() { "https" } else { "http" })
}

/// Where phones reach the relay.
fn phones_url(config: &Config, listening: SocketAddr) -> String {
    let reachable = SocketAddr::new(address_for_phones(listening.ip()), listening.port());
    config.public_url.as_ref().map_or_else(|| url(config, reachable), ToString::to_string)
}

/// While nobody is paired, offers it.
fn first_start(config: &Config, url: &str) -> anyhow::Result<()> {
    let mut ledger = Ledger::open(&config.data_dir)?;
    let paired = ledger.tokens()?.iter().any(|token| token.role == PeerRole::Browser && token.revoked_at.is_none());
    if !paired {
        say("No phone is paired yet.");
        offer_pairing(&mut ledger, PeerRole::Browser, url)?;
    }
    Ok(())
}

/// "All addresses" is none that a phone can open: then it is the one this machine has in its network.
fn address_for_phones(listening: IpAddr) -> IpAddr {
    if !listening.is_unspecified() {
        return listening;
    }
    // Nothing is sent: this only asks the system which of its addresses it would use.
    let chosen = UdpSocket::bind((listening, 0)).and_then(|socket| {
        socket.connect(("192.0.2.1", 9))?;
        socket.local_addr()
    });
    chosen.map_or(listening, |address| address.ip())
}

fn url_file(data_dir: &Path) -> PathBuf {
    data_dir.join("public-url")
}

async fn either(first: impl Future<Output = ()>, second: impl Future<Output = ()>) {
    tokio::select! {
        () = first => {}
        () = second => {}
    }
}

/// Completes on Ctrl-C, and on SIGTERM where there is one.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let interrupt = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    #[cfg(unix)]
    let terminate = {
        let mut signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        async move {
            signal.recv().await;
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending();
    Ok(either(interrupt, terminate))
}

fn pair(pair: &Pair) -> anyhow::Result<()> {
    let data_dir = &pair.data_dir.data_dir;
    let mut ledger = pair.data_dir.ledger()?;
    let url = match &pair.public_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => std::fs::read_to_string(url_file(data_dir))
            .context("where phones reach the relay is not known yet: start it once, or give --public-url")?,
    };
    offer_pairing(&mut ledger, pair.role.into(), &url)
}

/// Prints a fresh code, and for a phone the QR code that holds it.
fn offer_pairing(ledger: &mut Ledger, role: PeerRole, url: &str) -> anyhow::Result<()> {
    let code = mint_pairing(ledger, role, clock::now())?;
    ledger.commit()?;
    match role {
        PeerRole::Browser => {
            // The code stands behind the #: browsers never send that part to anyone.
            let link = format!("{url}/#pair={code}");
            let picture = qrcode::QrCode::new(&link)?;
            let picture = picture.render::<qrcode::render::unicode::Dense1x2>().build();
            // Black on white, whatever the terminal's colours: not every phone reads the reverse.
            let (begin, end) = if std::io::stdout().is_terminal() { ("\x1b[30;107m", "\x1b[0m") } else { ("", "") };
            picture.lines().for_each(|line| say(format!("{begin}{line}{end}")));
            say(format!("Scan it with the phone, or open {url} there and type the code."));
        }
        PeerRole::Proxy => say(format!("On the dev box:  agent-proxy pair {url} {code}")),
    }
    say("The code works once, within five minutes.");
    say(format!("Pairing code: {code}"));
    Ok(())
}

fn create_token(data_dir: &DataDir, role: PeerRole, label: &str) -> anyhow::Result<()> {
    let mut ledger = Ledger::open(&data_dir.data_dir)?;
    let now = clock::now();
    let minted = mint_token(&mut ledger, role, label, now)?;
    let subject = Some(minted.token.token_id.as_str());
    let entry = NewAudit { action: "token_create", outcome: "ok", subject, detail: Some(label), ..NewAudit::default() };
    ledger.audit(&entry, now)?;
    ledger.commit()?;
    say(format!("Token {} for {label}, shown only now: {}", minted.token.token_id, minted.secret));
    Ok(())
}

fn list_tokens(data_dir: &DataDir) -> anyhow::Result<()> {
    let tokens = data_dir.ledger()?.tokens()?;
    if tokens.is_empty() {
        say("No tokens yet. Make one with `relay-server pair` or `relay-server token create`.");
    }
    for token in tokens {
        let used =
            token.last_used_at.map_or_else(|| "never used".to_owned(), |at| format!("used {}", clock::timestamp(at).0));
        let state = token.revoked_at.map_or(used, |at| format!("revoked {}", clock::timestamp(at).0));
        let machine = token.machine_id.map_or_else(String::new, |id| format!("  machine {id}"));
        let line = format!("{}  {:<7}  {:<24}  {state}{machine}", token.token_id, token.role.as_str(), token.label);
        say(harmless(&line));
    }
    Ok(())
}

fn revoke_token(data_dir: &DataDir, token_id: &str) -> anyhow::Result<()> {
    let mut ledger = data_dir.ledger()?;
    let now = clock::now();
    if !ledger.revoke_token(token_id, now)? {
        bail!("no token `{token_id}` that still works: see `relay-server token list`");
    }
    let entry = NewAudit { action: "revoke", outcome: "ok", subject: Some(token_id), ..NewAudit::default() };
    ledger.audit(&entry, now)?;
    ledger.commit()?;
    say(format!("Token {token_id} is revoked."));
    Ok(())
}

fn audit(audit: &Audit) -> anyhow::Result<()> {
    let filter = AuditFilter {
        action: audit.action.clone(),
        session_id: audit.session.clone(),
        machine_id: audit.machine.clone(),
        token_id: audit.token.clone(),
        before: None,
        since: audit.hours.map(|hours| clock::now() - i64::from(hours) * 3_600_000),
        limit: audit.limit,
    };
    let mut entries = audit.data_dir.ledger()?.audit_entries(&filter)?;
    // A person reads downwards in time.
    entries.reverse();
    for entry in entries {
        if audit.json {
            say(serde_json::to_string(&entry)?);
        } else {
            say(harmless(&audit_line(&entry)));
        }
    }
    Ok(())
}

fn audit_line(entry: &AuditEntry) -> String {
    let mut line = format!("{}  {:<19}  {:<13}", clock::timestamp(entry.at).0, entry.action, entry.outcome);
    let named = [
        ("by", &entry.device_name),
        ("machine", &entry.machine_id),
        ("session", &entry.session_id),
        ("id", &entry.subject),
    ];
    for (name, value) in named {
        if let Some(value) = value {
            line.push_str(&format!("  {name} {value}"));
        }
    }
    if let Some(detail) = &entry.detail {
        line.push_str(&format!("  {detail}"));
    }
    line
}

/// What agents and devices called things must not move the reader's cursor or colour the terminal.
fn harmless(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

fn backup(backup: &Backup) -> anyhow::Result<()> {
    if backup.file.exists() {
        bail!("{} exists already: name a new file", backup.file.display());
    }
    backup.data_dir.ledger()?.backup(&backup.file)?;
    say(format!("The ledger was copied to {}.", backup.file.display()));
    say(format!("To restore it, stop the relay and put it in an empty data directory as {}.", FILE_NAME));
    Ok(())
}
