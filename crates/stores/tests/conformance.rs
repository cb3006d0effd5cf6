//! Every store, the same suite.

testkit::store_suite!(memory, testkit::memory());
