//! A peer that speaks the remoting protocol and answers by a script: for what real servers cannot be made to say.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::batch;

pub(crate) const SEND: i64 = 310;
pub(crate) const SEND_BATCH: i64 = 320;
pub(crate) const ROUTE: i64 = 105;
pub(crate) const CLUSTER: i64 = 106;
pub(crate) const HEARTBEAT: i64 = 34;
pub(crate) const NO_TOPIC: i64 = 17;

/// What a peer does with a request.
pub(crate) enum Reply {
    /// Answers with a code, a remark, and a body.
    With(i64, String, Value),
    /// Never answers.
    Silence,
    /// Answers this one when the next request of the connection comes.
    Later,
}

impl Reply {
    pub(crate) fn ok(body: Value) -> Self {
        Self::With(0, String::new(), body)
    }

    pub(crate) fn code(code: i64, remark: &str) -> Self {
        Self::With(code, remark.to_owned(), Value::Null)
    }
}

/// A request: its code, its fields, and the ids of the messages to send.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) code: i64,
    pub(crate) fields: Value,
    pub(crate) ids: Vec<String>,
    opaque: i64,
}

impl Request {
    fn read(frame: &[u8]) -> Option<Self> {
        let header = u32::from_be_bytes(*frame.first_chunk()?) as usize;
        let (header, body) = frame.get(4..)?.split_at_checked(header)?;
        let header: Value = serde_json::from_slice(header).ok()?;
        let (code, opaque) = (header["code"].as_i64()?, header["opaque"].as_i64()?);
        let fields = header["extFields"].clone();
        let ids = match code {
            SEND => vec![id(fields["i"].as_str()?)],
            SEND_BATCH => batch::read(body).iter().map(|(_, properties)| id(properties)).collect(),
            _ => Vec::new(),
        };
        Some(Self { code, fields, ids, opaque })
    }

    /// The id of the message to send, or of the first.
    pub(crate) fn id(&self) -> &str {
        &self.ids[0]
    }

    fn is_send(&self) -> bool {
        matches!(self.code, SEND | SEND_BATCH)
    }

    fn text(&self, name: &str) -> &str {
        self.fields[name].as_str().unwrap_or_default()
    }

    pub(crate) fn topic(&self) -> &str {
        if self.is_send() { self.text("b") } else { self.text("topic") }
    }

    pub(crate) fn queue(&self) -> u32 {
        self.text("e").parse().unwrap()
    }
}

fn id(properties: &str) -> String {
    let id = properties.split('\u{2}').find_map(|pair| pair.strip_prefix("duly-id\u{1}"));
    id.unwrap_or_default().to_owned()
}

type Script = dyn Fn(&Request) -> Reply + Send + Sync;

/// A listening peer, as long as its runtime lives.
pub(crate) struct Peer {
    pub(crate) address: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Peer {
    pub(crate) async fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (seen, script): (_, Arc<Script>) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::new(script));
        let theirs = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, script.clone(), theirs.clone()));
            }
        });
        Self { address, seen }
    }

    /// A broker that answers heartbeats, and sends by the script.
    pub(crate) async fn broker(send: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start(move |request| match request.code {
            SEND | SEND_BATCH => send(request),
            _ => Reply::ok(Value::Null),
        })
        .await
    }

    /// A name server that knows every topic on all of these masters.
    pub(crate) async fn namesrv(masters: &[&Self]) -> Self {
        let masters: Vec<String> = masters.iter().map(|peer| peer.address.clone()).collect();
        Self::start(move |request| match request.code {
            CLUSTER => Reply::ok(cluster(&masters)),
            _ => Reply::ok(route(&masters, 4)),
        })
        .await
    }

    /// The requests to send that it got.
    pub(crate) fn sends(&self) -> Vec<Request> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|request| request.is_send()).cloned().collect()
    }

    /// The messages that it was sent: each with its id and its queue.
    pub(crate) fn sent(&self) -> Vec<(String, u32)> {
        let each = |request: Request| {
            let queue = request.queue();
            request.ids.into_iter().map(move |id| (id, queue))
        };
        self.sends().into_iter().flat_map(each).collect()
    }
}

/// A topic with so many queues on each of these masters.
pub(crate) fn route(masters: &[String], queues: u32) -> Value {
    let named = |(n, _): (usize, &String)| json!({ "brokerName": format!("b{n}"), "perm": 6, "readQueueNums": queues, "writeQueueNums": queues, "topicSysFlag": 0 });
    let brokers = masters.iter().enumerate().map(|(n, address)| {
        json!({ "cluster": "c", "brokerName": format!("b{n}"), "brokerAddrs": { "0": address } })
    });
    json!({ "brokerDatas": brokers.collect::<Vec<_>>(), "queueDatas": masters.iter().enumerate().map(named).collect::<Vec<_>>() })
}

pub(crate) fn cluster(masters: &[String]) -> Value {
    let brokers = masters.iter().enumerate().map(|(n, address)| {
        let name = format!("b{n}");
        (name.clone(), json!({ "cluster": "c", "brokerName": name, "brokerAddrs": { "0": address } }))
    });
    json!({ "brokerAddrTable": brokers.collect::<serde_json::Map<_, _>>(), "clusterAddrTable": {} })
}

async fn serve(mut stream: TcpStream, script: Arc<Script>, seen: Arc<Mutex<Vec<Request>>>) -> Option<()> {
    let mut late: Vec<Request> = Vec::new();
    loop {
        let length = stream.read_u32().await.ok()? as usize;
        let mut frame = vec![0; length];
        stream.read_exact(&mut frame).await.ok()?;
        let request = Request::read(&frame)?;
        seen.lock().unwrap().push(request.clone());
        let mut replies = Vec::new();
        let answered_late = std::mem::take(&mut late);
        match script(&request) {
            Reply::Later => late.push(request),
            reply => replies.push((request, reply)),
        }
        replies.extend(answered_late.into_iter().map(|request| (request, Reply::ok(Value::Null))));
        for (request, reply) in replies {
            let Reply::With(code, remark, body) = reply else { continue };
            let ids: Vec<_> = (0..request.ids.len()).map(|n| format!("{n:032X}")).collect();
            let fields = json!({ "msgId": ids.join(","), "queueId": "0", "queueOffset": "1" });
            let header = json!({ "code": code, "remark": remark, "flag": 1, "opaque": request.opaque,
                "language": "JAVA", "version": 1, "extFields": fields });
            let (header, body) =
                (header.to_string(), if body.is_null() { String::new() } else { body.to_string() });
            stream.write_u32((4 + header.len() + body.len()) as u32).await.ok()?;
            stream.write_u32(header.len() as u32).await.ok()?;
            stream.write_all(header.as_bytes()).await.ok()?;
            stream.write_all(body.as_bytes()).await.ok()?;
        }
    }
}
