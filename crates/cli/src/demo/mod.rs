//! `duly demo`: the whole thing alive, in less than half a minute.
//!
//! A real server on a temporary store; everything below talks to it over HTTP, as any program would.

mod footprint;
mod load;
mod narrator;
mod orders;
mod outage;
mod receiver;
mod stay;
mod summary;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;
use duly::{SinkName, SinkOptions};
use duly_sinks::{Secret, SinkConfig, WebhookConfig, webhook::AllowPrivate};
use tempfile::TempDir;

use self::{load::Load, narrator::Narrator, receiver::Receiver, stay::Stay, summary::Summary};
use super::{Failure, Output, Tint, clock, input, progress::Progress, signals::Signals};
use duly_client::{Client, wire::TotalsAnswer};
use duly_server::{
    config::{Config, SinkSetup, StoreSetup},
    serve::{self, Running},
};

const SINK: &str = "hooks";

/// See it work: a server on a temporary store, and messages that are cancelled, delivered and outlast an outage
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly demo
  duly demo --stay
  duly demo --messages 10000 -o json | jq .background.per_second

Needs nothing and leaves nothing behind: the server has a port and a temporary folder (TMPDIR) of its own. Every number is measured.
On a terminal the server and its console stay for a minute afterwards. Exit code 0: everything came as promised.")]
pub(crate) struct Demo {
    /// Keep the server and its console for so long afterwards, 0 for not at all; without DELAY until Ctrl-C
    #[arg(long, value_name = "DELAY", value_parser = input::span)]
    stay: Option<Option<Duration>>,

    /// Messages to accept in the background; it stops after 12 seconds, however many they are
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    messages: u64,
}

/// The server under demonstration, and what it writes to.
struct Stage {
    folder: TempDir,
    server: Running,
}

impl Demo {
    pub(crate) async fn run(self, out: &Output) -> Result<(), Failure> {
        // Before there is a folder: from here on a signal ends the demo in its own way, which leaves nothing behind.
        let mut signals = Signals::with_hangup()?;
        let receiver = Receiver::start()?;
        let stage = Stage::start(receiver.addr()).await?;
        let shown = tokio::select! {
            shown = self.show(&stage, receiver, out) => shown,
            () = signals.next() => Err(Failure::failed("interrupted")),
        };
        if shown.is_ok() {
            Stay::new(self.stay, out).end(out, &stage.server.url(), &mut signals).await;
        }
        let ended = stage.end().await;
        shown.and(ended)
    }

    async fn show(&self, stage: &Stage, receiver: Receiver, out: &Output) -> Result<(), Failure> {
        let url = stage.server.url();
        let client = Client::new(&url)?;
        let (url, version) = (out.tint_words(Tint::Bold, &url), env!("CARGO_PKG_VERSION"));
        out.note(&format!("Duly {version}: a real server at {url}, on a temporary store"));
        let mut narrator = Narrator::new(out);
        let work = orders::paid(&client, &narrator);
        let withdrawn_before_due_ms = narrator.step(1, "An order that is paid in time", work).await?;
        let work = orders::unpaid(&client, &narrator);
        let unpaid_late_ms = narrator.step(2, "An order that nobody pays", work).await?;

        // Only now: how late an order is beside this load, the last one shows.
        let wanted = self.messages.min(footprint::messages_max(stage.folder.path()));
        let bar = Progress::of_accepted(out, wanted);
        narrator.above(bar.clone());
        let load = Load::start(&client, wanted, load::LONGEST, bar);
        let work = outage::run(&client, &narrator, receiver);
        let outage = narrator.step(3, "A receiver that goes away and comes back", work).await?;
        let work = async {
            if wanted < self.messages {
                narrator.line(Tint::Yellow, "limited", &limited(wanted));
            }
            let background = load.finish(&narrator, &stage.data()).await?;
            let late_ms = orders::among_others(&client, &narrator).await?;
            Ok((background, late_ms, final_totals(&client).await?))
        };
        let title = format!("Meanwhile, {} messages in the background", clock::grouped(wanted));
        let (background, among_others_late_ms, totals) = narrator.step(4, &title, work).await?;
        let summary = Summary {
            withdrawn_before_due_ms,
            unpaid_late_ms,
            outage,
            background,
            among_others_late_ms,
            totals,
        };
        out.note("");
        out.answer(&summary, |summary| summary.to_text(out))?;
        summary.check()
    }
}

fn limited(wanted: u64) -> String {
    format!("to {}: the disk of the temporary folder is small", clock::grouped(wanted))
}

/// The totals, once the last delivery is in them: a webhook has its message a moment before Duly knows.
async fn final_totals(client: &Client) -> Result<TotalsAnswer, Failure> {
    loop {
        let totals = client.stats().await?.totals;
        if totals.in_flight == 0 && totals.delivered >= Summary::delivered() {
            return Ok(totals);
        }
        clock::sleep(Duration::from_millis(20)).await;
    }
}

impl Stage {
    async fn start(receiver: SocketAddr) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("duly-demo-").tempdir();
        let folder = folder.map_err(|e| {
            Failure::failed(format!("cannot make a temporary folder: {e}; is TMPDIR writable?"))
        })?;
        let config = settings(data(&folder), receiver)?;
        let server = serve::start(config).await.map_err(|e| Failure::failed(e.to_string()))?;
        Ok(Self { folder, server })
    }

    fn data(&self) -> PathBuf {
        data(&self.folder)
    }

    async fn end(self) -> Result<(), Failure> {
        let stopped = self.server.stop().await.map_err(|e| Failure::failed(e.to_string()));
        let path = self.folder.path().display().to_string();
        let removed = self.folder.close().map_err(|e| Failure::failed(format!("cannot remove {path}: {e}")));
        stopped.and(removed)
    }
}

fn data(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

fn settings(data: PathBuf, receiver: SocketAddr) -> Result<Config, Failure> {
    let webhook = WebhookConfig {
        url: Some(Secret::new(format!("http://{receiver}/"))),
        // The receiver is this process: without this, addresses of this machine are refused.
        allow_private: AllowPrivate::All,
        ..WebhookConfig::default()
    };
    let name = SinkName::parse(SINK).map_err(|fault| Failure::failed(fault.to_string()))?;
    let setup = SinkSetup { options: SinkOptions::default(), config: SinkConfig::Webhook(webhook) };
    Ok(Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        store: StoreSetup::in_folder(data),
        sinks: [(name, setup)].into(),
        node: "demo".into(),
        ..Config::default()
    })
}
