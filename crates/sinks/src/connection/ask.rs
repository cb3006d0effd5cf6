//! One question and its answer on a connection.

use std::io;

use bytes::{Bytes, BytesMut};

use crate::{exchange::Exchange, link::Link};

impl Link {
    /// Sends `question`; the first answer that `parse` finds is returned.
    pub(crate) async fn ask<A: Send>(
        &mut self,
        question: impl Into<Bytes>,
        parse: impl Fn(&mut BytesMut) -> io::Result<Option<A>> + Send,
    ) -> io::Result<A> {
        let mut ask = Ask { question: question.into(), parse, answer: None };
        self.exchange(&mut ask).await?;
        ask.answer.ok_or_else(|| io::Error::other("no answer"))
    }
}

struct Ask<A, P> {
    question: Bytes,
    parse: P,
    answer: Option<A>,
}

impl<A: Send, P: Fn(&mut BytesMut) -> io::Result<Option<A>> + Send> Exchange for Ask<A, P> {
    fn poll_write(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(&std::mem::take(&mut self.question));
    }

    fn on_read(&mut self, read: &mut BytesMut, _: &mut BytesMut) -> io::Result<()> {
        if self.answer.is_none() {
            self.answer = (self.parse)(read)?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.answer.is_some()
    }
}
