//! Every source is asked whether messages can be taken from it; none is taken.

use std::time::Duration;

use super::Finding;
use crate::{
    config::{Config, SourceSetup},
    sources::probe,
};

/// A broker that has not answered after this is taken for one that does not.
const PATIENCE: Duration = Duration::from_secs(10);

const REMEDY: &str = "see whether the broker is up, knows the queue and lets this user read it; \
    `duly serve` starts without it, and tries again until it can";

pub(super) async fn look(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::with_capacity(config.sources.len());
    for (name, setup) in &config.sources {
        findings.push(one(format!("source {name}"), setup).await);
    }
    findings
}

async fn one(check: String, setup: &SourceSetup) -> Finding {
    match tokio::time::timeout(PATIENCE, probe(setup)).await {
        Ok(Ok(waiting)) => {
            Finding::ok(check, format!("the queue {:?} is there; {waiting} messages wait in it", setup.queue))
        }
        Ok(Err(why)) => Finding::fail(check, why, REMEDY),
        Err(_) => Finding::fail(check, format!("no answer within {PATIENCE:?}"), REMEDY),
    }
}
