//! Backups: of a folder that stands still, and of one that is changed all the while.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod folder;

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use duly_core::{
    Attempt, DeadReason, Lane, MessageId, Monotonic, Now, Outcome, Receipt, SinkName, State, Store,
    Timestamp, Topic,
    store::{Changed, Claim, Holder, Insert, Settle, Settled, Settlement, StoreErrorKind},
};
use duly_stores::{
    EmbeddedStore,
    embedded::{BackupReport, Options, backup, backup_telling, verify},
};
use folder::{flip, frames, id, insert, message, names, now, open, reads_as, settle_all};

/// A stopped folder with messages in every state, and what is in it.
async fn stopped() -> (tempfile::TempDir, Vec<Option<duly_core::Record>>) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await.unwrap();
    for number in 0..300 {
        let due = if number % 3 == 0 { 1 } else { 1_000_000_000 };
        insert(&store, message(number, due, 200)).await;
    }
    settle_all(&store, now(1)).await;
    store.close().await.unwrap();
    let store = open(folder.path()).await.unwrap();
    for number in 300..320 {
        insert(&store, message(number, 60_000, 200)).await;
    }
    store.cancel(now(0), &[id(1), id(301)]).await.unwrap();
    let ids: Vec<_> = (0..320).map(id).collect();
    let records = store.get(&ids).await.unwrap();
    store.abandon();
    (folder, records)
}

fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    names(folder).into_iter().map(|name| (name.clone(), std::fs::read(folder.join(name)).unwrap())).collect()
}

fn refusal(result: Result<BackupReport, duly_core::store::StoreError>) -> String {
    result.unwrap_err().what
}

#[test]
fn a_copy_of_a_stopped_folder_has_all_of_it_and_the_folder_is_left_alone() {
    testkit::block_on(async {
        let (folder, records) = stopped().await;
        let before = contents(folder.path());
        let to = tempfile::tempdir().unwrap();
        let mut progress = (0, 0);
        let report = backup_telling(folder.path(), to.path(), &mut |done, of| progress = (done, of)).unwrap();
        assert_eq!((report.passes, progress.0), (1, report.bytes));
        assert!(progress.1 >= progress.0 && report.files > 3);
        assert_eq!(contents(folder.path()), before);
        assert!(reads_as(to.path(), &records, "the copy").await);
        assert!(reads_as(folder.path(), &records, "the original").await);
        // And the copy is a folder like any other: it works, closes and opens again.
        let store = open(to.path()).await.unwrap();
        for number in 1_000..1_300 {
            insert(&store, message(number, 60_000, 200)).await;
        }
        assert!(store.totals().await.unwrap().balance());
        store.close().await.unwrap();
        assert!(reads_as(to.path(), &records, "the copy, again").await);
    });
}

#[test]
fn a_backup_goes_to_a_new_or_empty_folder_outside_of_the_original() {
    testkit::block_on(async {
        let (folder, _) = stopped().await;
        let to = tempfile::tempdir().unwrap();
        backup(folder.path(), &to.path().join("new/folder")).unwrap();
        std::fs::write(to.path().join("mine"), "x").unwrap();
        assert!(refusal(backup(folder.path(), to.path())).contains("is not empty"));
        assert!(
            refusal(backup(folder.path(), &folder.path().join("new/inside")))
                .contains("inside the data folder")
        );
        assert!(!folder.path().join("new").exists(), "a refused backup leaves nothing behind");
        let empty = tempfile::tempdir().unwrap();
        assert!(refusal(backup(empty.path(), &to.path().join("b"))).contains("no data folder"));
        assert!(!to.path().join("b").exists());
    });
}

#[test]
fn a_half_made_copy_is_never_opened() {
    testkit::block_on(async {
        let (folder, _) = stopped().await;
        let to = tempfile::tempdir().unwrap();
        // The copy breaks off after any write: the folder as it is then must be refused.
        let mut halves = Vec::new();
        backup_telling(folder.path(), to.path(), &mut |_, _| halves.push(folder::copy(to.path()))).unwrap();
        assert!(halves.len() > 3);
        for half in halves {
            assert_eq!(open(half.path()).await.err().unwrap().kind, StoreErrorKind::Damaged);
            assert!(refusal(backup(folder.path(), half.path())).contains("was not finished"));
            assert!(backup(half.path(), &to.path().join("other")).is_err());
        }
    });
}

