//! The baseline of the replay: read the rows from the same file, write them to a socket.

#![expect(clippy::disallowed_types, reason = "the baseline of a ledger is a database")]

use crate::socket::READ_BYTES;
use anyhow::{Result, ensure};
use memchr::memmem;
use rusqlite::{Connection, OpenFlags};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

/// Every event has one, and no text in these sessions does.
const MARK: &[u8] = b"\"event_id\":";

/// What is gathered before it is written: as much as the relay reads at a time.
const PAGE_BYTES: usize = 64 * 1024;

/// Counts marks in a stream of bytes, also those that are cut in two.
#[derive(Default)]
pub(crate) struct Marks {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    /// The end of what came before, where the beginning of a mark may be.
    seam: Vec<u8>,
}

impl Marks {
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let overlap = bytes.len().min(MARK.len() - 1);
        self.seam.extend_from_slice(&bytes[..overlap]);
        self.count += memmem::find_iter(&self.seam, MARK).count() as u64;
        self.count += memmem::find_iter(bytes, MARK).count() as u64;
        self.seam.extend_from_slice(&bytes[overlap.max(bytes.len() - overlap)..]);
        let keep = self.seam.len().saturating_sub(MARK.len() - 1);
        self.seam.drain(..keep);
    }
}

/// Replays a session without a relay. Returns the seconds.
pub(crate) fn bare_replay(data_dir: &Path, session: &str, total: u64) -> Result<f64> {
    let ledger = Connection::open_with_flags(data_dir.join("ledger.sqlite3"), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let session = session.to_owned();
    let started = Instant::now();
    let writer = std::thread::spawn(move || write_rows(&ledger, &session, TcpStream::connect(address)?));
    let (mut stream, _) = listener.accept()?;
    let mut marks = Marks::default();
    let mut scratch = vec![0; READ_BYTES];
    loop {
        match stream.read(&mut scratch)? {
            0 => break,
            count => marks.take(&scratch[..count]),
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    writer.join().map_err(|_| anyhow::anyhow!("the bare reader panicked"))??;
    ensure!(marks.count == total, "the bare replay has {} events of {total}", marks.count);
    Ok(seconds)
}

fn write_rows(ledger: &Connection, session: &str, mut stream: TcpStream) -> Result<()> {
    let mut statement = ledger.prepare(
        "SELECT event FROM events WHERE session_key = (SELECT session_key FROM sessions WHERE session_id = ?1) ORDER BY sequence",
    )?;
    let mut rows = statement.query([session])?;
    let mut page = Vec::with_capacity(2 * PAGE_BYTES);
    while let Some(row) = rows.next()? {
        page.extend_from_slice(row.get_ref(0)?.as_bytes()?);
        page.push(b',');
        if page.len() >= PAGE_BYTES {
            stream.write_all(&page)?;
            page.clear();
        }
    }
    Ok(stream.write_all(&page)?)
}
