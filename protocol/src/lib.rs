//! The words that phones, the relay and proxies say to each other: protocol version 1.
//!
//! Read in this order: [`ids`] and [`words`] are the nouns, [`session`], [`message`], [`prompt`]
//! and [`config`] the things talked about, [`delivery`] the life of a send, [`event`] what the
//! ledger keeps, and [`browser`] and [`proxy`] the four enums that list every frame, one per
//! direction. [`envelope`] turns text into frames and back; [`error`] says what can go wrong.
//!
//! Nothing here reads a clock, a socket or a file. Everyone may read this crate; it reads no one.

pub mod browser;
pub mod config;
pub mod connection;
pub mod delivery;
pub mod envelope;
pub mod error;
pub mod event;
pub mod ids;
pub mod message;
pub mod prompt;
pub mod proxy;
pub mod session;
pub mod words;

#[cfg(test)]
mod generated;

/// The one version this crate speaks. Every frame carries it.
pub const PROTOCOL_VERSION: u32 = 1;
