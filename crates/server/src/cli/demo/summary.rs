//! What the demo came to.

use serde::{Serialize, Serializer};

use crate::{
    cli::{Failure, Output, Tint, bench::Histogram},
    wire::BooksAnswer,
};

/// What the demo came to.
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
    pub(super) books: BooksAnswer,
}

fn quantiles<S: Serializer>(late: &Histogram, to: S) -> Result<S::Ok, S::Error> {
    late.quantiles().serialize(to)
}

impl Summary {
    pub(super) fn told(&self, out: &Output) -> String {
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
        let (tint, books) =
            if self.books.balanced { (Tint::Green, "balanced") } else { (Tint::Red, "NOT balanced") };
        format!(
            "{}\nlateness p50 {:.1} ms, max {:.1} ms\nbooks {}: {} accepted = {} delivered + {} cancelled\n",
            rows.text(),
            late.p50_ms,
            late.max_ms,
            out.tint(tint, books),
            self.books.accepted,
            self.books.delivered,
            self.books.cancelled,
        )
    }

    /// Whether it is what was promised, to the last message.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let books = &self.books;
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
        expect("accepted in the books", books.accepted, self.sent);
        expect("delivered in the books", books.delivered, self.delivered);
        expect("cancelled in the books", books.cancelled, self.cancelled);
        expect("left in the books", books.pending + books.in_flight + books.dead + books.purged, 0);
        if !books.balanced {
            faults.push("the books are not balanced".into());
        }
        if faults.is_empty() { Ok(()) } else { Err(Failure::failed(faults.join("; "))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Summary {
        let books = BooksAnswer {
            accepted: 11,
            delivered: 10,
            cancelled: 1,
            balanced: true,
            ..BooksAnswer::default()
        };
        Summary {
            sent: 11,
            delivered: 10,
            retried: 2,
            cancelled: 1,
            fired: 1,
            dead: 1,
            replayed: 1,
            books,
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
            Summary { books: BooksAnswer { balanced: false, ..good().books }, ..good() },
            Summary { books: BooksAnswer { pending: 1, ..good().books }, ..good() },
        ] {
            assert_eq!(broken.check().unwrap_err().code(), 1);
        }
    }
}
