//! The limit of topics of the built-in queue.
//!
//! A topic is free text, and each that holds something costs memory, so there is a limit, `limits.topics`. Topics without messages do not
//! count. Each token for some topics has a share of its own, all other callers have the rest together: none of them can keep the others out.
//! A topic counts for whoever made it.
//!
//! Stores keep a few hundred bytes of every topic that ever was, so the topics that a token for some topics makes are also counted over
//! time.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use duly::{Duly, ErrorCode, Lane};
use tokio::time::Instant;

use super::{
    caller::Who,
    fault::{ApiResult, Fault},
};
use crate::auth::{Caller, Role, Tokens};

/// Minimum interval of queries for topics, however many are refused.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// How long the known topics are used below the limit. Other nodes add topics, too.
const RELIED_ON: Duration = Duration::from_secs(10);
/// New topics that a token for some topics may create within [`MADE_WITHIN`]; more, if its share is larger.
const MADE_MAX: usize = 1_000;
const MADE_WITHIN: Duration = Duration::from_secs(3_600);

/// Advice when the limit is reached.
const MAKE_ROOM: &str = "empty a topic, use one that there is, or raise limits.topics";

/// The topics with messages that this node knows.
pub(crate) struct Topics {
    /// Limit of each token with a share.
    share: usize,
    /// Limit of all other callers together.
    rest: usize,
    /// Tokens with a share.
    limited: Vec<Caller>,
    known: Mutex<TopicTable>,
    /// One call queries the store, concurrent ones wait for it.
    asking: tokio::sync::Mutex<()>,
}

/// Owner of a topic: index into the tokens with a share; `None`: all other callers.
type Owner = Option<usize>;

#[derive(Default)]
struct TopicTable {
    topics: HashMap<String, Owner>,
    /// Topics of each owner, counted as they are added. Counting at each refusal would let a caller with many topics slow down
    /// all others.
    counts: HashMap<Owner, usize>,
    made: HashMap<usize, Made>,
    /// Time of the last query.
    asked: Option<Instant>,
}

impl TopicTable {
    fn add(&mut self, topic: String, owner: Owner) {
        *self.counts.entry(owner).or_default() += 1;
        self.topics.insert(topic, owner);
    }

    fn count(&self, owner: Owner) -> usize {
        self.counts.get(&owner).copied().unwrap_or_default()
    }
}

/// The topics that one caller created.
#[derive(Default)]
struct Made {
    /// Hashes of their names: a topic that was empty for a while does not count as new.
    names: HashSet<u64>,
    hasher: RandomState,
    /// Start of the window of `count`.
    since: Option<Instant>,
    count: usize,
}

impl Made {
    /// Records a new topic, unless `max` were created within the window.
    fn note(&mut self, topic: &str, max: usize, now: Instant) -> bool {
        let name = self.hasher.hash_one(topic);
        if self.names.contains(&name) {
            return true;
        }
        if self.since.is_none_or(|since| now.duration_since(since) >= MADE_WITHIN) {
            (self.since, self.count) = (Some(now), 0);
        }
        if self.count >= max {
            return false;
        }
        self.count += 1;
        self.names.insert(name)
    }
}

/// Whether another topic is within the limit.
#[derive(Debug, PartialEq)]
enum Room {
    /// The topic is known, or below the limit.
    Enough,
    /// Below the limit by an old answer of the store.
    Maybe,
    /// Which limit is reached.
    None(String),
}