#[test]
fn a_damaged_folder_gives_an_error_and_not_a_shorter_copy() {
    testkit::block_on(async {
        let (folder, _) = stopped().await;
        let all = frames(folder.path());
        let middle = &all[all.len() / 2];
        flip(&folder.path().join(&middle.file), (middle.start + middle.end) / 2);
        let to = tempfile::tempdir().unwrap();
        let error = backup(folder.path(), &to.path().join("new/copy")).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
        assert!(error.what.contains(&middle.file), "{error}");
        assert_eq!(names(to.path()), [""; 0], "nothing is left of it");
    });
    testkit::block_on(async {
        let (folder, _) = stopped().await;
        let keys = names(folder.path()).into_iter().find(|name| name.ends_with(".keys")).unwrap();
        flip(&folder.path().join(&keys), 3);
        let to = tempfile::tempdir().unwrap();
        let error = backup(folder.path(), to.path()).unwrap_err();
        assert!(error.kind == StoreErrorKind::Damaged && error.what.contains(&keys), "{error}");
        assert_eq!(names(to.path()), [""; 0], "the folder was there and stays, without a copy");
        backup(stopped().await.0.path(), to.path()).unwrap();
    });
}

/// The copies of a folder in which a bit of the largest table is flipped, at one place after the other.
fn copies_of_damaged(folder: &Path) -> impl Iterator<Item = (tempfile::TempDir, BackupReport)> {
    let len = |name: &String| std::fs::metadata(folder.join(name)).unwrap().len() as usize;
    let table = names(folder).into_iter().filter(|name| name.ends_with(".data")).max_by_key(len).unwrap();
    (0..len(&table)).step_by(5_000).map(move |at| {
        let (original, to) = (folder::copy(folder), tempfile::tempdir().unwrap());
        flip(&original.path().join(&table), at);
        let report = backup(original.path(), to.path()).unwrap();
        (to, report)
    })
}

/// Whoever checks the copy after that takes the mark away or writes more into it; a crash in between leaves no copy that opens.
#[test]
fn a_copy_with_messages_that_cannot_be_read_is_marked_when_the_backup_ends() {
    testkit::block_on(async {
        let (folder, _) = stopped().await;
        let mut marked = 0;
        for (copy, report) in copies_of_damaged(folder.path()) {
            let error = open(copy.path()).await.err().unwrap_or_else(|| panic!("it opens: {report:?}"));
            assert!(report.damaged > 0 && error.what.contains("backup-unsound"), "{error}");
            marked += 1;
        }
        assert!(marked > 3, "{marked}");
    });
}

#[test]
fn what_a_check_has_found_stays_found_if_the_disk_fails_while_it_looks_for_the_ids() {
    testkit::block_on(async {
        let (folder, _) = stopped().await;
        // What is damaged in a table may have ended since: then it is not missed.
        let mut copies = copies_of_damaged(folder.path());
        let (copy, sound_disk) = loop {
            let (copy, _) = copies.next().expect("a message that is missed");
            let found = verify(copy.path(), now(0), &mut |_| true).await.unwrap();
            if found.damaged > 0 {
                break (copy, found);
            }
        };
        assert_eq!((sound_disk.damaged, sound_disk.damaged_ids.len()), (1, 1), "{sound_disk:?}");
        // It looks for the ids in the keys of the tables, after it has read the messages of the last state.
        let mut states_left = 5;
        let mut on_read = |_| {
            states_left -= 1;
            let keys = names(copy.path()).into_iter().filter(|name| name.ends_with(".keys"));
            for name in keys.filter(|_| states_left == 0) {
                std::fs::write(copy.path().join(name), "").unwrap();
            }
            true
        };
        let found = verify(copy.path(), now(0), &mut on_read).await.unwrap();
        assert_eq!((states_left, found.damaged_ids.len()), (0, 0), "{found:?}");
        assert_eq!((found.messages, found.damaged), (sound_disk.messages, sound_disk.damaged));
        assert_eq!(found.faults, sound_disk.faults);
    });
}

