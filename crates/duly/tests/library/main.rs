//! The library from the outside: a manual clock, a store in memory, no sleeping.
#![cfg(test)]

mod bench;
mod crash;
mod destinations;
mod events;
mod failures;
mod handlers;
#[path = "../../../testkit/src/logs.rs"]
#[expect(unreachable_pub, reason = "a public module of the test kit, which needs this crate")]
mod logs;
mod manage;
mod metrics;
mod outages;
mod receive;
mod send;
mod shutdown;
mod tasks;
mod topics;
mod verdicts;
mod workers;
