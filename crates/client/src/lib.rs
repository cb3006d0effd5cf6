//! The Rust client of a Duly server: send a message now, have it delivered later.
//!
//! ```no_run
#![doc = include_str!("../examples/orders.rs")]
//! ```
//!
//! # Where to look
//!
//! | to | see |
//! |---|---|
//! | say where the server is, and who calls | [`Client::new`], [`Client::token`], [`Client::ca`], [`Client::timeout`] |
//! | send | [`NewMessage`](wire::NewMessage), [`Client::send`], [`Client::send_batch`] |
//! | change one's mind | [`Client::cancel`], [`Client::reschedule`], [`Client::fire`], and each of many: [`Client::cancel_many`] … |
//! | take from the built-in queue | [`Client::receive`], [`Client::ack`], [`Client::nack`], [`Client::extend`] |
//! | look | [`Client::get`], [`Client::list`], [`Client::queues`], [`Client::stats`], [`Client::forecast`], [`Client::events`] |
//! | mend | [`Client::dead`], [`Client::replay`], [`Client::purge`], [`Client::pause_sink`], [`Client::probe_sink`] |
//! | handle errors | [`Error`]: what to do next, [`Error::is_transient`], [`Error::is_maybe_done`], [`ErrorCode`] |
//!
//! # What a call promises
//!
//! - [`Client::send`] returns once the message is durable. Give each message an id: a call that got no answer
//!   ([`Error::is_maybe_done`]) is then repeated safely, as a known id with the same content is accepted once.
//! - Nothing is retried behind your back, except on a kept connection that the server had closed before the call was sent.
//! - Cancel safety: a call whose future is dropped may have been done all the same.
//! - A [`Client`] is cheap to clone; clones share their connections, and calls at the same time use several.

mod bulk;
mod client;
mod connect;
mod direct;
mod error;
mod events;
mod lines;
mod messages;
mod new_message;
mod queue;
mod sinks;
mod stats;
mod target;
pub mod wire;

pub use client::Client;
#[doc(hidden)]
pub use direct::Direct;
pub use duly_core::ErrorCode;
pub use error::{Error, Refusal};
pub use events::{EventFilter, Events, RawEvent};
pub use lines::BatchResults;
pub use messages::Query;
pub use stats::ForecastSpan;
#[doc(hidden)]
pub use target::segment;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
