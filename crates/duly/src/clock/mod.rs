//! The clocks: the machine's, and one that a test moves by hand.

mod manual;
mod system;

pub use manual::ManualClock;
pub use system::SystemClock;
