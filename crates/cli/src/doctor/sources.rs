//! Every source is asked whether messages can be taken from it; none is taken.

use std::time::Duration;

use duly::{Clock, SystemClock};

use super::Finding;
use duly_server::{
    config::{Config, SourceSetup},
    sources::{Probed, probe},
};

/// A broker that has not answered after this is taken for one that does not: longer than the probe itself waits.
const PATIENCE: Duration = Duration::from_secs(25);

const REMEDY: &str = "see whether the broker is up, knows the queue and lets this user read it; \
    `duly serve` starts without it, and tries again until it can";

const DELIVERY_LIMIT: &str = "give the queue a dead-letter exchange, or a delivery-limit of its own by a policy; \
    this is said in either case if a policy does it, as AMQP does not show policies";

pub(super) async fn check(config: &Config) -> Vec<Finding> {
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
        findings.extend(one(format!("source {name}"), setup, &clock).await);
    }
    findings
}

async fn one(check: String, setup: &SourceSetup, clock: &dyn Clock) -> Vec<Finding> {
    let queue = &setup.queue;
    let Probed { waiting, discards_returns } = match tokio::time::timeout(PATIENCE, probe(setup, clock)).await
    {
        Ok(Ok(probed)) => probed,
        Ok(Err(why)) => return vec![Finding::fail(check, why, REMEDY)],
        Err(_) => return vec![Finding::fail(check, format!("no answer within {PATIENCE:?}"), REMEDY)],
    };
    let there = format!("the queue {queue:?} is there; {waiting} messages wait in it");
    let mut findings = vec![Finding::ok(check.clone(), there)];
    if discards_returns {
        let detail = format!(
            "{queue:?} is a quorum queue without a dead-letter exchange: from RabbitMQ 4.0 on it discards a message that came back \
             20 times (delivery-limit), and what is not acknowledged when a connection ends comes back"
        );
        findings.push(Finding::warn(check, detail, DELIVERY_LIMIT));
    }
    findings
}
