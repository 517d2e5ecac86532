//! What the kernel knows of a process: memory and processor time.

use anyhow::{Context, Result};
use std::time::Duration;

/// The kernel's unit of processor time in /proc, the same on every Linux.
const TICKS_PER_SECOND: u64 = 100;

/// A process by its number.
#[derive(Clone, Copy)]
pub(crate) struct Process {
    pid: u32,
}

impl Process {
    pub(crate) fn new(pid: u32) -> Self {
        Self { pid }
    }

    /// Resident memory now, in KiB.
    pub(crate) fn resident_kib(self) -> Result<u64> {
        self.status_kib("VmRSS:")
    }

    /// The most resident memory since [`Self::forget_peak`], in KiB.
    pub(crate) fn peak_kib(self) -> Result<u64> {
        self.status_kib("VmHWM:")
    }

    /// Starts the measuring of a new peak.
    pub(crate) fn forget_peak(self) -> Result<()> {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.pid), "5")?)
    }

    /// Processor time used so far, in user and kernel mode together.
    pub(crate) fn cpu_time(self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        // The name in parentheses may hold spaces; the fields are counted from behind it.
        let fields = stat.rsplit(')').next().context("stat has a name")?;
        let ticks: u64 = fields.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    }

    fn status_kib(self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find(|line| line.starts_with(field)).with_context(|| format!("no {field}"))?;
        line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).with_context(|| format!("odd {line}"))
    }
}
