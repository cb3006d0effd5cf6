//! The OpenAPI file: valid by itself, and true of the server.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use duly_server::config::SinkSetup;
use duly_sinks::{RedisStreamsConfig, SinkConfig};
use rustix::process::{Pid, Signal, kill_process};
use testkit::servers::{
    python,
    redis::{self, Redis},
};

use crate::bed::Bed;

/// What a tool may take, by the clock. The fuzzer ends itself after half of it.
const WITHIN: Duration = Duration::from_secs(120);

/// Runs a tool, which must end well and in time. Gives what it wrote.
async fn passes(tool: &Path, set: impl FnOnce(&mut Command)) -> String {
    let mut command = Command::new(tool);
    set(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let own = Pid::from_child(&child);
    let mut ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let (output, in_time) = match tokio::time::timeout(WITHIN, &mut ended).await {
        Ok(output) => (output.unwrap(), true),
        Err(_) => {
            kill_process(own, Signal::KILL).unwrap();
            (ended.await.unwrap(), false)
        }
    };
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(in_time, "not done within {WITHIN:?}: {text}");
    assert!(output.status.success(), "{text}\n{}", output.status);
    text
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
    if !redis::installed() {
        return;
    }
    let target = Redis::single();
    let url = Some(target.url().as_str().into());
    let streams = RedisStreamsConfig { url, ..RedisStreamsConfig::default() };
    let setup = SinkSetup::of(SinkConfig::RedisStreams(streams));
    // The sink that hooks.py writes into each call that names one.
    let bed = Bed::with(|config| drop(config.sinks.insert("streams".parse().unwrap(), setup))).await;
    let settings = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/http/schemathesis");
    let folder = tempfile::tempdir().unwrap();
    let text = passes(&schemathesis, |command| {
        command.arg("--config-file").arg(settings.join("schemathesis.toml"));
        command.arg("run").arg(format!("http://{}/openapi.json", bed.addr()));
        // What it finds out is written into the folder that it runs in.
        command.current_dir(folder.path()).env("PYTHONPATH", &settings).env("SCHEMATHESIS_HOOKS", "hooks");
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("NO_COLOR", "1");
    })
    .await;
    let number = |after: &str| -> u32 {
        let rest = text.split(after).nth(1).unwrap_or_else(|| panic!("no {after}: {text}"));
        rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
    };
    let (selected, tested) = (number("Selected: "), number("Tested: "));
    assert!(selected >= 36 && tested == selected, "not all operations were called: {text}");
}
