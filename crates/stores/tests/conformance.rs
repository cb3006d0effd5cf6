//! Every store, the same suite.

testkit::store_suite!(memory, testkit::memory());
testkit::store_suite!(embedded, testkit::embedded());
testkit::store_suite!(redis, testkit::redis());
