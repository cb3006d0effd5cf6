//! `cargo xtask check`: the tests, and what our dependencies allow.

use crate::{
    step::{Failure, Steps, cargo, works},
    test,
};

pub(crate) fn run(steps: &Steps, arguments: &test::Arguments) -> Result<(), Failure> {
    test::run(steps, arguments)?;
    if works(&["deny", "--version"]) {
        steps.run("licences and advisories", &mut cargo(&["deny", "check"]))
    } else {
        steps.skip("licences and advisories", "no cargo-deny here: cargo install --locked cargo-deny")
    }
}
