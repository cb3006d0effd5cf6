//! `duly doctor`: looks at everything that could go wrong before it does.

mod certificate;
mod contents;
mod disk;
mod machine;
mod redis;
mod sinks;
mod skew;
mod sources;
mod sql;

pub(super) use contents::{faults, unnamed};
use duly_stores::{EmbeddedConfig, StoreConfig};
use serde::Serialize;

use super::{Failure, Output, Tint};
use duly_server::config::{Config, Flags, Sources};

/// Check the settings, the disk, the sinks and sources, the clock and the limits of this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    flags: Flags,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Severity {
    /// As it should be.
    Ok,
    /// It works, and may not for long, or not as somebody might think.
    Warn,
    /// It does not work.
    Fail,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: String,
    state: Severity,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn ok(check: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { check: check.into(), state: Severity::Ok, detail: detail.into(), remedy: None }
    }

    fn warn(check: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: Severity::Warn, remedy: Some(remedy.into()), ..Self::ok(check, detail) }
    }

    fn fail(check: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: Severity::Fail, remedy: Some(remedy.into()), ..Self::ok(check, detail) }
    }
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    findings: Vec<Finding>,
}

impl Arguments {
    pub(crate) async fn run(self, output: &Output) -> Result<(), Failure> {
        let findings = match Config::load(&Sources::from_process(self.flags)) {
            Ok(config) => check(&config).await,
            Err(problems) => vec![Finding::fail(
                "configuration",
                problems.to_string(),
                "mend what is named; nothing else was looked at, as it depends on the settings",
            )],
        };
        let failed = findings.iter().filter(|finding| finding.state == Severity::Fail).count();
        let report = Report { ok: failed == 0, findings };
        output.answer(&report, |report| text(output, &report.findings))?;
        match failed {
            0 => Ok(()),
            1 => Err(Failure::failed("not ready: one thing is not as it must be, see above")),
            _ => {
                Err(Failure::failed(format!("not ready: {failed} things are not as they must be, see above")))
            }
        }
    }
}

async fn check(config: &Config) -> Vec<Finding> {
    let mut findings = vec![Finding::ok("configuration", "every setting is known and in range")];
    let running = match &config.store.config {
        StoreConfig::Memory => false,
        StoreConfig::Embedded(EmbeddedConfig { folder }) => {
            let found = disk::check(folder, &mut findings);
            let running = found == disk::Folder::Running;
            if found != disk::Folder::Unusable {
                findings.extend(contents::check(folder, running).await);
            }
            running
        }
        StoreConfig::Redis(setup) => redis::check(setup, &mut findings).await,
        StoreConfig::RedisAndMysql(setup) => {
            redis::check_index(&setup.redis, &mut findings).await;
            sql::check(&setup.mysql, &config.limits, &mut findings).await
        }
        StoreConfig::Sql(setup) => sql::check(setup, &config.limits, &mut findings).await,
        // A store that was added and not here.
        other => {
            let detail = format!("nothing is known about the store {:?}", other.kind());
            findings.push(Finding::warn("store", detail, "see the guide of that store"));
            false
        }
    };
    findings.extend(machine::clock(config.data()));
    findings.extend(machine::open_files(config));
    findings.extend(machine::listening(config, running));
    findings.extend(config.tls.as_ref().map(certificate::check));
    let overlaps = config.tokens.overlaps().into_iter();
    findings.extend(overlaps.map(|words| Finding::warn("tokens", words, "see the guide to security")));
    findings.extend(sinks::check(config).await);
    findings.extend(sources::check(config).await);
    findings
}

fn text(output: &Output, findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let lines = findings.iter().map(|Finding { check, state, detail, remedy }| {
        let state = match state {
            Severity::Ok => output.tint(Tint::Green, "ok  "),
            Severity::Warn => output.tint(Tint::Yellow, "warn"),
            Severity::Fail => output.tint(Tint::Red, "fail"),
        };
        let remedy =
            remedy.iter().map(|remedy| format!("\n{:1$}  → {remedy}", "", width + 4)).collect::<String>();
        format!("{state}  {check:width$}  {detail}{remedy}\n")
    });
    lines.collect()
}
