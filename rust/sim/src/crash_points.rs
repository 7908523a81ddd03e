//! Power loss at every storage operation of a [`Workload`] (reliability C1, C2).
//!
//! A run keeps the disk's state before every operation. Each state gives several images that a restart may find. The workload's data is
//! opened on each, and all promises must hold. The recovery is crashed as well.

use std::fmt;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::course::{Course, Workload};
use crate::disk_state::{DiskState, Left};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

/// A workload whose promises can be checked on a disk after a restart.
pub trait Crashable: Workload {
    /// Crashes after a failed call: before how many of the next operations (besides the end), and with how many random images each.
    const AFTER_FAILURE: (usize, usize);

    /// Cuts the power at these points and checks. Returns the number of different images, including those of crashed recoveries.
    ///
    /// # Errors
    /// The first promise that was not kept.
    fn crash_at(&self, points: &CrashPoints<'_>) -> Result<usize, Violation>;

    /// Crashes at every operation, with the regular images and `random_images` random ones.
    ///
    /// # Errors
    /// Those of [`Crashable::crash_at`].
    fn crash_everywhere(&self, random_images: usize) -> Result<usize, Violation> {
        self.crash_at(&CrashPoints {
            course: self.course(),
            states: self.course().history(),
            random_images,
        })
    }

    /// Crashes right after the call that failed, a few operations later, and at the end.
    ///
    /// # Errors
    /// Those of [`Crashable::crash_at`].
    fn crash_after_failure(&self) -> Result<usize, Violation> {
        let (count, random_images) = Self::AFTER_FAILURE;
        self.crash_at(&CrashPoints {
            course: self.course(),
            states: &self.course().after_failure(count),
            random_images,
        })
    }
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The number that replays the run.
    pub seed: u64,
    /// Operations before the crash.
    pub crash_at: u64,
    /// The description.
    pub what: String,
}

/// The images that were already checked. `F` is the result of a recovery.
pub(crate) struct Seen<F> {
    /// Images, including those of crashed recoveries.
    images: FxHashSet<u64>,
    /// Images checked for the promise with this number: a disk can be right after one acknowledgement and wrong after the next.
    checked: FxHashSet<(u64, usize)>,
    /// Results of recovering images without unsynced changes, by fingerprint and by the rest that the recovery depends on.
    recovered: FxHashMap<(u64, Given), F>,
}

/// What a recovery depends on in addition to the disk.
pub(crate) type Given = (i64, i64);

impl<F> Seen<F> {
    fn new() -> Self {
        Self {
            images: FxHashSet::default(),
            checked: FxHashSet::default(),
            recovered: FxHashMap::default(),
        }
    }

    /// Counts an image to recover from. Returns the known result, if it has no unsynced changes.
    pub(crate) fn meet(&mut self, image: &DiskState, given: Given) -> Option<&F> {
        let fingerprint = image.fingerprint();
        self.images.insert(fingerprint);
        self.recovered.get(&(fingerprint, given)).filter(|_| image.is_clean())
    }

    /// Stores the result of a correct recovery.
    pub(crate) fn remember(&mut self, image: u64, given: Given, found: F) {
        self.recovered.insert((image, given), found);
    }
}

/// The points at which a run is crashed.
pub struct CrashPoints<'a> {
    course: &'a Course,
    states: &'a [DiskState],
    random_images: usize,
}

