//! What tests need and no package of Debian has: jars, brought by Maven into the target folder, once for each list of them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::step::{Failure, Steps, root};

/// Each has its list, a `pom.xml`, in the folder of its name; and what Maven is to make of it.
const SERVERS: [(&str, &[&str]); 4] =
    [("kafka", COPY), ("rocketmq", COPY), ("artemis", COPY), ("axe", UNPACK)];
const COPY: &[&str] = &["dependency:copy-dependencies"];
/// A script for browsers, in a jar that is of no other use here.
const UNPACK: &[&str] = &["dependency:unpack-dependencies", "-Dmdep.unpack.includes=axe.min.js"];
/// Where the lists are.
const LISTS: &str = "crates/testkit/jars";

pub(crate) fn run(steps: &Steps) -> Result<(), Failure> {
    for (server, goal) in SERVERS {
        let list = root().join(LISTS).join(server).join("pom.xml");
        let Some(folder) = folder(server) else {
            return steps.skip(server, "this program is in no target folder");
        };
        let wanted = fs::read(&list).map_err(|source| Failure::Read { path: list.clone(), source })?;
        // Written last, so that a folder with it is whole.
        let mark = folder.join("pom.xml");
        if fs::read(&mark).is_ok_and(|there| there == wanted) {
            continue;
        }
        let _ = fs::remove_dir_all(&folder);
        let bring = || bring(steps, server, goal, &list, &folder);
        bring().or_else(|_| bring())?;
        fs::write(&mark, wanted).map_err(|source| Failure::Write { path: mark, source })?;
    }
    Ok(())
}

fn bring(steps: &Steps, server: &str, goal: &[&str], list: &Path, folder: &Path) -> Result<(), Failure> {
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "--file"]).arg(list);
    // Nothing but the jars is to be made of the list, and where they go it must be told.
    maven.args(goal).arg("-DincludeScope=runtime");
    maven.arg(format!("-DoutputDirectory={}", folder.display()));
    maven.arg(format!("-DmarkersDirectory={}", folder.join("markers").display()));
    steps.run(&format!("jars of {server}"), &mut maven)
}

/// Beside the profiles in the target folder that we were built into; the tests look there, too.
fn folder(server: &str) -> Option<PathBuf> {
    let target = env::current_exe().ok()?.ancestors().nth(2)?.to_owned();
    Some(target.join("servers").join(server))
}
