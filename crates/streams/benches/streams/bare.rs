//! What people write by hand: the commands, and nothing else. The entries have the fields that ours have.

use redis::{Pipeline, aio::MultiplexedConnection};
use testkit::servers::redis::Redis;

use crate::{Arguments, Order};

pub(crate) struct Bare {
    link: MultiplexedConnection,
    _redis: Redis,
}

impl Bare {
    pub(crate) async fn new(redis: Redis) -> Self {
        let client = redis::Client::open(redis.url()).unwrap();
        Self { link: client.get_multiplexed_async_connection().await.unwrap(), _redis: redis }
    }

    fn append(stream: &str, number: usize) -> redis::Cmd {
        let body = serde_json::to_vec(&Order::new(number)).unwrap();
        let mut append = redis::cmd("XADD");
        append.arg(stream).arg("*").arg("body").arg(body).arg("content-type").arg("application/json");
        append.arg("duly-id").arg(format!("{:016x}-{number}", 7)).arg("duly-due").arg(1_794_852_900_000_u64);
        append.arg("duly-attempt").arg(1);
        append
    }

    pub(crate) async fn send_one_by_one(&self, count: usize) {
        let mut link = self.link.clone();
        for number in 0..count {
            let _: String = Self::append("single", number).query_async(&mut link).await.unwrap();
        }
    }

    pub(crate) async fn send_many(&self, arguments: &Arguments) {
        let mut link = self.link.clone();
        for begin in (0..arguments.many).step_by(arguments.batch) {
            let mut pipeline = Pipeline::with_capacity(arguments.batch);
            for number in begin..(begin + arguments.batch).min(arguments.many) {
                pipeline.add_command(Self::append("many", number));
            }
            let _: Vec<String> = pipeline.query_async(&mut link).await.unwrap();
        }
    }

    pub(crate) async fn begin_group(&self) {
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg("many").arg("group").arg("0");
        create.exec_async(&mut self.link.clone()).await.unwrap();
    }

    pub(crate) async fn consume(&self, arguments: &Arguments) {
        type Entries = Vec<(String, Vec<Vec<u8>>)>;
        let mut link = self.link.clone();
        let mut left = arguments.many;
        while left > 0 {
            let mut read = redis::cmd("XREADGROUP");
            read.arg("GROUP").arg("group").arg("me").arg("COUNT").arg(arguments.batch);
            read.arg("BLOCK").arg(1_000).arg("STREAMS").arg("many").arg(">");
            let reported: Vec<(String, Entries)> = read.query_async(&mut link).await.unwrap();
            let ids: Vec<&str> =
                reported.iter().flat_map(|(_, entries)| entries.iter().map(|(id, _)| id.as_str())).collect();
            let _: usize =
                redis::cmd("XACK").arg("many").arg("group").arg(&ids).query_async(&mut link).await.unwrap();
            left -= ids.len();
        }
    }
}
