//! Names of all keys that this library uses in Redis.

use redis_link::Address;

use crate::Priority;

/// The keys of one topic. Keys beside a stream must be in its slot on a Cluster, so they have the topic in braces. No
/// topic has braces, so none collides with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    topic: String,
    is_cluster: bool,
    of_dead: bool,
}

impl Keys {
    pub(crate) fn new(topic: &str, address: &Address) -> Self {
        let is_cluster = matches!(address, Address::Cluster(_));
        Self { topic: topic.to_owned(), is_cluster, of_dead: false }
    }

    /// The keys of groups that listen to the dead letters.
    pub(crate) fn of_dead_letters(self) -> Self {
        Self { of_dead: true, ..self }
    }

    pub(crate) fn is_of_dead_letters(&self) -> bool {
        self.of_dead
    }

    fn word(&self, priority: Priority) -> &'static str {
        if self.of_dead { "dead" } else { priority.word() }
    }

    pub(crate) fn topic(&self) -> &str {
        &self.topic
    }

    /// The stream of a priority; the normal one has the name of the topic.
    pub(crate) fn stream(&self, priority: Priority) -> String {
        match priority {
            _ if self.of_dead => self.dead(),
            Priority::High => format!("{{{}}}:high", self.topic),
            Priority::Normal => self.topic.clone(),
            Priority::Low => format!("{{{}}}:low", self.topic),
        }
    }

    /// The stream of dead letters, one per topic.
    pub(crate) fn dead(&self) -> String {
        let Self { topic, .. } = self;
        if self.is_cluster { format!("{{{topic}}}_dlq") } else { format!("{topic}_dlq") }
    }

    /// A hash: failures of an entry (by id), and crashes of processes that handled it alone (id and `!`).
    pub(crate) fn counts(&self, group: &str, priority: Priority) -> String {
        format!("{{{}}}:duly-streams:counts:{}:{group}", self.topic, self.word(priority))
    }

    /// A sorted set: pending entries that wait for a retry or for others of their key, by due time.
    pub(crate) fn due(&self, group: &str, priority: Priority) -> String {
        format!("{{{}}}:duly-streams:due:{}:{group}", self.topic, self.word(priority))
    }

    /// The leader of an ordered group.
    pub(crate) fn leader(&self, group: &str) -> String {
        let what = if self.of_dead { "dead-leader" } else { "leader" };
        format!("{{{}}}:duly-streams:{what}:{group}", self.topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_letters_have_the_names_that_are_promised() {
        let of = |url| Keys::new("order", &Address::parse(url).unwrap()).dead();
        assert_eq!(of("redis://a"), "order_dlq");
        assert_eq!(of("redis-cluster://a"), "{order}_dlq");
    }

    #[test]
    fn a_topic_and_its_dead_letters_share_no_name_but_that_of_the_dead_letters() {
        let keys = Keys::new("order", &Address::parse("redis://a").unwrap());
        let dead = keys.clone().of_dead_letters();
        let all = |keys: &Keys| {
            let normal = Priority::Normal;
            [keys.stream(normal), keys.counts("g", normal), keys.due("g", normal), keys.leader("g")]
        };
        assert!(all(&keys).iter().all(|name| !all(&dead).contains(name)));
    }

    #[test]
    fn all_that_lies_beside_a_stream_shares_its_slot() {
        let keys = Keys::new("order", &Address::parse("redis-cluster://a").unwrap());
        let mut all = vec![keys.dead(), keys.leader("g")];
        for priority in Priority::ALL {
            all.extend([keys.stream(priority), keys.counts("g", priority), keys.due("g", priority)]);
        }
        for name in all {
            assert!(name == "order" || name.starts_with("{order}"), "{name}");
        }
    }
}
