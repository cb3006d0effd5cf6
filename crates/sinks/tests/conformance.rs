//! Every sink, the same suite.

mod targets;

testkit::sink_suite!(webhook, crate::targets::webhook());
