//! The one place that reads the clock. Everything else takes `now` as an argument.

use protocol::ids::Timestamp;

/// Milliseconds since 1970 UTC.
pub(crate) type Millis = i64;

/// The time now.
#[expect(clippy::disallowed_methods, reason = "this is the one clock function")]
pub(crate) fn now() -> Millis {
    jiff::Timestamp::now().as_millisecond()
}

/// A time as the wire writes it: `2026-03-19T10:15:30.000Z`.
pub(crate) fn timestamp(at: Millis) -> Timestamp {
    let at = jiff::Timestamp::from_millisecond(at).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    Timestamp(at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_with_milliseconds_and_a_z() {
        assert_eq!(timestamp(0).0, "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(1_773_915_330_007).0, "2026-03-19T10:15:30.007Z");
    }
}