#[test]
fn a_copy_gives_out_no_token_that_the_original_gave_out() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await.unwrap();
        insert(&store, message(1, 0, 10)).await;
        let claim = |holder| {
            let lane = Lane::Queue(Topic::parse("work").unwrap());
            Claim { lane, limit: 1, lease: Duration::from_secs(60), holder }
        };
        let to = tempfile::tempdir().unwrap();
        backup(folder.path(), to.path()).unwrap();
        let given = store.claim(now(1), claim(Holder::Client)).await.unwrap().messages.remove(0);
        let copy = open(to.path()).await.unwrap();
        let again = copy.claim(now(1), claim(Holder::Client)).await.unwrap().messages.remove(0);
        assert!(again.receipt.token > given.receipt.token);
        let settlement = Settlement::Delivered { receipt: None };
        let stale = Settle { receipt: given.receipt, settlement };
        assert_eq!(copy.settle(now(1), vec![stale]).await.unwrap(), [Settled::Lost]);
    });
}

/// What the ledger expects of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Expected {
    state: State,
    /// A change is under way: nobody knows whether it is done.
    busy: bool,
    changes: u32,
}

/// What is expected of all messages, and the time.
struct Ledger {
    expected: Mutex<HashMap<MessageId, Expected>>,
    ms: AtomicU64,
    stop: AtomicBool,
}

impl Ledger {
    /// The time, a millisecond later at each call.
    fn now(&self) -> Now {
        let ms = self.ms.fetch_add(1, SeqCst);
        Now::new((1_800_000_000_000 + ms) * 1_000, Monotonic::from_micros((ms + 1) * 1_000))
    }

    fn asking(&self, ids: &[MessageId]) {
        let mut expected = self.expected.lock().unwrap();
        ids.iter().for_each(|id| expected.get_mut(id).unwrap().busy = true);
    }

    fn not_changed(&self, ids: &[MessageId]) {
        let mut expected = self.expected.lock().unwrap();
        ids.iter().for_each(|id| expected.get_mut(id).unwrap().busy = false);
    }

    fn answered(&self, ids: &[MessageId], state: State) {
        let mut expected = self.expected.lock().unwrap();
        for id in ids {
            let changes = expected.get(id).map_or(0, |known| known.changes + 1);
            expected.insert(id.clone(), Expected { state, busy: false, changes });
        }
    }

    fn snapshot(&self) -> HashMap<MessageId, Expected> {
        self.expected.lock().unwrap().clone()
    }
}

/// Inserts, cancels, claims and settles in a lane of its own until it is stopped.
async fn work(store: Arc<EmbeddedStore>, ledger: Arc<Ledger>, worker: usize) {
    let topic = Topic::parse(&format!("lane-{worker}")).unwrap();
    let holder = if worker.is_multiple_of(2) { Holder::Client } else { Holder::Process };
    let mut near = Vec::new();
    for round in 0.. {
        if ledger.stop.load(SeqCst) {
            return;
        }
        let now = ledger.now();
        let ids: Vec<_> =
            (0..16).map(|n| MessageId::parse(&format!("w{worker}-{round}-{n}")).unwrap()).collect();
        let batch = ids.iter().zip(0u64..).map(|(id, n)| {
            let due = now.wall().as_millis() + [0, 3, 40, 3_000, 100_000_000][n as usize % 5];
            let due = Timestamp::from_millis(due);
            let mut message =
                duly_core::StoredMessage::new(id.clone(), SinkName::queue(), topic.clone(), due);
            message.body = duly_core::Body::text("x".repeat(20 + (n as usize * 37) % 200));
            Insert::new(message)
        });
        store.insert(now, batch.collect()).await.unwrap();
        ledger.answered(&ids, State::Pending);
        // The one due last is still there to be cancelled.
        let late = &ids[4..5];
        ledger.asking(late);
        let done = store.cancel(ledger.now(), late).await.unwrap();
        assert!(matches!(done[0], Changed::Done { .. }));
        ledger.answered(late, State::Cancelled);
        near.extend(ids.into_iter().enumerate().filter(|(n, _)| n % 5 != 4).map(|(_, id)| id));
        settle_some(&store, &ledger, &topic, holder, &mut near).await;
    }
}

