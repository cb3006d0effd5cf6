//! The redis+mysql store on real servers: what happens when its two halves disagree.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod bed;
mod halves;
mod outages;
