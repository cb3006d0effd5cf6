//! Every sink into a broker, beside a bare loop of the same client crate with the same guarantees: `cargo xtask bench brokers`.
//!
//! A broker is a file: its server, its sink, and the bare loop.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot measure has nothing else to say")]

mod bed;
mod nats;
mod rabbitmq;

use clap::Parser;
use testkit::bench::{process, report::Report};

#[derive(Parser)]
pub(crate) struct Arguments {
    /// Messages on each side
    #[arg(long, default_value_t = 50_000)]
    pub(crate) messages: usize,
    /// Messages of one call
    #[arg(long, default_value_t = 256)]
    pub(crate) batch: usize,
    /// Bytes of a body
    #[arg(long, default_value_t = 100)]
    pub(crate) body: usize,
    /// Only these, with commas between: rabbitmq, nats
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// `json`: one object per line
    #[arg(short, long)]
    output: Option<String>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments = Arguments::parse();
    let mut report = Report::new(arguments.output.as_deref() == Some("json"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    report.alone("load of the machine before", process::load(), "");
    if wanted("rabbitmq") && testkit::servers::rabbitmq::installed() {
        let server = testkit::servers::rabbitmq::Rabbitmq::single();
        runtime.block_on(async {
            let broker = rabbitmq::Rabbit::new(&server).await;
            bed::compare(&mut report, &broker, &arguments).await;
        });
    }
    if wanted("nats") && testkit::servers::nats::installed() {
        let server = testkit::servers::nats::Nats::single();
        runtime.block_on(async {
            let broker = nats::Stream::new(&server).await;
            bed::compare(&mut report, &broker, &arguments).await;
        });
    }
    report.alone("load of the machine after", process::load(), "");
    report.finish();
}
