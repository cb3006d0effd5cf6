//! Every sink is asked whether it could take messages now; none gets one.

use std::sync::Arc;

use duly::{Clock, SinkErrorKind, SystemClock};

use super::{Finding, Severity};
use duly_server::config::{Config, SinkSetup};

pub(super) async fn check(config: &Config) -> Vec<Finding> {
    let clock: Arc<dyn Clock> = match SystemClock::new() {
        Ok(clock) => Arc::new(clock),
        Err(error) => {
            let detail = format!("no thread can be started: {error}");
            return vec![Finding::fail("sinks", detail, "allow this user more processes (ulimit -u)")];
        }
    };
    let mut findings = Vec::new();
    for (name, setup) in &config.sinks {
        let check = format!("sink {name}");
        let probed = probe(&check, setup, clock.clone()).await;
        let is_there = probed.state == Severity::Ok;
        findings.push(probed);
        if is_there {
            let retry = setup.options.retry.as_ref().unwrap_or(&config.retry);
            // The longest from one try to the next: a call, and a wait.
            let again = retry.max.saturating_add(setup.options.timeout);
            // A pattern names no topic that could be asked for.
            let topics = setup.options.topics.as_slice().iter().map(String::as_str);
            let topics: Vec<&str> = topics.filter(|topic| !topic.contains('*')).collect();
            let found = setup.config.inspect(clock.clone(), again, &topics).await;
            findings.extend(found.into_iter().map(|odd| Finding::warn(&check, odd.detail, odd.remedy)));
        }
    }
    findings
}

async fn probe(check: &str, setup: &SinkSetup, clock: Arc<dyn Clock>) -> Finding {
    let kind = setup.config.kind();
    let sink = match setup.config.build(clock) {
        Ok(sink) => sink,
        Err(fault) => return Finding::fail(check, fault.to_string(), "mend its settings"),
    };
    let fault = match tokio::time::timeout(setup.options.timeout, sink.probe()).await {
        Ok(Ok(())) => {
            let rest = setup.config.not_probed();
            let rest = rest.map_or(String::new(), |what| format!("; {what} shows when a message is sent"));
            return Finding::ok(check, format!("the {kind} answers{rest}"));
        }
        Ok(Err(fault)) => fault,
        Err(_) => {
            let detail = format!("the {kind} gave no answer within {:?}", setup.options.timeout);
            return Finding::fail(
                check,
                detail,
                "see whether it is up and can be reached from here; its messages wait until then",
            );
        }
    };
    let remedy = match fault.kind {
        SinkErrorKind::Unreachable | SinkErrorKind::Unknown => {
            "see whether it is up and can be reached from here; its messages wait until then"
        }
        SinkErrorKind::Throttled => "it is there and wants to be asked more slowly: set a rate",
        _ => "mend its settings, or those of the target",
    };
    Finding::fail(check, fault.detail, remedy)
}
