//! `cargo xtask bench`: tables for people, or with `-o json` one object per line on stdout.

use clap::ValueEnum;

use crate::{
    peers,
    step::{Failure, Steps, cargo, testkit},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What to measure
    what: What,
    /// Passed on to the benchmark, e.g. `-o json`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// The embedded store, beside a raw append and fdatasync of the same bytes
    Store,
    /// Lateness, beside the machine's own sleep jitter
    Timer,
    /// The server, beside a bare HTTP handler, the disk and the store
    Http,
    /// MySQL, PostgreSQL and redis+mysql, beside bare statements on the same server
    Sql,
    /// Redis Streams, beside the recipes that people write by hand
    Redis,
    /// Sinks into brokers, beside bare loops of the same clients; and brokers that are killed, hang or are away
    Brokers,
    /// The webhook sink: its rate, lateness beside a slow and a silent endpoint, memory of 10,000 origins
    Webhook,
    /// The web console, before ten million messages that wait
    Console,
    /// The library duly-streams, beside bare XADD, XREADGROUP and XACK
    Streams,
    /// Duly beside beanstalkd, BullMQ, asynq, RabbitMQ and graphile-worker, which do the same work; `-- --help` lists its options
    Peers,
}

pub(crate) fn run(steps: &Steps, arguments: &Arguments) -> Result<(), Failure> {
    let (name, program) = match arguments.what {
        What::Peers => return peers::run(steps, &arguments.arguments),
        What::Http => {
            let mut bench = cargo(&["bench", "--quiet", "--package", "duly-cli", "--bench", "http", "--"]);
            return steps.run("benchmark of the server", bench.args(&arguments.arguments));
        }
        What::Redis => {
            let mut bench = cargo(&["bench", "--quiet", "--package", "duly-sinks", "--bench", "redis", "--"]);
            return steps.run("benchmark of Redis Streams", bench.args(&arguments.arguments));
        }
        What::Brokers => {
            let mut bench =
                cargo(&["bench", "--quiet", "--package", "duly-sinks", "--bench", "brokers", "--"]);
            return steps.run("benchmark of the brokers", bench.args(&arguments.arguments));
        }
        What::Webhook => {
            let mut bench =
                cargo(&["bench", "--quiet", "--package", "duly-sinks", "--bench", "webhook", "--"]);
            return steps.run("benchmark of webhooks", bench.args(&arguments.arguments));
        }
        What::Console => {
            let mut bench =
                cargo(&["bench", "--quiet", "--package", "duly-server", "--bench", "console", "--"]);
            return steps.run("benchmark of the console", bench.args(&arguments.arguments));
        }
        What::Streams => {
            let mut bench =
                cargo(&["bench", "--quiet", "--package", "duly-streams", "--bench", "streams", "--"]);
            return steps.run("benchmark of duly-streams", bench.args(&arguments.arguments));
        }
        What::Sql => {
            let mut bench = cargo(&["bench", "--quiet", "--package", "duly-stores", "--bench", "sql", "--"]);
            return steps.run("benchmark of the databases", bench.args(&arguments.arguments));
        }
        What::Store => ("benchmark of the store", "bench_store"),
        What::Timer => ("benchmark of the timer", "bench_timer"),
    };
    steps.run(name, testkit(program).args(&arguments.arguments))
}
