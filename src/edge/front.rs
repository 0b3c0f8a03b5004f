//! A front: a listener, the thread that polls, the threads that work, and their life from start to stop.
//!
//! Holds what these threads share. The polling thread's own work is in `peer.rs`.

use super::conn::{Conn, Reply};
use super::peer::Peers;
use super::pool::{self, Pool};
use super::{Client, Handler, Head, Limits, Proxies, Request, Route};
use polling::Poller;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A running front. Dropping it stops it at once, without waiting for requests in flight.
pub struct Front {
    shared: Arc<Shared>,
    address: SocketAddr,
}

/// Numbers of a front since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections open now.
    pub open: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused because there were too many.
    pub refused: u64,
    /// Idle or stalled connections closed to make room for new ones.
    pub evicted: u64,
    /// Requests that were not well-formed HTTP within the limits.
    pub faults: u64,
    /// Connections closed because a head, a body or the reading of an answer took too long.
    pub timed_out: u64,
    /// Times that accepting paused because descriptors or memory ran out.
    pub paused: u64,
    /// Answers by the first digit of their status: index 2 counts 2xx.
    pub answered: [u64; 6],
}

/// How a stop went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Connections with a request or an answer under way when time ran out.
    pub cut: usize,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) open: AtomicUsize,
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) faults: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) paused: AtomicU64,
    answered: [AtomicU64; 6],
}

impl Counts {
    pub(super) fn count_answer(&self, status: u16) {
        if let Some(count) = self.answered.get(usize::from(status / 100)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What the threads of a front share.
pub(super) struct Shared {
    pub(super) poller: Poller,
    pub(super) counts: Counts,
    /// Bytes held for unfinished and unanswered requests.
    pub(super) held: AtomicUsize,
    handler: Box<Handler>,
    pool: Option<Pool>,
    at_once: usize,
    /// Connections whose answer was given and leaves something to do.
    mail: Mutex<Vec<Arc<Conn>>>,
    stopping: AtomicBool,
    life: Mutex<Life>,
    changed: Condvar,
}

struct Life {
    stop_at: Option<Instant>,
    threads: usize,
    cut: usize,
}

impl Shared {
    /// Gives a complete request to the handler.
    pub(super) fn dispatch(&self, request: Request, reply: Reply) {
        let Request { head, body, .. } = &request;
        let here = body.len() < self.at_once && head.headers.get("content-encoding").is_none();
        match &self.pool {
            // a closed pool gives the job back, and dropping it answers 500
            Some(pool) if !here => drop(pool.push((Box::new(request), reply))),
            _ => pool::run(&*self.handler, request, reply),
        }
    }

    /// Tells the polling thread to look at a connection again.
    pub(super) fn resume(&self, conn: &Arc<Conn>) {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(conn));
        if let Err(error) = self.poller.notify() {
            // the sweep finds the mail a moment later
            log::warn!("the polling thread could not be woken: {error}");
        }
    }

    /// Takes the mail, leaving the other buffer for more of it.
    pub(super) fn take_mail(&self, into: &mut Vec<Arc<Conn>>) {
        std::mem::swap(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner), into);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// When a stop was asked for: the time by which it must be done.
    pub(super) fn stop_at(&self) -> Option<Instant> {
        if self.is_stopping() { self.life().stop_at } else { None }
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, cut: usize) {
        let mut life = self.life();
        life.threads -= 1;
        life.cut += cut;
        drop(life);
        self.changed.notify_all();
    }

    /// Waits until at most so many threads run, or the time has come.
    fn wait_for_threads(&self, most: usize, until: Instant) {
        let mut life = self.life();
        while life.threads > most {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            life = self.changed.wait_timeout(life, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Front {
    /// Starts serving.
    ///
    /// `route` decides on each head, on the polling thread: it must not block. `handler` gets complete requests, on one of
    /// `limits.workers` threads (or, with 0, and below `limits.at_once`, on the polling thread), and sees to it that the
    /// [`Reply`] is answered.
    ///
    /// # Errors
    /// Those of the operating system while the poller or the threads are made.
    pub fn start(
        listener: TcpListener,
        limits: Limits,
        proxies: Proxies,
        route: impl Fn(&Head, &Client) -> Route + Send + 'static,
        handler: impl Fn(Request, Reply) + Send + Sync + 'static,
    ) -> io::Result<Front> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let workers = limits.workers;
        let shared = Arc::new(Shared {
            poller: Poller::new()?,
            counts: Counts::default(),
            held: AtomicUsize::new(0),
            handler: Box::new(handler),
            pool: (workers > 0).then(Pool::default),
            at_once: limits.at_once,
            mail: Mutex::default(),
            stopping: AtomicBool::new(false),
            life: Mutex::new(Life { stop_at: None, threads: 0, cut: 0 }),
            changed: Condvar::new(),
        });
        let peers = Peers::new(Arc::clone(&shared), listener, limits, proxies, Box::new(route))?;
        // from here on dropping it stops what was started
        let front = Front { shared, address };
        for number in 0..workers {
            let shared = Arc::clone(&front.shared);
            front.spawn(format!("edge-{number}"), move || {
                if let Some(pool) = &shared.pool {
                    pool.work(&*shared.handler);
                }
                shared.ended(0);
            })?;
        }
        let shared = Arc::clone(&front.shared);
        front.spawn("edge-poll".to_owned(), move || {
            let cut = peers.serve();
            shared.ended(cut);
        })?;
        Ok(front)
    }

    fn spawn(&self, name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        thread::Builder::new().name(name).spawn(body)?;
        self.shared.life().threads += 1;
        Ok(())
    }

    /// The address that is listened on, with its real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The numbers at this moment.
    pub fn stats(&self) -> Stats {
        let counts = &self.shared.counts;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Stats {
            open: counts.open.load(Ordering::Relaxed),
            accepted: of(&counts.accepted),
            refused: of(&counts.refused),
            evicted: of(&counts.evicted),
            faults: of(&counts.faults),
            timed_out: of(&counts.timed_out),
            paused: of(&counts.paused),
            answered: std::array::from_fn(|class| of(&counts.answered[class])),
        }
    }

    /// Stops: accepts no more, closes idle connections, lets requests in flight finish within `time`, then cuts the rest.
    /// Returns within `time` and a moment, also when a handler does not.
    pub fn stop(self, time: Duration) -> Stopped {
        self.halt(time)
    }

    fn halt(&self, time: Duration) -> Stopped {
        /// What the threads get beyond the time to see that it is over.
        const MOMENT: Duration = Duration::from_millis(250);
        let until = Instant::now() + time;
        let workers = {
            let mut life = self.shared.life();
            life.stop_at.get_or_insert(until);
            life.threads.saturating_sub(1)
        };
        self.shared.stopping.store(true, Ordering::Release);
        if let Err(error) = self.shared.poller.notify() {
            log::warn!("the polling thread could not be woken: {error}");
        }
        self.shared.wait_for_threads(workers, until + MOMENT);
        if let Some(pool) = &self.shared.pool {
            pool.close();
        }
        self.shared.wait_for_threads(0, until + MOMENT);
        Stopped { cut: self.shared.life().cut }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.halt(Duration::ZERO);
    }
}
