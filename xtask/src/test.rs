//! `cargo xtask test`: all that must hold before a change goes in.

use crate::step::{Failure, Steps, cargo, examples, root};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only what needs nothing but Rust: no real servers (today no test needs one)
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(steps: &Steps, arguments: &Arguments) -> Result<(), Failure> {
    rust(steps)?;
    if !arguments.quick {
        servers(steps)?;
    }
    Ok(())
}

fn rust(steps: &Steps) -> Result<(), Failure> {
    steps.run("format", &mut cargo(&["fmt", "--all", "--check"]))?;
    steps.run("lints", &mut cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    steps
        .run("tests", &mut cargo(&["test", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"]))?;
    steps.run("documentation tests", &mut cargo(&["test", "--workspace", "--doc"]))?;
    steps.run(
        "documentation",
        cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    for example in examples(&root().join("crates/duly/examples"))? {
        // The profile of the tests: they have just built it.
        let words = ["run", "--quiet", "--profile", "test", "--package", "duly", "--example", &example];
        steps.run(&format!("example {example}"), &mut cargo(&words))?;
    }
    Ok(())
}

/// Tests against real servers start here, once there is a store or sink that has one behind it.
fn servers(_steps: &Steps) -> Result<(), Failure> {
    Ok(())
}
