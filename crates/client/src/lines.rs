//! A long answer, line by line while it comes.

use std::{sync::Arc, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use tokio::time::timeout;

use crate::{Error, target::Target, wire::BatchResult};

/// A line of Duly is far shorter; one that is not comes from somebody else.
const LINE_MAX: usize = 16 << 20;
/// Bytes of the answer to each message of a batch, on average. Duly's own has a few hundred.
const RESULT_BYTES: usize = 16 << 10;

/// The lines of an answer.
pub(crate) struct Lines {
    body: Incoming,
    split: Split,
    target: Arc<Target>,
    /// How long the next part may take: of a server that is gone without a word, nothing comes ever.
    patience: Duration,
}

impl Lines {
    pub(crate) fn new(body: Incoming, target: &Arc<Target>, patience: Duration) -> Self {
        Self { body, split: Split::default(), target: target.clone(), patience }
    }

    async fn frame(&mut self) -> Result<Option<Result<Frame<Bytes>, hyper::Error>>, Error> {
        timeout(self.patience, self.body.frame())
            .await
            .map_err(|_| self.target.no_answer(format!("it sent nothing for {} s", self.patience.as_secs())))
    }

    /// The next line without its end; `None` after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(line) = self.split.line() {
                return Ok(Some(line));
            }
            match self.frame().await? {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.split.push(&data);
                    }
                    if self.split.held.len() > LINE_MAX {
                        return Err(self.target.unexpected("it sends a line that does not end"));
                    }
                }
                Some(Err(e)) => {
                    return Err(self.target.broken(&e));
                }
                None => return Ok(self.split.rest()),
            }
        }
    }
}

/// The answers to a batch, one per line that was sent, while they come.
pub struct BatchResults {
    lines: Lines,
}

impl BatchResults {
    pub(crate) fn new(lines: Lines) -> Self {
        Self { lines }
    }

    /// The next answer; `None` after the last.
    ///
    /// Cancel safety: an answer that came while the call was dropped is given by the next call.
    pub async fn next(&mut self) -> Result<Option<BatchResult>, Error> {
        let Some(line) = self.lines.next().await? else { return Ok(None) };
        self.result(&line).map(Some)
    }

    /// All answers to a batch of `messages`. One that is longer than the answer to such a batch can be is given up.
    pub(crate) async fn collect(mut self, messages: usize) -> Result<Vec<BatchResult>, Error> {
        let mut results = Vec::with_capacity(messages);
        let mut bytes_left = messages.saturating_mul(RESULT_BYTES).saturating_add(LINE_MAX);
        while let Some(line) = self.lines.next().await? {
            if results.len() == messages {
                let detail = format!("it sends more answers than the {messages} messages of the batch");
                return Err(self.lines.target.unexpected(detail));
            }
            bytes_left = bytes_left.checked_sub(line.len()).ok_or_else(|| {
                let detail = format!("its answers to a batch of {messages} messages are too long");
                self.lines.target.unexpected(detail)
            })?;
            results.push(self.result(&line)?);
        }
        Ok(results)
    }

    fn result(&self, line: &[u8]) -> Result<BatchResult, Error> {
        serde_json::from_slice(line)
            .map_err(|e| self.lines.target.unexpected(format!("its answer to a line is not Duly's: {e}")))
    }
}

/// Cuts what comes in pieces into lines.
#[derive(Default)]
struct Split {
    held: BytesMut,
    /// Up to here there is no end of line: a line that comes in many pieces is looked through once.
    seen: usize,
}

impl Split {
    fn push(&mut self, data: &[u8]) {
        self.held.extend_from_slice(data);
    }

    fn line(&mut self) -> Option<Bytes> {
        let Some(end) = self.held[self.seen..].iter().position(|byte| *byte == b'\n') else {
            self.seen = self.held.len();
            return None;
        };
        let mut line = self.held.split_to(self.seen + end);
        self.held.advance(1);
        self.seen = 0;
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        Some(line.freeze())
    }

    fn rest(&mut self) -> Option<Bytes> {
        self.seen = 0;
        (!self.held.is_empty()).then(|| self.held.split().freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_are_cut_on_the_way() {
        let text = b"one\r\n\ntwo, longer\nlast";
        for cut in 1..text.len() {
            let (mut split, mut lines) = (Split::default(), Vec::new());
            for piece in text.chunks(cut) {
                split.push(piece);
                lines.extend(std::iter::from_fn(|| split.line()));
            }
            lines.extend(split.rest());
            assert_eq!(lines, ["one", "", "two, longer", "last"], "cut every {cut}");
        }
    }
}
