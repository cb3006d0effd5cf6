//! A cache of lane status for tokens that are limited to some topics.

use std::{sync::Arc, time::Duration};

use duly::{Duly, LaneStatus};
use tokio::{sync::Mutex, time::Instant};

use super::fault::ApiResult;

/// How long an answer of the store is reused.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// The store's last answer. Each query walks all lanes, so limited tokens share one result.
#[derive(Default)]
pub(super) struct RecentLanes(Mutex<Option<(Instant, Arc<[LaneStatus]>)>>);

impl RecentLanes {
    /// The status of all lanes, at most a second old. Of concurrent calls one queries the store and the others wait for it.
    pub(super) async fn get(&self, duly: &Duly) -> ApiResult<Arc<[LaneStatus]>> {
        Ok(self.recent(Instant::now(), duly.lanes()).await?)
    }

    async fn recent<E>(
        &self,
        now: Instant,
        ask: impl Future<Output = Result<Vec<LaneStatus>, E>>,
    ) -> Result<Arc<[LaneStatus]>, E> {
        let mut last = self.0.lock().await;
        if let Some((asked, lanes)) = &*last
            && now.duration_since(*asked) < SHARED_FOR
        {
            return Ok(Arc::clone(lanes));
        }
        let lanes: Arc<[LaneStatus]> = ask.await?.into();
        *last = Some((now, Arc::clone(&lanes)));
        Ok(lanes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[tokio::test]
    async fn calls_within_a_second_share_one_answer_of_the_store() {
        let (recent, begun, asked) = (RecentLanes::default(), Instant::now(), AtomicUsize::new(0));
        let ask = async |answer: Result<(), ()>| {
            asked.fetch_add(1, Relaxed);
            answer.map(|()| Vec::new())
        };
        assert!(recent.recent(begun, ask(Err(()))).await.is_err());
        for _ in 0..9 {
            recent.recent(begun, ask(Ok(()))).await.unwrap();
        }
        assert_eq!(asked.load(Relaxed), 2, "a failure is nobody else's");
        recent.recent(begun + SHARED_FOR, ask(Ok(()))).await.unwrap();
        assert_eq!(asked.load(Relaxed), 3);
    }
}
