//! `duly serve`: the server itself.

use std::{io, time::Duration};

use clap::{Args, ValueEnum};
use duly::{Duly, StoreErrorKind};
use tracing_subscriber::{EnvFilter, Layer, layer::SubscriberExt, util::SubscriberInitExt};

use super::{Failure, Output, Tint, files, signals::Signals};
use duly_server::{
    config::{Config, Flags, Sources},
    serve::{self, Running},
    telemetry::Otlp,
};

/// A clean stop takes no longer; after this, what is under way is left to the next start.
const STOP_WITHIN: Duration = Duration::from_secs(29);
/// How often the store is asked whether it still works.
const HEALTH_EVERY: Duration = Duration::from_secs(1);
/// Files besides connections: the store's, the sinks' and the runtime's.
const OTHER_FILES: u64 = 1_024;
/// The umask: group and others have no rights on files of the server.
const PRIVATE: rustix::fs::Mode = rustix::fs::Mode::from_bits_truncate(0o077);

/// Start a server
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly serve
  duly serve --config /etc/duly/duly.toml
  duly serve --listen 127.0.0.1:0 --data /tmp/duly
  DULY_LOG=debug duly serve --log-format json

Settings come from the file, then the environment (DULY__STORE__LEASE=20s), then the options here; `duly config default` writes
a file with all of them. Ctrl-C or SIGTERM stops it cleanly within half a minute, the second one at once.")]
pub(crate) struct Serve {
    #[command(flatten)]
    flags: Flags,

