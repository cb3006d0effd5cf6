//! Warnings of `doctor` about settings of the brokers. Writes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, ResourceSpecifier},
    client::DefaultClientContext,
    config::RDKafkaLogLevel,
    error::KafkaError,
    metadata::Metadata,
};

use super::settings::IDEMPOTENCE;
use crate::Finding;

/// Topics that are looked at, at most.
const TOPICS_MAX: usize = 256;
/// Topics that a remark names, at most.
const NAMED_MAX: usize = 5;
/// Topics of Kafka itself begin with this.
const INTERNAL: &str = "__";
const MIN_IN_SYNC: &str = "min.insync.replicas";

/// A topic with messages of ours, perhaps.
struct Topic {
    name: String,
    /// Of the partition with the fewest.
    replicas: usize,
    /// If we may ask for it.
    min_in_sync: Option<usize>,
}

/// Everything that there is to say, or nothing if the brokers do not answer: the probe says that.
pub(super) async fn remarks(mut config: ClientConfig, within: Duration, wanted: &[&str]) -> Vec<Finding> {
    config.set(IDEMPOTENCE, "false").remove("debug");
    config.set_log_level(RDKafkaLogLevel::Critical);
    let Ok(admin) = config.create::<AdminClient<DefaultClientContext>>() else { return Vec::new() };
    let admin = std::sync::Arc::new(admin);
    let client = admin.clone();
    // The library has only a blocking call.
    let metadata = tokio::task::spawn_blocking(move || client.inner().fetch_metadata(None, within)).await;
    let Ok(Ok(metadata)) = metadata else { return Vec::new() };
    let mut topics = topics_of(&metadata);
    if let Ok(settings) = min_in_sync(&admin, &topics, within).await {
        for topic in &mut topics {
            topic.min_in_sync = settings.get(&topic.name).copied();
        }
    }
    let mut findings = judge(&topics, metadata.brokers().len());
    findings.extend(missing(&metadata, wanted));
    findings
}

/// Those of the configured topics that are not shown to us. All are listed: to ask for one by its name may make it.
fn missing(metadata: &Metadata, wanted: &[&str]) -> Option<Finding> {
    let listed: BTreeSet<&str> = metadata.topics().iter().map(|topic| topic.name()).collect();
    let missing: Vec<&str> = wanted.iter().copied().filter(|name| !listed.contains(name)).collect();
    let names = first_of(&missing)?;
    let detail = format!(
        "the brokers do not show this user: {names}. Messages to them are denied, unless the brokers create topics by themselves"
    );
    let remedy = "create the topics, or give the user the rights Describe and Write on them";
    Some(Finding { detail, remedy: remedy.into() })
}

fn topics_of(metadata: &Metadata) -> Vec<Topic> {
    let ours = metadata.topics().iter().filter(|topic| !topic.name().starts_with(INTERNAL));
    let topic = |topic: &rdkafka::metadata::MetadataTopic| {
        let replicas = topic.partitions().iter().map(|partition| partition.replicas().len()).min()?;
        Some(Topic { name: topic.name().to_owned(), replicas, min_in_sync: None })
    };
    ours.filter_map(topic).take(TOPICS_MAX).collect()
}

/// The setting of each topic that we may ask about.
async fn min_in_sync(
    admin: &AdminClient<DefaultClientContext>,
    topics: &[Topic],
    within: Duration,
) -> Result<BTreeMap<String, usize>, KafkaError> {
    let which: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(&topic.name)).collect();
    if which.is_empty() {
        return Ok(BTreeMap::new());
    }
    let options = AdminOptions::new().request_timeout(Some(within));
    let described = admin.describe_configs(&which, &options).await?;
    let setting = |(topic, described): (&Topic, Result<rdkafka::admin::ConfigResource, _>)| {
        let value = described.ok()?.get(MIN_IN_SYNC)?.value.as_ref()?.parse().ok()?;
        Some((topic.name.clone(), value))
    };
    Ok(topics.iter().zip(described).filter_map(setting).collect())
}

fn judge(topics: &[Topic], brokers: usize) -> Vec<Finding> {
    let mut remarks = Vec::new();
    let mut remark = |detail: String, remedy: &str| {
        remarks.push(Finding { detail, remedy: remedy.to_owned() });
    };
    if topics.is_empty() {
        remark(
            "the brokers show no topic to this user".to_owned(),
            "create the topics, or give the user the rights Describe and Write on them",
        );
    }
    // Of a single broker nobody expects copies.
    let single = |topic: &Topic| brokers > 1 && topic.replicas == 1;
    if let Some(names) = named(topics, single) {
        remark(
            format!("one replica: {names}. While its broker is away, a partition takes nothing"),
            "give the topics three replicas, or expect their messages to wait",
        );
    }
    let has_copies = |topic: &&Topic| topic.replicas > 1;
    let strict =
        |topic: &Topic| has_copies(&topic) && topic.min_in_sync.is_some_and(|least| least >= topic.replicas);
    if let Some(names) = named(topics, strict) {
        remark(
            format!(
                "{MIN_IN_SYNC} is not below the number of replicas: {names}. One broker away, and nothing is taken"
            ),
            "set it to one less than there are replicas",
        );
    }
    let loose = |topic: &Topic| has_copies(&topic) && topic.min_in_sync == Some(1);
    if let Some(names) = named(topics, loose) {
        remark(
            format!("{MIN_IN_SYNC} is 1: {names}. What is acknowledged may be on one broker alone"),
            "set it to 2 where there are three replicas",
        );
    }
    remarks
}

/// The first names of those that are so.
fn named(topics: &[Topic], is_so: impl Fn(&Topic) -> bool) -> Option<String> {
    let all: Vec<&str> =
        topics.iter().filter(|topic| is_so(topic)).map(|topic| topic.name.as_str()).collect();
    first_of(&all)
}

fn first_of(all: &[&str]) -> Option<String> {
    let (first, rest) = all.split_at(all.len().min(NAMED_MAX));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    (!first.is_empty()).then(|| format!("{}{more}", first.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, replicas: usize, min_in_sync: Option<usize>) -> Topic {
        Topic { name: name.into(), replicas, min_in_sync }
    }

    fn details(topics: &[Topic], brokers: usize) -> Vec<String> {
        judge(topics, brokers).into_iter().map(|remark| remark.detail).collect()
    }

    #[test]
    fn a_topic_as_it_should_be_is_no_remark() {
        assert!(details(&[topic("a", 3, Some(2)), topic("b", 3, None)], 3).is_empty());
        assert!(details(&[topic("a", 1, Some(1))], 1).is_empty(), "one broker has no copies to make");
    }

    #[test]
    fn each_oddity_is_one_remark_with_the_first_names() {
        let mut topics: Vec<_> = (0..7).map(|n| topic(&format!("t{n}"), 1, Some(1))).collect();
        topics.extend([topic("strict", 3, Some(3)), topic("loose", 3, Some(1))]);
        let details = details(&topics, 3);
        assert_eq!(details.len(), 3, "{details:?}");
        assert!(details[0].contains("t0, t1, t2, t3, t4 and 2 more"), "{details:?}");
        assert!(details[1].contains("strict") && details[2].contains("loose"), "{details:?}");
        assert!(self::details(&[], 3)[0].contains("no topic"));
    }
}
