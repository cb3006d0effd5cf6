//! D10: figures.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use ::metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use duly_streams::{Entry, Settings};

use crate::{Order, quick, server::both, wait_until};

/// Keeps every figure by its name and topic.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>);

impl Kept {
    fn of(&self, key: &Key) -> Arc<AtomicU64> {
        let mut name = key.name().to_owned();
        for label in key.labels() {
            name.push_str(&format!(" {}={}", label.key(), label.value()));
        }
        self.0.lock().unwrap().entry(name).or_default().clone()
    }

    fn get(&self, name: &str, topic: &str) -> u64 {
        let name = format!("{name} topic={topic} group=duly-streams");
        self.0.lock().unwrap().get(&name).map_or(0, |value| value.load(Ordering::Relaxed))
    }

    fn gauge(&self, name: &str, topic: &str) -> f64 {
        f64::from_bits(self.get(name, topic))
    }
}

struct Count(Arc<AtomicU64>);

impl ::metrics::HistogramFn for Count {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.of(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.of(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Count(self.of(key))))
    }
}

fn kept() -> &'static Kept {
    static KEPT: OnceLock<Kept> = OnceLock::new();
    KEPT.get_or_init(|| {
        let kept = Kept::default();
        ::metrics::set_global_recorder(kept.clone()).unwrap();
        kept
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn backlog_pending_failures_and_dead_letters_are_measured() {
    for (at, server) in both().into_iter().enumerate() {
        let (kept, topic) = (kept(), format!("measured.{at}"));
        let streams = server.connect(Settings { backlog_alert: 10, ..quick() }).await;
        let (go, removed) = tokio::sync::watch::channel(false);
        for number in 0..20 {
            streams.send(&topic, &Order { number }).await.unwrap();
        }
        let handler = move |order: Entry<Order>| {
            let mut removed = removed.clone();
            async move {
                removed.wait_for(|go| *go).await.map_err(|_| "nobody lets it go")?;
                if order.value.number == 3 { Err("poison") } else { Ok(()) }
            }
        };
        let (reported, mut telling) = tokio::sync::mpsc::unbounded_channel();
        streams
            .listener(topic.clone(), handler)
            .concurrency(4)
            .attempts(2)
            .processing_timeout(std::time::Duration::from_secs(3600))
            .on_stalled(move |stalled| reported.send(stalled.entries).unwrap_or(()))
            .start()
            .await
            .unwrap();
        wait_until("four are in hand", || kept.gauge("duly_streams_pending", &topic) >= 4.0);
        wait_until("all are before it", || kept.gauge("duly_streams_backlog", &topic) == 20.0);
        assert!(kept.gauge("duly_streams_lag", &topic) > 0.0);
        wait_until("the oldest is some time old", || {
            kept.gauge("duly_streams_oldest_pending_seconds", &topic) > 0.0
        });
        assert_eq!(crate::next(&mut telling).await, 20, "a backlog is reported");
        let stats = streams.group(&topic, "duly-streams").unwrap().stats().await.unwrap();
        assert_eq!((stats.length, stats.backlog(), stats.consumers), (20, 20, 1));
        go.send_replace(true);
        wait_until("one is a dead letter", || kept.gauge("duly_streams_dead_letters", &topic) == 1.0);
        wait_until("nothing is before it", || kept.gauge("duly_streams_backlog", &topic) == 0.0);
        assert_eq!(kept.get("duly_streams_handled_total", &topic), 19);
        assert_eq!(kept.get("duly_streams_failures_total", &topic), 2);
        assert_eq!(kept.get("duly_streams_dead_letters_total", &topic), 1);
        assert_eq!(kept.get("duly_streams_handling_seconds", &topic), 21);
        streams.shutdown().await.unwrap();
    }
}
