//! The Duly server: HTTP, console, configuration, sources and telemetry around the library.
//!
//! Reading order is a call's way in: [`config`] reads the settings, [`serve`] puts the parts together, [`http`] answers in the
//! shapes of [`duly_client::wire`].

pub mod auth;
pub mod config;
mod console;
pub mod draft;
pub mod http;
pub mod serve;
pub mod sources;
pub mod store;
pub mod telemetry;

use duly_client::wire;
