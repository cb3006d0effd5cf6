//! How large statements are: servers refuse those that are too large.

use duly_core::{Store, StoredMessage};

use crate::{
    bed::{id, insert, message, totals},
    server::both,
};

/// More than one of our statements holds, with what is around it; and less than the messages of the test together.
const PACKET_BYTES: usize = 8 << 20;
const COUNT: usize = 20;
const PROPERTIES: usize = 250;
const PROPERTY_BYTES: usize = 4_000;

fn with_large_properties(number: usize) -> StoredMessage {
    let mut message = message(&format!("m{number}"), 0);
    for at in 0..PROPERTIES {
        message.properties.set(&format!("p{at}"), &"x".repeat(PROPERTY_BYTES)).unwrap();
    }
    message
}

both! {
    fn messages_with_large_properties_go_in_several_statements(bed: own) {
        // MySQL refuses what is too large. PostgreSQL takes all, so each statement is measured.
        if bed.is_mysql() {
            bed.sql(&format!("SET GLOBAL max_allowed_packet = {PACKET_BYTES}"));
        }
        let store = bed.store(1).await;
        if !bed.is_mysql() {
            bed.sql(
                "CREATE TABLE measured (bytes BIGINT); \
                 CREATE FUNCTION measure() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO measured \
                 SELECT SUM(octet_length(properties) + octet_length(body)) FROM added; RETURN NULL; END $$; \
                 CREATE TRIGGER measure AFTER INSERT ON delay_message REFERENCING NEW TABLE AS added FOR EACH STATEMENT \
                 EXECUTE FUNCTION measure()",
            );
        }
        let all: Vec<_> = (0..COUNT).map(with_large_properties).collect();
        assert!(all.iter().map(StoredMessage::bytes).sum::<usize>() > 2 * PACKET_BYTES);
        insert(&store, all.clone()).await.unwrap();
        assert_eq!(totals(&store).await.accepted, COUNT as u64);
        let last = store.get(&[id(&format!("m{}", COUNT - 1))]).await.unwrap().remove(0).unwrap();
        assert_eq!(last.message.properties, all[COUNT - 1].properties);
        if !bed.is_mysql() {
            let sum: usize = bed.sql("SELECT SUM(bytes) FROM measured").parse().unwrap();
            let largest: usize = bed.sql("SELECT MAX(bytes) FROM measured").parse().unwrap();
            assert!(sum > 2 * PACKET_BYTES && largest < PACKET_BYTES, "{largest} of {sum} bytes");
        }
    }
}
