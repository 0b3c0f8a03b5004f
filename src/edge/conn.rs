//! One connection as its reply sees it, and the reply itself.
//!
//! The polling thread reads; whoever has the reply writes, directly and without blocking, and leaves to the polling thread
//! what the socket did not take. Between the two stands one small lock. At most one answer a connection is ever kept.

use super::front::Shared;
use super::parse::{Head, Method};
use super::response::Response;
use std::cell::RefCell;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A thread keeps its writing buffer up to this size.
const BUFFER_KEPT: usize = 64 * 1024;
/// A peer that reads as fast as we write must not keep a thread to itself.
const WRITTEN_AT_ONCE: usize = 256 * 1024;

/// What the polling thread and the holder of the reply share.
pub(super) struct Conn {
    pub(super) stream: TcpStream,
    pub(super) slot: usize,
    pub(super) shared: Arc<Shared>,
    state: Mutex<Turn>,
}

/// Whose turn it is.
pub(super) struct Turn {
    /// A request is out and its answer is not written.
    pub(super) busy: bool,
    /// The polling thread wants to hear when the answer is written.
    pub(super) wake: bool,
    /// The answer said that the connection closes.
    pub(super) close: bool,
    /// Writing failed.
    pub(super) dead: bool,
    /// What the socket did not take at once.
    unsent: Vec<u8>,
    /// How much of that it has taken since.
    sent: usize,
    /// When the last answer was given.
    pub(super) since: Instant,
}

impl Turn {
    /// Whether the peer may just go on with its next request.
    pub(super) fn is_free(&self) -> bool {
        !self.busy && !self.wake && !self.close && !self.dead && self.rest() == 0
    }

    /// Bytes of the answer that are still to be written.
    pub(super) fn rest(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Goes on writing; returns what is left then.
    pub(super) fn write_rest(&mut self, conn: &Conn) -> io::Result<usize> {
        self.sent += conn.write_some(&self.unsent[self.sent..])?;
        if self.rest() == 0 {
            self.unsent = Vec::new();
            self.sent = 0;
        }
        Ok(self.rest())
    }
}

impl Conn {
    pub(super) fn new(stream: TcpStream, slot: usize, shared: Arc<Shared>, now: Instant) -> Conn {
        let turn =
            Turn { busy: false, wake: false, close: false, dead: false, unsent: Vec::new(), sent: 0, since: now };
        Conn { stream, slot, shared, state: Mutex::new(turn) }
    }

    pub(super) fn turn(&self) -> MutexGuard<'_, Turn> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes as much as the socket takes now, up to [`WRITTEN_AT_ONCE`].
    pub(super) fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(WRITTEN_AT_ONCE)];
        let mut written = 0;
        while written < bytes.len() {
            match (&self.stream).write(&bytes[written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }
}

/// The right, and the duty, to answer one request: from any thread, at any time, once.
///
/// Dropped without an answer (also by a panic) it answers 500, so that no peer waits for ever.
pub struct Reply {
    conn: Arc<Conn>,
    head_only: bool,
    minor: u8,
    keep_alive: bool,
    held: usize,
    answered: bool,
}

impl Reply {
    pub(super) fn new(conn: Arc<Conn>, head: Option<&Head>, keep_alive: bool, held: usize) -> Reply {
        let head_only = head.is_some_and(|head| head.method == Method::Head);
        let minor = head.map_or(1, |head| head.minor);
        Reply { conn, head_only, minor, keep_alive, held, answered: false }
    }

    /// Answers. Never blocks: what the socket does not take at once is sent by the polling thread.
    pub fn send(mut self, response: Response) {
        self.deliver(&response);
    }

    /// Closes the connection after this answer.
    pub fn close_after(&mut self) {
        self.keep_alive = false;
    }

    fn deliver(&mut self, response: &Response) {
        thread_local! {
            static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        self.answered = true;
        let shared = &self.conn.shared;
        let keep_alive = self.keep_alive && !shared.is_stopping();
        let connection = match (keep_alive, self.minor) {
            (false, _) => Some("close"),
            (true, 0) => Some("keep-alive"),
            (true, _) => None,
        };
        let news = BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            let status = response.encode(buffer, self.head_only, connection);
            shared.counts.count_answer(status);
            let mut turn = self.conn.turn();
            // before the peer can know, so that the order of these is the order that peers see
            turn.since = Instant::now();
            match self.conn.write_some(buffer) {
                Ok(written) => turn.unsent.extend_from_slice(&buffer[written..]),
                Err(_) => turn.dead = true,
            }
            if buffer.capacity() > BUFFER_KEPT {
                *buffer = Vec::new();
            }
            turn.busy = false;
            turn.close |= !keep_alive;
            !turn.is_free()
        });
        if self.held > 0 {
            shared.held.fetch_sub(self.held, Ordering::Relaxed);
        }
        if news {
            shared.resume(&self.conn);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.answered {
            self.deliver(&Response::text(500, "the request was not answered\n"));
        }
    }
}
