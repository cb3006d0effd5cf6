//! A database that answers and takes no changes is not healthy, and says why.

use duly_core::{
    Store,
    store::{Health, StoreError, StoreErrorKind},
};
use duly_stores::{SqlStore, sql::Options};

use crate::{
    bed::{insert, lane, message, now},
    server::{Bed, both},
};

/// How often a node says that it is there.
const HEARTBEAT_MS: u64 = 10_000;
/// A server that was told to reads its settings again within so many heartbeats.
const HEARTBEATS_MAX: u64 = 1_000;

/// The address for somebody whom `read_only` binds, too.
fn plain_user(bed: &Bed) -> String {
    if !bed.is_mysql() {
        return bed.url().to_owned();
    }
    let database = bed.url().rsplit('/').next().unwrap();
    bed.sql(&format!("CREATE USER plain@'%'; GRANT ALL ON {database}.* TO plain@'%'"));
    format!("mysql://plain@127.0.0.1:{}/{database}", bed.port())
}

fn set_read_only(bed: &Bed, is_on: bool) {
    if bed.is_mysql() {
        bed.sql(&format!("SET GLOBAL read_only = {}", u8::from(is_on)));
    } else {
        bed.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {is_on}"));
        bed.sql("SELECT pg_reload_conf()");
    }
}

/// Lets heartbeats go by until one ends as it is to.
async fn beat_until(store: &SqlStore, at: &mut u64, is_so: impl Fn(&Result<(), StoreError>) -> bool) {
    for _ in 0..HEARTBEATS_MAX {
        *at += HEARTBEAT_MS;
        if is_so(&store.sweep(now(*at), &[lane("work")]).await.map(drop)) {
            return;
        }
    }
    panic!("not within {HEARTBEATS_MAX} heartbeats");
}

both! {
    fn a_database_that_only_lets_itself_be_read_is_not_healthy(bed: own) {
        let store = SqlStore::open(&plain_user(&bed), Options::new(1), now(0)).await.unwrap();
        insert(&store, vec![message("a", 0)]).await.unwrap();
        assert_eq!(store.health().await, Health::healthy());
        let mut at = 0;
        set_read_only(&bed, true);
        beat_until(&store, &mut at, Result::is_err).await;
        assert!(store.totals().await.is_ok(), "questions are answered as ever");
        let Health { accepting, claiming, .. } = store.health().await;
        for error in [accepting.unwrap_err().what, claiming.unwrap_err().what] {
            assert!(error.contains("only lets itself be read"), "{error}");
        }
        set_read_only(&bed, false);
        beat_until(&store, &mut at, Result::is_ok).await;
        assert_eq!(store.health().await, Health::healthy());
        insert(&store, vec![message("b", 0)]).await.unwrap();
    }

    fn a_database_without_room_is_not_healthy_until_there_is_some(bed: own) {
        let store = bed.store(1).await;
        insert(&store, vec![message("a", 0)]).await.unwrap();
        bed.sql(bed.words(
            "CREATE TRIGGER no_room BEFORE INSERT ON delay_message FOR EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, \
             MESSAGE_TEXT = 'The table is full'",
            "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; \
             END $$; CREATE TRIGGER no_room BEFORE INSERT ON delay_message FOR EACH ROW EXECUTE FUNCTION no_room()",
        ));
        assert_eq!(insert(&store, vec![message("b", 0)]).await.unwrap_err().kind, StoreErrorKind::Full);
        store.sweep(now(HEARTBEAT_MS), &[lane("work")]).await.unwrap();
        let Health { accepting, claiming, .. } = store.health().await;
        assert_eq!(accepting.unwrap_err().kind, StoreErrorKind::Full);
        assert_eq!(claiming, Ok(()), "what is there still goes out");
        assert!(store.metrics().full);
        bed.sql(bed.words("DROP TRIGGER no_room", "DROP TRIGGER no_room ON delay_message"));
        store.sweep(now(2 * HEARTBEAT_MS), &[lane("work")]).await.unwrap();
        assert_eq!(store.health().await, Health::healthy(), "without anybody having sent anything");
        assert!(!store.metrics().full);
        assert_eq!(bed.sql("SELECT COUNT(*) FROM delay_message"), "1", "and what looked for room is not there");
    }
}
