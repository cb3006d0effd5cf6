//! The test programs and examples that one build of the workspace makes.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::step::{Failure, Steps};

/// An executable of the build.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Program {
    /// `package target`, e.g. `duly-stores conformance`; the unit tests of a library are `duly-stores lib`.
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    /// The folder of its package, where cargo would run it.
    pub(crate) folder: PathBuf,
    pub(crate) kind: ProgramKind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ProgramKind {
    Test,
    Example,
}

/// Runs `command`, a `cargo test --no-run`, and lists what it built.
pub(crate) fn build(steps: &Steps, command: &mut Command) -> Result<Vec<Program>, Failure> {
    command.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let mut programs = Vec::new();
    steps.run_with("build of all tests and examples", command, |command| {
        let output = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?.wait_with_output()?;
        programs = String::from_utf8_lossy(&output.stdout).lines().filter_map(program).collect();
        Ok(output.status)
    })?;
    Ok(programs)
}

/// The program that a line of cargo's JSON tells of, if it is one to run.
fn program(line: &str) -> Option<Program> {
    let artifact: Value = serde_json::from_str(line).ok()?;
    let executable = artifact["executable"].as_str()?;
    let target = &artifact["target"];
    let target_kind = target["kind"][0].as_str()?;
    let kind = match (artifact["profile"]["test"].as_bool()?, target_kind) {
        (true, _) => ProgramKind::Test,
        (false, "example") => ProgramKind::Example,
        // The binaries that tests start.
        (false, _) => return None,
    };
    let folder = Path::new(artifact["manifest_path"].as_str()?).parent()?;
    let package = folder.file_name()?.to_str()?;
    let target = match target_kind {
        "lib" | "proc-macro" => "lib",
        _ => target["name"].as_str()?,
    };
    let name = format!("{package} {target}");
    Some(Program { name, executable: executable.into(), folder: folder.into(), kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(kind: &str, name: &str, test: bool, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/r/crates/stores/Cargo.toml","target":{{"kind":["{kind}"],"name":"{name}"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
        )
    }

    #[test]
    fn tests_and_examples_are_programs_to_run() {
        let parsed = program(&artifact("test", "power", true, r#""/r/target/power-1""#)).unwrap();
        assert_eq!((parsed.name.as_str(), parsed.kind), ("stores power", ProgramKind::Test));
        assert_eq!(parsed.folder, Path::new("/r/crates/stores"));
        let lib = program(&artifact("lib", "duly_stores", true, r#""/r/target/lib-1""#)).unwrap();
        assert_eq!(lib.name, "stores lib");
        let example = program(&artifact("example", "orders", false, r#""/r/target/orders""#)).unwrap();
        assert_eq!(example.kind, ProgramKind::Example);
    }

    #[test]
    fn libraries_binaries_and_other_lines_are_not() {
        assert_eq!(program(&artifact("lib", "duly_stores", false, "null")), None);
        assert_eq!(program(&artifact("bin", "duly", false, r#""/r/target/duly""#)), None);
        assert_eq!(program(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(program("no JSON"), None);
    }
}
