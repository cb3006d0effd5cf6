//! The Redis store: what of its Redis loses messages, who works on it, and whether the clocks agree.

use duly_stores::redis::{Inspection, inspect};

use super::{super::clock, Finding, skew};
use crate::config::RedisSetup;

/// Says whether a node works on the store, too.
pub(super) async fn look(setup: &RedisSetup, findings: &mut Vec<Finding>) -> bool {
    let place = setup.shown();
    let begun = clock::now_ms();
    let seen = match inspect(setup.url.reveal()).await {
        Ok(seen) => seen,
        Err(error) => {
            let remedy = "see whether it is up and can be reached from here; nothing is accepted until then";
            findings.push(Finding::fail("redis", format!("{place}: {error}"), remedy));
            return false;
        }
    };
    let Inspection { version, findings: found, nodes, time_ms, .. } = seen;
    if found.is_empty() {
        let detail =
            format!("Redis {version} at {place} keeps its append-only file and evicts nothing of Duly's");
        findings.push(Finding::ok("redis", detail));
    }
    for finding in found {
        let detail = format!("{place}: {}", finding.what);
        findings.push(if finding.may_be_allowed && setup.allow_volatile {
            Finding::warn("redis", format!("{detail}; store.allow_volatile allows it"), finding.remedy)
        } else {
            Finding::fail("redis", detail, finding.remedy)
        });
    }
    if !nodes.is_empty() {
        findings.push(Finding::ok("nodes", format!("{} on this store: {}", nodes.len(), nodes.join(", "))));
    }
    findings.push(skew::look("Redis", begun..=clock::now_ms(), time_ms));
    !nodes.is_empty()
}
