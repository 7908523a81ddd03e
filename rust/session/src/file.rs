//! The file of a session: the only place that asks the system for it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A file that is appended to. It is not synced: a session may lose its last second with the machine.
pub(crate) struct Appended(File);

impl Appended {
    /// Creates it, in place of one of this name.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        Ok(Self(file))
    }

    /// One call of the system for all the bytes, so that a reader seldom sees a part of them.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
}

/// A file that is read, and may grow meanwhile.
#[derive(Debug)]
pub(crate) struct Source(File);

impl Source {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// Its bytes from `at` on, as many as there are, at most `count`.
    pub(crate) fn read(&self, at: u64, count: usize) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.0.metadata()?.len().saturating_sub(at)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; count.min(length)];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.0.read_at(&mut bytes[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}
