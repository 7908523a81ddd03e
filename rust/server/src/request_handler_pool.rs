//! Threads for work that may wait for a disk. Kafka: `KafkaRequestHandlerPool`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fletchlog_broker::panics::contained;

/// A thread that was idle for this long ends.
const IDLE: Duration = Duration::from_secs(10);

/// The work of a thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Up to `num.io.threads` threads, started on demand. Jobs start in the order in which they are submitted.
#[derive(Clone)]
pub(crate) struct RequestHandlerPool {
    shared: Arc<Shared>,
}

struct Shared {
    /// `num.io.threads`
    largest: AtomicUsize,
    /// `queued.max.requests`
    queue: usize,
    /// Jobs that no thread has started.
    queued: AtomicUsize,
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that have not ended.
    running: usize,
    /// Idle threads.
    idle: usize,
    closed: bool,
}

impl RequestHandlerPool {
    /// A pool of at most `largest` threads that is full with `queue` queued jobs. With 0 threads, `submit` runs the job.
    pub(crate) fn new(largest: usize, queue: usize) -> Self {
        let shared = Shared {
            largest: AtomicUsize::new(largest),
            queue,
            queued: AtomicUsize::new(0),
            state: Mutex::default(),
            given: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Changes the number of threads, to at least 1; surplus threads end after their job. A pool without threads stays without. Kafka:
    /// `KafkaRequestHandlerPool#resizeThreadPool`.
    pub(crate) fn resize(&self, largest: usize) {
        let has_threads = |now: usize| (now > 0).then_some(largest.max(1));
        // It fails only for a pool without threads.
        let _ = self
            .shared
            .largest
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_threads);
    }

    /// Whether the queue is full. Kafka: a full `RequestChannel` blocks the thread of the sockets.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.queued.load(Ordering::Relaxed) >= self.shared.queue
    }

    /// Queues a job for a thread. If the system refuses even the first thread, the caller runs it.
    pub(crate) fn submit(&self, job: Job) {
        let largest = self.shared.largest.load(Ordering::Relaxed);
        if largest == 0 {
            return run(job);
        }
        let mut state = self.shared.lock();
        state.jobs.push_back(job);
        self.shared.queued.store(state.jobs.len(), Ordering::Relaxed);
        if state.idle >= state.jobs.len() || state.running >= largest {
            drop(state);
            self.shared.given.notify_one();
            return;
        }
        let shared = Arc::clone(&self.shared);
        let name = format!("fletchlog-io-{}", state.running);
        match std::thread::Builder::new().name(name).spawn(move || shared.run()) {
            Ok(thread) => {
                state.running += 1;
                state.threads.retain(|thread| !thread.is_finished());
                state.threads.push(thread);
            }
            Err(error) if state.running == 0 => {
                log::error!("no thread could be started for the requests of clients: {error}");
                let jobs = std::mem::take(&mut state.jobs);
                self.shared.queued.store(0, Ordering::Relaxed);
                drop(state);
                jobs.into_iter().for_each(run);
            }
            Err(_) => {}
        }
    }

    /// Waits until every queued job is done, and ends the threads.
    pub(crate) fn close(&self) {
        let threads = {
            let mut state = self.shared.lock();
            state.closed = true;
            std::mem::take(&mut state.threads)
        };
        self.shared.given.notify_all();
        for thread in threads {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(job) = self.next() {
            // Nothing unwinds past here, so the thread stays counted.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(job)));
        }
    }

    /// The next job; `None`: the thread ends.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.running > self.largest.load(Ordering::Relaxed) {
                state.running -= 1;
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                self.queued.store(state.jobs.len(), Ordering::Relaxed);
                return Some(job);
            }
            if state.closed {
                state.running -= 1;
                return None;
            }
            state.idle += 1;
            let (guard, waited) = self
                .given
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                state.running -= 1;
                return None;
            }
        }
    }
}

/// Runs a job in this thread. A panic ends the job, not its thread.
pub(crate) fn run(job: Job) {
    contained("the handler of a request", job);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn it_is_full_while_so_many_jobs_wait() {
        let pool = RequestHandlerPool::new(1, 2);
        let (go, gone) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        pool.submit(Box::new(move || {
            begun.send(()).unwrap();
            gone.recv().unwrap();
        }));
        begins.recv().unwrap();
        assert!(!pool.is_full());
        let (done, all_done) = mpsc::channel();
        for waiting in 1..=2 {
            let done = done.clone();
            pool.submit(Box::new(move || done.send(()).unwrap()));
            assert_eq!(pool.is_full(), waiting == 2);
        }
        go.send(()).unwrap();
        all_done.recv().unwrap();
        all_done.recv().unwrap();
        assert!(!pool.is_full());
        pool.close();
    }

    #[test]
    fn it_grows_and_shrinks_to_the_number_that_was_set_last() {
        let pool = RequestHandlerPool::new(1, 100);
        let at_once = |jobs: usize| {
            let (begun, begins) = mpsc::channel();
            let holds: Vec<_> = (0..jobs)
                .map(|_| {
                    let ((go, gone), begun) = (mpsc::channel::<()>(), begun.clone());
                    pool.submit(Box::new(move || {
                        begun.send(()).unwrap();
                        // Ends when the sender is dropped.
                        let _ = gone.recv();
                    }));
                    go
                })
                .collect();
            let wait = Duration::from_millis(300);
            let running = (0..jobs).take_while(|_| begins.recv_timeout(wait).is_ok()).count();
            drop(holds);
            (running..jobs).for_each(|_| begins.recv().unwrap());
            running
        };
        assert_eq!(at_once(3), 1);
        pool.resize(3);
        assert_eq!(at_once(4), 3);
        pool.resize(2);
        assert_eq!(at_once(4), 2);
        pool.close();
        let without = RequestHandlerPool::new(0, 1);
        without.resize(3);
        let caller = std::thread::current().id();
        without.submit(Box::new(move || assert_eq!(std::thread::current().id(), caller)));
        assert_eq!(without.shared.lock().running, 0);
    }

    #[test]
    fn every_job_is_done_once_even_one_behind_a_panic() {
        let pool = RequestHandlerPool::new(3, 100);
        let done = Arc::new(AtomicUsize::new(0));
        for number in 0..100 {
            let done = Arc::clone(&done);
            pool.submit(Box::new(move || {
                assert!(number != 7, "a planted panic");
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
        pool.close();
        assert_eq!(done.load(Ordering::SeqCst), 99);
    }
}
