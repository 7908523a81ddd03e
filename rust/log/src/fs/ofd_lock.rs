#![allow(unsafe_code)]
//! The lock on a log directory: an open-file-description lock on `.lock`.
//!
//! Kafka locks the same file through Java's `FileChannel.tryLock`, which is an fcntl record lock. fcntl OFD locks and Java's
//! lock exclude each other both ways; `flock` (and so `std::fs::File::try_lock`) sees neither.
//!
//! A forked child inherits the open file description, and with it the lock: it would outlive its owner. So a `fork` handler
//! in the child closes the descriptors of all locks before anything else.

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

use super::{DirLock, LockError};

const NO_DESCRIPTOR: i32 = -1;
/// Descriptors of the locks that this process holds. A plain array, because the `fork` handler in the child of a process with
/// threads may neither lock nor allocate. A lock that finds no free slot is inherited by children.
static HELD: [AtomicI32; 1024] = [const { AtomicI32::new(NO_DESCRIPTOR) }; 1024];
static ON_FORK: Once = Once::new();

extern "C" fn close_in_child() {
    for slot in &HELD {
        let descriptor = slot.swap(NO_DESCRIPTOR, Ordering::Relaxed);
        if descriptor != NO_DESCRIPTOR {
            // SAFETY: `close` may be called in a forked child; the descriptor is that of an `OfdLock`, which closes it in
            // its owner only. Tested by `a_child_does_not_keep_the_lock_of_its_dead_parent`.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// Replaces one descriptor in [`HELD`] by another; false if it was not in it.
fn replace_held(old: i32, new: i32) -> bool {
    let replace = |slot: &AtomicI32| slot.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
    HELD.iter().any(|slot| replace(slot).is_ok())
}

#[derive(Debug)]
pub(super) struct OfdLock {
    /// Closed by the owner alone: in a child the descriptor was closed at once and may be another file's by now.
    file: ManuallyDrop<File>,
    /// Only the process that took the lock may release it.
    owner: u32,
}

impl DirLock for OfdLock {}

fn request(kind: i32) -> libc::flock {
    // SAFETY: `flock` is a plain C struct of integers, for which all zero bytes are a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    // The constants are 0, 1 and 2: they fit the field on every platform.
    #[allow(clippy::cast_possible_truncation)]
    {
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
    }
    lock
}

fn fcntl(file: &File, command: i32, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` lives, and `lock` is a valid, exclusively borrowed `flock`,
    // which is what the three OFD commands read and write. Tested by `a_second_lock_of_one_directory_is_refused`.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

impl OfdLock {
    pub(super) fn take(file: File) -> Result<Self, LockError> {
        ON_FORK.call_once(|| {
            // SAFETY: the handler only touches atomics and closes descriptors. Without memory for it children inherit locks.
            unsafe { libc::pthread_atfork(None, None, Some(close_in_child)) };
        });
        match fcntl(&file, libc::F_OFD_SETLK, &mut request(libc::F_WRLCK)) {
            Ok(()) => {}
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                return Err(LockError::Held { pid: holder(&file) });
            }
            Err(e) => return Err(LockError::Io(e)),
        }
        let owner = std::process::id();
        replace_held(NO_DESCRIPTOR, file.as_raw_fd());
        // Only for the error of a refused writer, which names the process; a full disk must not refuse the lock.
        let _ = file
            .set_len(0)
            .and_then(|()| file.write_all_at(format!("{owner}\n").as_bytes(), 0));
        Ok(Self {
            file: ManuallyDrop::new(file),
            owner,
        })
    }
}

/// A classic record lock (Java's) reports its process id; an OFD lock reports -1, so fletchlog writes its process id into the
/// file.
fn holder(file: &File) -> Option<u32> {
    let mut lock = request(libc::F_WRLCK);
    if fcntl(file, libc::F_OFD_GETLK, &mut lock).is_ok() && lock.l_pid > 0 {
        return u32::try_from(lock.l_pid).ok();
    }
    let mut text = [0u8; 16];
    let n = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..n]).ok()?.trim().parse().ok()
}

impl Drop for OfdLock {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            let _ = self.file.set_len(0);
            // Explicit, because a child that was just forked may still hold the description.
            let _ = fcntl(&self.file, libc::F_OFD_SETLK, &mut request(libc::F_UNLCK));
            replace_held(self.file.as_raw_fd(), NO_DESCRIPTOR);
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}
