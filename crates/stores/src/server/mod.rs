//! What stores on a server have in common: its clock, who is there, who delivers what, and whose turn it is.

mod clock;
pub(crate) mod lane;
pub(crate) mod rights;
pub(crate) mod room;
pub(crate) mod time;
pub(crate) mod turn;

pub use clock::ServerClock;