    /// How the log is written to stderr; DULY_LOG or RUST_LOG says how much
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum LogFormat {
    /// A line for people
    #[default]
    Text,
    /// A JSON object a line
    Json,
}

impl Serve {
    pub(crate) async fn run(self, out: &Output) -> Result<(), Failure> {
        let config = Config::load(&Sources::from_process(self.flags))
            .map_err(|problems| Failure::failed(problems.to_string()))?;
        let otlp = serve::otlp(&config).map_err(|e| Failure::failed(e.to_string()))?;
        start_log(self.log_format, out, otlp.as_ref())?;
        let wanted = config.http.connections as u64 + OTHER_FILES;
        if let Some(files) = files::raise(wanted).filter(|files| *files < wanted) {
            tracing::warn!(
                files,
                wanted,
                hint = "connections need more; raise it with ulimit -n",
                "open file limit too low"
            );
        }
        if let Some(bytes) = files::size_max() {
            tracing::warn!(
                bytes,
                hint = "a file that reaches it counts as a full disk; raise it with ulimit -f",
                "file size limit set"
            );
        }
        let data = config.store.config.to_string();
        // Whatever is written besides the data folder is nobody else's to read either.
        rustix::process::umask(PRIVATE);
        // Installed before the start, so that a signal during the start stops the server.
        let mut signals = Signals::new()?;
        let running = serve::start_with(config, otlp).await.map_err(|e| Failure::failed(e.to_string()))?;
        self.log_format.announce(out, &running, &data);
        let ended = until_stopped(signals.next(), running.duly(), || running.dead_part()).await;
        tracing::info!("shutdown started");
        tokio::select! {
            done = tokio::time::timeout(STOP_WITHIN, running.stop()) => match done {
                // After the store has failed, it cannot end cleanly, and that is told below.
                Ok(Err(e)) if ended.is_ok() => return Err(Failure::failed(e.to_string())),
                Err(_) => return Err(Failure::failed("not everything ended in time; it comes again after the next start")),
                Ok(_) => {}
            },
            () = signals.next() => {
                return Err(Failure::failed("stopped at once; what was under way comes again after the next start"));
            }
        }
        ended?;
        tracing::info!("stopped");
        Ok(())
    }
}

impl LogFormat {
    fn announce(self, out: &Output, running: &Running, data: &str) {
        let (url, durability) = (running.url(), running.duly().durability().to_string());
        match self {
            Self::Json => tracing::info!(url, data, durability, "listening"),
            Self::Text => {
                let url = out.tint_words(Tint::Bold, &url);
                out.note(&format!("duly listens on {url}, keeps messages in {data} ({durability})"));
            }
        }
    }
}

/// Waits until somebody tells the server to stop, or until only a start can help.
async fn until_stopped(
    stop_signal: impl Future<Output = ()>,
    duly: &Duly,
    dead_part: impl Fn() -> Option<&'static str>,
) -> Result<(), Failure> {
    tokio::select! {
        () = stop_signal => Ok(()),
        failure = broken(duly, dead_part) => Err(failure),
    }
}

/// Ends when only a start can help: delivery has stopped, or the store has closed itself, and only a start finds out what
/// is on disk. Whoever watches over the process starts it again.
async fn broken(duly: &Duly, dead_part: impl Fn() -> Option<&'static str>) -> Failure {
    let mut ticks = tokio::time::interval(HEALTH_EVERY);
    loop {
        tokio::select! {
            stopped = duly.failed() => return Failure::failed(stopped.to_string()),
            _ = ticks.tick() => {}
        }
        // In a task of its own: a store that hangs in this call, its thread and all, keeps nobody from being told to stop.
        let asked = duly.clone();
        let asked = tokio::spawn(async move { asked.health().await });
        let health = tokio::select! {
            stopped = duly.failed() => return Failure::failed(stopped.to_string()),
            health = asked => health,
        };
        let Ok(health) = health else {
            return Failure::failed("asking the store how it is failed by a fault of Duly");
        };
        // Of any part: a full disk, say, must not hide that a thread of the store has died.
        if let Some(error) = health.failing_with(StoreErrorKind::Closed) {
            return Failure::failed(format!("the store has stopped: {error}"));
        }
        if let Some(part) = dead_part() {
            return Failure::failed(format!("{part} has ended by a fault of Duly; nothing accepted is lost"));
        }
    }
}

/// Logged unless somebody says otherwise. What becomes of messages Duly tells itself; the clients of brokers would tell it again,
/// bodies and all.
const LOGGED: &str = "info,async_nats=off,lapin=off";

fn start_log(format: LogFormat, out: &Output, otlp: Option<&Otlp>) -> Result<(), Failure> {
    let given = std::env::var_os("DULY_LOG").or_else(|| std::env::var_os("RUST_LOG"));
    let given = given.map(|filter| filter.to_string_lossy().into_owned()).unwrap_or_default();
    let wanted = if given.trim().is_empty() { LOGGED } else { given.trim() };
    let filter = EnvFilter::builder().parse(wanted).map_err(|e| {
        Failure::usage(format!("{wanted:?} does not say what to log ({e}): write info, debug or duly=debug"))
    })?;
    let log = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(out.colour_words);
    let log = match format {
        LogFormat::Text => log.with_target(false).with_filter(filter).boxed(),
        LogFormat::Json => log.json().flatten_event(true).with_filter(filter).boxed(),
    };
    let registry = tracing_subscriber::registry().with(log);
    #[cfg(feature = "otel")]
    let registry = registry.with(otlp.map(Otlp::layer));
    #[cfg(not(feature = "otel"))]
    let _ = otlp;
    registry.try_init().map_err(|e| Failure::failed(format!("cannot start the log: {e}")))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    };

    use duly::{Clock, ManualClock, Monotonic, Now, Sleep};
    use duly_core::store::{Health, StoreError};
    use duly_stores::{EmbeddedStore, MemoryStore, embedded};
    use testkit::fault::{Call, FailingStore};

    use super::*;

    /// A clock that panics at every sleep after it was told to.
    #[derive(Clone, Default)]
    struct Fragile(ManualClock, Arc<AtomicBool>);

    impl Clock for Fragile {
        fn now(&self) -> Now {
            self.0.now()
        }

