//! Which queues a topic has and where, as the name servers tell it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use duly_core::{Clock, Monotonic, SinkError, SinkErrorKind};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    failure::{self, NO_TOPIC, SUCCESS, no_connection},
    frame::{Answer, Code},
    wire::Wires,
};

/// The topic whose queues are copied for a topic that is made by sending to it.
pub(super) const TEMPLATE: &str = "TBW102";
/// A route is asked for again after this, and after any failure.
const FRESH: Duration = Duration::from_secs(30);
/// Routes that are kept; with more topics than this, some are asked for again.
const KEPT: usize = 10_000;
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

/// All queues of a topic, in an order that is the same for everybody.
pub(super) type Route = Arc<Vec<Queue>>;

/// Per topic when it was heard of, unless that is in doubt, and what.
type Known = HashMap<String, (Option<Monotonic>, Route)>;

/// The routes that are known.
pub(super) struct Routes {
    namesrv: Vec<String>,
    known: Mutex<Known>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
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

impl Routes {
    pub(super) fn new(namesrv: Vec<String>) -> Self {
        Self { namesrv, known: Mutex::default() }
    }

    /// The route of a topic: known for a little while, or asked for.
    pub(super) async fn of(&self, topic: &str, wires: &Wires, clock: &dyn Clock) -> Result<Route, SinkError> {
        let now = clock.now().mono();
        let known = self.lock().get(topic).cloned();
        if let Some((Some(since), route)) = &known
            && now.since(*since) < FRESH
        {
            return Ok(route.clone());
        }
        let mut found = self.ask(topic, wires, now).await?;
        if found.is_none() {
            // Not made yet: it will be, by sending, where a broker allows it.
            found = self.ask(TEMPLATE, wires, now).await?;
        }
        let Some(route) = found else { return Err(self.nowhere(topic, known.is_some(), wires, now).await) };
        let route = Arc::new(route);
        let mut all = self.lock();
        if all.len() >= KEPT {
            all.clear();
        }
        all.insert(topic.to_owned(), (Some(now), route.clone()));
        Ok(route)
    }

    /// It will be asked for again.
    pub(super) fn doubt(&self, topic: &str) {
        if let Some((since, _)) = self.lock().get_mut(topic) {
            *since = None;
        }
    }

    /// The brokers that take messages, as a name server knows them; at least one.
    pub(super) async fn brokers(&self, wires: &Wires, clock: &dyn Clock) -> Result<Vec<String>, SinkError> {
        let answer = self.any(Code::Cluster, BTreeMap::new(), wires, clock.now().mono()).await?;
        if answer.code != SUCCESS {
            return Err(failure::sorted(&answer));
        }
        let cluster: Cluster = read(&answer)?;
        let brokers = cluster.broker_addr_table.into_values();
        let masters: Vec<_> = brokers.filter_map(|mut broker| broker.broker_addrs.remove(MASTER)).collect();
        if masters.is_empty() { Err(no_connection("the name server knows no broker")) } else { Ok(masters) }
    }

    /// Why there is no route. A topic that was there a while ago has gone with its brokers; when all brokers are away, so have
    /// all topics.
    async fn nowhere(&self, topic: &str, was_there: bool, wires: &Wires, now: Monotonic) -> SinkError {
        if was_there {
            return no_connection(format!("no broker has the topic {topic:?} any more"));
        }
        let answer = self.any(Code::Cluster, BTreeMap::new(), wires, now).await;
        let cluster = answer.and_then(|answer| read::<Cluster>(&answer));
        match cluster {
            Ok(cluster) if cluster.broker_addr_table.is_empty() => {
                no_connection("the name server knows no broker")
            }
            Ok(_) => SinkError::new(
                SinkErrorKind::Refused,
                format!("no broker has the topic {topic:?}: make it, and replay the message"),
            ),
            Err(failure) => failure,
        }
    }

    async fn ask(&self, topic: &str, wires: &Wires, now: Monotonic) -> Result<Option<Vec<Queue>>, SinkError> {
        let fields =
            BTreeMap::from([("topic", topic.to_owned()), ("acceptStandardJsonOnly", "true".to_owned())]);
        let answer = self.any(Code::Route, fields, wires, now).await?;
        match answer.code {
            SUCCESS => Ok(Some(queues(read(&answer)?)).filter(|queues| !queues.is_empty())),
            NO_TOPIC => Ok(None),
            _ => Err(failure::sorted(&answer)),
        }
    }

    /// Asks one name server after the other, until one answers.
    async fn any(
        &self,
        code: Code,
        fields: BTreeMap<&'static str, String>,
        wires: &Wires,
        now: Monotonic,
    ) -> Result<Answer, SinkError> {
        let mut failed = no_connection("there is no name server");
        for address in &self.namesrv {
            match wires.ask(address, now, code, fields.clone(), &[]).await {
                Ok(answer) => return Ok(answer),
                Err(why) => failed = failure::unconnected("the name server", address, &why),
            }
        }
        Err(failed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn queues(told: Told) -> Vec<Queue> {
    let mut writable: Vec<_> =
        told.queue_datas.into_iter().filter(|queues| queues.perm & WRITABLE != 0).collect();
    writable.sort_by(|one, other| one.broker_name.cmp(&other.broker_name));
    let mut all = Vec::new();
    for queues in writable {
        let broker = told.broker_datas.iter().find(|broker| broker.broker_name == queues.broker_name);
        let Some(address) = broker.and_then(|broker| broker.broker_addrs.get(MASTER)) else { continue };
        let (broker, address): (Arc<str>, Arc<str>) = (queues.broker_name.into(), address.as_str().into());
        let queue = |number| Queue { broker: broker.clone(), address: address.clone(), number };
        all.extend((0..queues.write_queue_nums).map(queue));
    }
    all
}

/// What a name server wrote, also if it is of the old ones that leave numbers bare where JSON wants texts: `{0:"10.0.0.1:10911"}`.
fn read<T: DeserializeOwned>(answer: &Answer) -> Result<T, SinkError> {
    let read =
        serde_json::from_slice(&answer.body).or_else(|_| serde_json::from_slice(&quoted(&answer.body)));
    read.map_err(|why| no_connection(format!("the name server's answer cannot be read: {why}")))
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
        let told: Told = serde_json::from_slice(&quoted(OLD.as_bytes())).unwrap();
        let queues = queues(told);
        assert_eq!(queues.len(), 2);
        assert_eq!(
            (&*queues[1].address, &*queues[1].broker, queues[1].number),
            ("10.0.0.1:10911", "b\",1:", 1)
        );
    }

    #[test]
    fn what_may_not_be_written_and_what_has_no_master_is_no_queue() {
        let closed = OLD.replace("\"perm\":6", "\"perm\":4");
        assert_eq!(queues(serde_json::from_slice(&quoted(closed.as_bytes())).unwrap()), []);
        let headless = OLD.replace("0:\"10.0.0.1:10911\",", "");
        assert_eq!(queues(serde_json::from_slice(&quoted(headless.as_bytes())).unwrap()), []);
    }
}
