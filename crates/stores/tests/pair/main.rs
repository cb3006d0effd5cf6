//! The pair on real servers: what happens when its two halves disagree.

mod bed;
mod halves;
mod outages;
