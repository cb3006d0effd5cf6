//! `cargo xtask test`: all that must hold before a change goes in.

use std::process::Command;

use crate::{
    again, servers,
    step::{Failure, Steps, cargo, examples, root},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Install nothing: tests of servers that are not there are skipped
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(steps: &Steps, arguments: &Arguments) -> Result<(), Failure> {
    if !arguments.quick {
        servers::run(steps)?;
    }
    rust(steps)
}

/// The sinks that need no library written in C.
const WITHOUT_C: &str = "webhook,redis_streams,rabbitmq,rocketmq,activemq,nats,mqtt";

/// All crates with all that this machine can build: the same for every step, or the C in it would be built twice.
fn whole(arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.arg("--workspace");
    if servers::has_openssl() {
        command.args(["--features", "duly-sinks/kafka-tls"]);
    }
    command
}

fn rust(steps: &Steps) -> Result<(), Failure> {
    steps.run("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    if !servers::has_openssl() {
        steps.skip("TLS and SCRAM of the kafka sink", "not installed: pkg-config libssl-dev")?;
    }
    steps.run("lints", whole(&["clippy", "--all-targets"]).args(["--", "-D", "warnings"]))?;
    // The workspace's features are those of all its crates together; this one must do without, too.
    let alone = ["clippy", "--package", "redis-mq", "--lib", "--", "-D", "warnings"];
    steps.run("lints of redis-mq without its delayed part", &mut cargo(&alone))?;
    let without_c = ["check", "--package", "duly-server", "--no-default-features", "--features", WITHOUT_C];
    steps.run("the server without the sink that needs C", &mut cargo(&without_c))?;
    again::run(steps, |words| {
        let mut tests = whole(&["test", "--no-fail-fast", "--lib", "--bins", "--tests"]);
        tests.arg("--").args(words);
        tests
    })?;
    steps.run("documentation tests", &mut whole(&["test", "--doc"]))?;
    steps.run("documentation", whole(&["doc", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    for example in examples(&root().join("crates/duly/examples"))? {
        // The profile of the tests: they have just built it.
        let words = ["run", "--quiet", "--profile", "test", "--package", "duly", "--example", &example];
        steps.run(&format!("example {example}"), &mut cargo(&words))?;
    }
    Ok(())
}
