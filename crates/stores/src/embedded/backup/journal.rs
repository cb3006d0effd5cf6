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

/// A segment that cannot be right is read so many times before it counts as damaged: it may be written to while it is read.
const READS_MAX: usize = 8;

impl Copy<'_> {
    pub(super) fn journal(&mut self, manifest: &Manifest) -> Result<(), Stopped> {
        let numbers = self.source.numbered("journal")?;
        let numbers: Vec<u32> = numbers.into_iter().filter(|n| *n >= manifest.journal_start).collect();
        // The number of the first frame of each segment copied so far.
        let mut firsts: Vec<u64> = Vec::new();
        let (mut next, mut reads, mut furthest) = (manifest.first_frame, 0, 0);
        while let Some(number) = numbers.get(firsts.len()) {
            let name = format!("journal-{number}");
            let bytes = match self.source.read(&name) {
                // One that was ready and unused got another name; one in use is not gone before another manifest is there.
                Err(Stopped::Gone(_)) => break,
                read => read?,
            };
            let salted = *number >= manifest.salted_from;
            let found = read_segment(&bytes, *number, salted, next, |_| true);
            match found.end {
                // What was answered before is in the segments before it.
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
                        return Err(Stopped::Gone(damaged(&name, io::Error::other(what))));
                    }
                    // The one before was perhaps read before its last frames were written.
                    next = firsts.pop().unwrap_or(next);
                }
            }
        }
        if next < manifest.next_frame {
            let what =
                format!("it ends before frame {}, which the manifest knows of", manifest.next_frame - 1);
            return Err(Stopped::Gone(damaged("the journal", io::Error::other(what))));
        }
        Ok(())
    }
}
