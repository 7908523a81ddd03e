//! Failures of a simulated disk: calls that fail, and promises that are not kept.

use std::io;

/// A promise that a disk, or a program on it, breaks: proves that a test suite notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// fsync of a directory does nothing.
    DirectorySync,
    /// fsync of files with this ending does nothing.
    FileSync(&'static str),
    /// `Fs::replace` renames without fsync of the file.
    ReplaceSync,
    /// `Fs::replace` writes over the old file instead of renaming a new one.
    ReplaceInPlace,
    /// A failed fsync is retried.
    SyncRetry,
    /// A failed fsync is reported as successful.
    SyncErrorHidden,
    /// A short write is reported as complete.
    ShortWriteHidden,
    /// A failed write is reported as successful.
    WriteErrorHidden,
}

impl Lie {
    /// Each kind once.
    pub const ALL: [Self; 8] = [
        Self::DirectorySync,
        Self::FileSync(".log"),
        Self::ReplaceSync,
        Self::ReplaceInPlace,
        Self::SyncRetry,
        Self::SyncErrorHidden,
        Self::ShortWriteHidden,
        Self::WriteErrorHidden,
    ];
}

/// The failure of a call. A failed fsync loses for good the data it should have written. Other failures leave the disk as it was, except
/// for the first half of a short write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// EIO.
    Io,
    /// ENOSPC, in calls that need space.
    Full,
    /// EINTR.
    Interrupted,
    /// Half of a write, then ENOSPC.
    ShortWrite,
    /// EMFILE, in calls that open something.
    Descriptors,
}

impl Fault {
    /// Each kind.
    pub const ALL: [Self; 5] = [
        Self::Io,
        Self::Full,
        Self::Interrupted,
        Self::ShortWrite,
        Self::Descriptors,
    ];

    pub(crate) fn applies_to(self, call: Call) -> bool {
        match self {
            Self::Io | Self::Interrupted => true,
            Self::Full => matches!(
                call,
                Call::Create | Call::Write | Call::SetLen | Call::Name | Call::Sync
            ),
            Self::ShortWrite => call == Call::Write,
            Self::Descriptors => matches!(call, Call::Open | Call::Create | Call::List | Call::SyncDir),
        }
    }

    pub(crate) fn error(self) -> io::Error {
        io::Error::from_raw_os_error(match self {
            Self::Io => 5,
            Self::Interrupted => 4,
            Self::Full | Self::ShortWrite => 28,
            Self::Descriptors => 24,
        })
    }
}

/// The kinds of calls that differ in their faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Open,
    Create,
    Read,
    List,
    Write,
    SetLen,
    Sync,
    SyncDir,
    Name,
}
