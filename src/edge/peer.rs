//! The polling thread: accepts, reads, asks the router, hands requests over, writes what is left of answers, keeps time.
//!
//! Never blocks on a peer, never waits for a handler, and ends only when it is told to. All durations are monotonic.

use super::conn::{Conn, Reply};
use super::forwarded::Proxies;
use super::front::Shared;
use super::parse::{Head, Reader, Step};
use super::response::{Response, reason};
use super::{Client, Limits, Request, Route, Router};
use polling::{Event, Events, PollMode};
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The listener's key; connections have the number of their slot.
const LISTENER: usize = usize::MAX - 1;
/// Read at once from one connection; the others come before the next such piece.
const PIECE: usize = 16 * 1024;
/// Accepted at once; requests of those already here come before the next.
const ACCEPTED_AT_ONCE: usize = 64;
/// How long accepting rests when descriptors or memory ran out.
const PAUSE: Duration = Duration::from_millis(100);
/// How many candidates are compared to find one that makes room.
const SAMPLE: usize = 64;
/// A request younger than this does not have to make room for a newcomer.
const STALLED: Duration = Duration::from_secs(1);

/// All connections of a front, owned by its polling thread.
pub(super) struct Peers {
    shared: Arc<Shared>,
    listener: Option<TcpListener>,
    paused_until: Option<Instant>,
    limits: Limits,
    proxies: Proxies,
    route: Box<Router>,
    slots: Vec<Option<Peer>>,
    free: Vec<usize>,
    open: usize,
    by_address: HashMap<IpAddr, usize>,
    /// Where the search for room goes on.
    room_cursor: usize,
    /// Connections whose answer this thread gave itself.
    todo: Vec<Arc<Conn>>,
}

struct Peer {
    conn: Arc<Conn>,
    address: SocketAddr,
    /// The address it counts under; trusted proxies do not count.
    counted: Option<IpAddr>,
    reader: Reader,
    /// The head whose body is being read.
    head: Option<(Head, Client)>,
    /// Bytes behind the request that is out.
    pending: Vec<u8>,
    phase: Phase,
    interest: Interest,
    /// When the present phase is over at the latest.
    deadline: Instant,
    /// When the present phase, or the body, began.
    since: Instant,
    /// What this peer has in the common account of held bytes.
    held: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Waiting for a request or in the middle of one.
    Reading,
    /// A request is out. The phase lasts until the next look, also when the answer has long been given.
    Asked,
    /// The rest of an answer waits for the socket.
    Writing,
    /// Answered for the last time; so many bytes more are read and dropped.
    Lingering(usize),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Interest {
    Nothing,
    Read,
    Write,
}

impl Peers {
    pub(super) fn new(
        shared: Arc<Shared>,
        listener: TcpListener,
        limits: Limits,
        proxies: Proxies,
        route: Box<Router>,
    ) -> io::Result<Peers> {
        // SAFETY: the listener is owned by this value and deleted from the poller before it is dropped.
        unsafe { shared.poller.add_with_mode(&listener, Event::readable(LISTENER), PollMode::Level)? };
        Ok(Peers {
            shared,
            listener: Some(listener),
            paused_until: None,
            limits,
            proxies,
            route,
            slots: Vec::new(),
            free: Vec::new(),
            open: 0,
            by_address: HashMap::new(),
            room_cursor: 0,
            todo: Vec::new(),
        })
    }

    /// Serves until a stop is done. Returns the number of connections that were cut in the middle of something.
    pub(super) fn serve(mut self) -> usize {
        let shortest = [
            self.limits.head_time,
            self.limits.body_time,
            self.limits.idle_time,
            self.limits.write_time,
            self.limits.linger_time,
        ];
        let shortest = shortest.into_iter().min().unwrap_or_default();
        let tick = (shortest / 8).clamp(Duration::from_millis(5), Duration::from_millis(250));
        let mut events = Events::new();
        let mut mail = Vec::new();
        let mut todo = Vec::new();
        let mut piece = vec![0; PIECE];
        let mut next_sweep = Instant::now() + tick;
        loop {
            let timeout = if !self.todo.is_empty() {
                Some(Duration::ZERO)
            } else if self.open > 0 || self.paused_until.is_some() || self.shared.is_stopping() {
                Some(next_sweep.saturating_duration_since(Instant::now()))
            } else {
                None
            };
            events.clear();
            if let Err(error) = self.shared.poller.wait(&mut events, timeout) {
                log::error!("waiting for connections failed, trying again: {error}");
                std::thread::sleep(tick);
            }
            let now = Instant::now();
            for event in events.iter() {
                if event.key == LISTENER {
                    self.accept(now);
                } else {
                    self.look(event.key, &mut piece, now);
                }
            }
            self.shared.take_mail(&mut mail);
            for conn in mail.drain(..) {
                self.settle(&conn, now);
            }
            std::mem::swap(&mut self.todo, &mut todo);
            for conn in todo.drain(..) {
                self.settle(&conn, now);
            }
            if now >= next_sweep {
                self.sweep(now);
                next_sweep = now + tick;
            }
            if let Some(stop_at) = self.shared.stop_at() {
                self.close_listener();
                self.close_idle();
                if self.open == 0 || now >= stop_at {
                    return self.close_all();
                }
            }
        }
    }

