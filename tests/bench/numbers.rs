//! Medians and percentiles, and how to write them.

use std::time::Duration;

/// Durations measured one by one.
#[derive(Default)]
pub(crate) struct Samples {
    nanos: Vec<u64>,
}

impl Samples {
    pub(crate) fn add(&mut self, duration: Duration) {
        self.nanos.push(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn absorb(&mut self, other: &Self) {
        self.nanos.extend_from_slice(&other.nanos);
    }

    pub(crate) fn count(&self) -> usize {
        self.nanos.len()
    }

    /// The smallest duration that `share` of all do not exceed; zero if there are none.
    pub(crate) fn percentile(&self, share: f64) -> Duration {
        let mut sorted = self.nanos.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() as f64 * share).ceil() as usize;
        Duration::from_nanos(sorted.get(rank.max(1) - 1).copied().unwrap_or(0))
    }

    pub(crate) fn median(&self) -> Duration {
        self.percentile(0.5)
    }

    /// "p50 / p99 / p99.9".
    pub(crate) fn tail(&self) -> String {
        [0.5, 0.99, 0.999].map(|share| millis(self.percentile(share))).join(" / ") + " ms"
    }
}

/// The middle of some numbers; zero if there are none.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

/// The rounds' ratios: each round is compared with its neighbour only.
pub(crate) struct Ratios(Vec<f64>);

impl Ratios {
    pub(crate) fn of(measured: &[f64], baseline: &[f64]) -> Self {
        Self(measured.iter().zip(baseline).map(|(measured, base)| measured / base).collect())
    }

    pub(crate) fn median(&self) -> f64 {
        median(&self.0)
    }

    /// How far the rounds lie apart: the noise of the machine.
    pub(crate) fn spread(&self) -> String {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.0.iter().copied().fold(0.0, f64::max);
        format!("{least:.2} to {most:.2} in {} rounds", self.0.len())
    }
}

/// Milliseconds with as many decimals as mean something.
pub(crate) fn millis(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1000.0;
    if millis < 10.0 { format!("{millis:.2}") } else { format!("{millis:.1}") }
}

/// A rate with its thousands apart.
pub(crate) fn per_second(rate: f64) -> String {
    format!("{}/s", thousands(rate.round() as u64))
}

/// A whole number with its thousands apart.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// KiB as MiB.
pub(crate) fn mebibytes(kib: f64) -> String {
    format!("{:.2} MiB", kib / 1024.0)
}
