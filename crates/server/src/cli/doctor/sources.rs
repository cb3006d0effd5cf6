//! Every source is asked whether messages can be taken from it; none is taken.

use std::time::Duration;

use duly::{Clock, SystemClock};

use super::Finding;
use crate::{
    config::{Config, SourceSetup},
    sources::probe,
};

/// A broker that has not answered after this is taken for one that does not: longer than the probe itself waits.
const PATIENCE: Duration = Duration::from_secs(25);

const REMEDY: &str = "see whether the broker is up, knows the queue and lets this user read it; \
    `duly serve` starts without it, and tries again until it can";

pub(super) async fn look(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::with_capacity(config.sources.len());
    if config.sources.is_empty() {
        return findings;
    }
    let clock = match SystemClock::new() {
        Ok(clock) => clock,
        Err(error) => {
            let detail = format!("no thread can be started: {error}");
            return vec![Finding::fail("sources", detail, "allow this user more processes (ulimit -u)")];
        }
    };
    for (name, setup) in &config.sources {
        findings.push(one(format!("source {name}"), setup, &clock).await);
    }
    findings
}

async fn one(check: String, setup: &SourceSetup, clock: &dyn Clock) -> Finding {
    match tokio::time::timeout(PATIENCE, probe(setup, clock)).await {
        Ok(Ok(waiting)) => {
            Finding::ok(check, format!("the queue {:?} is there; {waiting} messages wait in it", setup.queue))
        }
        Ok(Err(why)) => Finding::fail(check, why, REMEDY),
        Err(_) => Finding::fail(check, format!("no answer within {PATIENCE:?}"), REMEDY),
    }
}
