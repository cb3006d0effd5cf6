//! The summary of a demo.

use serde::Serialize;

use super::{
    load::Accepted,
    outage::{NOTICES, Outage},
};
use crate::{Failure, Output, Tint, clock};
use duly_client::wire::TotalsAnswer;

/// The three orders, and the first notice before the outage.
const OTHERS: u64 = 4;

/// What was measured.
#[derive(Default, Serialize)]
pub(super) struct Summary {
    /// How long before its time the message of the paid order was cancelled.
    pub(super) withdrawn_before_due_ms: f64,
    /// How late the message of the unpaid order came.
    pub(super) unpaid_late_ms: f64,
    pub(super) outage: Outage,
    pub(super) background: Accepted,
    /// How late a message came among those of the background.
    pub(super) among_others_late_ms: f64,
    pub(super) totals: TotalsAnswer,
}

impl Summary {
    pub(super) fn to_text(&self, out: &Output) -> String {
        let totals = &self.totals;
        let tint = if totals.balanced { Tint::Green } else { Tint::Red };
        format!(
            "{}   {} accepted = {} delivered + {} cancelled + {} pending\n",
            out.tint(tint, "Ledger"),
            clock::grouped(totals.accepted),
            clock::grouped(totals.delivered),
            clock::grouped(totals.cancelled),
            clock::grouped(totals.pending),
        )
    }

    /// How many are delivered at the end: all but the one that was cancelled, and those of the background.
    pub(super) fn delivered() -> u64 {
        OTHERS - 1 + NOTICES as u64
    }

    /// Whether it is what was promised, to the last message.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let (totals, background) = (&self.totals, self.background.accepted);
        let mut faults = Vec::new();
        let mut expect = |what: &str, is: u64, should: u64| {
            if is != should {
                faults.push(format!("{what} is {is} and should be {should}"));
            }
        };
        expect("accepted in the totals", totals.accepted, OTHERS + NOTICES as u64 + background);
        expect("delivered in the totals", totals.delivered, Self::delivered());
        expect("cancelled in the totals", totals.cancelled, 1);
        expect("pending in the totals", totals.pending, background);
        expect("in flight, dead or purged in the totals", totals.in_flight + totals.dead + totals.purged, 0);
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
            accepted: 116,
            delivered: 15,
            cancelled: 1,
            pending: 100,
            balanced: true,
            ..TotalsAnswer::default()
        };
        let background = Accepted { wanted: 100, accepted: 100, ..Accepted::default() };
        Summary { background, totals, ..Summary::default() }
    }

    #[test]
    fn any_mismatch_is_a_failure() {
        good().check().unwrap();
        let with = |change: fn(&mut TotalsAnswer)| {
            let mut summary = good();
            change(&mut summary.totals);
            summary.check().map_err(|failure| failure.code())
        };
        assert_eq!(with(|totals| totals.delivered += 1), Err(1));
        assert_eq!(with(|totals| totals.cancelled = 0), Err(1));
        assert_eq!(with(|totals| totals.pending -= 1), Err(1));
        assert_eq!(with(|totals| totals.dead = 1), Err(1));
        assert_eq!(with(|totals| totals.balanced = false), Err(1));
    }

    #[test]
    fn the_ledger_of_a_million_fits_into_80_columns() {
        let totals = TotalsAnswer { accepted: 1_000_016, pending: 1_000_000, ..good().totals };
        let text = Summary { totals, ..good() }.to_text(&Output::default());
        assert!(text.trim_end().len() <= 80, "{text}");
    }
}