impl CrashPoints<'_> {
    /// Checks every image that is new for its promise. `promised` returns the number and the value of the promise after a number of
    /// operations; it is called in order. Returns the number of images.
    pub(crate) fn check<C, F>(
        &self,
        mut rng: Rng,
        mut promised: impl FnMut(u64) -> (usize, C),
        check: impl Fn(&C, DiskState, &mut Rng, &mut Seen<F>) -> Result<(), String>,
    ) -> Result<usize, Violation> {
        let violation = |crash_at, what: &str| Violation {
            seed: self.course.seed(),
            crash_at,
            what: what.to_owned(),
        };
        if let Some(what) = self.course.violation() {
            return Err(violation(0, what));
        }
        let mut seen = Seen::new();
        for state in self.states {
            let now = state.operations();
            let (number, crash) = promised(now);
            for image in images(state, &mut rng, self.random_images) {
                if seen.checked.insert((image.fingerprint(), number)) {
                    check(&crash, image, &mut rng, &mut seen).map_err(|what| violation(now, &what))?;
                }
            }
        }
        Ok(seen.images.len())
    }

    /// The same for a run with a state after each request.
    pub(crate) fn check_around<M, F>(
        &self,
        rng: Rng,
        moments: &[(u64, M)],
        check: impl Fn(&Around<'_, M>, DiskState, &mut Rng, &mut Seen<F>) -> Result<(), String>,
    ) -> Result<usize, Violation> {
        let promised = |operations| {
            let around = Around::of(moments, operations);
            (around.answered, around)
        };
        self.check(rng, promised, check)
    }
}

/// The images that a restart may find: everything, still unsynced (the process was killed); only synced changes; sizes without their bytes;
/// a prefix of the changes; and random parts.
pub fn images(state: &DiskState, rng: &mut Rng, random: usize) -> Vec<DiskState> {
    let mut images = vec![state.clone(), state.left(Left::Nothing)];
    let pending = state.pending();
    if pending.is_empty() {
        return images;
    }
    images.push(state.left(Left::Sizes));
    images.push(state.left(Left::Before(pending[rng.below(pending.len())])));
    images.extend((0..random).map(|_| {
        state.left(Left::Some(&mut || match rng.below(4) {
            0 => None,
            1 => Some(rng.bits()),
            _ => Some(u64::MAX),
        }))
    }));
    images
}

/// What a run promises at a crash: the state after the answered requests, and after those of the step in progress.
pub(crate) struct Around<'a, M> {
    /// Number of answered requests.
    pub answered: usize,
    pub before: &'a M,
    pub after: &'a M,
}

impl<'a, M> Around<'a, M> {
    /// After a number of operations; `moments` has the states from a number of operations on.
    pub(crate) fn of(moments: &'a [(u64, M)], operations: u64) -> Self {
        let answered = moments.partition_point(|(at, _)| *at <= operations) - 1;
        let next = (answered + 1).min(moments.len() - 1);
        Self {
            answered,
            before: &moments[answered].1,
            after: &moments[next].1,
        }
    }

    /// A recovery depends on the promise too.
    pub(crate) fn given(&self) -> Given {
        (i64::try_from(self.answered).unwrap_or(i64::MAX), 0)
    }
}

/// Recovers an image, and again after a power loss during the recovery and after it. `look` opens a disk and returns its contents; `holds`
/// checks the promises about them. Contents that the first recovery has shown must stay (reliability C2).
pub(crate) fn check_recovery<F: PartialEq + fmt::Debug>(
    image: DiskState,
    given: Given,
    rng: &mut Rng,
    seen: &mut Seen<F>,
    look: impl Fn(&SimDisk) -> Result<F, String>,
    holds: impl Fn(&F) -> Result<(), String>,
) -> Result<(), String> {
    let (fingerprint, clean) = (image.fingerprint(), image.is_clean());
    if let Some(found) = seen.meet(&image, given) {
        return holds(found);
    }
    let disk = SimDisk::from(image);
    disk.record_one(rng.fork());
    let found = look(&disk)?;
    let (middle, end) = (disk.crash_point(), disk.state());
    holds(&found)?;
    let again = |image: DiskState| {
        let found = look(&SimDisk::from(image)).and_then(|found| holds(&found).map(|()| found));
        found.map_err(|e| format!("second recovery: {e}"))
    };
    let second = again(end.left(Left::Nothing))?;
    if second != found {
        return Err(format!(
            "after a recovery there was {found:?}, after a second one {second:?}"
        ));
    }
    if let Some(state) = middle {
        let mut all = images(&state, rng, 2);
        again(all.swap_remove(rng.below(all.len())))?;
    }
    if clean {
        seen.remember(fingerprint, given, found);
    }
    Ok(())
}
