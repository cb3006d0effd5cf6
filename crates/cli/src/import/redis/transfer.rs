//! The move itself: into Duly first, and out of the set once Duly has it.

use bytes::{Bytes, BytesMut};

use super::{
    Arguments, KeyReport, Report,
    member::Read,
    source::{Member, Removed, Source},
};
use crate::{
    Failure, Output,
    import::{
        check, clock,
        patience::{Next, Patience},
    },
    progress::Progress,
};
use duly::{ErrorCode, Limits, Timestamp};
use duly_client::{
    Client,
    wire::{BatchResult, NewMessage},
};

/// Bytes of one call, unless a single message has more.
const CALL_BYTES: usize = 4 << 20;

/// Moves one set after another.
pub(super) struct Transfer<'a> {
    arguments: &'a Arguments,
    source: Source,
    client: &'a Client,
    out: &'a Output,
    progress: &'a Progress,
    report: Report,
}

/// A member whose message Duly has.
struct AcceptedMember {
    member: Member,
    id: String,
    due: u64,
    duplicate: bool,
}

/// A member on its way: its line is what Duly is told.
struct Waiting {
    member: Member,
    id: String,
    due: u64,
    line: Bytes,
}

impl<'a> Transfer<'a> {
    pub(super) fn new(
        arguments: &'a Arguments,
        source: Source,
        client: &'a Client,
        out: &'a Output,
        progress: &'a Progress,
    ) -> Self {
        let report = Report::new(arguments.dry_run, arguments.keep, clock::now_ms());
        Self { arguments, source, client, out, progress, report }
    }

    pub(super) fn report(self) -> Report {
        self.report
    }

    /// Moves a set, page by page.
    pub(super) async fn set(&mut self, key: &[u8], count: u64) -> Result<(), Failure> {
        let topic = self.arguments.topic_of(key);
        self.report.keys.push(KeyReport::new(key, topic.clone().ok()));
        let topic = match topic {
            Ok(topic) => topic,
            Err(why) => {
                self.report.left_whole(key, count, &why, |words| self.progress.complain(self.out, words));
                self.progress.read(count);
                return Ok(());
            }
        };
        let batch = self.arguments.batch as usize;
        let mut cursor = Some(b"0".to_vec());
        while let Some(from) = cursor {
            let (mut members, next) = self.source.members(key, &from, batch).await?;
            cursor = next;
            while !members.is_empty() {
                let rest = members.split_off(members.len().min(batch));
                let part = std::mem::replace(&mut members, rest);
                let count = part.len() as u64;
                let read = self.arguments.read(&mut self.source, key, &topic, part).await?;
                self.take(key, read).await?;
                self.progress.read(count);
            }
        }
        Ok(())
    }

    /// Moves these members of a set.
    async fn take(&mut self, key: &[u8], read: Vec<Read>) -> Result<(), Failure> {
        let mut waiting = Vec::with_capacity(read.len());
        for Read { member, fate } in read {
            match fate {
                Err(why) => self.left(key, &member.name, &why),
                Ok((due, message)) if self.arguments.dry_run => match checked(&message) {
                    Ok(()) => self.report.acceptable(due, &message),
                    Err(why) => self.left(key, &member.name, &why),
                },
                Ok((due, message)) => {
                    let id = message.id.clone().unwrap_or_default();
                    waiting.push(Waiting { member, id, due, line: line(&message)? });
                }
            }
        }
        let mut patience = Patience::new(self.arguments.patience);
        while !waiting.is_empty() {
            let before = waiting.len();
            let failure = self.call(key, &mut waiting, &mut patience).await?;
            if waiting.len() < before {
                patience.renew();
            }
            let Some(failure) = failure else { continue };
            if !failure.passes() || patience.next() == Next::GiveUp {
                return Err(failure);
            }
            self.progress.note(self.out, &format!("{}; trying again", failure.words));
            patience.back_off().await;
        }
        Ok(())
    }

