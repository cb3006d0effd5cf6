//! What stores on a server have in common: its clock, who is there, who delivers what, in which order it is claimed,
//! and how nodes wake each other.

pub(crate) mod claim_order;
mod clock;
pub(crate) mod hints;
pub(crate) mod lane;
pub(crate) mod membership;
pub(crate) mod room;
pub(crate) mod shard_leases;
pub(crate) mod time;

pub use clock::ServerClock;