/// `near` are those that may be claimed.
async fn settle_some(
    store: &EmbeddedStore,
    ledger: &Ledger,
    topic: &Topic,
    holder: Holder,
    near: &mut Vec<MessageId>,
) {
    let lane = Lane::Queue(topic.clone());
    let claim = Claim { lane, limit: 20, lease: Duration::from_secs(3_600), holder };
    ledger.asking(near);
    let claimed = store.claim(ledger.now(), claim).await.unwrap().messages;
    let ids: Vec<_> = claimed.iter().map(|leased| leased.message.id.clone()).collect();
    near.retain(|id| !ids.contains(id));
    ledger.not_changed(near);
    ledger.answered(&ids, State::InFlight);
    // One in four stays in hand.
    let over: Vec<(Receipt, State)> = claimed
        .into_iter()
        .enumerate()
        .filter(|(n, _)| n % 4 != 3)
        .map(|(n, leased)| (leased.receipt, [State::Delivered, State::Dead, State::Pending][n % 4]))
        .collect();
    let now = ledger.now();
    let settle = |(receipt, state): &(Receipt, State)| {
        let attempt = Attempt::new(now.wall(), Outcome::Failed, "as told");
        let settlement = match state {
            State::Delivered => Settlement::Delivered { receipt: Some("proof".into()) },
            State::Dead => Settlement::Dead { reason: DeadReason::Refused, attempt: Some(attempt) },
            _ => Settlement::Retry { at: now.wall().saturating_add(Duration::from_secs(86_400)), attempt },
        };
        Settle { receipt: receipt.clone(), settlement }
    };
    let ids: Vec<_> = over.iter().map(|(receipt, _)| receipt.id.clone()).collect();
    ledger.asking(&ids);
    let settled = store.settle(now, over.iter().map(settle).collect()).await.unwrap();
    assert!(settled.iter().all(|settled| *settled == Settled::Done));
    for (receipt, state) in over {
        ledger.answered(&[receipt.id], state);
    }
}

/// Opens a copy and compares it with what was expected before and after it was made.
async fn check(
    copy: &Path,
    before: &HashMap<MessageId, Expected>,
    after: &HashMap<MessageId, Expected>,
    ledger: &Ledger,
) -> usize {
    let store = EmbeddedStore::open(copy, Options { pending_max: 10_000_000, ..small() }, ledger.now())
        .await
        .unwrap();
    let totals = store.totals().await.unwrap();
    assert!(
        totals.balance() && totals.accepted >= before.len() as u64,
        "{totals:?}, expected {}",
        before.len()
    );
    let ids: Vec<_> = before.keys().cloned().collect();
    let mut exact = 0;
    for (id, record) in ids.iter().zip(store.get(&ids).await.unwrap()) {
        let (was, is) = (before[id], after[id]);
        let Some(record) = record else { panic!("{id} is missing: {was:?}, {is:?}") };
        let over = [State::Delivered, State::Dead, State::Cancelled].contains(&was.state);
        if over || was == is && !is.busy {
            exact += 1;
            // What a process had in hand is lost with it, and waits again.
            let lost = was.state == State::InFlight && record.state == State::Pending && !client(id);
            assert!(record.state == was.state || lost, "{id}: {was:?}, {is:?}, but {record:?}");
        }
    }
    store.close().await.unwrap();
    exact
}

/// Whether a message is claimed by clients.
fn client(id: &MessageId) -> bool {
    id.as_str().as_bytes()[1].is_multiple_of(2)
}

fn small() -> Options {
    Options {
        segment_bytes: 32 << 10,
        checkpoint_bytes: 96 << 10,
        window_bytes: 64 << 10,
        buffer_bytes: 16 << 10,
        chunk_bytes: 16 << 10,
        ..Options::default()
    }
}

