//! Files of the operating system, `RealFs`.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::common::*;
use fletchlog_log::fs::{Fs, LockError, MemoryFs, RealFs};
use fletchlog_log::{LogConfig, PartitionLog};

#[test]
fn one_writer_per_directory() {
    let dir = tempfile::tempdir().unwrap();
    let fs = real();
    let held = fs.lock_dir(dir.path()).unwrap();
    match fs.lock_dir(dir.path()) {
        Err(LockError::Held { pid }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("{other:?}"),
    }
    drop(held);
    drop(fs.lock_dir(dir.path()).unwrap());
    let memory = MemoryFs::new();
    memory.create_dir_all(Path::new("/d")).unwrap();
    let held = memory.lock_dir(Path::new("/d")).unwrap();
    assert!(memory.lock_dir(Path::new("/d")).is_err());
    drop(held);
    assert!(memory.lock_dir(Path::new("/d")).is_ok());
}

#[test]
fn real_files_are_not_for_everyone_and_links_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let log = open(&real(), &path, LogConfig::default(), CLEAN);
    append(&log, batch(&[(NOW, b"x")]));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path) & !0o750, 0);
    assert_eq!(mode(&path.join("00000000000000000000.log")) & !0o640, 0);
    symlink("/etc/hostname", path.join("link")).unwrap();
    assert!(real().open(&path.join("link"), false, false).is_err());
}

/// A partition may be on another disk; a file of it may not.
#[test]
fn a_link_to_a_directory_is_listed_as_one_and_any_other_link_is_not() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("there")).unwrap();
    fs::write(dir.path().join("file"), b"abc").unwrap();
    for (link, target) in [("a", "there"), ("b", "file"), ("c", "nowhere"), ("d", "d")] {
        symlink(target, dir.path().join(link)).unwrap();
    }
    let entries = real().read_dir(dir.path()).unwrap();
    let listed: Vec<_> = entries.iter().filter(|e| e.is_dir).map(|e| e.name.as_str()).collect();
    assert_eq!(listed, ["a", "there"]);
}

const SEGMENT: &str = "00000000000000000000.log";

/// A file of the largest size that there is, and one more byte; holes take no room.
fn enlarge(path: &Path, bytes: u64) {
    let file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap();
    file.set_len(bytes).unwrap();
}

#[test]
fn a_preallocated_segment_is_cut_to_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let log = open(&real(), &path, LogConfig::default(), CLEAN);
    append(&log, batch(&[(NOW, b"x")]));
    let size = log.size();
    drop(log);
    enlarge(&path.join(SEGMENT), i32::MAX as u64);
    let log = open(&real(), &path, LogConfig::default(), UNCLEAN);
    assert_eq!((log.log_end_offset(), log.size()), (1, size));
    assert_eq!(fs::metadata(path.join(SEGMENT)).unwrap().len(), size);
    assert!(files(&path).keys().all(|name| !name.contains(".torn")));
}

#[test]
fn what_is_behind_a_hole_is_kept_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t-0");
    let log = open(&real(), &path, LogConfig::default(), CLEAN);
    append(&log, batch(&[(NOW, b"x")]));
    let size = log.size();
    drop(log);
    enlarge(&path.join(SEGMENT), 10 << 20);
    let file = fs::OpenOptions::new().write(true).open(path.join(SEGMENT)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"something", (8 << 20) + 7).unwrap();
    drop(open(&real(), &path, LogConfig::default(), UNCLEAN));
    let kept = fs::read(path.join(format!("{SEGMENT}.torn-1"))).unwrap();
    let at = usize::try_from((8 << 20) + 7 - size).unwrap();
    assert_eq!(
        (&kept[at..at + 9], kept.len() as u64),
        (&b"something"[..], (10 << 20) - size)
    );
}

#[test]
fn a_file_larger_than_any_of_a_log_is_named_before_it_is_read() {
    for name in [
        SEGMENT,
        "00000000000000000000.log.swap",
        "leader-epoch-checkpoint",
        "00000000000000000000.txnindex",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
    ] {
        for mode in [READ_ONLY, CLEAN, UNCLEAN] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("t-0");
            let log = open(&real(), &path, LogConfig::default(), CLEAN);
            append(&log, batch(&[(NOW, b"x")]));
            log.close().unwrap();
            enlarge(&path.join(name), i32::MAX as u64 + 1);
            match PartitionLog::open(real(), &path, tp(), LogConfig::default(), mode, NOW) {
                // Recovery makes the indexes anew.
                Ok(log) => assert!(
                    mode == UNCLEAN && name.contains("index") && log.log_end_offset() == 1,
                    "{name}"
                ),
                Err(e) => assert!(e.to_string().contains("2147483648 bytes"), "{name}: {e}"),
            }
        }
    }
}

type Replace = fn(&RealFs, &Path, &[u8]) -> io::Result<()>;
/// Leaves something under the temporary name; the second path is that of another file.
type Leave = fn(&Path, &Path);

const REPLACE: [(&str, Replace); 2] = [
    ("replace", RealFs::replace),
    ("replace_without_name", RealFs::replace_without_name),
];

#[test]
fn a_replacement_takes_nothing_over_from_one_that_failed() {
    let leave: [(&str, Leave); 4] = [
        ("nothing", |_, _| {}),
        ("an empty file", |temporary, _| fs::write(temporary, b"").unwrap()),
        ("a longer file", |temporary, other| {
            fs::hard_link(other, temporary).unwrap()
        }),
        ("a link", |temporary, other| symlink(other, temporary).unwrap()),
    ];
    for ((how, replace), (what, leave)) in REPLACE.into_iter().flat_map(|r| leave.map(|l| (r, l))) {
        let dir = tempfile::tempdir().unwrap();
        let [path, temporary, other] = ["file", "file.tmp", "other"].map(|name| dir.path().join(name));
        fs::write(&path, b"old").unwrap();
        fs::write(&other, b"longer than the new one").unwrap();
        leave(&temporary, &other);
        replace(&RealFs::new(), &path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new", "{how}, {what} was left");
        assert!(path.symlink_metadata().unwrap().is_file(), "{how}, {what} was left");
        assert!(temporary.symlink_metadata().is_err(), "{how}, {what} was left");
        let kept = fs::read(&other).unwrap();
        assert_eq!(kept, b"longer than the new one", "{how}, {what} was left");
    }
}

#[test]
fn a_replacement_that_cannot_remove_what_was_left_keeps_the_old_file() {
    for (how, replace) in REPLACE {
        let dir = tempfile::tempdir().unwrap();
        let [path, temporary] = ["file", "file.tmp"].map(|name| dir.path().join(name));
        fs::write(&path, b"old").unwrap();
        fs::create_dir(&temporary).unwrap();
        replace(&RealFs::new(), &path, b"new").unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old", "{how}");
        fs::remove_dir(&temporary).unwrap();
        replace(&RealFs::new(), &path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new", "{how}");
    }
}
