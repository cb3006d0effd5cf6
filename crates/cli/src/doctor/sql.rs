//! MySQL and PostgreSQL: what of them loses messages, what this user may do, who works on the store, and whether the clocks agree.

use duly::Limits;
use duly_stores::{
    SqlConfig,
    sql::{Inspection, Weight, inspect},
};

use super::{super::clock, Finding, skew};

/// What a statement has besides a body.
const BESIDES_BODY: u64 = 1 << 20;

/// Checks the database. Returns whether a node runs on the store.
pub(super) async fn check(setup: &SqlConfig, limits: &Limits, findings: &mut Vec<Finding>) -> bool {
    let address = setup.shown();
    let check = setup.server.kind();
    let begun = clock::now_ms();
    let seen = match inspect(setup.url.reveal()).await {
        Ok(seen) => seen,
        Err(error) => {
            let remedy = "nothing is accepted until then";
            findings.push(Finding::fail(check, format!("{address}: {error}"), remedy));
            return false;
        }
    };
    let ended = clock::now_ms();
    let Inspection { version, findings: found, nodes, time_ms, packet_max, .. } = seen;
    let harmless = found.iter().all(|finding| finding.weight == Weight::Odd);
    if harmless {
        let detail =
            format!("{version} at {address} syncs every commit and lets this user do all that Duly needs");
        findings.push(Finding::ok(check, detail));
    }
    for finding in found {
        let detail = format!("{address}: {}", finding.what);
        findings.push(match finding.weight {
            Weight::Odd => Finding::warn(check, detail, finding.remedy),
            Weight::Volatile if setup.allow_volatile => {
                Finding::warn(check, format!("{detail}; store.allow_volatile allows it"), finding.remedy)
            }
            _ => Finding::fail(check, detail, finding.remedy),
        });
    }
    findings.extend(packet(check, limits.body_bytes_max as u64, packet_max));
    if !nodes.is_empty() {
        findings.push(Finding::ok("nodes", format!("{} on this store: {}", nodes.len(), nodes.join(", "))));
    }
    findings.push(skew::check(&setup.server.to_string(), begun..=ended, time_ms));
    !nodes.is_empty()
}

/// Whether a message of the greatest size fits into what the database takes at once.
fn packet(check: &str, body_max: u64, packet_max: Option<u64>) -> Option<Finding> {
    let (needed, packet_max) = (body_max + BESIDES_BODY, packet_max?);
    (packet_max < needed).then(|| {
        let detail = format!(
            "it takes {packet_max} bytes at once (max_allowed_packet), too few for a body as large as limits.body allows ({body_max} bytes): \
             such a message would not be accepted"
        );
        let remedy = format!("set `max_allowed_packet = {needed}` or more there, or a smaller limits.body");
        Finding::fail(check, detail, remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_that_is_too_small_for_a_body_is_told() {
        assert_eq!(packet("mysql", 1 << 20, None), None);
        assert_eq!(packet("mysql", 1 << 20, Some(2 << 20)), None);
        let finding = packet("mysql", 1 << 20, Some((2 << 20) - 1)).unwrap();
        assert!(finding.detail.contains("max_allowed_packet"), "{finding:?}");
    }
}
