//! The rules of the scheduler, each with plain values.

mod bench;

mod breaking;
mod claiming;
mod clock;
mod delivering;
mod destination;
mod isolation;
mod leasing;
mod moving;
mod settling;
mod stopping;
mod suspecting;
