//! The threads that run the handler, and the queue before them.
//!
//! The queue needs no bound of its own: a connection has at most one request in it, and connections are bounded. A thread
//! is woken only when one is asleep.

use super::conn::Reply;
use super::{Handler, Request};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A request, and the duty to answer it.
pub(super) type Job = (Box<Request>, Reply);

#[derive(Default)]
pub(super) struct Pool {
    queue: Mutex<Queue>,
    ready: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    asleep: usize,
    closed: bool,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job; gives it back when the pool is closed.
    pub(super) fn push(&self, job: Job) -> Result<(), Job> {
        let mut queue = self.lock();
        if queue.closed {
            return Err(job);
        }
        queue.jobs.push_back(job);
        let wake = queue.asleep > 0;
        if wake {
            queue.asleep -= 1;
        }
        drop(queue);
        if wake {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Lets the threads end once the queue is empty.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue.asleep += 1;
            queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A thread's life.
    pub(super) fn work(&self, handler: &Handler) {
        while let Some((request, reply)) = self.next() {
            run(handler, *request, reply);
        }
    }
}

/// Runs the handler; when it panics, the reply answers 500 and the thread lives on.
pub(super) fn run(handler: &Handler, request: Request, reply: Reply) {
    if catch_unwind(AssertUnwindSafe(|| handler(request, reply))).is_err() {
        log::error!("the handler of a request panicked; the peer was answered 500");
    }
}
