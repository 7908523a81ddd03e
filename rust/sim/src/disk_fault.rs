//! What goes wrong on a simulated disk: calls that fail, and promises that are not kept.

use std::io;

/// A promise that a disk, or a program on it, breaks: for proving that a suite notices.
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
    /// fsync is tried again after it failed.
    SyncRetry,
    /// A failed fsync is reported as done.
    SyncErrorHidden,
    /// A write that was cut short is reported as done.
    ShortWriteHidden,
    /// A failed write is reported as done.
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

/// What happens instead of a call. A failed fsync loses what it should have written for good; after the others the disk is as
/// it was, but for the first half of a short write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// EIO.
    Io,
    /// ENOSPC, of calls that need room.
    Full,
    /// EINTR.
    Interrupted,
    /// Half of a write, then ENOSPC.
    ShortWrite,
    /// EMFILE, of calls that open something.
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

/// Kinds of calls, as far as faults differ.
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
