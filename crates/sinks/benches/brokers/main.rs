//! Sinks into brokers: `cargo xtask bench brokers`.
//!
//! `rates` stands beside a bare loop of the same client with the same guarantees; `kills`, `hang` and `outage` show the whole library
//! while brokers are killed, hang or are away. A broker is a file: its server, its sink, the bare loop, and a reader.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot measure has nothing else to say")]

mod activemq;
mod broker;
mod bystander;
mod hang;
mod kafka;
mod kafka_cluster;
mod kills;
mod mqtt;
mod nats;
mod nats_cluster;
mod outage;
mod rabbitmq;
mod rabbitmq_cluster;
mod rates;
mod rocketmq;
mod rocketmq_cluster;
mod socket;
mod whole;

use std::process::ExitCode;

use broker::{KINDS, Keep};
use clap::{Parser, ValueEnum};
use testkit::bench::{arguments::Output, process};

#[derive(Parser)]
pub(crate) struct Arguments {
    /// Only these, with commas between
    #[arg(long, value_delimiter = ',')]
    only: Vec<Case>,
    /// Only these brokers, with commas between: rabbitmq, rabbitmq_cluster, kafka, kafka_cluster, rocketmq, rocketmq_cluster,
    /// activemq, nats, nats_cluster, mqtt
    #[arg(long, value_delimiter = ',')]
    brokers: Vec<String>,
    /// rates: messages on each side
    #[arg(long, default_value_t = 50_000)]
    pub(crate) messages: usize,
    /// rates: messages that the bare loop has under way, at most; as many as a lane by default
    #[arg(long, default_value_t = 1_024)]
    pub(crate) window: usize,
    /// Bytes of a body
    #[arg(long, default_value_t = 100)]
    pub(crate) body: usize,
    /// kills: messages, all due within one minute
    #[arg(long, default_value_t = 100_000)]
    pub(crate) killed: usize,
    /// hang: which hangs; each in turn unless said
    #[arg(long, value_delimiter = ',')]
    pub(crate) hanging: Vec<String>,
    /// hang: messages per second and sink
    #[arg(long, default_value_t = 100)]
    pub(crate) rate: u64,
    /// hang: seconds before and seconds while
    #[arg(long, default_value_t = 15)]
    pub(crate) seconds: u64,
    /// outage: how long all brokers are away
    #[arg(long, default_value_t = 10)]
    pub(crate) minutes: u64,
    /// outage: messages that come due in each second, in all
    #[arg(long, default_value_t = 1_000)]
    pub(crate) due: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Case {
    /// Messages per second, beside a bare loop
    Rates,
    /// The broker is killed twice while messages come due
    Kills,
    /// One broker of six hangs
    Hang,
    /// All brokers are away
    Outage,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut report = arguments.output.report();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let wanted = |case| arguments.only.is_empty() || arguments.only.contains(&case);
    let among = |name: &str| arguments.brokers.is_empty() || arguments.brokers.iter().any(|one| one == name);
    let kinds: Vec<_> = KINDS.into_iter().filter(|kind| among(kind.name) && (kind.installed)()).collect();
    let mut faults = Vec::new();
    report.alone("load of the machine before", process::load(), "");
    if wanted(Case::Rates) {
        for kind in &kinds {
            let broker = (kind.start)(Keep::AsUsual);
            runtime.block_on(rates::compare(&mut report, &*broker, &arguments));
        }
    }
    if wanted(Case::Kills) {
        for kind in &kinds {
            let broker = (kind.start)(Keep::Safely);
            faults.extend(runtime.block_on(kills::kills(&mut report, &broker, &arguments)));
        }
    }
    if wanted(Case::Hang) || wanted(Case::Outage) {
        // One node of a cluster that is killed or hangs is no outage: clusters have `kills`.
        let single = kinds.iter().filter(|kind| !kind.name.ends_with("_cluster"));
        let brokers: Vec<_> = single.map(|kind| (kind.start)(Keep::AsUsual)).collect();
        if wanted(Case::Hang) {
            faults.extend(runtime.block_on(hang::hang(&mut report, &brokers, &arguments)));
        }
        if wanted(Case::Outage) {
            faults.extend(runtime.block_on(outage::outage(&mut report, &brokers, &arguments)));
        }
    }
    report.alone("load of the machine after", process::load(), "");
    report.finish();
    for fault in &faults {
        eprintln!("FAILED {fault}");
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
