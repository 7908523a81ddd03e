//! Records through streams: nothing lost, nothing doubled, per partition in order, across rebalances.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fletchlog_api::transport::SystemClock;

use super::*;

#[test]
fn a_new_owner_goes_on_where_the_old_one_stopped() {
    let (broker, _clock) = virtual_broker(&[("t", 2)]);
    for partition in 0..2 {
        produce(&broker, "t", partition, 30);
    }
    let b = consumer(&broker, "g-move", "b", &[("max.poll.records", "10")]);
    let mut b_streams = b.create_message_streams(&[("t", 1)]).unwrap();
    let mut first = BTreeMap::new();
    for _ in 0..2 {
        for run in poll(&mut b_streams[0]).unwrap().runs {
            first
                .entry(run.tp)
                .or_insert_with(Vec::new)
                .extend(run.first_offset..=run.last_offset);
        }
    }
    let a = consumer(&broker, "g-move", "a", &[]);
    let mut streams = a.create_message_streams(&[("t", 1)]).unwrap();
    streams.extend(b_streams);
    let rest = drain(&mut streams);
    assert_eq!(
        rest.keys()
            .map(|(thread, tp)| (thread.as_str(), tp.partition))
            .collect::<Vec<_>>(),
        [("g-move_a-0", 0), ("g-move_b-0", 1)]
    );
    for ((_, tp), rest) in rest {
        let whole: Vec<i64> = first.remove(&tp).unwrap_or_default().into_iter().chain(rest).collect();
        assert_eq!(whole, (0..30).collect::<Vec<_>>(), "{tp}");
    }
}

#[test]
fn largest_starts_at_the_end_and_shutdown_commits_unless_configured_not_to() {
    let (broker, _clock) = virtual_broker(&[("t", 1)]);
    produce(&broker, "t", 0, 10);
    let at_end = consumer(&broker, "g-end", "a", &[("auto.offset.reset", "largest")]);
    let mut streams = at_end.create_message_streams(&[("t", 1)]).unwrap();
    assert!(drain(&mut streams).is_empty());
    produce(&broker, "t", 0, 10);
    assert_eq!(
        drain(&mut streams).into_values().next().unwrap(),
        (10..20).collect::<Vec<_>>()
    );

    for (commits, expected) in [("false", 20), ("true", 20), ("true", 0)] {
        let c = consumer(&broker, "g-commit", "a", &[("auto.commit.enable", commits)]);
        let mut streams = c.create_message_streams(&[("t", 1)]).unwrap();
        let got: usize = drain(&mut streams).values().map(Vec::len).sum();
        assert_eq!(got, expected, "auto.commit.enable={commits}");
        c.shutdown().unwrap();
    }
}

#[test]
fn the_timer_commits_and_a_crash_repeats_only_what_came_after() {
    let (broker, clock) = virtual_broker(&[("t", 1)]);
    produce(&broker, "t", 0, 30);
    let more = [("auto.commit.interval.ms", "1000"), ("max.poll.records", "10")];
    let a = consumer(&broker, "g-timer", "a", &more);
    let mut streams = a.create_message_streams(&[("t", 1)]).unwrap();
    while poll(&mut streams[0]).unwrap().count() == 0 {}
    clock.advance(1000);
    assert_eq!(
        poll(&mut streams[0]).unwrap().runs[0].first_offset,
        10,
        "this poll committed 10 before it returned 10..20"
    );
    drop((a, streams));
    clock.advance(6000);
    let again = consumer(&broker, "g-timer", "a", &more);
    let mut streams = again.create_message_streams(&[("t", 1)]).unwrap();
    assert_eq!(
        drain(&mut streams).into_values().next().unwrap(),
        (10..30).collect::<Vec<_>>()
    );
}

#[test]
fn while_threads_poll_and_members_come_and_go_every_record_is_returned_once_and_in_order() {
    const PARTITIONS: i32 = 6;
    const RECORDS: usize = 400;
    let broker = broker(Arc::new(SystemClock::default()) as Arc<dyn Clock>, &[("t", PARTITIONS)]);
    for partition in 0..PARTITIONS {
        produce(&broker, "t", partition, RECORDS);
    }
    let got: Mutex<BTreeMap<TopicPartition, Vec<i64>>> = Mutex::default();
    let total = AtomicUsize::new(0);
    let all = usize::try_from(PARTITIONS).unwrap() * RECORDS;
    let left = AtomicBool::new(false);
    let member = |id: &str| consumer(&broker, "g-threads", id, &[("max.poll.records", "7")]);
    let join = |consumer: &LegacyConsumer| consumer.create_message_streams(&[("t", 3)]).unwrap();
    let leaver = member("b");
    let leavers_streams = join(&leaver);
    let read = |mut stream: LegacyStream| {
        while total.load(Ordering::SeqCst) < all {
            // The first thread that sees that half is read: the leaver's own threads may get no time until all is.
            if total.load(Ordering::SeqCst) >= all / 2 && !left.swap(true, Ordering::SeqCst) {
                leaver.shutdown().unwrap();
            }
            let records = match stream.poll(20, &mut || false) {
                Ok(records) => records,
                Err(ClientError::Closed(_)) => return,
                Err(other) => panic!("{other}"),
            };
            let mut got = got.lock().unwrap();
            for run in &records.runs {
                got.entry(run.tp.clone())
                    .or_default()
                    .extend(run.first_offset..=run.last_offset);
            }
            total.fetch_add(records.count(), Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        let (read, member, join) = (&read, &member, &join);
        for stream in leavers_streams {
            scope.spawn(move || read(stream));
        }
        for id in ["a", "c"] {
            scope.spawn(move || {
                let consumer = member(id);
                let streams = join(&consumer);
                std::thread::scope(|scope| {
                    for stream in streams {
                        scope.spawn(move || read(stream));
                    }
                });
            });
        }
    });
    let got = got.into_inner().unwrap();
    assert_eq!(got.len(), 6);
    for (tp, offsets) in got {
        assert_eq!(
            offsets.iter().collect::<BTreeSet<_>>().len(),
            offsets.len(),
            "{tp} returned a record twice"
        );
        assert_eq!(offsets.len(), RECORDS, "{tp}");
    }
    assert!(left.load(Ordering::SeqCst), "the member was to leave half way");
}
