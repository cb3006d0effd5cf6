//! The journal's part of a backup: whole frames, without a gap, as far as they go.

use std::io;

use super::{
    super::{
        manifest::Manifest,
        segment::{End, read_segment},
    },
    Copy, Stopped,
    source::damaged,
};

/// How often a segment that looks damaged is read before it counts as damaged: it may be written to while it is read.
const READS_MAX: usize = 8;

impl Copy<'_> {
    pub(super) fn journal(&mut self, manifest: &Manifest) -> Result<(), Stopped> {
        let numbers = self.source.numbered("journal")?;
        let numbers: Vec<u32> = numbers.into_iter().filter(|n| *n >= manifest.journal.segment).collect();
        // The number of the first frame of each segment copied so far.
        let mut firsts: Vec<u64> = Vec::new();
        let (mut next, mut reads, mut furthest) = (manifest.journal.first_frame, 0, 0);
        while let Some(number) = numbers.get(firsts.len()) {
            let name = format!("journal-{number}");
            let bytes = match self.source.read(&name) {
                // An unused segment may have got another number. One in use is deleted only after another manifest was written.
                Err(Stopped::Outdated(_)) => break,
                read => read?,
            };
            let salted = *number >= manifest.salted_from;
            let found = read_segment(&bytes, *number, salted, next, |_| true);
            match found.end {
                // It has no frame: everything that was answered so far is in earlier segments.
                End::Clean(_) | End::Torn(_) if found.last.is_none() => break,
                End::Clean(at) | End::Torn(at) => {
                    self.put(&name, &bytes[..bytes.len().min(at as usize)])?;
                    firsts.push(next);
                    next = found.next;
                }
                End::Damaged(at) | End::Headless(at) => {
                    if firsts.len() > furthest {
                        (reads, furthest) = (0, firsts.len());
                    }
                    reads += 1;
                    if reads > READS_MAX {
                        let what =
                            format!("frame {next} is missing or bad at byte {at}, with valid ones after it");
                        return Err(Stopped::Outdated(damaged(&name, io::Error::other(what))));
                    }
                    // The segment before may have been read before its last frames were written: read it again.
                    next = firsts.pop().unwrap_or(next);
                }
            }
        }
        if next < manifest.journal.next_frame {
            let what = format!(
                "it ends before frame {}, which the manifest knows of",
                manifest.journal.next_frame - 1
            );
            return Err(Stopped::Outdated(damaged("the journal", io::Error::other(what))));
        }
        Ok(())
    }
}
