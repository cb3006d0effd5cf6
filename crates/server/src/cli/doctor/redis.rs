//! The Redis store: what of its Redis loses messages, who works on it, and whether the clocks agree.

use duly_stores::redis::{Inspection, inspect};

use super::{super::clock, Finding};
use crate::config::RedisSetup;

/// Clocks further apart than this are told.
const SKEW_MAX_MS: u64 = 500;

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
    findings.push(skew(begun..=clock::now_ms(), time_ms));
    !nodes.is_empty()
}

/// Redis told its time somewhere within `asked`.
fn skew(asked: std::ops::RangeInclusive<u64>, told: u64) -> Finding {
    let apart = asked.start().saturating_sub(told).max(told.saturating_sub(*asked.end()));
    if apart <= SKEW_MAX_MS {
        return Finding::ok("clock skew", "this machine's clock and that of Redis agree");
    }
    let detail = format!("this machine's clock and that of Redis are {} apart", clock::span(apart));
    Finding::warn("clock skew", detail, "keep both set (NTP)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::State;

    #[test]
    fn clocks_that_are_apart_are_told() {
        assert_eq!(skew(1000..=1100, 1050).state, State::Ok);
        assert_eq!(skew(1000..=1100, 1500).state, State::Ok);
        assert_eq!(skew(1000..=1100, 2000).state, State::Warn);
        assert_eq!(skew(9000..=9100, 2000).state, State::Warn);
    }
}
