use super::*;

fn key(ready: u64) -> ReleaseKey {
    ReleaseKey::from(Timestamp::from_millis(ready))
}

fn entry(bytes: usize) -> HotEntry {
    let data = Some(Bytes::from(vec![0; bytes])).filter(|data| !data.is_empty());
    HotEntry { hash: 1, position: Position { file: 1, off8: 1 }, data, suspect: false }
}

fn two_lanes() -> Lanes {
    let mut lanes = Lanes::default();
    lanes.add(0, Lane::Queue("a".parse().unwrap()));
    lanes.add(1, Lane::Queue("b".parse().unwrap()));
    lanes
}

#[test]
fn the_bytes_of_the_hot_window_agree_with_its_entries() {
    let mut lanes = two_lanes();
    for number in 0..2 {
        let mut lane = lanes.get_mut(number).unwrap();
        (1..=4).for_each(|ready| lane.insert_hot(key(ready), entry(100)));
        // The same message again, read from its position this time.
        lane.insert_hot(key(2), entry(0));
        lane.remove_hot(&key(3));
        lane.remove_hot(&key(9));
        assert_eq!(lane.pop_hot().unwrap().0, key(1));
    }
    let counted = lanes.hot_bytes();
    assert_eq!(counted, 2 * (2 * NEAR_COST + 100));
    lanes.recount_hot_bytes();
    assert_eq!(lanes.hot_bytes(), counted);
}

#[test]
fn what_is_spilled_is_behind_the_cut_and_marks_where_the_lane_has_a_gap() {
    let mut lanes = two_lanes();
    let mut lane = lanes.get_mut(0).unwrap();
    (1..=4).for_each(|ready| lane.insert_hot(key(ready), entry(10)));
    let spilled: Vec<_> = std::iter::from_fn(|| lane.spill_last(&key(3))).map(|(key, _)| key).collect();
    assert_eq!(spilled, [key(4), key(3)]);
    assert_eq!(lane.spilling(), Some(&key(3)));
    lane.end_spilling();
    assert_eq!(lane.spilling(), None);
    assert_eq!(lanes.with_hot(), [0]);
    assert_eq!(lanes.hot_bytes(), 2 * (NEAR_COST + 10));
}

#[test]
fn each_message_is_counted_once_through_its_life() {
    let mut lanes = two_lanes();
    let counts = |lanes: &Lanes| {
        let lane = lanes.get(0).unwrap();
        (lane.pending(), lane.near_count(), lane.in_flight(), lane.dead(), lanes.dead())
    };
    let mut lane = lanes.get_mut(0).unwrap();
    lane.add_pending();
    lane.add_near();
    assert_eq!(counts(&lanes), (1, 1, 0, 0, 0));
    lanes.get_mut(0).unwrap().claim();
    assert_eq!(counts(&lanes), (0, 0, 1, 0, 0));
    let mut lane = lanes.get_mut(0).unwrap();
    lane.end_claim();
    lane.add_dead();
    assert_eq!(counts(&lanes), (0, 0, 0, 1, 1));
    lanes.get_mut(1).unwrap().add_dead();
    lanes.get_mut(0).unwrap().remove_dead();
    assert_eq!(counts(&lanes), (0, 0, 0, 0, 1));
}
