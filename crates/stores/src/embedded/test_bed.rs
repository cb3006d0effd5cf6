//! A store whose background work is done by the test, round by round: how much there is of it can be counted.

use std::{sync::Arc, thread::JoinHandle, time::Duration};

use duly_core::{
    Body, Lane, MessageId, Monotonic, Now, SinkName, StoredMessage, Timestamp, Topic,
    store::{Claim, Claimed, Holder, Insert, Inserted, StoreError},
};

use super::{Options, SharedEngine, background, lanes::HotEntry, recover, writer};

const START_MS: u64 = 1_800_000_000_000;

pub(super) fn now(ms: u64) -> Now {
    Now::new((START_MS + ms) * 1000, Monotonic::from_micros((ms + 1_000) * 1000))
}

pub(super) fn id(number: u64) -> MessageId {
    MessageId::parse(&format!("m{number}")).unwrap()
}

/// A message of topic `topic`, due `due` ms after the start.
pub(super) fn message(topic: &str, number: u64, due: u64, body: usize) -> StoredMessage {
    let (sink, topic) = (SinkName::parse("queue").unwrap(), Topic::parse(topic).unwrap());
    let mut message = StoredMessage::new(id(number), sink, topic, Timestamp::from_millis(START_MS + due));
    message.body = Body::text("x".repeat(body));
    message
}

/// Files so small that a few messages fill them.
pub(super) fn tiny() -> Options {
    Options {
        segment_bytes: 256 << 10,
        checkpoint_bytes: 1 << 30,
        window_bytes: 16 << 10,
        buffer_bytes: 8 << 10,
        chunk_bytes: 8 << 10,
        ..Options::default()
    }
}

/// A store with a journal's writer and no background thread.
pub(super) struct Bed {
    pub(super) shared: Arc<SharedEngine>,
    rounds: background::Rounds,
    writer: Option<JoinHandle<()>>,
    _lock: Box<dyn Send + Sync>,
}

impl Bed {
    pub(super) fn open(dir: &std::path::Path, options: Options) -> Self {
        let (shared, lock) = recover::open(dir, options, now(0)).unwrap();
        let shared = Arc::new(shared);
        let journal = shared.clone();
        let writer = std::thread::spawn(move || writer::run(&journal));
        let mut bed =
            Self { shared, rounds: background::Rounds::default(), writer: Some(writer), _lock: lock };
        bed.round();
        bed
    }

    pub(super) async fn insert(&self, at: u64, messages: impl IntoIterator<Item = StoredMessage>) {
        let batch: Vec<_> = messages.into_iter().map(Insert::new).collect();
        let count = batch.len();
        let answers = self.shared.insert(now(at), batch).await.unwrap();
        assert_eq!(answers, vec![Inserted::Accepted; count]);
    }

    pub(super) async fn claim(&self, at: u64, topic: &str, limit: usize) -> Claimed {
        self.try_claim(at, topic, limit).await.unwrap()
    }

    /// The same where the disk may fail.
    pub(super) async fn try_claim(&self, at: u64, topic: &str, limit: usize) -> Result<Claimed, StoreError> {
        let lane = Lane::Queue(Topic::parse(topic).unwrap());
        let claim = Claim { lane, limit, lease: Duration::from_secs(60), holder: Holder::Process };
        self.shared.claim(now(at), claim).await
    }

    /// One round of background work.
    pub(super) fn round(&mut self) {
        self.try_round().unwrap();
    }

    /// The same where the disk may have no room.
    pub(super) fn try_round(&mut self) -> std::io::Result<()> {
        background::run_round(&self.shared, &mut self.rounds)
    }

    /// Does background work until none is asked for, and says how many rounds that took.
    pub(super) fn rounds_until_rest(&mut self) -> usize {
        const ROUNDS_MAX: usize = 20;
        for round in 0..ROUNDS_MAX {
            if !self.shared.engine().wants_background() {
                return round;
            }
            self.round();
        }
        panic!("background work without end: {} hot bytes", self.shared.engine().lanes.hot_bytes());
    }

    /// Whether each near message in memory has memory of its own.
    pub(super) fn near_stands_alone(&self) -> bool {
        let engine = self.shared.engine();
        let alone = |near: &HotEntry| near.data.as_ref().is_none_or(|data| data.is_unique());
        engine.lanes.iter().flat_map(|lane| lane.hot().values()).all(alone)
    }

    /// How many near messages have their entry in memory.
    pub(super) fn near_in_memory(&self) -> usize {
        let engine = self.shared.engine();
        engine.lanes.iter().flat_map(|lane| lane.hot().values()).filter(|near| near.data.is_some()).count()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.shared.close_because("the store is closed".into());
        if let Some(writer) = self.writer.take() {
            writer.join().unwrap();
        }
    }
}
