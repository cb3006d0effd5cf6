//! The server as its clients see it: real connections, a real store, one file per subject.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod acceptance;
mod access;
mod alerts;
mod batch;
mod bed;
mod client;
mod edges;
mod events;
mod faults;
mod messages;
mod patience;
mod ready;
mod redis;
mod redis_and_mysql;
mod requests;
mod rights;
mod schema;
mod secure;
mod settings;
mod slow_readers;
mod sources;
mod sql;
mod target;
mod walk;
mod webhooks;
mod workers;
