//! Others who use the same database: they insert rows by plain SQL, and lock rows as they please.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use duly_core::schedule::Random;
use http::Method;
use tokio::task::JoinSet;

use crate::{
    bed::Bed,
    database::Database,
    ledger::{Accepted, Entry, Ledger, SINKS},
    load::Time,
    node::Node,
    targets::STREAMS,
};

/// So many messages go with one order.
const TOGETHER: u64 = 4;
/// So many rows are locked, one after the other.
const LOCKED: usize = 10;
/// So many messages are sent again at once.
const AGAIN: usize = 20;

/// They work until they are told to stop.
pub(crate) struct Others {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    more: Vec<Others>,
}

#[derive(Clone)]
struct Other {
    database: Arc<Database>,
    ledger: Arc<Ledger>,
    time: Time,
    stop: Arc<AtomicBool>,
}

impl Others {
    /// Somebody who writes orders and, in the same transaction, messages about them.
    pub(crate) fn ordering(bed: &mut Bed, database: &Arc<Database>) -> Self {
        database.run("CREATE TABLE orders (id VARCHAR(40) PRIMARY KEY)");
        let seed = bed.draw(u64::MAX);
        Self::start(bed, database, 1, |other, _| other.order(Random::new(seed)))
    }

    /// Some who lock rows of messages, each in an order of their own, and one who sends the same messages again, many at once.
    pub(crate) fn locking(bed: &mut Bed, database: &Arc<Database>) -> Self {
        database.run(
            "CREATE TABLE ballast (id INT PRIMARY KEY, n INT NOT NULL); INSERT INTO ballast VALUES (0, 0), (1, 0)",
        );
        let (seed, again) = (bed.draw(u64::MAX), Random::new(bed.draw(u64::MAX)));
        let mut others =
            Self::start(bed, database, 2, |other, place| other.lock(place, Random::new(seed ^ place)));
        let nodes = bed.nodes.clone();
        let again = Self::start(bed, database, 1, |other, _| other.send_again(nodes.clone(), again.clone()));
        others.more.push(again);
        others
    }

    fn start<F: Future<Output = ()> + Send + 'static>(
        bed: &Bed,
        database: &Arc<Database>,
        count: u64,
        work: impl Fn(Other, u64) -> F,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let other = Other {
            database: database.clone(),
            ledger: bed.ledger.clone(),
            time: bed.time.clone(),
            stop: stop.clone(),
        };
        let mut tasks = JoinSet::new();
        for place in 0..count {
            tasks.spawn(work(other.clone(), place));
        }
        Self { stop, tasks, more: Vec::new() }
    }

    /// Lets them finish what they are at.
    pub(crate) async fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(done) = self.tasks.join_next().await {
            done.unwrap();
        }
        for more in self.more {
            Box::pin(more.stop()).await;
        }
    }
}

impl Other {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    async fn order(self, mut random: Random) {
        for order in 0.. {
            if self.is_over() {
                return;
            }
            let (asked_ms, mut rows, mut dues) = (self.time.wall_ms(), Vec::new(), Vec::new());
            // One order in five is not placed after all, and nobody must hear of its messages.
            let is_placed = order % 5 != 4;
            for number in 0..TOGETHER {
                let id = format!("order-{order}-{number}");
                let sink = SINKS[(random.draw() % 3) as usize];
                let topic = STREAMS[(random.draw() % STREAMS.len() as u64) as usize];
                let delay_ms = 50 + random.draw() % 2500;
                rows.push(format!("('{id}', '{sink}', '{topic}', 'body of {id}', {})", asked_ms + delay_ms));
                if is_placed {
                    self.ledger.ask(&id, sink, asked_ms, delay_ms);
                    dues.push((id, asked_ms + delay_ms));
                }
            }
            let end = if is_placed { "COMMIT" } else { "ROLLBACK" };
            let statements = format!(
                "BEGIN; INSERT INTO orders VALUES ('{order}'); \
                 INSERT INTO delay_message (message_id, sink, topic, body, deliver_time_ms) VALUES {}; {end};",
                rows.join(", ")
            );
            while !self.is_done(statements.clone()).await {
                dues.iter().for_each(|(id, _)| self.ledger.change(id, |entry| entry.unknown += 1));
                self.time.pass_ms(50).await;
            }
            for (id, due_ms) in dues {
                let accepted = Some(Accepted { at_ms: self.time.wall_ms(), due_ms });
                self.ledger.change(&id, |entry| entry.accepted = accepted);
            }
            self.time.pass_ms(random.draw() % 100).await;
        }
    }

    async fn is_done(&self, statements: String) -> bool {
        match self.database.ask_beside(statements).await {
            Ok(_) => true,
            // An order that is there already was placed, and its messages with it.
            Err(error) => error.to_lowercase().contains("duplicate"),
        }
    }

    /// Some that are due about now, in no order.
    fn near(&self, count: usize, random: &mut Random) -> Vec<(String, Entry)> {
        let now = self.time.wall_ms();
        let is_near = |due_ms: u64| (now.saturating_sub(400)..now + 200).contains(&due_ms);
        let ledger = self.ledger.all().into_iter();
        let near = ledger.filter(|(_, entry)| entry.accepted.is_some_and(|it| is_near(it.due_ms)));
        let mut near: Vec<_> = near.map(|near| (random.draw(), near)).collect();
        near.sort_unstable_by_key(|(turn, _)| *turn);
        near.into_iter().take(count).map(|(_, near)| near).collect()
    }

    async fn lock(self, place: u64, mut random: Random) {
        while !self.is_over() {
            // A database that has to choose lets the one go on that has done more.
            let mut statements = format!("BEGIN; UPDATE ballast SET n = n + 1 WHERE id = {place};");
            for (id, _) in self.near(LOCKED, &mut random) {
                statements += &format!("SELECT 1 FROM delay_message WHERE message_id = '{id}' FOR UPDATE;");
                statements += self.database.make().either("DO SLEEP(0.01);", "SELECT pg_sleep(0.01);");
            }
            // If the database takes it back, it is begun again with other rows.
            let _ = self.database.ask_beside(statements + "COMMIT;").await;
            self.time.pass_ms(random.draw() % 20).await;
        }
    }

    async fn send_again(self, nodes: Arc<Vec<Node>>, mut random: Random) {
        while !self.is_over() {
            let near = self.near(AGAIN, &mut random);
            let bodies: Vec<_> = near.into_iter().filter_map(|(_, entry)| entry.again).collect();
            let node = &nodes[(random.draw() % nodes.len() as u64) as usize];
            // Whatever the answer is, all of them were accepted before.
            let _ = node.call(Method::POST, "/v1/messages/batch", format!("[{}]", bodies.join(","))).await;
            self.time.pass_ms(random.draw() % 20).await;
        }
    }
}
