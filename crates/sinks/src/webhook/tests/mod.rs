//! What can only be tested from within: the table of addresses, names that change, and input of any kind.

mod addresses;
mod any_input;
mod names;
mod origins;
