//! Tools written in Python that tests run: a virtual environment in the target folder, made once for each list of them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::step::{Failure, Steps, root};

/// All of them with their versions.
const LIST: &str = "crates/testkit/python/requirements.txt";

pub(crate) fn run(steps: &Steps) -> Result<(), Failure> {
    let list = root().join(LIST);
    let Some(folder) = folder() else {
        return steps.skip("tools in Python", "this program is in no target folder");
    };
    let wanted = fs::read(&list).map_err(|source| Failure::Read { path: list.clone(), source })?;
    // Written last, so that a folder with it is whole.
    let mark = folder.join("requirements.txt");
    if fs::read(&mark).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    let _ = fs::remove_dir_all(&folder);
    let bring = || bring(steps, &list, &folder);
    bring().or_else(|_| bring())?;
    fs::write(&mark, wanted).map_err(|source| Failure::Write { path: mark, source })
}

fn bring(steps: &Steps, list: &Path, folder: &Path) -> Result<(), Failure> {
    steps.run("Python's folder", Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))?;
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--requirement"]).arg(list);
    steps.run("tools in Python", &mut pip)
}

/// The interpreter with all of them, if they were installed, and the target folder.
pub(crate) fn program() -> Option<(PathBuf, PathBuf)> {
    let program = folder()?.join("bin/python");
    program.is_file().then_some((program, target()?))
}

/// Beside the profiles in the target folder; the tests look there, too.
fn folder() -> Option<PathBuf> {
    Some(target()?.join("servers").join("python"))
}

/// The target folder that we were built into.
fn target() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.ancestors().nth(2)?.to_owned())
}
