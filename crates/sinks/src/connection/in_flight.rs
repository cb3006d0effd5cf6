//! The messages of a call on one connection, and what becomes of them.

use duly_core::{Delivery, Outcomes, SinkError, SinkErrorKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Sent,
    /// The broker has received it, and has not released it yet (QoS 2 of MQTT).
    Received,
    /// Its outcome is reported, or it goes on another connection.
    Done,
}

struct Entry<'a> {
    /// In the batch of the call.
    index: usize,
    delivery: &'a Delivery,
    stage: Stage,
}

/// Messages on one connection. Each outcome is reported as soon as it is known.
pub(crate) struct InFlight<'a> {
    entries: Vec<Entry<'a>>,
    outcomes: &'a Outcomes<'a>,
    /// The number of the first message on this connection.
    first: u64,
    /// Maximum of messages without an answer.
    window: usize,
    next: usize,
    under_way: usize,
    /// Answers so far.
    answers: usize,
    /// The broker's last error, if it names no message.
    last_word: Option<SinkError>,
    /// Some brokers close a connection over what they refuse: after that it is used for nothing new.
    has_refusal: bool,
    /// Destinations that refused.
    refusing: Vec<&'a str>,
}

/// How the time of a connection ended before all answers were there.
pub(super) enum Cut<'a> {
    /// It is closed, and why.
    Closed(&'a str),
    /// The call's time is over.
    Late,
}

impl<'a> InFlight<'a> {
    pub(super) fn new(
        batch: &'a [Delivery],
        indices: &[usize],
        outcomes: &'a Outcomes<'a>,
        (first, window): (u64, usize),
    ) -> Self {
        let entry = |&index: &usize| Entry { index, delivery: &batch[index], stage: Stage::Waiting };
        Self {
            entries: indices.iter().map(entry).collect(),
            outcomes,
            first,
            window,
            next: 0,
            under_way: 0,
            answers: 0,
            last_word: None,
            has_refusal: false,
            refusing: Vec::new(),
        }
    }

    /// The next message that may be sent now, with its number. It counts as sent.
    pub(super) fn next_to_send(&mut self) -> Option<(u64, &'a Delivery)> {
        if self.under_way >= self.window || self.stops_here() {
            return None;
        }
        while self.entries.get(self.next)?.stage == Stage::Done {
            self.next += 1;
        }
        let position = self.next;
        self.next += 1;
        self.under_way += 1;
        self.entries[position].stage = Stage::Sent;
        Some((self.first + position as u64, self.entries[position].delivery))
    }

    fn position(&self, number: u64, stage: Stage) -> Option<usize> {
        let position = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get(position).filter(|entry| entry.stage == stage).map(|_| position)
    }

    /// Whether message `number` was sent, and nothing came back yet.
    pub(crate) fn is_sent(&self, number: u64) -> bool {
        self.position(number, Stage::Sent).is_some()
    }

    /// Whether message `number` was received, and is not released yet.
    pub(crate) fn is_received(&self, number: u64) -> bool {
        self.position(number, Stage::Received).is_some()
    }

    /// The first half of two answers is there.
    pub(crate) fn received(&mut self, number: u64) {
        if let Some(position) = self.position(number, Stage::Sent) {
            self.entries[position].stage = Stage::Received;
            self.answers += 1;
        }
    }

    /// The outcome of message `number` is known.
    pub(crate) fn end(&mut self, number: u64, outcome: Result<String, SinkError>) {
        let position = self.position(number, Stage::Sent).or_else(|| self.position(number, Stage::Received));
        let Some(position) = position else { return };
        if let Err(error) = &outcome {
            self.has_refusal = true;
            if error.kind != SinkErrorKind::Refused {
                self.refusing.push(self.entries[position].delivery.message.topic.as_str());
            }
        }
        self.close(position, outcome);
        self.answers += 1;
    }

    /// The message was not sent: this broker cannot accept it.
    pub(super) fn unfit(&mut self, number: u64, error: SinkError) {
        if let Some(position) = self.position(number, Stage::Sent) {
            self.close(position, Err(error));
        }
    }

