//! The library from the outside: a manual clock, a store in memory, no sleeping.
#![cfg(test)]

mod bench;
mod crashing;
mod destinations;
mod events;
mod failing;
mod handling;
mod managing;
mod measuring;
mod outages;
mod receiving;
mod sending;
mod stopping;
mod tasks;
mod topics;
mod verdicts;
mod working;