        fn sleep_until(&self, until: Monotonic) -> Sleep {
            assert!(!self.1.load(SeqCst), "as told");
            self.0.sleep_until(until)
        }
    }

    #[tokio::test]
    async fn a_task_that_died_ends_the_process_with_an_error() {
        let clock = Fragile::default();
        let builder = Duly::builder().store(Arc::new(MemoryStore::new())).clock(Arc::new(clock.clone()));
        let duly = builder.start().await.unwrap();
        let ended = tokio::spawn(async move { broken(&duly, || None).await });
        clock.1.store(true, SeqCst);
        clock.0.advance(duly::seconds(5));
        let failure = ended.await.unwrap();
        assert_eq!(failure.code(), 1);
        // The driver, or what expires messages: whichever sleeps first.
        assert!(failure.words.starts_with("delivery has stopped: "), "{failure}");
        assert!(failure.words.contains(" panicked: as told"), "{failure}");
    }

    #[tokio::test]
    async fn any_other_part_that_died_ends_the_process_with_an_error() {
        let duly = Duly::builder().store(Arc::new(MemoryStore::new())).start().await.unwrap();
        let failure = broken(&duly, || Some("what listens for calls")).await;
        assert_eq!(failure.code(), 1);
        assert!(failure.words.starts_with("what listens for calls has ended"), "{failure}");
    }

    #[tokio::test]
    async fn a_store_that_closed_itself_ends_the_process_with_an_error() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
        let options = embedded::Options::small();
        let store = Arc::new(EmbeddedStore::open(folder.path(), options, clock.now()).await.unwrap());
        let builder = Duly::builder().store(store.clone()).clock(Arc::new(clock));
        let duly = builder.start().await.unwrap();
        store.abandon();
        let failure = broken(&duly, || None).await;
        assert_eq!(failure.code(), 1);
        assert!(failure.words.contains("the store has stopped"), "{failure}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn a_signal_is_heeded_while_the_store_blocks_the_health_call() {
        let store = FailingStore::new(Arc::new(MemoryStore::new()));
        let duly = Duly::builder().store(store.clone()).start().await.unwrap();
        store.fail([Call::HealthBlocks], StoreErrorKind::Unavailable);
        let asked = store.health_asked();
        let (stop, stop_signal) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let stop_signal = async { stop_signal.await.unwrap() };
            until_stopped(stop_signal, &duly, || None).await.is_ok()
        });
        // From here on a thread is stuck in the call.
        while store.health_asked() == asked {
            tokio::task::yield_now().await;
        }
        stop.send(()).unwrap();
        let ended = tokio::time::timeout(duly::seconds(20), server).await;
        store.fail([], StoreErrorKind::Unavailable);
        assert!(ended.expect("the signal is not waited for behind the call").unwrap());
    }

    #[tokio::test]
    async fn a_closed_part_of_the_store_ends_the_process_whatever_else_fails() {
        for full_by_its_own_word in [true, false] {
            let store = FailingStore::new(Arc::new(MemoryStore::new()));
            let builder = Duly::builder().store(store.clone()).clock(Arc::new(ManualClock::new()));
            let duly = builder.start().await.unwrap();
            let error = |kind, what: &str| Err(StoreError::new(kind, what));
            let mut health = Health::healthy();
            health.background = error(StoreErrorKind::Closed, "a thread of it died");
            if full_by_its_own_word {
                health.accepting = error(StoreErrorKind::Full, "the disk is full");
            }
            store.fail([Call::Insert], StoreErrorKind::Full);
            for _ in 0..3 {
                duly.send(duly::Message::to("order")).await.unwrap_err();
            }
            store.report(health);
            let seen = duly.health().await.store().unwrap_err();
            assert_eq!(seen.kind, StoreErrorKind::Full, "the first that fails is another");
            let failure = broken(&duly, || None).await;
            assert!(failure.words.contains("a thread of it died"), "{failure}");
        }
    }
}
