//! What Duly is tested with: a suite per port, run on every implementation; planted bugs that test the
//! suites; and the simulation of the whole engine under virtual time.
//!
//! ```
//! // crates/stores/tests/conformance.rs, the whole file
//! testkit::store_suite!(memory, testkit::memory());
//! ```
#![expect(clippy::unwrap_used, reason = "in a test kit a panic is the answer: it fails the test")]

pub mod bench;
pub mod clock;
pub mod disk;
pub mod fault;
pub mod http;
pub mod kill;
pub mod planted;
pub mod servers;
pub mod simulation;
pub mod sink;
pub mod store;
pub mod tls;

pub use store::fixtures::{embedded, memory, mysql, postgres, redis, redis_and_mysql, redis_at};

/// The named cases in a port's documentation: what stands between backticks in the list before `end`.
#[cfg(test)]
fn contract_lines(source: &'static str, end: &str) -> Vec<&'static str> {
    let (contract, _) = source.split_once(end).unwrap();
    contract
        .lines()
        .filter(|line| line.starts_with("/// - "))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|word| word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect()
}

/// Tests of a port whose cases take a reference to what is under test.
#[doc(hidden)]
#[macro_export]
macro_rules! port_tests {
    ($port:ident, $subject:expr; $($case:ident)*) => {
        $crate::port_tests!($port, $subject, if true; $($case)*);
    };
    ($port:ident, $subject:expr, if $there:expr; $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                if $there {
                    let subject = $subject;
                    $crate::block_on($crate::$port::$case(&subject));
                }
            }
        )*
    };
}

/// Runs a case to its end on a runtime of its own.
///
/// Several threads, as in the product: what is under test may well wait for its own background work.
pub fn block_on<T>(case: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(case)
}
