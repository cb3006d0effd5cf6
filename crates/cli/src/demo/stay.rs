//! How long the server of a demo stays after its end, for a look at the console.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use crate::{Output, Tint, clock, signals::Signals};

const ON_A_TERMINAL: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stay {
    No,
    For(Duration),
    UntilInterrupted,
}

impl Stay {
    /// As `--stay` says, and without it as long as somebody may look.
    pub(super) fn new(wanted: Option<Option<Duration>>, out: &Output) -> Self {
        let is_watched = || io::stdout().is_terminal() && io::stderr().is_terminal();
        match wanted {
            Some(Some(Duration::ZERO)) => Self::No,
            Some(Some(span)) => Self::For(span),
            Some(None) => Self::UntilInterrupted,
            None if !out.quiet && !out.is_json() && is_watched() => Self::For(ON_A_TERMINAL),
            None => Self::No,
        }
    }

    /// Says where the console is, and waits as long as it stays.
    pub(super) async fn end(self, out: &Output, url: &str, signals: &mut Signals) {
        let head = out.tint_words(Tint::Bold, "Next");
        out.note(&format!("{head}     duly serve, and then: duly send order 'hello' --in 5s"));
        let head = out.tint_words(Tint::Bold, "Console");
        let url = out.tint_words(Tint::Cyan, url);
        match self {
            Self::No => out.note(&format!("{head}  duly demo --stay keeps it open")),
            Self::For(span) => {
                let seconds = span.as_secs_f64();
                out.note(&format!("{head}  {url} for {seconds} s; Ctrl-C ends it at once"));
                tokio::select! {
                    () = clock::sleep(span) => {}
                    () = signals.next() => {}
                }
            }
            Self::UntilInterrupted => {
                out.note(&format!("{head}  {url} until Ctrl-C"));
                signals.next().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_wish_it_stays_only_for_people() {
        let quiet = Output { quiet: true, ..Output::default() };
        assert_eq!(Stay::new(None, &quiet), Stay::No);
        assert_eq!(Stay::new(Some(None), &quiet), Stay::UntilInterrupted);
        assert_eq!(Stay::new(Some(Some(Duration::ZERO)), &Output::default()), Stay::No);
        let span = Duration::from_secs(5);
        assert_eq!(Stay::new(Some(Some(span)), &quiet), Stay::For(span));
    }
}
