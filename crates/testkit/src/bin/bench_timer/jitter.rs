//! How late the machine itself is.

use std::time::Duration;

use testkit::bench::process;

/// How late a thread wakes that sleeps until each of `count` milliseconds in turn, in ms and sorted.
pub(crate) fn measure(count: u32) -> Vec<f64> {
    let start = process::now();
    let late = |n| {
        let until = Duration::from_millis(1) * n;
        #[expect(clippy::disallowed_methods, reason = "the machine's own sleep is what is measured")]
        std::thread::sleep(until.saturating_sub(start.elapsed()));
        start.elapsed().saturating_sub(until).as_secs_f64() * 1e3
    };
    let mut late: Vec<f64> = (1..=count).map(late).collect();
    late.sort_unstable_by(f64::total_cmp);
    late
}
