//! `duly bench`: load over HTTP, measured from outside.

mod deliveries;
mod histogram;
mod ledger;
mod load_run;
mod plan;
mod receiver;
mod report;
mod sender;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
    time::Duration,
};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::JoinSet;

pub(crate) use histogram::Histogram;

use self::{
    deliveries::Deliveries,
    ledger::Ledger,
    load_run::LoadRun,
    plan::{DelayRange, Plan},
    report::Report,
};
use super::{Failure, Output, clock, input};
use duly_client::Client;

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(200);

/// Put load on a server, and measure it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly bench
  duly bench --connections 64 --batch 1000 --duration 30s --delay 1s..60s
  duly bench --rate 2000 -o json | jq .lateness.p99_ms
  duly bench --ledger ledger.txt --keep-going --duration 5m    while you kill and restart the server

Everything received from the topic is acknowledged, so give the bench one of its own.
The ledger has a line for each: `sent ID`, `accepted ID`, `received ID DUE_MS AT_MS`. What was sent and never accepted is unknown.")]
pub(crate) struct Bench {
    /// Connections that send at the same time
    #[arg(short, long, default_value_t = 64, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,

    /// How long to send
    #[arg(short, long, default_value = "10s", value_name = "DELAY", value_parser = input::span)]
    duration: Duration,

    /// Messages per second over all connections; 0: as fast as it goes
    #[arg(short, long, default_value_t = 0, value_name = "COUNT")]
    rate: u64,

    /// Messages per call
    #[arg(short, long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,

    /// Their delays, evenly spread: FROM..TO, or one for all
    #[arg(long, default_value = "1s..5s", value_name = "SPREAD", value_parser = DelayRange::parse)]
    delay: DelayRange,

    /// Bytes of each body
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    body: usize,

    /// The topic to send to
    #[arg(long, default_value = "bench")]
    topic: String,

    /// A sink, instead of the built-in queue; then nothing is received
    #[arg(long)]
    sink: Option<String>,

    /// Connections that receive and acknowledge
    #[arg(long, default_value_t = 4, value_name = "COUNT")]
    receivers: u32,

    /// Receive what was sent (it does, unless told otherwise)
    #[arg(long, overrides_with = "no_receive")]
    receive: bool,

    /// Only send
    #[arg(long)]
    no_receive: bool,

    /// Wait so long for the last, after its delay
    #[arg(long, default_value = "15s", value_name = "DELAY", value_parser = input::span)]
    drain: Duration,

    /// How long a receiver has before its messages are given to another
    #[arg(long, default_value = "30s", value_name = "DELAY", value_parser = input::span)]
    lease: Duration,

    /// Add every id sent, accepted and received to this file
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,

    /// Reconnect when the server goes away, until the time is over
    #[arg(long)]
    keep_going: bool,
}

impl Bench {
    pub(crate) async fn run(self, client: Client, out: &Output) -> Result<(), Failure> {
        let receivers = if self.no_receive || self.sink.is_some() { 0 } else { self.receivers };
        super::files::raise(u64::from(self.connections + receivers) + 64);
        let shared = Arc::new(self.shared(client)?);
        let mut receiving = JoinSet::new();
        for _ in 0..receivers {
            receiving.spawn(receiver::run(shared.clone(), self.topic.clone()));
        }
        let mut sending = JoinSet::new();
        for number in 0..self.connections as usize {
            sending.spawn(sender::run(shared.clone(), number));
        }
        let bar = tokio::spawn(show(shared.clone(), bar(out, self.duration)));
        let done = self.measure(&shared, sending, receiving).await;
        bar.abort();
        // Aborting drops the bar, and so clears it; wait until that has happened.
        let _ = bar.await;
        let (span, latency, late) = done?;
        let late = (receivers > 0).then_some(&late);
        let report = Report::new(&shared, self.connections as usize, span, &latency, late);
        out.answer(&report, |report| report.to_text(out))?;
        verdict(&report)
    }

