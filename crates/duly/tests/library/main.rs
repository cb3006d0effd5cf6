//! The library from the outside: a manual clock, a store in memory, no sleeping.
#![cfg(test)]

mod bench;
mod crash;
mod destinations;
mod events;
mod failures;
mod handlers;
mod manage;
mod metrics;
mod outages;
mod receive;
mod send;
mod shutdown;
mod spans;
mod tasks;
mod topics;
mod verdicts;
mod workers;