    /// One call to Duly with as many as fit, and the removal of what it took. What it has not answered yet goes on waiting, and
    /// the reason is given.
    async fn call(
        &mut self,
        key: &[u8],
        waiting: &mut Vec<Waiting>,
        patience: &mut Patience,
    ) -> Result<Option<Failure>, Failure> {
        let mut body = BytesMut::new();
        let mut sent = 0;
        for each in waiting.iter() {
            if sent > 0 && body.len() + each.line.len() > CALL_BYTES {
                break;
            }
            body.extend_from_slice(&each.line);
            sent += 1;
        }
        let (answers, mut failure) = answers(&patience.bound(self.client), body.freeze(), sent).await;
        let mut taken = Vec::with_capacity(answers.len());
        let unanswered = waiting.split_off(answers.len());
        let mut again = Vec::new();
        for (each, answer) in std::mem::replace(waiting, unanswered).into_iter().zip(answers) {
            match answer {
                BatchResult::Accepted(accepted) => {
                    let (Waiting { member, id, due, .. }, duplicate) = (each, accepted.duplicate);
                    taken.push(AcceptedMember { member, id, due, duplicate });
                }
                BatchResult::Refused { error } => {
                    let words = format!("{} [{}]", error.detail, error.code);
                    let code = ErrorCode::parse(&error.code);
                    let status = code.map_or(422, ErrorCode::status);
                    // Of these the others would hear the same.
                    if status >= 500 || status == 429 || code == Some(ErrorCode::UnknownSink) {
                        let refused = Failure::failed(words);
                        let is_transient = code.is_some_and(ErrorCode::is_transient);
                        failure = Some(if is_transient { refused.transient() } else { refused });
                        again.push(each);
                    } else {
                        self.left(key, &each.member.name, &words);
                    }
                }
            }
        }
        waiting.splice(0..0, again);
        self.settle(key, &taken).await?;
        Ok(failure)
    }

    /// Takes out of the set what Duly has.
    async fn settle(&mut self, key: &[u8], taken: &[AcceptedMember]) -> Result<(), Failure> {
        taken.iter().for_each(|each| self.report.taken(each.due, each.duplicate));
        if self.arguments.keep || taken.is_empty() {
            return Ok(());
        }
        let members: Vec<_> = taken.iter().map(|each| &each.member).collect();
        let removed = self.source.remove(key, &members).await?;
        for (each, removed) in taken.iter().zip(removed) {
            let why = match removed {
                Removed::Done => {
                    self.report.removed();
                    continue;
                }
                // It was sent twice, or by an earlier run that did not finish.
                Removed::Gone if each.duplicate => continue,
                Removed::Gone => {
                    "it left its set while it was taken over: whoever took it may have delivered it, too"
                }
                Removed::Moved => "its score changed while it was taken over: the set still has it, too",
            };
            let words = format!("{why}; its message in Duly is {}", each.id);
            self.report.changed(key, &each.member.name, &words, |words| {
                self.progress.complain(self.out, words);
            });
        }
        Ok(())
    }

    fn left(&mut self, key: &[u8], member: &[u8], why: &str) {
        self.report.left(key, member, why, |words| self.progress.complain(self.out, words));
    }
}

/// Whether a server would take it, by the limits that it has unless it is told otherwise.
fn checked(message: &NewMessage) -> Result<(), String> {
    let now = Timestamp::from_millis(clock::now_ms());
    check::content_hash(message, now, &Limits::default()).map(drop)
}

fn line(message: &NewMessage) -> Result<Bytes, Failure> {
    let mut line = Vec::new();
    message.append_line(&mut line).map_err(|e| Failure::failed(format!("cannot write JSON: {e}")))?;
    Ok(line.into())
}

/// The answers to the first of these lines, and why there are no more. A line that is far too long ends its call.
async fn answers(client: &Client, body: Bytes, expected: usize) -> (Vec<BatchResult>, Option<Failure>) {
    let mut results = Vec::with_capacity(expected);
    let mut answers = match client.send_lines(body).await {
        Ok(answers) => answers,
        Err(error) => return (results, Some(error.into())),
    };
    while results.len() < expected {
        match answers.next().await {
            Ok(Some(result)) => results.push(result),
            Ok(None) if results.is_empty() => {
                return (results, Some(Failure::unreachable("the server's answer ended before it began")));
            }
            Ok(None) => break,
            Err(error) => return (results, Some(error.into())),
        }
    }
    (results, None)
}
