//! Requests of a call: messages of one topic to one queue go together.

use std::collections::HashMap;

use bytes::BytesMut;
use duly_core::Delivery;

use super::{
    batch, call::Pending, connection::Connections, frame::Code, message, namesrv::Queue, properties,
};

/// Maximum of messages in a batch. They share its answer, or that there is none.
const COUNT_MAX: usize = 64;
/// Maximum of bytes in a batch. Brokers take a batch as large as one message may be (`maxMessageSize`, 4 MiB as it comes); more than this makes
/// none faster.
const BYTES_MAX: usize = 256 * 1024;

/// Messages that go to a queue by one request.
pub(super) struct Request<'a> {
    queue: Queue,
    pub(super) messages: Vec<Pending<'a>>,
}

/// The requests for these messages to one broker, which takes batches of `bytes_max`. Messages to one queue keep their order.
pub(super) fn group<'a>(chosen: Vec<(Queue, Pending<'a>)>, bytes_max: usize) -> Vec<Request<'a>> {
    let bytes_max = bytes_max.min(BYTES_MAX);
    let mut requests: Vec<Request<'a>> = Vec::new();
    // The batch of each queue that takes more messages: its index, and its bytes.
    let mut open: HashMap<(&'a str, u32), (usize, usize)> = HashMap::new();
    for (queue, each) in chosen {
        let place = (each.delivery.message.topic.as_str(), queue.number);
        let added = batch::len_max(each.delivery);
        if added > bytes_max || !batch::may_have(each.delivery) {
            // What comes behind it does not overtake it.
            open.remove(&place);
            requests.push(Request { queue, messages: vec![each] });
            continue;
        }
        if let Some((index, bytes)) = open.get_mut(&place)
            && *bytes + added <= bytes_max
            && let Some(request) = requests.get_mut(*index)
            && request.messages.len() < COUNT_MAX
        {
            *bytes += added;
            request.messages.push(each);
            continue;
        }
        open.insert(place, (requests.len(), added));
        requests.push(Request { queue, messages: vec![each] });
    }
    requests
}

impl<'a> Request<'a> {
    pub(super) fn is_batch(&self) -> bool {
        self.messages.len() > 1
    }

    /// Bytes of the batch, at most.
    pub(super) fn bytes(&self) -> usize {
        self.messages.iter().map(|each| batch::len_max(each.delivery)).sum()
    }

    /// Adds it to `out`.
    pub(super) fn add(&self, connections: &Connections, out: &mut BytesMut, index: usize, born_ms: u64) {
        let Some(first) = self.messages.first() else { return };
        let Delivery { message, .. } = first.delivery;
        let (topic, queue) = (message.topic.as_str(), &self.queue);
        if self.is_batch() {
            let properties = properties::of_batch(first.delivery);
            let fields = message::fields(topic, queue, properties, true, born_ms);
            let body = batch::body(self.messages.iter().map(|each| each.delivery));
            connections.add(out, Code::SendBatch, index, fields, &body);
        } else {
            let properties = properties::text(first.delivery);
            let fields = message::fields(topic, queue, properties, false, born_ms);
            connections.add(out, Code::Send, index, fields, message.body.as_bytes());
        }
    }

    /// The same messages in two requests.
    pub(super) fn halves(mut self) -> Vec<Self> {
        let messages = self.messages.split_off(self.messages.len() / 2);
        let queue = self.queue.clone();
        vec![self, Self { queue, messages }]
    }

    /// The same messages, each in a request of its own.
    pub(super) fn singly(self) -> Vec<Self> {
        let Self { queue, messages } = self;
        messages.into_iter().map(|each| Self { queue: queue.clone(), messages: vec![each] }).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use duly_core::{Body, StoredMessage, Timestamp};

    use super::*;

    fn delivery(topic: &str, body: usize) -> Delivery {
        let message = StoredMessage::new(
            "a".parse().unwrap(),
            "rocket".parse().unwrap(),
            topic.parse().unwrap(),
            Timestamp::from_millis(1),
        );
        Delivery::new(StoredMessage { body: Body::bytes(vec![b'x'; body]), ..message }, 1)
    }

    /// The indexes of the messages of each request.
    fn grouped(all: &[(u32, Delivery)], bytes_max: usize) -> Vec<Vec<usize>> {
        let chosen = all.iter().enumerate().map(|(index, (number, delivery))| {
            let queue = Queue { broker: "b".into(), address: "b:1".into(), number: *number };
            (queue, Pending { index, delivery, route: Arc::default(), tried: Vec::new(), failure: None })
        });
        let requests = group(chosen.collect(), bytes_max);
        let indexes = |request: &Request<'_>| request.messages.iter().map(|each| each.index).collect();
        requests.iter().map(indexes).collect()
    }

    #[test]
    fn messages_of_one_topic_to_one_queue_go_together_in_their_order() {
        let all = [(0, "a"), (1, "a"), (0, "b"), (0, "a"), (1, "a"), (0, "a")];
        let all = all.map(|(queue, topic)| (queue, delivery(topic, 1)));
        assert_eq!(grouped(&all, usize::MAX), [vec![0, 3, 5], vec![1, 4], vec![2]]);
        assert_eq!(grouped(&all, 0).len(), 6, "a broker that knows no batches");
    }

    #[test]
    fn what_goes_alone_is_not_overtaken() {
        let large = delivery("a", BYTES_MAX);
        let tried = Delivery { attempt: 2, ..delivery("a", 1) };
        let small = || delivery("a", 1);
        let all = [small(), small(), large, small(), tried, small(), small()].map(|each| (0, each));
        assert_eq!(grouped(&all, usize::MAX), [vec![0, 1], vec![2], vec![3], vec![4], vec![5, 6]]);
    }

    #[test]
    fn a_batch_has_an_end() {
        let many: Vec<_> = (0..2 * COUNT_MAX + 1).map(|_| (0, delivery("a", 1))).collect();
        let counts =
            |all: &[(u32, Delivery)], max| -> Vec<usize> { grouped(all, max).iter().map(Vec::len).collect() };
        assert_eq!(counts(&many, usize::MAX), [COUNT_MAX, COUNT_MAX, 1]);
        let three = batch::len_max(&many[0].1) * 3;
        assert_eq!(counts(&many[..7], three), [3, 3, 1]);
        let large: Vec<_> = (0..4).map(|_| (0, delivery("a", BYTES_MAX / 2 - 1_000))).collect();
        assert_eq!(counts(&large, usize::MAX), [2, 2]);
    }

    #[test]
    fn a_request_is_halved_until_each_message_is_alone() {
        let all: Vec<_> = (0..5).map(|_| delivery("a", 1)).collect();
        let queue = Queue { broker: "b".into(), address: "b:1".into(), number: 0 };
        let pending = |(index, delivery)| Pending {
            index,
            delivery,
            route: Arc::default(),
            tried: Vec::new(),
            failure: None,
        };
        let request =
            || Request { queue: queue.clone(), messages: all.iter().enumerate().map(pending).collect() };
        let (mut open, mut order) = (vec![request()], Vec::new());
        while let Some(next) = open.pop() {
            match next.is_batch() {
                true => open.extend(next.halves()),
                false => order.push(next.messages[0].index),
            }
        }
        assert_eq!(order, [4, 3, 2, 1, 0]);
        assert_eq!(
            request().singly().iter().map(|one| one.messages[0].index).collect::<Vec<_>>(),
            [0, 1, 2, 3, 4]
        );
    }
}
