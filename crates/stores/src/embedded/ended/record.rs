//! How the end of a message is written down.

use duly_core::{Attempt, Lane, MessageId, Outcome, Record, State, Timestamp};

use super::super::entry::{self, ALIGN, Garbled};

/// How a message ended. The numbers are written to disk: they never change, and a new kind gets a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded) enum EndKind {
    Delivered = 0,
    Cancelled = 1,
    /// A dead letter was deleted for good: nobody can ask for it any more.
    Purged = 2,
}

impl EndKind {
    pub(super) fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Delivered,
            1 => Self::Cancelled,
            _ => Self::Purged,
        }
    }

    /// The state in which the message can be asked for; `None` if nothing of it is kept.
    pub(in crate::embedded) fn state(self) -> Option<State> {
        match self {
            Self::Delivered => Some(State::Delivered),
            Self::Cancelled => Some(State::Cancelled),
            Self::Purged => None,
        }
    }
}

/// Writes the end of a message, the same bytes for the journal and for its slice.
///
/// ```text
/// kind u8, 1 zero byte, receipt length u16, head length u32, ended u64, head, receipt, padding
/// ```
pub(in crate::embedded) fn encode(
    kind: EndKind,
    at: Timestamp,
    receipt: Option<&str>,
    head: &[u8],
    out: &mut Vec<u8>,
) {
    let receipt = receipt.unwrap_or_default().as_bytes();
    let receipt = &receipt[..receipt.len().min(RECEIPT_MAX)];
    out.extend_from_slice(&[kind as u8, 0]);
    out.extend_from_slice(&(receipt.len() as u16).to_le_bytes());
    out.extend_from_slice(&(head.len() as u32).to_le_bytes());
    out.extend_from_slice(&at.as_millis().to_le_bytes());
    out.extend_from_slice(head);
    out.extend_from_slice(receipt);
    let len = out.len().next_multiple_of(ALIGN);
    out.resize(len, 0);
}

const FIXED: usize = 16;
/// The most bytes kept of a target's receipt.
const RECEIPT_MAX: usize = 1024;

/// A view of the kept end of a message.
#[derive(Clone, Copy)]
pub(in crate::embedded) struct EndPeek<'a>(&'a [u8]);

impl<'a> EndPeek<'a> {
    pub(in crate::embedded) fn at(bytes: &'a [u8]) -> Result<Self, Garbled> {
        let peek = Self(bytes);
        if bytes.len() < FIXED || peek.len() > bytes.len() {
            Err(Garbled)
        } else {
            Ok(Self(&bytes[..peek.len()]))
        }
    }

    /// How long the end that begins with `bytes` says it is; `None` if it begins with too few.
    pub(super) fn length(bytes: &[u8]) -> Option<usize> {
        (bytes.len() >= FIXED).then(|| EndPeek(bytes).len())
    }

    fn receipt_len(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[2], self.0[3]]))
    }

    fn head_len(self) -> usize {
        u32::from_le_bytes([self.0[4], self.0[5], self.0[6], self.0[7]]) as usize
    }

    pub(in crate::embedded) fn len(self) -> usize {
        (FIXED + self.receipt_len() + self.head_len()).next_multiple_of(ALIGN)
    }

    pub(in crate::embedded) fn kind(self) -> EndKind {
        EndKind::of(self.0[0])
    }

    /// `None` for a purged message: nothing of it is kept.
    pub(in crate::embedded) fn state(self) -> Option<State> {
        self.kind().state()
    }

    pub(in crate::embedded) fn ended(self) -> Timestamp {
        let mut eight = [0; 8];
        eight.copy_from_slice(&self.0[8..16]);
        Timestamp::from_millis(u64::from_le_bytes(eight))
    }

    pub(in crate::embedded) fn head(self) -> &'a [u8] {
        &self.0[FIXED..FIXED + self.head_len()]
    }

    /// The key that lists are sorted by.
    pub(in crate::embedded) fn key(self) -> Option<(Timestamp, &'a str)> {
        let peek = entry::Peek::of_head(self.head()).ok()?;
        Some((peek.due(), peek.id_text()))
    }

    fn receipt(self) -> Option<String> {
        let bytes = &self.0[FIXED + self.head_len()..][..self.receipt_len()];
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The record that people ask for.
    pub(in crate::embedded) fn record(self, lane: &Lane) -> Result<(Record, u64), Garbled> {
        let (stored, _) = entry::decode_head(self.head(), lane)?;
        let hash = stored.content_hash;
        let mut record = stored.into_record(self.state().ok_or(Garbled)?);
        record.ended = Some(self.ended());
        record.receipt = self.receipt();
        if record.state == State::Delivered {
            record.attempts = record.attempts.saturating_add(1);
            let detail = record.receipt.clone().unwrap_or_default();
            Attempt::remember(&mut record.history, Attempt::new(self.ended(), Outcome::Delivered, detail));
        }
        Ok((record, hash))
    }
}

/// The hash of the id, the lane number and the version in a head.
pub(in crate::embedded) fn head_fields(head: &[u8]) -> Option<(u64, u32, u64)> {
    let lane = u32::from_le_bytes(head.get(12..16)?.try_into().ok()?);
    let version = entry::version_in(head.get(..entry::FIXED)?);
    let id = head.get(entry::FIXED..entry::FIXED + usize::from(*head.get(33)?))?;
    let id = MessageId::parse(std::str::from_utf8(id).ok()?).ok()?;
    Some((id.hash64(), lane, version))
}
