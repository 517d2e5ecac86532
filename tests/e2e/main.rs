//! Remora as a whole: the real relay binary, real sockets, a real disk.
//!
//! ```text
//! cargo build -p relay-server
//! cargo nextest run -p end-to-end        # or: cargo test -p end-to-end
//! ```
//!
//! The relay is taken from `REMORA_RELAY_BIN`, or else from the target directory this binary was
//! built into. Peers are written from the protocol's text alone and know nothing of our types, so
//! that what passes here passes for a client in any language. No test sleeps: each waits for what
//! must come, with a deadline, and proves that something does not come by a marker that would
//! arrive after it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod http;
mod peer;
mod relay;
mod tls;
mod world;

mod attachments;
mod audit;
mod close;
mod control;
mod disk;
mod doors;
mod durability;
mod expiry;
mod handshake;
mod heartbeat;
mod history;
mod hostile;
mod interest;
mod launch;
mod machines;
mod mutants;
mod operation;
mod pairing;
mod prompts;
mod retention;
mod sends;
mod sessions;
mod slow;
mod soak;
mod tidy;
mod transcript;