    fn close(&mut self, position: usize, outcome: Result<String, SinkError>) {
        self.entries[position].stage = Stage::Done;
        self.under_way -= 1;
        self.outcomes.report(self.entries[position].index, outcome);
    }

    /// The broker complains without naming a message, and will close the connection. If only one is under way, it is about that.
    pub(crate) fn complain(&mut self, error: SinkError) {
        self.last_word = Some(error);
    }

    /// One at a time, and the last one was refused: the rest had better go on another connection.
    fn stops_here(&self) -> bool {
        self.has_refusal && self.window == 1 && self.under_way == 0
    }

    pub(super) fn is_over(&self) -> bool {
        self.under_way == 0 && (self.stops_here() || self.is_complete())
    }

    /// Whether each has its outcome, or goes elsewhere.
    pub(super) fn is_complete(&self) -> bool {
        self.entries[self.next..].iter().all(|entry| entry.stage == Stage::Done) && self.under_way == 0
    }

    /// Whether the connection can be used again.
    pub(super) fn went_well(&self) -> bool {
        self.is_complete() && !self.has_refusal
    }

    pub(super) fn answers(&self) -> usize {
        self.answers
    }

    pub(super) fn sent(&self) -> usize {
        self.next
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Destinations that refused since the last time this was asked.
    pub(super) fn take_refusing(&mut self) -> Vec<&'a str> {
        std::mem::take(&mut self.refusing)
    }

    /// The destination of the message that has waited for its answer for the longest: brokers work off a connection in order.
    pub(super) fn oldest(&self) -> Option<&'a str> {
        let is_under_way = |entry: &&Entry<'_>| is_open(entry.stage);
        self.entries.iter().find(is_under_way).map(|entry| entry.delivery.message.topic.as_str())
    }

    /// Whether messages to another destination wait on this connection, too.
    pub(super) fn has_others(&self, destination: &str) -> bool {
        let is_other = |entry: &Entry<'_>| {
            entry.stage != Stage::Done && entry.delivery.message.topic.as_str() != destination
        };
        self.entries.iter().any(is_other)
    }

    /// Takes out what was not sent, but for messages to `kept`.
    pub(super) fn take_unsent(&mut self, kept: Option<&str>) -> Vec<usize> {
        let mut taken = Vec::new();
        for entry in &mut self.entries[self.next..] {
            let topic = entry.delivery.message.topic.as_str();
            if entry.stage == Stage::Waiting && Some(topic) != kept {
                entry.stage = Stage::Done;
                taken.push(entry.index);
            }
        }
        taken
    }

    /// Reports the messages that were sent and not answered.
    pub(super) fn cut(&mut self, cut: &Cut<'_>) {
        let oldest = self.oldest();
        let several = self.under_way > 1;
        for position in 0..self.next {
            let Entry { stage, delivery, .. } = &self.entries[position];
            let destination = delivery.message.topic.as_str();
            let error = match (cut, stage) {
                (_, Stage::Waiting | Stage::Done) => continue,
                (Cut::Late, _) if Some(destination) == oldest => {
                    SinkError::unknown("no answer in time").at_destination()
                }
                (Cut::Late, _) => SinkError::unknown(format!(
                    "no answer in time, behind a message to {:?} on the same connection",
                    oldest.unwrap_or_default()
                )),
                (Cut::Closed(why), Stage::Received) => {
                    SinkError::unknown(format!("received and not released: {why}"))
                }
                (Cut::Closed(why), Stage::Sent) => match &self.last_word {
                    Some(word) if !several => word.clone(),
                    Some(word) => {
                        SinkError::unknown(format!("{} (it is not said of which message)", word.detail))
                    }
                    None => SinkError::unknown(*why),
                },
            };
            self.close(position, Err(error));
        }
    }
}

fn is_open(stage: Stage) -> bool {
    matches!(stage, Stage::Sent | Stage::Received)
}
