//! The far end of MQTT: a real broker, and a subscriber whose session lasts.

#[path = "../mqtt/reader.rs"]
mod reader;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use duly::SystemClock;
use duly_core::{MessageId, Sink, StoredMessage, Timestamp};
use duly_sinks::SinkConfig;
use testkit::{
    servers::mosquitto::Mosquitto,
    sink::{Arrival, CannotShow, Target},
};

use reader::{Published, Reader};

/// A broker with one subscriber.
pub(crate) struct Subscribed {
    broker: Mosquitto,
    reader: Arc<Mutex<Reader>>,
    qos: u8,
}

/// With this quality of service.
pub(crate) fn mqtt(qos: u8) -> Subscribed {
    let broker = Mosquitto::single();
    let reader = Arc::new(Mutex::new(Reader::of(broker.port(), "topic")));
    Subscribed { broker, reader, qos }
}

fn arrival(published: Published) -> Arrival {
    let get = |name: &str| published.user.get(name).cloned();
    let text = |name: &str| get(name).unwrap();
    assert!(published.qos > 0);
    Arrival {
        id: text("duly-id").parse().unwrap(),
        due: Timestamp::from_millis(text("duly-due").parse().unwrap()),
        attempt: text("duly-attempt").parse().unwrap(),
        topic: published.topic.clone(),
        tag: get("duly-tag"),
        key: get("duly-key"),
        content_type: published.content_type.clone().unwrap(),
        body: published.body.clone(),
        properties: published.user.clone(),
    }
}

#[async_trait]
impl Target for Subscribed {
    fn sink(&self) -> Arc<dyn Sink> {
        let config = format!(
            "kind = 'mqtt'\nurl = '{}'\nqos = {}\nrequest_timeout = '60s'",
            self.broker.url(),
            self.qos
        );
        let config: SinkConfig = toml::from_str(&config).unwrap();
        config.build(Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    /// Nothing can be published to a pattern. What the broker itself refuses it closes the connection over: that has tests of its
    /// own.
    fn bad(&self, id: MessageId) -> StoredMessage {
        StoredMessage { topic: "topic/+".parse().unwrap(), ..self.good(id) }
    }

    fn cannot_show(&self, state: &str) -> Option<CannotShow> {
        super::coverage::cannot_show(("mqtt", "shown by"), state)
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let reader = self.reader.clone();
        let read = tokio::task::spawn_blocking(move || reader.lock().unwrap().read()).await.unwrap();
        read.into_iter().map(arrival).collect()
    }

    async fn stop(&self) {
        self.broker.kill();
    }

    async fn start(&self) {
        self.broker.start();
    }
}
