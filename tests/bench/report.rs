//! The lines that are printed while the bench runs, and the table at its end.

use crate::numbers::Ratios;
use std::fmt::Write;

/// What a number should be.
#[derive(Clone, Copy)]
pub(crate) enum Aim {
    AtLeast(f64),
    AtMost(f64),
    /// Told for information.
    None,
}

impl Aim {
    fn is_met_by(self, value: f64) -> &'static str {
        match self {
            Self::AtLeast(least) if value >= least => "yes",
            Self::AtMost(most) if value <= most => "yes",
            Self::AtLeast(_) | Self::AtMost(_) => "NO",
            Self::None => "-",
        }
    }
}

struct Row {
    scenario: String,
    relay: String,
    baseline: String,
    ratio: String,
    aim: String,
    met: &'static str,
}

/// Everything that was measured.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Adds a comparison whose aim is on the ratio.
    pub(crate) fn ratio(&mut self, scenario: &str, relay: String, baseline: String, ratios: &Ratios, aim: Aim) {
        let aim_text = match aim {
            Aim::AtLeast(least) => format!(">= {least:.2} x"),
            Aim::AtMost(most) => format!("<= {most:.2} x"),
            Aim::None => "-".into(),
        };
        let ratio = ratios.median();
        self.row(scenario, relay, baseline, format!("{ratio:.2}"), aim_text, aim.is_met_by(ratio));
        say(&format!("    ratios from {}", ratios.spread()));
    }

    /// Adds a number whose aim is on the relay's own value.
    pub(crate) fn value(
        &mut self,
        scenario: &str,
        relay: (String, f64),
        baseline: Option<(String, f64)>,
        aim: (&str, Aim),
    ) {
        let ratio = baseline.as_ref().filter(|(_, base)| *base > 0.0).map(|(_, base)| format!("{:.2}", relay.1 / base));
        let baseline = baseline.map_or_else(|| "-".into(), |(text, _)| text);
        self.row(
            scenario,
            relay.0,
            baseline,
            ratio.unwrap_or_else(|| "-".into()),
            aim.0.into(),
            aim.1.is_met_by(relay.1),
        );
    }

    /// Adds a pair of texts without an aim.
    pub(crate) fn note(&mut self, scenario: &str, relay: String, baseline: String) {
        self.row(scenario, relay, baseline, "-".into(), "-".into(), "-");
    }

    fn row(&mut self, scenario: &str, relay: String, baseline: String, ratio: String, aim: String, met: &'static str) {
        say(&format!("  {scenario}: relay {relay}, baseline {baseline}, ratio {ratio}"));
        self.rows.push(Row { scenario: scenario.into(), relay, baseline, ratio, aim, met });
    }

    /// The table.
    pub(crate) fn table(&self) -> String {
        let head = ["scenario", "relay", "baseline", "ratio", "aim", "met?"].map(str::to_owned);
        let mut lines = vec![head];
        lines.extend(
            self.rows.iter().map(|row| {
                [&row.scenario, &row.relay, &row.baseline, &row.ratio, &row.aim, row.met].map(str::to_owned)
            }),
        );
        let widths: [usize; 6] =
            std::array::from_fn(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0));
        lines.insert(1, widths.map(|width| "-".repeat(width)));
        let mut table = String::new();
        for line in lines {
            for (cell, width) in line.iter().zip(widths) {
                let _ = write!(table, "| {cell:width$} ");
            }
            table.push_str("|\n");
        }
        table
    }
}

/// Prints one line.
#[expect(clippy::print_stdout, reason = "what a bench has to say, it prints")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}
