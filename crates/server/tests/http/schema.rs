//! The OpenAPI file: valid by itself, and true of the server.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use testkit::servers::python;

use crate::bed::Bed;

/// Seconds of the processor that a tool may take. Not of the clock: on a busy machine that says nothing of the tool.
const PROCESSOR_SECONDS_MAX: u32 = 120;

async fn passes(tool: &Path, set: impl FnOnce(&mut Command)) {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -t {PROCESSOR_SECONDS_MAX} && exec \"$0\" \"$@\"")).arg(tool);
    set(&mut command);
    command.stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{}", output.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_openapi_file_is_valid_by_a_public_validator() {
    let Some(validator) = python::tool("openapi-spec-validator") else { return };
    let bed = Bed::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("openapi.json");
    std::fs::write(&file, bed.get("/openapi.json").await.body).unwrap();
    passes(&validator, |command| {
        command.arg(&file);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_fuzzer_finds_nothing_that_the_openapi_file_does_not_say() {
    let Some(schemathesis) = python::tool("schemathesis") else { return };
    let bed = Bed::new().await;
    let settings = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/http/schemathesis");
    let folder = tempfile::tempdir().unwrap();
    passes(&schemathesis, |command| {
        command.arg("--config-file").arg(settings.join("schemathesis.toml"));
        command.arg("run").arg(format!("http://{}/openapi.json", bed.addr()));
        // What it finds out is written into the folder that it runs in.
        command.current_dir(folder.path()).env("PYTHONPATH", &settings).env("SCHEMATHESIS_HOOKS", "hooks");
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("NO_COLOR", "1");
    })
    .await;
}
