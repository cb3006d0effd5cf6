//! The console as a person uses it: a real Chromium before a real server.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod access;
mod acts;
mod bed;
mod browser;
mod charts;
mod chinese;
mod looks;
mod proxy;
