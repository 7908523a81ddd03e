//! The cleaner is killed: at whatever change of a file or name that happens, the old or the new segments are found.

use crate::common::compacted::*;
use crate::common::*;
use std::sync::Arc;

use fletchlog_log::fs::{Fs, MemoryFs};
use fletchlog_log::{CleanerOptions, OpenMode};

/// A file system whose writer dies: after `left` changes of names nothing changes any more.
mod dying {
    use std::io;
    use std::sync::atomic::{AtomicI64, Ordering};

    use fletchlog_log::fs::{DirEntry, DirLock, File, Fs, LockError, MemoryFs};

    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use bytes::Bytes;

    #[derive(Debug)]
    pub struct DyingFs {
        pub inner: MemoryFs,
        pub left: AtomicI64,
    }

    impl DyingFs {
        fn change(&self) -> io::Result<()> {
            if self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
                return Err(io::Error::other("killed"));
            }
            Ok(())
        }
    }

    #[derive(Debug)]
    struct DyingFile(Arc<dyn File>, Arc<DyingFs>);

    impl File for DyingFile {
        fn read_at(&self, position: u64, len: usize) -> io::Result<Bytes> {
            self.0.read_at(position, len)
        }
        fn read_into(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
            self.0.read_into(position, buf)
        }
        fn write_at(&self, position: u64, data: &[u8]) -> io::Result<()> {
            self.1.change()?;
            self.0.write_at(position, data)
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.set_len(len)
        }
        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Shared, because its files change it, too.
    #[derive(Debug)]
    pub struct Shared(pub Arc<DyingFs>);

    impl Fs for Shared {
        fn open(&self, path: &Path, write: bool, create: bool) -> io::Result<Arc<dyn File>> {
            if create && !self.0.inner.exists(path) {
                self.0.change()?;
            }
            let file = self.0.inner.open(path, write, create)?;
            Ok(Arc::new(DyingFile(file, Arc::clone(&self.0))))
        }
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            self.0.inner.read(path)
        }
        fn replace(&self, path: &Path, data: &[u8]) -> io::Result<()> {
            self.0.change()?;
            self.0.inner.replace(path, data)
        }
        fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
            self.0.inner.read_dir(path)
        }
        fn create_dir_all(&self, path: &Path) -> io::Result<()> {
            self.0.inner.create_dir_all(path)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.0.change()?;
            self.0.inner.rename(from, to)
        }
        fn remove_file(&self, path: &Path) -> io::Result<()> {
            if self.0.inner.exists(path) {
                self.0.change()?;
            }
            self.0.inner.remove_file(path)
        }
        fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
            self.0.inner.remove_dir_all(path)
        }
        fn exists(&self, path: &Path) -> bool {
            self.0.inner.exists(path)
        }
        fn modified_ms(&self, path: &Path) -> io::Result<i64> {
            self.0.inner.modified_ms(path)
        }
        fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
            self.0.inner.set_modified_ms(path, modified_ms)
        }
        fn sync_dir(&self, path: &Path) -> io::Result<()> {
            self.0.inner.sync_dir(path)
        }
        fn sync_all(&self, dir: &Path) -> io::Result<()> {
            self.0.inner.sync_all(dir)
        }
        fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
            self.0.inner.lock_dir(dir)
        }
    }

    /// A directory and how many changes it still takes.
    pub fn fs() -> (Arc<DyingFs>, Arc<dyn Fs>, PathBuf) {
        let inner = MemoryFs::new();
        inner.create_dir_all(Path::new("/data")).unwrap();
        let dying = Arc::new(DyingFs {
            inner,
            left: AtomicI64::new(i64::MAX),
        });
        let fs: Arc<dyn Fs> = Arc::new(Shared(Arc::clone(&dying)));
        (dying, fs, PathBuf::from("/data/t-0"))
    }
}

#[test]
fn a_crash_at_any_change_leaves_the_old_or_the_new_segments() {
    use std::sync::atomic::Ordering;
    let mut killed = 0;
    for survived in 0.. {
        let (dying, fs, dir) = dying::fs();
        let log = open(&fs, &dir, config(), CLEAN);
        for i in 0..16 {
            put(&log, &[(["a", "b", "c"][i % 3], Some("value"))]);
        }
        put(&log, &[("gone", None)]);
        log.roll(NOW).unwrap();
        let end = clean(&log).end_offset;
        let between = keys(&log);
        dying.left.store(survived, Ordering::Relaxed);
        let later = NOW + HORIZON;
        let cleanable = log.cleanable(Some(end), later).unwrap();
        let cleaned = log.clean(&cleanable, &CleanerOptions::default(), later, &mut || false);
        drop(log);
        dying.left.store(i64::MAX, Ordering::Relaxed);
        for mode in [READ_ONLY, UNCLEAN, CLEAN] {
            let log = open(&fs, &dir, config(), mode);
            let now = keys(&log);
            let after: Vec<_> = between.iter().filter(|(_, key)| key != "gone").cloned().collect();
            assert!(now == between || now == after, "{survived} {mode:?}: {now:?}");
            assert_eq!(log.log_end_offset(), 17, "{survived} {mode:?}");
            if mode == UNCLEAN {
                let left = fs.read_dir(&dir).unwrap();
                let odd = left
                    .iter()
                    .find(|e| [".swap", ".cleaned", ".deleted"].iter().any(|s| e.name.ends_with(s)));
                assert_eq!(odd, None, "{survived}");
                log.close().unwrap();
            }
        }
        if cleaned.is_ok() {
            break;
        }
        killed += 1;
    }
    // Every rename of the new files, twice, and of the old ones, besides the writing.
    assert!(killed > 12, "{killed}");
}

/// A power loss may keep the `.swap` of a cleaning and take the name of the segment behind it, in a directory of Kafka's, which
/// does not sync that name before. The batch that ended at the recovery point is compacted away: nothing is damaged.
#[test]
fn a_compacted_segment_that_a_power_loss_made_the_last_one_is_read() {
    let (fs, dir) = memory();
    let log = open(&fs, &dir, config(), CLEAN);
    put(&log, &[("a", Some("1"))]);
    let mut end = put(&log, &[("x", Some("2"))]);
    while !fs.exists(&dir.join(format!("{end:020}.log"))) {
        end = put(&log, &[("x", Some("2"))]);
    }
    clean(&log);
    log.close().unwrap();
    for entry in fs.read_dir(&dir).unwrap() {
        let path = dir.join(&entry.name);
        if entry.name.starts_with(&format!("{end:020}")) || entry.name == "leader-epoch-checkpoint" {
            fs.remove_file(&path).unwrap();
        } else if entry.name.starts_with(&format!("{:020}", 0)) {
            fs.rename(&path, &dir.join(format!("{}.swap", entry.name))).unwrap();
        }
    }
    for recovery_point in 0..=end {
        let mode = OpenMode::Write {
            clean_shutdown: false,
            recovery_point,
            log_start_offset: 0,
        };
        let image = MemoryFs::with_clock(Arc::new(|| NOW));
        image.create_dir_all(&dir).unwrap();
        for entry in fs.read_dir(&dir).unwrap() {
            let path = dir.join(&entry.name);
            image.replace(&path, &fs.read(&path).unwrap()).unwrap();
        }
        let log = open(&(Arc::new(image) as Arc<dyn Fs>), &dir, config(), mode);
        let last = end - 1;
        assert_eq!(keys(&log), expected(&[(0, "a"), (last, "x")]), "{recovery_point}");
        assert_eq!(log.log_end_offset(), end, "{recovery_point}");
    }
}