    // ---- connections come and go ----

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok((stream, address)) => self.admit(stream, address, now),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        self.pause(&error, now);
                        return;
                    }
                },
            }
        }
    }

    /// Out of descriptors or memory: lets the kernel keep newcomers for a while, and gives back an idle descriptor.
    fn pause(&mut self, error: &io::Error, now: Instant) {
        if self.shared.counts.paused.fetch_add(1, Ordering::Relaxed) == 0 {
            log::warn!("accepting pauses: {error}; raise the limit of open files if this happens often");
        }
        self.make_room(None, now);
        self.paused_until = Some(now + PAUSE);
        self.watch_listener(Event::none(LISTENER));
    }

    fn watch_listener(&self, event: Event) {
        if let Some(listener) = &self.listener
            && let Err(error) = self.shared.poller.modify_with_mode(listener, event, PollMode::Level)
        {
            log::error!("the listener cannot be watched: {error}");
        }
    }

    fn admit(&mut self, stream: TcpStream, address: SocketAddr, now: Instant) {
        let peer = address.ip().to_canonical();
        let counted = (!self.proxies.trusts(peer)).then(|| neighbourhood(peer));
        let crowded = |peers: &Peers| {
            let own = counted.and_then(|key| peers.by_address.get(&key)).copied().unwrap_or(0);
            own >= peers.limits.connections_per_address
        };
        if crowded(self) && !self.make_room(counted, now) {
            return self.turn_away(&stream, 429);
        }
        if self.open >= self.limits.connections && !self.make_room(None, now) {
            return self.turn_away(&stream, 503);
        }
        // urgent data comes in line: left aside, it would wake this thread without end
        let socket = socket2::SockRef::from(&stream);
        let ready = socket.set_out_of_band_inline(true).and_then(|()| socket.set_tcp_nodelay(true));
        // without these a connection is of no use; the peer sees it closed and may come again
        if ready.and_then(|()| socket.set_nonblocking(true)).is_err() {
            return;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(Peer {
            conn: Arc::new(Conn::new(stream, slot, Arc::clone(&self.shared), now)),
            address,
            counted,
            reader: Reader::new(&self.limits),
            head: None,
            pending: Vec::new(),
            phase: Phase::Reading,
            interest: Interest::Nothing,
            deadline: now + self.limits.head_time,
            since: now,
            held: 0,
        });
        self.open += 1;
        if let Some(key) = counted {
            *self.by_address.entry(key).or_default() += 1;
        }
        self.shared.counts.accepted.fetch_add(1, Ordering::Relaxed);
        self.shared.counts.open.store(self.open, Ordering::Relaxed);
        self.watch(slot, Interest::Read);
    }

    fn turn_away(&self, stream: &TcpStream, status: u16) {
        self.shared.counts.refused.fetch_add(1, Ordering::Relaxed);
        let mut text = Vec::new();
        Response::text(status, "too many connections\n").with_header("Retry-After", "1").encode(
            &mut text,
            false,
            Some("close"),
        );
        // as far as it goes: a peer that is turned away is not worth a wait
        if stream.set_nonblocking(true).is_ok() && io::Write::write(&mut &*stream, &text).is_ok() {
            self.shared.counts.count_answer(status);
        }
    }

    /// Closes the connection (of this address, if one is given) that has been idle, or waiting to be closed, longest; if
    /// there is none, the oldest of those stalled in the middle of a request. Looks at a sample that moves on, because a
    /// flood of newcomers must not make this the main work.
    fn make_room(&mut self, of: Option<IpAddr>, now: Instant) -> bool {
        let worth = |peer: &Peer| match peer.phase {
            Phase::Reading if peer.reader.is_idle() => Some((0, peer.since)),
            Phase::Reading if now.saturating_duration_since(peer.since) >= STALLED => Some((1, peer.since)),
            Phase::Asked => Some(peer.conn.turn()).filter(|turn| turn.is_free()).map(|turn| (0, turn.since)),
            Phase::Lingering(_) => Some((0, peer.since)),
            Phase::Reading | Phase::Writing => None,
        };
        let (older, newer) = self.slots.split_at(self.room_cursor.min(self.slots.len()));
        let victim = newer
            .iter()
            .chain(older)
            .flatten()
            .filter(|peer| of.is_none() || peer.counted == of)
            .filter_map(|peer| Some((worth(peer)?, peer.conn.slot)))
            .take(SAMPLE)
            .min();
        let Some((_, slot)) = victim else { return false };
        self.room_cursor = slot + 1;
        self.shared.counts.evicted.fetch_add(1, Ordering::Relaxed);
        self.close(slot);
        true
    }

    fn close(&mut self, slot: usize) {
        let Some(peer) = self.slots[slot].take() else { return };
        if peer.interest != Interest::Nothing {
            // fails only for a descriptor that is not watched
            let _ = self.shared.poller.delete(&peer.conn.stream);
        }
        self.shared.held.fetch_sub(peer.held, Ordering::Relaxed);
        self.free.push(slot);
        self.open -= 1;
        self.shared.counts.open.store(self.open, Ordering::Relaxed);
        if let Some(key) = peer.counted
            && let Some(count) = self.by_address.get_mut(&key)
        {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&key);
            }
        }
    }

    fn close_listener(&mut self) {
        if let Some(listener) = self.listener.take() {
            // fails only for a descriptor that is not watched
            let _ = self.shared.poller.delete(&listener);
        }
    }

    fn close_idle(&mut self) {
        for slot in 0..self.slots.len() {
            let idle = self.slots[slot].as_ref().is_some_and(|peer| match peer.phase {
                Phase::Reading => peer.reader.is_idle(),
                Phase::Asked => peer.conn.turn().is_free(),
                Phase::Writing | Phase::Lingering(_) => false,
            });
            if idle {
                self.close(slot);
            }
        }
    }

    fn close_all(&mut self) -> usize {
        let mut cut = 0;
        for slot in 0..self.slots.len() {
            if let Some(peer) = &self.slots[slot] {
                cut += usize::from(!matches!(peer.phase, Phase::Lingering(_)));
                // also for whoever still holds its reply; fails when the peer is gone already
                let _ = peer.conn.stream.shutdown(Shutdown::Both);
                self.close(slot);
            }
        }
        cut
    }

    /// Changes what a connection is watched for.
    fn watch(&mut self, slot: usize, interest: Interest) {
        let Some(peer) = &mut self.slots[slot] else { return };
        if peer.interest == interest {
            return;
        }
        let poller = &self.shared.poller;
        let event = if interest == Interest::Write { Event::writable(slot) } else { Event::readable(slot) };
        let stream = &peer.conn.stream;
        let done = match (peer.interest, interest) {
            (_, Interest::Nothing) => poller.delete(stream),
            // SAFETY: `close` deletes the stream from the poller before this value's hold on it ends.
            (Interest::Nothing, _) => unsafe { poller.add_with_mode(stream, event, PollMode::Level) },
            _ => poller.modify_with_mode(stream, event, PollMode::Level),
        };
        peer.interest = interest;
        if done.is_err() {
            self.close(slot);
        }
    }

    // ---- a connection has something for us ----

    fn look(&mut self, slot: usize, piece: &mut [u8], now: Instant) {
        let Some(Some(peer)) = self.slots.get_mut(slot) else { return };
        match peer.phase {
            Phase::Asked => {
                let mut turn = peer.conn.turn();
                if !turn.is_free() {
                    // more requests, or the peer's end: looked at after the answer
                    turn.wake |= turn.busy;
                    drop(turn);
                    self.watch(slot, Interest::Nothing);
                    return;
                }
                peer.since = turn.since;
                drop(turn);
                peer.phase = Phase::Reading;
                peer.deadline = peer.since + self.limits.idle_time;
                self.read(slot, piece, now);
            }
            Phase::Reading => self.read(slot, piece, now),
            Phase::Writing => self.flush(slot, now),
            Phase::Lingering(left) => match (&peer.conn.stream).read(piece) {
                Ok(count) if count > 0 && count < left => peer.phase = Phase::Lingering(left - count),
                Err(error) if is_passing(&error) => {}
                _ => self.close(slot),
            },
        }
    }

    fn read(&mut self, slot: usize, piece: &mut [u8], now: Instant) {
        let Some(peer) = &self.slots[slot] else { return };
        match (&peer.conn.stream).read(piece) {
            // the peer's end; a request that is not complete is dropped
            Ok(0) => self.close(slot),
            Ok(count) => self.take(slot, &piece[..count], now),
            Err(error) if is_passing(&error) => {}
            Err(_) => self.close(slot),
        }
    }

    /// Goes through new bytes up to the next complete request.
    fn take(&mut self, slot: usize, input: &[u8], now: Instant) {
        let mut at = 0;
        loop {
            let Some(peer) = &mut self.slots[slot] else { return };
            let was_idle = peer.reader.is_idle();
            let (taken, step) = match peer.reader.advance(&input[at..]) {
                Ok(progress) => progress,
                Err(fault) => {
                    self.shared.counts.faults.fetch_add(1, Ordering::Relaxed);
                    return self.refuse(slot, fault.status(), &fault.to_string());
                }
            };
            at += taken;
            match step {
                Step::More => {
                    if was_idle && !peer.reader.is_idle() {
                        peer.since = now;
                        peer.deadline = now + self.limits.head_time;
                    }
                    if !self.keep_account(slot, 0) {
                        self.refuse(slot, 503, "too much is being received at this moment");
                    }
                    return;
                }
                Step::Head(head) => {
                    let client =
                        Client { peer: peer.address, address: self.proxies.client(peer.address, &head.headers) };
                    let route = catch_unwind(AssertUnwindSafe(|| (self.route)(&head, &client)));
                    match route {
                        Ok(Route::Read { limit }) => {
                            if let Err(fault) = peer.reader.accept(limit) {
                                self.shared.counts.faults.fetch_add(1, Ordering::Relaxed);
                                return self.refuse(slot, fault.status(), &fault.to_string());
                            }
                            let waits = head.expects_continue && head.body_length() != Some(0) && at == input.len();
                            if waits && !invite(&peer.conn) {
                                return self.close(slot);
                            }
                            peer.head = Some((head, client));
                            peer.since = now;
                            peer.deadline = now + self.limits.body_time;
                        }
                        Ok(Route::Answer(response)) => {
                            peer.reader.skip();
                            let keep_alive = head.keep_alive && head.body_length() == Some(0);
                            return self.answer(slot, Some(&head), keep_alive, response, &input[at..]);
                        }
                        Err(_) => {
                            log::error!("the router of a request panicked; the peer was answered 500");
                            return self.refuse(slot, 500, "the request could not be routed");
                        }
                    }
                }
                Step::Body(body) => {
                    let Some((head, client)) = peer.head.take() else { return self.close(slot) };
                    peer.pending.extend_from_slice(&input[at..]);
                    let size = body.capacity();
                    if !self.keep_account(slot, size) {
                        return self.refuse(slot, 503, "too much is being received at this moment");
                    }
                    let Some(peer) = &mut self.slots[slot] else { return };
                    peer.phase = Phase::Asked;
                    {
                        let mut turn = peer.conn.turn();
                        turn.busy = true;
                        turn.wake = !peer.pending.is_empty();
                    }
                    let reply = Reply::new(Arc::clone(&peer.conn), Some(&head), head.keep_alive, size);
                    return self.shared.dispatch(Request { head, client, body }, reply);
                }
            }
        }
    }

    /// Brings the common account of held bytes up to date, `extra` for a request about to go out. Says whether it is
    /// within its limit; if not, `extra` is not booked.
    fn keep_account(&mut self, slot: usize, extra: usize) -> bool {
        let Some(peer) = &mut self.slots[slot] else { return true };
        let holds = peer.reader.held() + peer.pending.capacity();
        if holds == 0 && peer.held == 0 && extra == 0 {
            return true;
        }
        let held = &self.shared.held;
        let grows = holds + extra > peer.held;
        held.fetch_add(holds + extra, Ordering::Relaxed);
        let before = held.fetch_sub(peer.held, Ordering::Relaxed);
        let total = before - peer.held;
        peer.held = holds;
        if grows && total > self.limits.buffered_bytes {
            held.fetch_sub(extra, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Answers from here and closes: nothing that follows can be trusted to be a request.
    fn refuse(&mut self, slot: usize, status: u16, why: &str) {
        if let Some(peer) = &mut self.slots[slot] {
            // at once, so that others need not be refused for what this one no longer needs
            peer.reader = Reader::new(&self.limits);
            peer.pending = Vec::new();
            self.keep_account(slot, 0);
        }
        let text = format!("{status} {}: {why}\n", reason(status));
        self.answer(slot, None, false, Response::text(status, text), &[]);
    }

    /// Answers from here.
    fn answer(&mut self, slot: usize, head: Option<&Head>, keep_alive: bool, response: Response, rest: &[u8]) {
        let Some(peer) = &mut self.slots[slot] else { return };
        let head_of = head.or(peer.head.as_ref().map(|(head, _)| head));
        let reply = Reply::new(Arc::clone(&peer.conn), head_of, keep_alive, 0);
        peer.conn.turn().busy = true;
        peer.phase = Phase::Asked;
        peer.head = None;
        peer.pending.clear();
        peer.pending.extend_from_slice(rest);
        self.todo.push(Arc::clone(&peer.conn));
        reply.send(response);
    }

    /// Goes on after an answer.
    fn settle(&mut self, conn: &Arc<Conn>, now: Instant) {
        let slot = conn.slot;
        let Some(Some(peer)) = self.slots.get_mut(slot) else { return };
        if !Arc::ptr_eq(&peer.conn, conn) || peer.phase != Phase::Asked {
            return;
        }
        let (unsent, close, since) = {
            let mut turn = conn.turn();
            if turn.busy {
                return;
            }
            if turn.dead {
                drop(turn);
                return self.close(slot);
            }
            turn.wake = false;
            (turn.rest(), turn.close, turn.since)
        };
        if unsent > 0 {
            peer.phase = Phase::Writing;
            peer.since = now;
            peer.deadline =
                now + self.limits.write_time + Duration::from_secs(unsent as u64 / self.limits.body_rate.max(1));
            self.watch(slot, Interest::Write);
        } else if close {
            self.linger(slot, now);
        } else {
            peer.phase = Phase::Reading;
            peer.since = since;
            peer.deadline = since + self.limits.idle_time;
            let pending = std::mem::take(&mut peer.pending);
            self.watch(slot, Interest::Read);
            if !pending.is_empty() {
                self.take(slot, &pending, now);
            }
        }
    }

    fn flush(&mut self, slot: usize, now: Instant) {
        let Some(peer) = &mut self.slots[slot] else { return };
        let conn = Arc::clone(&peer.conn);
        let rest = conn.turn().write_rest(&conn);
        match rest {
            Err(_) => self.close(slot),
            Ok(0) => {
                peer.phase = Phase::Asked;
                self.settle(&conn, now);
            }
            Ok(_) => {}
        }
    }

    /// Says that nothing more will be sent, and waits for the peer to have read it.
    fn linger(&mut self, slot: usize, now: Instant) {
        let Some(peer) = &mut self.slots[slot] else { return };
        if peer.conn.stream.shutdown(Shutdown::Write).is_err() {
            return self.close(slot);
        }
        peer.phase = Phase::Lingering(self.limits.linger_bytes);
        peer.since = now;
        peer.deadline = now + self.limits.linger_time;
        peer.pending = Vec::new();
        self.keep_account(slot, 0);
        self.watch(slot, Interest::Read);
    }

    // ---- time ----

    fn sweep(&mut self, now: Instant) {
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
            self.watch_listener(Event::readable(LISTENER));
        }
        for slot in 0..self.slots.len() {
            let Some(peer) = &self.slots[slot] else { continue };
            let late = now >= peer.deadline;
            match peer.phase {
                Phase::Reading if late && peer.reader.is_idle() => self.close(slot),
                Phase::Reading if late || self.is_too_slow(peer, now) => {
                    self.shared.counts.timed_out.fetch_add(1, Ordering::Relaxed);
                    self.refuse(slot, 408, "the request did not arrive in time");
                }
                Phase::Writing if late => {
                    self.shared.counts.timed_out.fetch_add(1, Ordering::Relaxed);
                    self.close(slot);
                }
                Phase::Lingering(_) if late => self.close(slot),
                Phase::Asked => {
                    let turn = peer.conn.turn();
                    let rested = turn.is_free() && now >= turn.since + self.limits.idle_time;
                    drop(turn);
                    if rested {
                        self.close(slot);
                    }
                }
                _ => {}
            }
        }
    }

    fn is_too_slow(&self, peer: &Peer, now: Instant) -> bool {
        let Some(received) = peer.reader.body_received() else { return false };
        let time = now.saturating_duration_since(peer.since);
        time > self.limits.body_grace
            && u128::from(received) * 1000 < u128::from(self.limits.body_rate) * time.as_millis()
    }
}

/// Sends `100 Continue`. False when the socket does not even take that.
fn invite(conn: &Conn) -> bool {
    const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    conn.write_some(CONTINUE).is_ok_and(|written| written == CONTINUE.len())
}

/// Connections of one IPv4 address, or of one IPv6 /64, which is what one customer gets, count together.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
