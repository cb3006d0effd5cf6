//! The `duly` server: HTTP, command line and configuration around the library.
//!
//! Reading order is a call's way in: [`cli`] reads the arguments, [`config`] the settings, [`serve`] puts the parts
//! together, [`http`] answers, [`wire`] holds the shapes that both ends speak.

pub mod auth;
pub mod cli;
pub mod client;
pub mod config;
mod console;
pub mod http;
pub mod serve;
mod sources;
mod store;
pub mod telemetry;
pub mod wire;
