//! A NATS server that is newer than Debian's: built by Go into the target folder, once for each version. Without Go, or without the
//! way to its proxy, tests use Debian's; in CI that is a failure.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    servers::find,
    step::{Failure, Steps, root},
};

/// Which one.
const VERSION: &str = "crates/testkit/nats/version";
const MODULE: &str = "github.com/nats-io/nats-server/v2";

pub(crate) fn run(steps: &Steps) -> Result<(), Failure> {
    let list = root().join(VERSION);
    let Some(folder) = folder() else {
        return steps.skip("NATS", "this program is in no target folder");
    };
    let wanted = fs::read_to_string(&list).map_err(|source| Failure::Read { path: list, source })?;
    // Written last, so that a folder with it is whole.
    let mark = folder.join("version");
    if fs::read_to_string(&mark).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    let what = format!("NATS {}", wanted.trim());
    if find("go").is_none() {
        return steps.skip(&what, "not installed: go; tests use the system's NATS");
    }
    let fresh = folder.with_extension("new");
    let _ = fs::remove_dir_all(&fresh);
    // The proxy of Go's modules may be busy: once more.
    if build(steps, wanted.trim(), &fresh).or_else(|_| build(steps, wanted.trim(), &fresh)).is_err() {
        return steps.skip(&what, "it could not be built; tests use the system's NATS");
    }
    let failed = |source| Failure::Write { path: folder.clone(), source };
    let _ = fs::remove_dir_all(&folder);
    fs::rename(&fresh, &folder).map_err(failed)?;
    fs::write(&mark, wanted).map_err(failed)
}

/// Without optimising and without C, which is a third of the work: its tests are about what it answers, not about how fast.
fn build(steps: &Steps, version: &str, folder: &Path) -> Result<(), Failure> {
    let mut go = Command::new("go");
    go.args(["install", "-gcflags=all=-N -l", "-ldflags=-s -w"]).arg(format!("{MODULE}@{version}"));
    steps.run("NATS", go.env("GOBIN", folder).env("CGO_ENABLED", "0"))
}

/// Beside the profiles in the target folder that we were built into; the tests look there, too.
fn folder() -> Option<PathBuf> {
    let target = env::current_exe().ok()?.ancestors().nth(2)?.to_owned();
    Some(target.join("servers").join("nats"))
}
