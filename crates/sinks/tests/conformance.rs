//! Every sink, the same suite.

mod configuration;
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
testkit::sink_suite!(mqtt_artemis, crate::targets::mqtt_artemis(), if crate::servers::artemis::installed());

#[test]
fn what_each_target_shows_is_in_its_documentation_and_every_test_named_there_exists() {
    use targets::coverage::{COLUMNS, Coverage, IN_SUITE, ROWS, has_test, table};
    for column in COLUMNS {
        let table = table(column);
        for row in ROWS {
            let coverage = table.get(row).unwrap_or_else(|| panic!("{column:?} says nothing of: {row}"));
            println!("{:<14} {:<11} {row:<24} {coverage:?}", column.0, column.1);
            assert!(
                *coverage != Coverage::Suite || IN_SUITE.contains(&row),
                "{column:?}: the suite has no case: {row}"
            );
            if let Coverage::Tests(names) = coverage {
                let missing: Vec<_> = names.iter().filter(|name| !has_test(column.0, name)).collect();
                assert!(missing.is_empty(), "{column:?}, {row}: there is no {missing:?}");
            }
        }
        assert_eq!(table.len(), ROWS.len(), "{column:?}: {table:?}");
    }
}

#[test]
fn every_test_that_a_table_of_answers_names_exists_and_every_answer_has_one() {
    use targets::coverage::{COLUMNS, answers, has_answer_test};
    let sinks: std::collections::BTreeSet<_> = COLUMNS.iter().map(|(sink, _)| *sink).collect();
    for sink in sinks {
        let answers = answers(sink);
        assert!(answers.len() >= 8, "{sink}: {} answers", answers.len());
        for answer in answers {
            let missing: Vec<_> = answer.tests.iter().filter(|name| !has_answer_test(sink, name)).collect();
            assert!(missing.is_empty(), "{sink}: there is no {missing:?} of: {}", answer.row);
            // RocketMQ's are all cases of one test, which stands above the table.
            let refers = answer.row.ends_with("| the same |");
            assert!(
                !answer.tests.is_empty() || refers || sink == "rocketmq",
                "{sink}: no test of: {}",
                answer.row
            );
        }
    }
}
