//! The summary of a demo.

use serde::{Serialize, Serializer};

use crate::{Failure, Output, Tint, bench::Histogram};
use duly_client::wire::TotalsAnswer;

/// The counts of a demo.
#[derive(Default, Serialize)]
pub(super) struct Summary {
    pub(super) sent: u64,
    pub(super) delivered: u64,
    pub(super) retried: u64,
    pub(super) cancelled: u64,
    pub(super) fired: u64,
    pub(super) dead: u64,
    pub(super) replayed: u64,
    pub(super) early: u64,
    #[serde(rename = "lateness", serialize_with = "quantiles")]
    pub(super) late: Histogram,
    pub(super) totals: TotalsAnswer,
}

fn quantiles<S: Serializer>(late: &Histogram, to: S) -> Result<S::Ok, S::Error> {
    late.quantiles().serialize(to)
}

impl Summary {
    pub(super) fn to_text(&self, out: &Output) -> String {
        let mut rows = out.table(&["WHAT", ">COUNT"]);
        for (what, count) in [
            ("sent", self.sent),
            ("delivered", self.delivered),
            ("retried", self.retried),
            ("cancelled", self.cancelled),
            ("fired", self.fired),
            ("dead", self.dead),
            ("replayed", self.replayed),
        ] {
            rows.row([what.to_owned(), count.to_string()]);
        }
        let late = self.late.quantiles();
        let (tint, totals) =
            if self.totals.balanced { (Tint::Green, "balanced") } else { (Tint::Red, "NOT balanced") };
        format!(
            "{}\nlateness p50 {:.1} ms, max {:.1} ms\nledger {}: {} accepted = {} delivered + {} cancelled\n",
            rows.text(),
            late.p50_ms,
            late.max_ms,
            out.tint(tint, totals),
            self.totals.accepted,
            self.totals.delivered,
            self.totals.cancelled,
        )
    }

    /// Whether it is what was promised, to the last message.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let totals = &self.totals;
        let mut faults = Vec::new();
        let mut expect = |what: &str, is: u64, should: u64| {
            if is != should {
                faults.push(format!("{what} is {is} and should be {should}"));
            }
        };
        expect("sent", self.sent, 11);
        expect("delivered", self.delivered, 10);
        expect("retried", self.retried, 2);
        expect("cancelled", self.cancelled, 1);
        expect("fired", self.fired, 1);
        expect("dead", self.dead, 1);
        expect("replayed", self.replayed, 1);
        expect("early", self.early, 0);
        expect("accepted in the totals", totals.accepted, self.sent);
        expect("delivered in the totals", totals.delivered, self.delivered);
        expect("cancelled in the totals", totals.cancelled, self.cancelled);
        expect("left in the totals", totals.pending + totals.in_flight + totals.dead + totals.purged, 0);
        if !totals.balanced {
            faults.push("the ledger is not balanced".into());
        }
        if faults.is_empty() { Ok(()) } else { Err(Failure::failed(faults.join("; "))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Summary {
        let totals = TotalsAnswer {
            accepted: 11,
            delivered: 10,
            cancelled: 1,
            balanced: true,
            ..TotalsAnswer::default()
        };
        Summary {
            sent: 11,
            delivered: 10,
            retried: 2,
            cancelled: 1,
            fired: 1,
            dead: 1,
            replayed: 1,
            totals,
            ..Summary::default()
        }
    }

    #[test]
    fn any_mismatch_is_a_failure() {
        assert!(good().check().is_ok());
        for broken in [
            Summary { delivered: 11, ..good() },
            Summary { early: 1, ..good() },
            Summary { cancelled: 0, ..good() },
            Summary { totals: TotalsAnswer { balanced: false, ..good().totals }, ..good() },
            Summary { totals: TotalsAnswer { pending: 1, ..good().totals }, ..good() },
        ] {
            assert_eq!(broken.check().unwrap_err().code(), 1);
        }
    }
}
