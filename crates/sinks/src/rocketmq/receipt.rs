//! Receipts of messages that a broker took: the id of the message, its queue and its place there.

use super::{
    failure::{self, Failure, SUCCESS},
    frame::Response,
};

/// The receipts of the messages of a request, in their order, or why none was taken.
///
/// A broker says the ids of a batch with commas between, and the place of its first message; the others follow.
///
/// `accept_weaker`: whether a message counts as taken that the broker has, but not as safely as it is set to keep messages.
pub(super) fn receipts(answer: &Response, count: usize, accept_weaker: bool) -> Result<Vec<String>, Failure> {
    let word = match (answer.code, failure::weaker(answer.code)) {
        (SUCCESS, _) => None,
        (_, Some(word)) if accept_weaker => Some(word),
        _ => return Err(failure::classify(answer)),
    };
    let field = |name: &str| answer.fields.get(name).map_or("?", String::as_str);
    let (ids, queue, offset) = (field("msgId"), field("queueId"), field("queueOffset"));
    let first = offset.parse::<u64>();
    let mut each = ids.split(',');
    let receipts = (0..count as u64).map(|n| {
        // A broker that keeps a batch as one message has one id for all.
        let id = each.next().unwrap_or(ids);
        let place = match &first {
            Ok(first) => format!("{id} {queue}:{}", first.saturating_add(n)),
            Err(_) => format!("{id} {queue}:{offset}"),
        };
        match word {
            Some(word) => format!("{place} {word}"),
            None => place,
        }
    });
    Ok(receipts.collect())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn answer(code: i32, ids: &str, offset: &str) -> Response {
        let fields = [("msgId", ids), ("queueId", "2"), ("queueOffset", offset)];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Response { code, remark: String::new(), fields, body: Bytes::new() }
    }

    #[test]
    fn each_message_of_a_batch_has_its_own_id_and_place() {
        let batch = answer(0, "A,B,C", "17");
        assert_eq!(receipts(&batch, 3, true).unwrap(), ["A 2:17", "B 2:18", "C 2:19"]);
        assert_eq!(receipts(&answer(0, "A", "17"), 1, true).unwrap(), ["A 2:17"]);
        // As one message, in a topic of such queues; and of a queue whose places nobody knows.
        assert_eq!(receipts(&answer(0, "A", "17"), 2, true).unwrap(), ["A 2:17", "A 2:18"]);
        assert_eq!(receipts(&answer(0, "A,B", "-1"), 2, true).unwrap(), ["A 2:-1", "B 2:-1"]);
    }

    #[test]
    fn a_weaker_acknowledgement_is_one_of_the_whole_batch() {
        let batch = answer(12, "A,B", "17");
        let weaker = ["A 2:17 FLUSH_SLAVE_TIMEOUT", "B 2:18 FLUSH_SLAVE_TIMEOUT"];
        assert_eq!(receipts(&batch, 2, true).unwrap(), weaker);
        assert_eq!(receipts(&batch, 2, false).unwrap_err().kind, duly_core::SinkErrorKind::Throttled);
    }
}
