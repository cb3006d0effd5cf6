//! Name servers: all are asked at the same time, and the first answer that knows the topic counts.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use duly_core::{Monotonic, SinkError};
use futures_util::{StreamExt, stream::FuturesUnordered};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    connection::Connections,
    failure::{self, SUCCESS, TOPIC_NOT_EXIST},
    frame::{Code, Response},
};

/// Time limit of one name server among several.
const LIMIT: Duration = Duration::from_secs(2);
/// Queues that may be written.
const WRITABLE: i32 = 2;
/// The one of a broker's addresses that takes messages.
const MASTER: &str = "0";

/// A queue that takes messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Queue {
    pub(super) broker: Arc<str>,
    pub(super) address: Arc<str>,
    pub(super) number: u32,
}

/// The answer of a name server about a topic.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TopicQueues {
    /// These queues take messages, in an order that is the same for everybody.
    Queues(Vec<Queue>),
    /// The topic is there, and no master that takes its messages: a failover, or a broker that is being drained.
    NoMaster,
    /// No broker has told of it.
    NoTopic,
}

/// A master, and how many slaves it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Master {
    pub(super) address: Arc<str>,
    pub(super) slaves: usize,
}

pub(super) struct NameServers {
    addresses: Vec<String>,
    connections: Arc<Connections>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TopicRoute {
    #[serde(default)]
    broker_datas: Vec<Broker>,
    #[serde(default)]
    queue_datas: Vec<Queues>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Broker {
    broker_name: String,
    broker_addrs: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Queues {
    broker_name: String,
    perm: i32,
    write_queue_nums: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cluster {
    #[serde(default)]
    broker_addr_table: BTreeMap<String, Broker>,
}

impl NameServers {
    pub(super) fn new(addresses: Vec<String>, connections: Arc<Connections>) -> Self {
        Self { addresses, connections }
    }

    /// The queues of a topic. One that has just started knows nothing yet: the others are waited for.
    pub(super) async fn queues(&self, topic: &str, end: Monotonic) -> Result<TopicQueues, SinkError> {
        let fields =
            BTreeMap::from([("topic", topic.to_owned()), ("acceptStandardJsonOnly", "true".to_owned())]);
        let read = |answer: &Response| match answer.code {
            SUCCESS => read(answer).map(found),
            TOPIC_NOT_EXIST => Ok(TopicQueues::NoTopic),
            _ => Err(failure::query_failed(answer)),
        };
        let rank = |found: &TopicQueues| match found {
            TopicQueues::Queues(_) => Rank::Enough,
            TopicQueues::NoMaster => Rank::Better,
            TopicQueues::NoTopic => Rank::Last,
        };
        self.ask(Code::Route, &fields, end, read, rank).await
    }

    /// The brokers that take messages.
    pub(super) async fn masters(&self, end: Monotonic) -> Result<Vec<Master>, SinkError> {
        let read = |answer: &Response| match answer.code {
            SUCCESS => read(answer).map(masters),
            _ => Err(failure::query_failed(answer)),
        };
        let rank = |masters: &Vec<Master>| if masters.is_empty() { Rank::Last } else { Rank::Enough };
        self.ask(Code::Cluster, &BTreeMap::new(), end, read, rank).await
    }

    /// Asks all of them at once. The first answer that is enough ends it, else the best of all counts.
    async fn ask<T>(
        &self,
        code: Code,
        fields: &BTreeMap<&'static str, String>,
        end: Monotonic,
        read: impl Fn(&Response) -> Result<T, SinkError>,
        rank: impl Fn(&T) -> Rank,
    ) -> Result<T, SinkError> {
        let has_others = self.addresses.len() > 1;
        // Up to three questions follow each other: a silent server leaves time for the next two.
        let now = self.connections.now();
        let end = if has_others { now.saturating_add(LIMIT.min(end.since(now) / 3)) } else { end };
        let pending = self.addresses.iter().map(|address| async move {
            let answer = self.connections.ask(address, end, code, fields.clone(), &[]).await;
            answer.map_err(|why| failure::connect_failed("the name server", address, &why).error(false))
        });
        let mut pending: FuturesUnordered<_> = pending.collect();
        let mut best = Err(SinkError::unreachable("there is no name server"));
        while let Some(answer) = pending.next().await {
            let reply = answer.and_then(|answer| read(&answer));
            let is_better = match (&reply, &best) {
                (Ok(reply), Ok(best)) => rank(reply) > rank(best),
                (Ok(_), Err(_)) | (Err(_), Err(_)) => true,
                (Err(_), Ok(_)) => false,
            };
            if is_better {
                best = reply;
            }
            if best.as_ref().is_ok_and(|best| rank(best) == Rank::Enough) {
                break;
            }
        }
        best
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Last,
    Better,
    Enough,
}

fn masters(cluster: Cluster) -> Vec<Master> {
    let brokers = cluster.broker_addr_table.into_values();
    let master = |mut broker: Broker| {
        let address = broker.broker_addrs.remove(MASTER)?.into();
        Some(Master { address, slaves: broker.broker_addrs.len() })
    };
    brokers.filter_map(master).collect()
}

fn found(reply: TopicRoute) -> TopicQueues {
    let mut writable: Vec<_> =
        reply.queue_datas.into_iter().filter(|queues| queues.perm & WRITABLE != 0).collect();
    writable.sort_by(|one, other| one.broker_name.cmp(&other.broker_name));
    let mut all = Vec::new();
    for queues in writable {
        let broker = reply.broker_datas.iter().find(|broker| broker.broker_name == queues.broker_name);
        let Some(address) = broker.and_then(|broker| broker.broker_addrs.get(MASTER)) else { continue };
        let (broker, address): (Arc<str>, Arc<str>) = (queues.broker_name.into(), address.as_str().into());
        let queue = |number| Queue { broker: broker.clone(), address: address.clone(), number };
        all.extend((0..queues.write_queue_nums).map(queue));
    }
    if all.is_empty() { TopicQueues::NoMaster } else { TopicQueues::Queues(all) }
}

/// Parses the JSON of a name server. Old ones write bare numbers as keys, where JSON has texts: `{0:"10.0.0.1:10911"}`.
fn read<T: DeserializeOwned>(answer: &Response) -> Result<T, SinkError> {
    let read =
        serde_json::from_slice(&answer.body).or_else(|_| serde_json::from_slice(&quoted(&answer.body)));
    read.map_err(|why| SinkError::unreachable(format!("the name server's answer cannot be read: {why}")))
}

/// An old name server's text as JSON.
fn quoted(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 16);
    let (mut in_text, mut escaped, mut last) = (false, false, b' ');
    let mut at = 0;
    while let Some(byte) = text.get(at).copied() {
        let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let is_name = digits > 0 && text.get(at + digits) == Some(&b':') && matches!(last, b'{' | b',');
        if !in_text && is_name {
            out.push(b'"');
            out.extend_from_slice(&text[at..at + digits]);
            out.push(b'"');
            (at, last) = (at + digits, b'"');
            continue;
        }
        if byte == b'"' && !escaped {
            in_text = !in_text;
        }
        escaped = in_text && byte == b'\\' && !escaped;
        out.push(byte);
        (at, last) = (at + 1, byte);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b\",1:","cluster":"c"}],
        "filterServerTable":{},"queueDatas":[{"brokerName":"b\",1:","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":2}]}"#;

    #[test]
    fn bare_numbers_become_texts_and_nothing_else_changes() {
        let reply: TopicRoute = serde_json::from_slice(&quoted(OLD.as_bytes())).unwrap();
        let TopicQueues::Queues(queues) = found(reply) else { panic!("there are queues") };
        assert_eq!(queues.len(), 2);
        assert_eq!(
            (&*queues[1].address, &*queues[1].broker, queues[1].number),
            ("10.0.0.1:10911", "b\",1:", 1)
        );
    }

    #[test]
    fn a_topic_that_may_not_be_written_or_has_no_master_is_there_all_the_same() {
        let closed = OLD.replace("\"perm\":6", "\"perm\":4");
        assert_eq!(found(serde_json::from_slice(&quoted(closed.as_bytes())).unwrap()), TopicQueues::NoMaster);
        let headless = OLD.replace("0:\"10.0.0.1:10911\",", "");
        assert_eq!(
            found(serde_json::from_slice(&quoted(headless.as_bytes())).unwrap()),
            TopicQueues::NoMaster
        );
    }
}
