use duly_core::{Timestamp, store::Changed};

use super::super::{
    Options,
    engine::{Admission, Class},
    test_bed::{Bed, id, message, now, tiny},
};

const DAY_MS: u64 = 24 * 3_600_000;

#[test]
fn a_table_is_sealed_before_its_places_end() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { table_bytes: 4 << 10, ..tiny() };
        {
            let mut bed = Bed::open(dir.path(), options.clone());
            for first in (0..100).step_by(5) {
                bed.insert(0, (first..first + 5).map(|number| message("work", number, 50_000, 300))).await;
                bed.shared.flush(true).unwrap();
            }
            let lens: Vec<u64> = bed.shared.engine().tables.values().map(|table| table.data_len).collect();
            assert!(lens.len() > 5 && lens.iter().all(|len| *len <= options.table_bytes), "{lens:?}");
            bed.shared.checkpoint().unwrap();
            bed.round();
        }
        let mut bed = Bed::open(dir.path(), options);
        bed.shared.engine().tick(now(50_000));
        bed.round();
        let mut came = 0;
        while came < 100 {
            let some = bed.claim(50_000, "work", 10).await.messages.len();
            assert!(some > 0, "{came} came");
            came += some;
        }
    });
}