#[test]
fn a_copy_made_under_load_has_everything_that_was_answered_before() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Arc::new(Ledger {
            expected: Mutex::default(),
            ms: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let store = EmbeddedStore::open(folder.path(), small(), ledger.now()).await.unwrap();
        let store = Arc::new(store);
        let workers: Vec<_> =
            (0..4).map(|worker| tokio::spawn(work(store.clone(), ledger.clone(), worker))).collect();
        while ledger.expected.lock().unwrap().len() < 1_000 {
            tokio::task::yield_now().await;
        }
        let (totals, end) = (store.clone(), ledger.clone());
        let totals = tokio::spawn(async move {
            while !end.stop.load(SeqCst) {
                let totals = totals.totals().await.unwrap();
                assert!(totals.balance(), "in the middle of everything: {totals:?}");
                tokio::task::yield_now().await;
            }
        });
        let (mut passes, mut exact) = (0, 0);
        for _ in 0..4 {
            let to = tempfile::tempdir().unwrap();
            let before = ledger.snapshot();
            let (from, path) = (folder.path().to_owned(), to.path().to_owned());
            let report = tokio::task::spawn_blocking(move || {
                let manifest = || std::fs::read(from.join("manifest")).unwrap();
                let mut first = true;
                backup_telling(&from, &path, &mut |_, _| {
                    // The folder must change while it is copied: the first bytes wait for the next checkpoint.
                    let old = std::mem::take(&mut first).then(manifest);
                    while old.as_ref().is_some_and(|old| manifest() == *old) {
                        std::thread::yield_now();
                    }
                })
            });
            let report = report.await.unwrap().unwrap();
            let after = ledger.snapshot();
            passes += report.passes;
            exact += check(to.path(), &before, &after, &ledger).await;
        }
        ledger.stop.store(true, SeqCst);
        for worker in workers.into_iter().chain([totals]) {
            worker.await.unwrap();
        }
        assert!(exact > 1_000, "only {exact} messages could be compared");
        assert!(passes >= 8, "the folder never changed while it was copied: nothing was tested");
        println!("{exact} messages compared, in {passes} passes");
        assert!(store.totals().await.unwrap().balance());
    });
}

/// The last record in the newest log of claims that has one: a log that a checkpoint has just made has none yet.
fn last_claim_record(folder: &Path) -> [u8; 32] {
    let number = |name: String| name.strip_prefix("claims-")?.parse::<u32>().ok();
    let mut logs: Vec<u32> = names(folder).into_iter().filter_map(number).collect();
    logs.sort_unstable();
    let last = |number: &u32| {
        // The checkpoint may have removed an older one meanwhile.
        let bytes = std::fs::read(folder.join(format!("claims-{number}"))).ok()?;
        bytes.chunks_exact(32).rfind(|record| record.iter().any(|byte| *byte != 0))?.try_into().ok()
    };
    logs.iter().rev().find_map(last).expect("a claim was recorded")
}

#[test]
fn the_last_claim_is_copied_whatever_its_checksum_ends_in() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await.unwrap();
        insert(&store, message(0, 0, 10)).await;
        let claim_once = async || {
            let claim = Claim {
                lane: Lane::Queue(Topic::parse("work").unwrap()),
                limit: 1,
                lease: Duration::from_secs(60),
                holder: Holder::Client,
            };
            store.claim(now(1), claim).await.unwrap().messages.remove(0).receipt
        };
        // Each release writes a record, too: only a claim that ends so must be the last record.
        let mut rounds = 0..20_000;
        let receipt = loop {
            assert!(rounds.next().is_some(), "of 20,000 claims, none has a checksum that ends in zero");
            let receipt = claim_once().await;
            if last_claim_record(folder.path())[31] == 0 {
                break receipt;
            }
            let settlement = Settlement::Release;
            store.settle(now(1), vec![Settle { receipt, settlement }]).await.unwrap();
        };
        let to = tempfile::tempdir().unwrap();
        backup(folder.path(), to.path()).unwrap();
        let copy = open(to.path()).await.unwrap();
        let settlement = Settlement::Delivered { receipt: None };
        let settled = copy.settle(now(1), vec![Settle { receipt, settlement }]).await.unwrap();
        assert_eq!(settled, [Settled::Done], "the copy does not know the claim");
    });
}
