//! `cargo xtask site`: the documentation as a site, from the Markdown of the repository. Dead links fail it.

use std::process::Command;

use crate::{
    python,
    step::{Failure, Steps, root},
};

pub(crate) fn run(steps: &Steps) -> Result<(), Failure> {
    let Some((python, target)) = python::program() else {
        return steps.skip("site", "its tools in Python are not installed: cargo xtask servers");
    };
    let folder = target.join("site");
    let mut build = Command::new(python);
    steps.run("site", build.current_dir(root()).arg("docs/site/build.py").arg(folder))
}