impl Topics {
    /// At most `max`, of which each token for some topics has an equal share and all others have the rest together; each at least one.
    pub(crate) fn new(max: usize, tokens: &Tokens) -> Self {
        let makes_topics = [Role::Produce, Role::Operate];
        let callers = tokens.iter().map(|token| &token.caller);
        let limited: Vec<_> = callers
            .filter(|caller| !caller.sees_all() && makes_topics.iter().any(|role| caller.may(*role)))
            .cloned()
            .collect();
        let share = (max / (limited.len() + 1)).max(1);
        let rest = max.saturating_sub(share * limited.len()).max(1);
        Self { share, rest, limited, known: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    /// Refuses a new topic beyond the limit.
    pub(super) async fn admit(&self, duly: &Duly, who: &Who, topic: &str) -> ApiResult<()> {
        let admitted = self.admit_for(duly, Some(who.caller()), topic).await;
        admitted.map_err(|detail| Fault::at(ErrorCode::TooManyTopics, "topic", detail))
    }

    /// The same for a source, which has no token: its topics count with those of callers without a share. Returns the reason of a refusal.
    pub(crate) async fn admit_source(&self, duly: &Duly, topic: &str) -> Result<(), String> {
        let admitted = self.admit_for(duly, None, topic).await;
        // A refused message of a source is not redelivered. So a store that did not answer refuses nothing here; the insert queries it again.
        // A recent answer is enough: a query per message would let refused messages delay the others.
        let is_sure = self.lock().asked.is_some_and(|asked| asked.elapsed() < 2 * ASK_PAUSE);
        admitted.or_else(|why| if is_sure { Err(why) } else { Ok(()) })
    }

    async fn admit_for(&self, duly: &Duly, caller: Option<&Caller>, topic: &str) -> Result<(), String> {
        if let Room::Enough = self.room(caller, topic, RELIED_ON, Instant::now()) {
            return Ok(());
        }
        let _asking = self.asking.lock().await;
        if let Room::Enough = self.room(caller, topic, ASK_PAUSE, Instant::now()) {
            return Ok(());
        }
        self.ask(duly).await;
        match self.room(caller, topic, Duration::MAX, Instant::now()) {
            Room::Enough | Room::Maybe => Ok(()),
            Room::None(limit) => {
                Err(format!("{topic:?} would be one more topic of the built-in queue than {limit}"))
            }
        }
    }

    /// Adds the topic if it is below the limit, by an answer of the store that is no older than `age`.
    fn room(&self, caller: Option<&Caller>, topic: &str, age: Duration, now: Instant) -> Room {
        let mut known = self.lock();
        if known.topics.contains_key(topic) {
            return Room::Enough;
        }
        let owner =
            caller.and_then(|caller| self.limited.iter().position(|limited| limited.name == caller.name));
        let own = known.count(owner);
        if owner.is_some() && own >= self.share {
            let limit = format!("the {} that are this token's share of limits.topics", self.share);
            return Room::None(format!("{limit}; {MAKE_ROOM}"));
        }
        if owner.is_none() && own >= self.rest {
            return Room::None(format!("the {} that limits.topics allows here; {MAKE_ROOM}", self.rest));
        }
        if known.asked.is_none_or(|asked| now.duration_since(asked) >= age) {
            return Room::Maybe;
        }
        let made_max = self.share.max(MADE_MAX);
        if let Some(place) = owner
            && !known.made.entry(place).or_default().note(topic, made_max, now)
        {
            let limit = format!("the {made_max} that this token may make within an hour");
            return Room::None(format!("{limit}; use one that it had before, or wait"));
        }
        known.add(topic.to_owned(), owner);
        Room::Enough
    }

    /// Loads the topics with messages from the store, unless the last query is recent.
    async fn ask(&self, duly: &Duly) {
        if self.lock().asked.is_some_and(|asked| asked.elapsed() < ASK_PAUSE) {
            return;
        }
        let begun = Instant::now();
        // A store that does not answer will refuse the message itself.
        let Ok(lanes) = duly.lanes().await else { return };
        let queue = |lane| if let Lane::Queue(topic) = lane { Some(topic.as_str().to_owned()) } else { None };
        self.learn(lanes.into_iter().filter_map(|status| queue(status.lane)), begun);
    }

    /// Keeps only these topics. One that another node created counts for the token that covers it and has the fewest topics, up to its
    /// share.
    fn learn(&self, topics: impl Iterator<Item = String>, asked: Instant) {
        let mut known = self.lock();
        let before = std::mem::take(&mut *known);
        (known.made, known.asked) = (before.made, Some(asked));
        let (seen, unseen): (Vec<_>, Vec<_>) = topics.partition(|topic| before.topics.contains_key(topic));
        for topic in seen {
            let owner = before.topics.get(&topic).copied().flatten();
            known.add(topic, owner);
        }
        for topic in unseen {
            let may_own = |place: &usize| {
                self.limited[*place].may_touch(&topic) && known.count(Some(*place)) < self.share
            };
            let owner = (0..self.limited.len()).filter(may_own).min_by_key(|place| known.count(Some(*place)));
            known.add(topic, owner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, TopicTable> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Token;

    /// The answer of an empty store.
    fn topics(max: usize, limited: &[(&str, &str)]) -> (Topics, impl Fn(&str) -> Caller) {
        let root = ("root", Token::new("root", "root", &[Role::Admin], &[]));
        let token = |(name, topics): &(&str, &str)| Token::new(name, name, &[Role::Produce], &[topics]);
        let tokens = Tokens::new(limited.iter().map(token).chain([root.1]).collect());
        let topics = Topics::new(max, &tokens);
        topics.learn(std::iter::empty(), Instant::now());
        (topics, move |name: &str| tokens.caller(name).unwrap())
    }

    /// How many topics with this beginning the caller gets.
    fn made(topics: &Topics, caller: &Caller, beginning: &str) -> usize {
        let now = Instant::now();
        let name = |place| format!("{beginning}{place}");
        (0..)
            .take_while(|place| topics.room(Some(caller), &name(*place), Duration::MAX, now) == Room::Enough)
            .count()
    }

    #[test]
    fn a_share_is_kept_whoever_comes_first() {
        let names = ["mine", "yours", "root"];
        for first in 0..3 {
            let (topics, caller) = topics(8, &[("mine", "mine*"), ("yours", "yours*")]);
            let order = names.iter().cycle().skip(first).take(3);
            let got: HashMap<_, _> = order.map(|name| (*name, made(&topics, &caller(name), name))).collect();
            assert_eq!(
                got,
                HashMap::from([("mine", 2), ("yours", 2), ("root", 4)]),
                "{} first",
                names[first]
            );
        }
    }

    #[test]
    fn a_topic_counts_for_whoever_made_it() {
        let (topics, caller) = topics(6, &[("a", "shop*"), ("b", "shop-b*")]);
        assert_eq!(made(&topics, &caller("root"), "shop-b-of-root"), 2);
        assert_eq!(made(&topics, &caller("a"), "shop-b-of-a"), 2);
        assert_eq!(made(&topics, &caller("b"), "shop-b"), 2);
        // The same after the store was asked, and those that another node made count for somebody who may touch them.
        let names: Vec<_> = topics.lock().topics.keys().cloned().collect();
        topics.learn(names.into_iter().chain(["shop-other".into()]), Instant::now());
        let known = topics.lock();
        assert_eq!([None, Some(0), Some(1)].map(|owner| known.count(owner)), [3, 2, 2]);
    }

    #[test]
    fn a_token_does_not_make_topics_without_end() {
        let (topics, caller) = topics(10, &[("shop", "shop*")]);
        let (shop, begun) = (caller("shop"), Instant::now());
        let make = |place: usize, now| {
            // A caller that sends and cancels has one topic at a time.
            topics.learn(std::iter::empty(), now);
            topics.room(Some(&shop), &format!("shop.{place}"), Duration::MAX, now)
        };
        assert!((0..MADE_MAX).all(|place| make(place, begun) == Room::Enough));
        let Room::None(words) = make(MADE_MAX, begun) else { panic!("one more") };
        assert!(words.contains("within an hour"), "{words}");
        assert_eq!(make(7, begun), Room::Enough, "one that it had");
        assert_eq!(make(MADE_MAX, begun + MADE_WITHIN), Room::Enough);
        // Callers for all topics are not counted.
        assert_eq!(topics.room(Some(&caller("root")), "shop.x", Duration::MAX, begun), Room::Enough);
    }
}