    fn shared(&self, client: Client) -> Result<LoadRun, Failure> {
        let batch = self.batch as usize;
        Ok(LoadRun {
            client,
            plan: Plan::new(&self.topic, self.sink.as_deref(), self.body, batch, self.delay),
            ledger: self.ledger.as_deref().map(Ledger::open).transpose()?,
            counts: Default::default(),
            deliveries: Deliveries::new(self.connections as usize),
            began: clock::instant(),
            duration: self.duration,
            rate: self.rate,
            keep_going: self.keep_going,
            lease: self.lease,
            refusals: Default::default(),
            stop: Default::default(),
            sent_all: Default::default(),
            gave_up: Default::default(),
            ticket: Default::default(),
        })
    }

    async fn measure(
        &self,
        shared: &Arc<LoadRun>,
        mut sending: JoinSet<Result<Histogram, Failure>>,
        mut receiving: JoinSet<Result<Histogram, Failure>>,
    ) -> Result<(Duration, Histogram, Histogram), Failure> {
        let interrupted = shared.clone();
        let watch = tokio::spawn(async move {
            let _ = tokio::signal::ctrl_c().await;
            // The measurements so far are reported.
            interrupted.stop.store(true, Relaxed);
            interrupted.gave_up.store(true, SeqCst);
        });
        let latency = merged(&mut sending).await?;
        let span = shared.began.elapsed();
        shared.sent_all.store(true, SeqCst);
        // Messages in flight when a server was killed are received again after their lease.
        let hidden = if self.keep_going { self.lease } else { Duration::ZERO };
        let patience = self.drain.saturating_add(shared.plan.longest()).saturating_add(hidden);
        let late = match tokio::time::timeout(patience, merged(&mut receiving)).await {
            Ok(late) => late?,
            Err(_) => {
                shared.gave_up.store(true, SeqCst);
                merged(&mut receiving).await?
            }
        };
        watch.abort();
        Ok((span, latency, late))
    }
}

/// The histograms of all, or the first failure; then the others are stopped.
async fn merged(tasks: &mut JoinSet<Result<Histogram, Failure>>) -> Result<Histogram, Failure> {
    let mut all = Histogram::default();
    while let Some(done) = tasks.join_next().await {
        let part = done.map_err(|e| Failure::failed(format!("a connection's task ended badly: {e}")))?;
        all.merge(&part?);
    }
    Ok(all)
}

fn verdict(report: &Report) -> Result<(), Failure> {
    if report.early > 0 {
        return Err(Failure::failed("messages came before their time: please report this"));
    }
    if let Some(missing) = report.missing.filter(|missing| *missing > 0) {
        let missing = clock::grouped(missing);
        return Err(Failure::failed(format!(
            "{missing} accepted messages had not come when the wait was over"
        )));
    }
    if report.accepted == 0 && report.errors.count > 0 {
        let codes: Vec<_> = report.errors.refused.keys().map(String::as_str).collect();
        let why =
            if codes.is_empty() { String::new() } else { format!(": refused with {}", codes.join(", ")) };
        return Err(Failure::failed(format!("nothing was accepted{why}")));
    }
    Ok(())
}

fn bar(out: &Output, duration: Duration) -> ProgressBar {
    let target = if out.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(5) };
    let bar = ProgressBar::with_draw_target(u64::try_from(duration.as_millis()).ok(), target);
    let style = ProgressStyle::with_template("{bar:30} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

async fn show(shared: Arc<LoadRun>, bar: ProgressBar) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        let elapsed = shared.began.elapsed();
        let (accepted, delivered) = (shared.counts.accepted.load(Relaxed), shared.deliveries.delivered());
        let per_second = accepted as f64 / elapsed.min(shared.duration).as_secs_f64().max(0.1);
        bar.set_position(u64::try_from(elapsed.min(shared.duration).as_millis()).unwrap_or(u64::MAX));
        bar.set_message(format!(
            "accepted {} ({}/s), delivered {}",
            clock::grouped(accepted),
            clock::grouped(per_second as u64),
            clock::grouped(delivered)
        ));
    }
}
