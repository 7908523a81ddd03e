//! Opening and reading one file of the operating system.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;

use super::read_buffers::{is_lent, read_lent};

pub(super) const FILE_MODE: u32 = 0o640;

pub(super) fn open(path: &Path, write: bool, create: bool) -> io::Result<fs::File> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(write)
        .create(create && write)
        .mode(FILE_MODE)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    regular(file)
}

/// Refuses pipes, devices and directories. Files are opened with `NONBLOCK`, which does not affect regular files, because
/// opening a pipe would wait for its other end.
pub(super) fn regular(file: fs::File) -> io::Result<fs::File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other("it is not a regular file; move it away"))
}

/// Reads up to `len` bytes at `position`.
pub(super) fn read_at(file: &fs::File, position: u64, len: usize) -> io::Result<Bytes> {
    if is_lent(len) {
        return read_lent(len, |buffer| read_into(file, position, buffer));
    }
    let mut out = Vec::new();
    out.try_reserve_exact(len)
        .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    while out.len() < len {
        let at = position + out.len() as u64;
        // The spare capacity may be larger than `len`; a longer result is cut below.
        match rustix::io::pread(file, spare_capacity(&mut out), at) {
            Ok(0) => break,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    out.truncate(len);
    Ok(Bytes::from(out))
}

/// Where data begins, at or after `position`.
pub(super) fn next_data(file: &fs::File, position: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(position)) {
        Ok(found) => Ok(Some(found)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        // The file system does not support holes.
        Err(rustix::io::Errno::INVAL) => Ok(Some(position)),
        Err(e) => Err(e.into()),
    }
}

/// Reads into `buf` at `position`; fewer bytes only at the end of the file.
pub(super) fn read_into(file: &fs::File, position: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], position + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
