//! Bodies that were kept a moment ago, on their way to whoever takes them up: read back from the file, each would cost a
//! lookup and its unpacking. Only a shortcut: what is not here is in the file, where all of it is.

use super::raw::Body;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Mutex;

/// Bytes held at most. Beyond it they are read back.
const BYTES_MAX: usize = 4 << 20;

/// By raw event. Holds what is durable, and nothing else: an id that was undone may be another body's later.
#[derive(Default)]
pub struct Fresh(Mutex<Held>);

#[derive(Default)]
struct Held {
    bodies: BTreeMap<i64, Body>,
    bytes: usize,
    /// Up to here all was given or passed over: whoever took it may have been quicker than `put`, and read the file.
    taken: i64,
}

impl Fresh {
    /// Takes in what a commit kept.
    pub(super) fn put(&self, kept: impl Iterator<Item = (i64, Body)>) {
        let mut held = self.0.lock().expect("no panic while it is held");
        let taken = held.taken;
        for (id, body) in kept.filter(|(id, _)| *id > taken) {
            let bytes = held.bytes + body.held();
            if bytes <= BYTES_MAX {
                held.bytes = bytes;
                held.bodies.insert(id, body);
            }
        }
    }

    /// Gives what it has up to this raw event, and forgets it: nobody comes back for what was passed over.
    pub fn take_up_to(&self, id: i64) -> BTreeMap<i64, Body> {
        let mut held = self.0.lock().expect("no panic while it is held");
        let later = held.bodies.split_off(&(id + 1));
        let taken = mem::replace(&mut held.bodies, later);
        held.taken = held.taken.max(id);
        held.bytes -= taken.values().map(Body::held).sum::<usize>();
        taken
    }

    /// Forgets all of it: another file may give its ids to other bodies.
    pub(super) fn clear(&self) {
        mem::take(&mut *self.0.lock().expect("no panic while it is held"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(size: usize) -> Body {
        Body { bytes: vec![b'x'; size], headers: String::new(), query: String::new(), sha256: [0; 32] }
    }

    fn ids(taken: BTreeMap<i64, Body>) -> Vec<i64> {
        taken.into_keys().collect()
    }

    #[test]
    fn each_is_given_once_and_what_was_passed_over_is_forgotten() {
        let fresh = Fresh::default();
        fresh.put((1..=5).map(|id| (id, body(9))));
        assert_eq!(ids(fresh.take_up_to(3)), [1, 2, 3]);
        assert_eq!(ids(fresh.take_up_to(3)), [0; 0]);
        assert_eq!(ids(fresh.take_up_to(9)), [4, 5]);
        fresh.put([(9, body(9)), (10, body(9))].into_iter());
        assert_eq!(ids(fresh.take_up_to(10)), [10], "9 came after it had been read from the file");
        fresh.put([(11, body(9))].into_iter());
        fresh.clear();
        assert_eq!(ids(fresh.take_up_to(11)), [0; 0]);
    }

    #[test]
    fn it_never_holds_more_than_its_bound_and_holds_as_much_again_when_it_was_emptied() {
        let fresh = Fresh::default();
        let half = BYTES_MAX / 2 - 200;
        for round in 0..3 {
            let first = round * 10 + 1;
            fresh.put((first..first + 4).map(|id| (id, body(half))));
            assert_eq!(ids(fresh.take_up_to(first)), [first]);
            fresh.put([(first + 5, body(half)), (first + 6, body(half))].into_iter());
            assert_eq!(ids(fresh.take_up_to(first + 9)), [first + 1, first + 5]);
            fresh.put([(first + 7, body(half)), (first + 8, body(1))].into_iter());
            fresh.clear();
        }
    }
}
