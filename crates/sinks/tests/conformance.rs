//! Every sink, the same suite.

mod targets;

use testkit::servers::{nats, rabbitmq, redis};

testkit::sink_suite!(webhook, crate::targets::webhook());
testkit::sink_suite!(redis_streams, crate::targets::single(), if crate::redis::installed());
testkit::sink_suite!(redis_streams_cluster, crate::targets::cluster(), if crate::redis::installed());
testkit::sink_suite!(redis_streams_sentinels, crate::targets::sentinels(), if crate::redis::installed());
testkit::sink_suite!(rabbitmq_queue, crate::targets::rabbitmq(), if crate::rabbitmq::installed());
testkit::sink_suite!(nats_jetstream, crate::targets::nats(), if crate::nats::installed());
