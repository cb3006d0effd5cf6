//! Warnings about settings of the brokers that are valid and unusual.

use std::{collections::BTreeMap, sync::Arc};

use duly_core::Monotonic;
use futures_util::future::join_all;

use super::{
    RocketmqSink,
    failure::SUCCESS,
    frame::Code,
    namesrv::{Master, TopicQueues},
    route::TEMPLATE,
};
use crate::Finding;

impl RocketmqSink {
    /// Asks each master for its settings, where we may, and the name servers for each of `topics`.
    pub(super) async fn inspect(&self, topics: &[&str]) -> Vec<Finding> {
        let (begin_until, end) = self.ends();
        let masters = self.routes.masters(begin_until).await.unwrap_or_default();
        let pending = masters.iter().map(|master| async move {
            let settings = self.settings_of(&master.address, end).await?;
            Some(remarks(master, &settings, self.accept_weaker))
        });
        let mut findings: Vec<Finding> = join_all(pending).await.into_iter().flatten().flatten().collect();
        let makes_topics = matches!(self.routes.found(TEMPLATE, end).await, Ok(TopicQueues::Queues(_)));
        for topic in topics {
            findings.extend(match self.routes.found(topic, end).await {
                Ok(TopicQueues::NoTopic) if !makes_topics => Some(Finding {
                    detail: format!("no broker has the topic {topic:?}: its messages are denied"),
                    remedy: "make it by mqadmin updateTopic".into(),
                }),
                Ok(TopicQueues::NoMaster) => Some(Finding {
                    detail: format!("no master takes messages of the topic {topic:?}: they wait"),
                    remedy: "start a master that has it, or let one be written to (perm = 6)".into(),
                }),
                _ => None,
            });
        }
        findings
    }

    /// `GET_BROKER_CONFIG`. Nothing, where only administrators are told.
    async fn settings_of(&self, address: &Arc<str>, end: Monotonic) -> Option<BTreeMap<String, String>> {
        let reply = self.connections.ask(address, end, Code::Config, BTreeMap::new(), &[]).await.ok()?;
        let text = (reply.code == SUCCESS).then(|| String::from_utf8_lossy(&reply.body).into_owned())?;
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Some(pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect())
    }
}

fn remarks(master: &Master, settings: &BTreeMap<String, String>, accept_weaker: bool) -> Vec<Finding> {
    let is = |name: &str, value: &str| settings.get(name).is_some_and(|there| there == value);
    let Master { address, slaves } = master;
    let mut all = Vec::new();
    let mut remark = |detail: String, remedy: &str| all.push(Finding { detail, remedy: remedy.into() });
    // Brokers of 4.x have no such number, and wait for one slave.
    let waits_for_slaves = is("brokerRole", "SYNC_MASTER") && !is("inSyncReplicas", "1");
    if is("flushDiskType", "ASYNC_FLUSH") && !waits_for_slaves {
        remark(
            format!(
                "the broker at {address} acknowledges what it has in memory (flushDiskType = ASYNC_FLUSH) and waits for no \
                 slave: a power cut may take the last half second of what was delivered"
            ),
            "set flushDiskType = SYNC_FLUSH, or brokerRole = SYNC_MASTER, inSyncReplicas = 2 and a slave",
        );
    }
    if waits_for_slaves && *slaves == 0 {
        let effect = match accept_weaker {
            true => "messages count as delivered with one copy",
            false => "no message counts as delivered",
        };
        remark(
            format!("the broker at {address} is a SYNC_MASTER and no slave is known: {effect}"),
            "start its slave, or set brokerRole = ASYNC_MASTER",
        );
    } else if waits_for_slaves && accept_weaker {
        remark(
            format!(
                "the broker at {address} is a SYNC_MASTER, and a message counts as delivered also while its slave is away"
            ),
            "write accept_weaker = false, if a message must have two copies",
        );
    }
    if is("autoCreateTopicEnable", "true") {
        remark(
            format!(
                "the broker at {address} makes any topic that is sent to: a topic with a typing error is delivered, and \
                 nobody reads it"
            ),
            "set autoCreateTopicEnable = false, and make topics by mqadmin",
        );
    }
    all
}
