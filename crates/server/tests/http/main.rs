//! The server as its clients see it: real connections, a real store, one file per subject.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod acceptance;
mod access;
mod batch;
mod bed;
mod edges;
mod events;
mod faults;
mod messages;
mod pair;
mod patience;
mod ready;
mod redis;
mod rights;
mod schema;
mod secure;
mod sources;
mod sql;
mod target;
mod walk;
mod webhooks;
mod workers;
