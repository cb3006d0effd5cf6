//! Where a Redis is and how it is reached: one server, a cluster, or the master that sentinels name.
//!
//! Internal to Duly: the store, the sink, the command line and `duly-streams` read addresses and connect in the same way.

mod address;
mod clients;
mod link;
mod parts;
mod reserved;

pub use address::Address;
pub use clients::{ClientIdentity, Clients, Reach};
pub use link::{Link, Master, Server};
pub use parts::KeyspacePart;
pub use reserved::reserved_for;
