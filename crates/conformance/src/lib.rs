//! The contracts of Duly's ports as tests: a suite per port, run on every store and every sink of Duly, and on yours.
//!
//! [`store_suite!`] and [`sink_suite!`] make a test of each case, [`cluster_suite!`] of each case of several nodes on one store. A case is also a
//! function, for test programs of another kind: [`store::CONTRACT`], [`store::MEANINGS`], [`store::cluster::CASES`]. [`clock_suite!`] is for a
//! clock of your own.
#![expect(clippy::unwrap_used, reason = "in a suite a panic is the answer: it fails the test")]

pub mod clock;
pub mod sink;
pub mod store;

/// The named cases in a port's documentation: what stands between backticks in the list before `end`.
#[doc(hidden)]
pub fn contract_lines(source: &'static str, end: &str) -> Vec<&'static str> {
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

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
