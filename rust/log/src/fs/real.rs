//! The operating system's file system: positional reads and writes, no memory maps (a map dies with SIGBUS when another
//! process cuts the file or the disk is full).

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use rustix::fs::{Advice, OFlags, fadvise};

use super::file_cache::{CachedFile, FileCache, Handle};
use super::ofd_lock::OfdLock;
use super::os_file::{FILE_MODE, next_data, open, read_at, read_into, regular};
use super::{DirEntry, DirLock, DirSync, File, Fs, LockError};
use crate::file_name::{TEMPORARY, with_suffix};

const DIR_MODE: u32 = 0o750;

/// Files of the operating system.
#[derive(Debug, Clone)]
pub struct RealFs {
    segments: Arc<FileCache>,
}

impl Default for RealFs {
    fn default() -> Self {
        Self::new()
    }
}

impl RealFs {
    /// The file system of this process. All of them share the descriptors of segment files.
    pub fn new() -> Self {
        Self {
            segments: FileCache::shared(),
        }
    }
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
}

impl File for RealFile {
    fn read_at(&self, position: u64, len: usize) -> io::Result<Bytes> {
        read_at(&self.file, position, len)
    }

    fn read_into(&self, position: u64, buf: &mut [u8]) -> io::Result<usize> {
        read_into(&self.file, position, buf)
    }

    fn write_at(&self, position: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, position)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn next_data(&self, position: u64) -> io::Result<Option<u64>> {
        next_data(&self.file, position)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        // An open file keeps its inode number, so a replacement cannot have it.
        let (this, there) = (self.file.metadata()?, fs::symlink_metadata(path)?);
        Ok((this.dev(), this.ino()) == (there.dev(), there.ino()))
    }
}

impl RealFs {
    fn open_dir(&self, path: &Path) -> io::Result<fs::File> {
        self.segments.with_room(|| fs::File::open(path))
    }
}

/// Writes a new file, not the one that a failed attempt left: after a power loss the final name could have its bytes.
fn write_new(path: &Path, data: &[u8]) -> io::Result<fs::File> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = open(path, true, true)?;
    file.write_all_at(data, 0)?;
    Ok(file)
}

impl Fs for RealFs {
    fn open(&self, path: &Path, write: bool, create: bool) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(RealFile {
            file: self.segments.with_room(|| open(path, write, create))?,
        }))
    }

    fn open_segment(&self, path: &Path, write: bool, create: bool) -> io::Result<Arc<dyn File>> {
        let file = CachedFile::open(&self.segments, path, write, create)?;
        Ok(Arc::new(Handle(file)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let flags = (OFlags::CLOEXEC | OFlags::NONBLOCK).bits().cast_signed();
        let mut file = regular(
            self.segments
                .with_room(|| OpenOptions::new().read(true).custom_flags(flags).open(path))?,
        )?;
        let len = file.metadata()?.len();
        if i32::try_from(len).is_err() {
            let reason = format!(
                "it has {len} bytes, and no file that is read whole has more than {}",
                i32::MAX
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn drop_cache(&self, path: &Path) -> io::Result<()> {
        Ok(fadvise(open(path, false, false)?, 0, None, Advice::DontNeed)?)
    }

    fn replace(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let temporary = with_suffix(path, TEMPORARY);
        let sync_parent = || path.parent().map_or(Ok(()), |parent| self.sync_dir(parent));
        if self.exists(&temporary) {
            // Left by a replacement that failed, perhaps empty: a crash must not bring it back and keep the rename below.
            self.remove_file(&temporary)?;
            sync_parent()?;
        }
        self.replace_without_name(path, data)?;
        sync_parent()
    }

    fn replace_without_name(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        let temporary = with_suffix(path, TEMPORARY);
        let file = self.segments.with_room(|| write_new(&temporary, data))?;
        // Without this fsync a crash can leave an empty file under the final name, or one of zeros.
        file.sync_all()?;
        fs::rename(&temporary, path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in self.segments.with_room(|| fs::read_dir(path))? {
            let entry = entry?;
            // A name that is not UTF-8 is neither fletchlog's nor Kafka's.
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            // A live writer may delete a file between listing and stat.
            let Ok(metadata) = entry.metadata() else { continue };
            // A directory may be on another disk, as for a Kafka broker; a link to a file is none of the files.
            let is_dir = if metadata.is_symlink() {
                fs::metadata(entry.path()).is_ok_and(|there| there.is_dir())
            } else {
                metadata.is_dir()
            };
            entries.push(DirEntry {
                name,
                is_dir,
                len: if is_dir { 0 } else { metadata.len() },
            });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.segments.with_room(|| fs::remove_dir_all(path))
    }

    fn exists(&self, path: &Path) -> bool {
        path.symlink_metadata().is_ok()
    }

    fn modified_ms(&self, path: &Path) -> io::Result<i64> {
        let modified = fs::metadata(path)?.modified()?;
        let ms = match modified.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()),
            Err(before) => i64::try_from(before.duration().as_millis()).map(|ms| -ms),
        };
        Ok(ms.unwrap_or(i64::MAX))
    }

    fn set_modified_ms(&self, path: &Path, modified_ms: i64) -> io::Result<()> {
        let distance = Duration::from_millis(modified_ms.unsigned_abs());
        let time = if modified_ms < 0 {
            UNIX_EPOCH - distance
        } else {
            UNIX_EPOCH + distance
        };
        self.segments.with_room(|| open(path, true, false))?.set_modified(time)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.open_dir(path)?.sync_all()
    }

    fn dir_sync<'a>(&'a self, path: &'a Path) -> io::Result<DirSync<'a>> {
        let dir = self.open_dir(path)?;
        Ok(Box::new(move || dir.sync_all()))
    }

    fn sync_all(&self, dir: &Path) -> io::Result<()> {
        Ok(rustix::fs::syncfs(self.open_dir(dir)?)?)
    }

    fn space(&self, dir: &Path) -> io::Result<Option<(u64, u64)>> {
        let device = rustix::fs::statvfs(dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(device.f_frsize);
        Ok(Some((bytes(device.f_blocks), bytes(device.f_bavail))))
    }

    fn lock_dir(&self, dir: &Path) -> Result<Box<dyn DirLock>, LockError> {
        let path = dir.join(".lock");
        let file = self.segments.with_room(|| open(&path, true, true))?;
        // A Kafka broker of another user must find the lock taken, not fail on permissions chosen here.
        if file.metadata()?.len() == 0 {
            let _ = file.set_permissions(Permissions::from_mode(FILE_MODE));
        }
        Ok(Box::new(OfdLock::take(file)?))
    }
}
