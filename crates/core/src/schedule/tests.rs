//! The rules of the scheduler, each with plain values.

mod bench;

mod breaker;
mod claim;
mod clock;
mod deliver;
mod destination;
mod in_store_delivery;
mod isolation;
mod lease;
mod memory;
mod newcomers;
mod settle;
mod stall;
mod stop;
mod suspect;
mod target;
