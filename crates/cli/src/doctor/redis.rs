//! The Redis store: what of its Redis loses messages, who works on it, and whether the clocks agree.

use duly_stores::{
    RedisConfig,
    redis::{Inspection, inspect},
};

use super::{super::clock, Finding, skew};
use duly_server::config::Secret;

/// Checks the Redis. Returns whether a node runs on the store.
pub(super) async fn check(setup: &RedisConfig, findings: &mut Vec<Finding>) -> bool {
    let address = setup.shown();
    let begun = clock::now_ms();
    let seen = match inspect(setup.url.reveal()).await {
        Ok(seen) => seen,
        Err(error) => {
            let remedy = "see whether it is up and can be reached from here; nothing is accepted until then";
            findings.push(Finding::fail("redis", format!("{address}: {error}"), remedy));
            return false;
        }
    };
    let Inspection { version, findings: found, nodes, time_ms, .. } = seen;
    if found.is_empty() {
        let detail =
            format!("Redis {version} at {address} keeps its append-only file and evicts nothing of Duly's");
        findings.push(Finding::ok("redis", detail));
    }
    for finding in found {
        let detail = format!("{address}: {}", finding.what);
        findings.push(if finding.may_be_allowed && setup.allow_volatile {
            Finding::warn("redis", format!("{detail}; store.allow_volatile allows it"), finding.remedy)
        } else {
            Finding::fail("redis", detail, finding.remedy)
        });
    }
    if !nodes.is_empty() {
        findings.push(Finding::ok("nodes", format!("{} on this store: {}", nodes.len(), nodes.join(", "))));
    }
    findings.push(skew::check("Redis", begun..=clock::now_ms(), time_ms));
    !nodes.is_empty()
}

/// The Redis that only has an index: nothing is lost with it, so nothing of it is a fault.
pub(super) async fn check_index(url: &Secret, findings: &mut Vec<Finding>) {
    let address = url.shown();
    let seen = match inspect(url.reveal()).await {
        Ok(seen) => seen,
        Err(error) => {
            let detail = format!(
                "{address}: {error}; messages are accepted and delivered without it, later than usual"
            );
            findings.push(Finding::warn(
                "redis",
                detail,
                "see whether it is up and can be reached from here",
            ));
            return;
        }
    };
    let evicting = seen.findings.into_iter().find(|finding| finding.what.contains("maxmemory-policy"));
    findings.push(match evicting {
        Some(finding) => {
            let detail = format!("{address}: it throws away keys when its memory is full: the index would be built again and again");
            Finding::warn("redis", detail, finding.remedy)
        }
        None => Finding::ok("redis", format!("Redis {} at {address} can have the index", seen.version)),
    });
}
