//! `cargo xtask test`: all that must hold before a change goes in.

use std::{
    panic,
    process::{Command, Stdio},
    thread,
};

use crate::{
    api,
    programs::{self, Program, ProgramKind},
    runner, servers, site,
    step::{self, Failure, Steps, cargo},
};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Install nothing: tests of servers that are not there are skipped
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(steps: &Steps, arguments: &Arguments) -> Result<(), Failure> {
    if arguments.quick {
        let programs = built(steps)?;
        return tested(steps, programs);
    }
    servers::packages(steps)?;
    // Downloads wait for the network, the build for the processors.
    let programs = thread::scope(|scope| {
        let tools = scope.spawn(|| servers::tools(steps));
        let programs = built(steps)?;
        tools.join().unwrap_or_else(|panic| panic::resume_unwind(panic))?;
        Ok(programs)
    })?;
    tested(steps, programs)
}

/// The sinks that need no library written in C.
const WITHOUT_C: &str = "duly-cli/webhook,duly-cli/redis_streams,duly-cli/rabbitmq,duly-cli/rocketmq,\
                         duly-cli/activemq,duly-cli/nats,duly-cli/mqtt";

/// All crates with all that this machine can build. Every step has the same set of features: with another, cargo would build the
/// dependencies again, and the C among them.
fn workspace(arguments: &[&str]) -> Command {
    let mut command = cargo(arguments);
    command.arg("--workspace");
    if servers::has_openssl() {
        command.args(["--features", "duly-sinks/kafka-tls"]);
    }
    command
}

/// Builds all tests and examples.
fn built(steps: &Steps) -> Result<Vec<Program>, Failure> {
    steps.run("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    if !servers::has_openssl() {
        steps.skip("TLS and SCRAM of the kafka sink", "not installed: pkg-config libssl-dev")?;
    }
    programs::build(steps, &mut workspace(&["test"]))
}

/// Runs tests, beside them all checks that start no server, and at last the examples.
fn tested(steps: &Steps, programs: Vec<Program>) -> Result<(), Failure> {
    let (tests, examples): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| program.kind == ProgramKind::Test);
    // Tests wait for servers, leases and due times for a third of their time: lints and documentation take that.
    thread::scope(|scope| {
        let checks = scope.spawn(|| {
            // Said at once: the tests go on for minutes.
            checked(steps).inspect_err(|failure| eprintln!("\nFAILED {failure}"))
        });
        let tests = runner::run(steps, tests);
        let checks = checks.join().unwrap_or_else(|panic| panic::resume_unwind(panic));
        tests.and(checks)
    })?;
    let examples: Vec<_> = examples.iter().filter(|example| runs_alone(example)).collect();
    if examples.is_empty() {
        return steps.skip("examples", "the build made none");
    }
    examples.into_iter().try_for_each(|example| {
        let mut command = Command::new(&example.executable);
        command.current_dir(&example.folder);
        if example.name == OPENAPI {
            command.stdout(Stdio::null());
        }
        steps.run(&format!("example {}", example.name), &mut command)
    })
}

/// Lints, documentation and packages, with what the tests leave of the processors.
fn checked(steps: &Steps) -> Result<(), Failure> {
    step::yield_to_others();
    let lints =
        |name: &str, command: &mut Command| steps.run_aside(name, command.args(["--", "-D", "warnings"]));
    lints("lints", &mut workspace(&["clippy", "--all-targets"]))?;
    // The workspace has the features of all its crates together. Two sets of fewer must do, too: duly-streams without its delayed part, and
    // the server without C. One command for both, as it shares nearly all dependencies with the one above.
    let fewer = [
        "clippy",
        "--package",
        "duly-streams",
        "--package",
        "duly-server",
        "--package",
        "duly-cli",
        "--lib",
        "--bins",
        "--no-default-features",
    ];
    lints("lints with fewer features", cargo(&fewer).args(["--features", WITHOUT_C]))?;
    // The library as most people depend on it: with the features of the others, nobody would see what it lacks. Some thirty small
    // dependencies of its own, and no code is generated.
    let library = ["clippy", "--package", "duly", "--no-default-features", "--features", "embedded"];
    lints("lints of the library with a folder", &mut cargo(&library))?;
    steps.run_aside("documentation", &mut documentation())?;
    api::check(steps)?;
    steps.run_aside("documentation tests", &mut workspace(&["test", "--doc"]))?;
    steps.run_aside("model of migrate-store", &mut model())?;
    site::run(steps)?;
    steps.run_aside("packages", &mut packages())
}

/// The pages of rustdoc, in the target folder.
pub(crate) fn documentation() -> Command {
    let mut command = workspace(&["doc", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// Packages for crates.io. They are not compiled: a tidy test checks that they include nothing from outside. Offline, as the build has
/// fetched all that they depend on.
fn packages() -> Command {
    cargo(&[
        "package",
        "--workspace",
        "--exclude",
        "duly-testkit",
        "--exclude",
        "xtask",
        "--no-verify",
        "--allow-dirty",
        "--offline",
        "--quiet",
    ])
}

/// The protocol of `duly migrate-store` in a model checker: a workspace of its own, so that its dependencies leave the features of
/// all others as they are.
fn model() -> Command {
    let mut command = cargo(&["test", "--manifest-path", "crates/migration-model/Cargo.toml"]);
    command.args(["--target-dir", "target/migration-model"]);
    command
}

/// Prints a file of thousands of lines, which a test of the server compares.
const OPENAPI: &str = "server openapi";

/// Examples that need no server. Tests run all others, each with a server of its own; `xtask/tests/tidy/examples.rs` checks that.
fn runs_alone(example: &Program) -> bool {
    example.folder.ends_with("crates/duly") || example.name == OPENAPI
}
