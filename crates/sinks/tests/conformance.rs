//! Every sink, the same suite.

mod targets;

use testkit::servers;

testkit::sink_suite!(webhook, crate::targets::webhook());
testkit::sink_suite!(redis_streams, crate::targets::single(), if crate::servers::redis::installed());
testkit::sink_suite!(redis_streams_cluster, crate::targets::cluster(), if crate::servers::redis::installed());
testkit::sink_suite!(redis_streams_sentinels, crate::targets::sentinels(), if crate::servers::redis::installed());
testkit::sink_suite!(rabbitmq_queue, crate::targets::rabbitmq(), if crate::servers::rabbitmq::installed());
testkit::sink_suite!(nats_jetstream, crate::targets::nats(), if crate::servers::nats::installed());
testkit::sink_suite!(kafka, crate::targets::kafka(), if crate::servers::kafka::installed());
testkit::sink_suite!(rocketmq, crate::targets::rocketmq(), if crate::servers::rocketmq::installed());
testkit::sink_suite!(activemq_queue, crate::targets::activemq(), if crate::servers::activemq::installed());
testkit::sink_suite!(activemq_artemis, crate::targets::artemis(), if crate::servers::artemis::installed());
testkit::sink_suite!(mqtt_qos_1, crate::targets::mqtt(1), if crate::servers::mosquitto::installed());
testkit::sink_suite!(mqtt_qos_2, crate::targets::mqtt(2), if crate::servers::mosquitto::installed());
