//! A disk that can be cut off, fail and run full, and what it takes to judge a store that was on it.
//!
//! [`HookedDisk`] lets a test decide before each call what becomes of it.
//! [`PowerDisk`] knows which bytes and names were synced: [`cut`](PowerDisk::cut) gives what a power cut leaves.
//! [`Ledger`] is kept outside the store: what was answered must be there, what was not may be. [`Traffic`] drives a
//! store at random and keeps the ledger.

mod hooked;
mod ledger;
mod power;
mod sectors;
mod traffic;

use duly_stores::embedded::disk::{Disk, DiskFile};

pub use hooked::{HookedDisk, Hooks};
pub use ledger::{ExpectedState, Ledger};
pub use power::PowerDisk;
pub use traffic::{Traffic, once_there_is_room};
