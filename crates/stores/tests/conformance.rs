//! Every store, the same suite.

use std::sync::OnceLock;

use testkit::servers::redis::{Cluster, Sentinels};

testkit::store_suite!(memory, testkit::memory());
testkit::store_suite!(embedded, testkit::embedded());
testkit::store_suite!(redis, testkit::redis());
testkit::store_suite!(redis_cluster, testkit::redis_at(|| crate::cluster().url()));
testkit::store_suite!(redis_sentinel, testkit::redis_at(|| crate::sentinels().url()));
testkit::store_suite!(mysql, testkit::mysql());
testkit::store_suite!(postgres, testkit::postgres());
testkit::store_suite!(redis_and_mysql, testkit::redis_and_mysql());

/// Stores on a server, with several nodes.
mod nodes {
    testkit::cluster_suite!(redis, testkit::redis());
    testkit::cluster_suite!(redis_cluster, testkit::redis_at(|| crate::cluster().url()));
    testkit::cluster_suite!(mysql, testkit::mysql());
    testkit::cluster_suite!(postgres, testkit::postgres());
    testkit::cluster_suite!(redis_and_mysql, testkit::redis_and_mysql());

    #[test]
    fn every_case_catches_a_planted_bug() {
        if testkit::redis().is_installed() {
            testkit::store::cluster::every_case_catches_a_planted_bug(testkit::redis);
        }
    }
}

fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::of_three)
}

fn sentinels() -> &'static Sentinels {
    static SENTINELS: OnceLock<Sentinels> = OnceLock::new();
    SENTINELS.get_or_init(Sentinels::start)
}
