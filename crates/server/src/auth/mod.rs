//! Authorization: tokens, roles, and the routes that need them.

mod caller;
mod host;
mod overlap;
mod role;
mod token;

pub use caller::Caller;
pub use host::{host_allowed, is_loopback, listen_allowed};
pub use role::Role;
pub use token::{Token, TokenHash, Tokens, bearer};
