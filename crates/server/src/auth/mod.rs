//! Who may do what: tokens, roles, and from where they are asked for.

mod caller;
mod host;
mod role;
mod token;

pub use caller::Caller;
pub use host::{host_allowed, listen_allowed};
pub use role::Role;
pub use token::{Token, TokenHash, Tokens, bearer};
