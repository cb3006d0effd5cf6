//! A long answer, line by line while it comes.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use tokio::time::timeout;

use crate::cli::Failure;

/// A line of Duly is far shorter; one that is not comes from somebody else.
const LINE_MAX: usize = 16 << 20;

/// The lines of an answer.
pub struct Lines {
    body: Incoming,
    split: Split,
    url: String,
    /// How long the next part may take; without it, for ever.
    patience: Option<Duration>,
}

impl Lines {
    pub(super) fn new(body: Incoming, url: &str) -> Self {
        Self { body, split: Split::default(), url: url.to_owned(), patience: None }
    }

    /// The same, where no part may take longer than `patience`: of a server that is gone without a word, nothing comes ever.
    pub(super) fn within(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    async fn frame(&mut self) -> Result<Option<Result<Frame<Bytes>, hyper::Error>>, Failure> {
        let Some(patience) = self.patience else { return Ok(self.body.frame().await) };
        timeout(patience, self.body.frame()).await.map_err(|_| {
            Failure::unreachable(format!("{} sent nothing for {} s", self.url, patience.as_secs()))
        })
    }

    /// The next line without its end; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
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
                        return Err(Failure::failed(format!("{} sends a line that does not end", self.url)));
                    }
                }
                Some(Err(e)) => {
                    let words = format!("the connection to {} broke: {e}", self.url);
                    return Err(Failure::unreachable(words));
                }
                None => return Ok(self.split.rest()),
            }
        }
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
