//! The library from the outside: a manual clock, a store in memory, no sleeping.

mod bench;
mod sending;
