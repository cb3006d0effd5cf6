//! `duly demo`: the whole thing alive, in a few seconds.
//!
//! A real server on a temporary store; everything below talks to it over HTTP, as any program would.

mod hook;
mod narrator;
mod story;
mod summary;
mod worker;

use std::{net::SocketAddr, time::Duration};

use clap::Args;
use duly::{Levels, SinkName};
use duly_sinks::{Secret, SinkConfig, WebhookConfig, webhook::AllowPrivate};
use tokio::sync::mpsc;

use self::{narrator::Narrator, summary::Summary};
use super::{Failure, Output, Tint};
use duly_client::Client;
use duly_server::{
    config::{Config, SinkSetup, StoreSetup},
    serve,
};

/// The story takes six seconds; a machine that needs five times that has a fault to tell of.
const PATIENCE: Duration = Duration::from_secs(30);

/// See it work: a server on a temporary store, messages sent and received before your eyes
#[derive(Debug, Args)]
#[command(after_help = "Needs nothing and leaves nothing behind. Exit code 0: everything came as promised.")]
pub(crate) struct Demo {}

/// An event of the demo.
#[derive(Debug)]
enum DemoEvent {
    /// It was delivered. `late_us`: if this was its first attempt.
    Delivered { id: String, attempt: u32, late_us: Option<u64>, by: &'static str },
    /// The worker nacked it.
    Released { id: String, attempt: u32, again: Duration },
    /// It was cancelled in time.
    Cancelled { id: String },
    /// It was fired.
    Fired { id: String },
    /// It was delivered before its due time, which must never happen.
    Early { id: String },
    /// Part of the demo itself failed.
    Broken(Failure),
}

impl Demo {
    pub(crate) async fn run(self, out: &Output) -> Result<(), Failure> {
        let folder = tempfile::tempdir().map_err(|e| {
            Failure::failed(format!("cannot make a temporary folder: {e}; is TMPDIR writable?"))
        })?;
        let (seen, sight) = mpsc::unbounded_channel();
        let hook = hook::listen(seen.clone()).await?;
        let server = serve::start(settings(folder.path().to_owned(), hook)?)
            .await
            .map_err(|e| Failure::failed(e.to_string()))?;
        let url = server.url();
        out.note(&format!(
            "A server of its own at {}, on a temporary store. Watch:\n",
            out.tint_words(Tint::Bold, &url)
        ));
        let client = Client::new(&url)?;
        let worker = tokio::spawn(worker::run(client.clone(), seen.clone()));
        let story = story::run(&client, Narrator::new(out), seen, sight);
        let result = tokio::select! {
            result = tokio::time::timeout(PATIENCE, story) => {
                result.unwrap_or_else(|_| Err(Failure::failed("not everything came in time")))
            }
            _ = tokio::signal::ctrl_c() => Err(Failure::failed("interrupted")),
        };
        worker.abort();
        let stopped = server.stop().await.map_err(|e| Failure::failed(e.to_string()));
        let summary = result?;
        stopped?;
        finish(out, &summary)
    }
}

fn settings(data: std::path::PathBuf, hook: SocketAddr) -> Result<Config, Failure> {
    let webhook = WebhookConfig {
        url: Some(Secret::new(format!("http://{hook}/"))),
        // The receiver is this process: without this, addresses of this machine are refused.
        allow_private: AllowPrivate::All,
        ..WebhookConfig::default()
    };
    let name = SinkName::parse(story::SINK).map_err(|fault| Failure::failed(fault.to_string()))?;
    let setup = SinkSetup::of(SinkConfig::Webhook(webhook));
    Ok(Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        store: StoreSetup::in_folder(data),
        sinks: [(name, setup)].into(),
        levels: Levels::none().set(story::LEVEL, Duration::from_secs(3)),
        node: "demo".into(),
        ..Config::default()
    })
}

fn finish(out: &Output, summary: &Summary) -> Result<(), Failure> {
    out.note("");
    out.answer(summary, |summary| summary.to_text(out))?;
    summary.check()?;
    out.note(&format!(
        "\n{}\n  duly serve\n  duly send order 'hello' --in 5s\n  duly receive order --wait 10s --ack",
        out.tint_words(Tint::Bold, "Everything came as promised. Now yourself:")
    ));
    Ok(())
}
