//! When each source was last heard: what its silence is judged by, and what people read of it.
//!
//! Kept in memory and caught up with what came since the last look, because the table has no key for it: a source that
//! fell silent a month ago would be looked for in a million rows each time. Reads in short pieces; writes nothing.

use crate::error::Result;
use crate::event::Millis;
use crate::store::Store;
use crate::store::settlement as tables;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

/// Arrivals of a source that are remembered, the newest first.
const KEPT: usize = 300;
/// Rows in one piece of reading.
const PIECE: u32 = 20_000;
/// Between two pieces of the long way back: whoever waits for a page goes first.
const PAUSE: Duration = Duration::from_millis(5);

/// What was heard of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Its newest delivery, and when it came.
    pub last: Option<(i64, Millis)>,
    /// When its deliveries came, the newest first; at most three hundred.
    pub times: VecDeque<Millis>,
}

/// What was heard of all of them.
#[derive(Debug, Default)]
pub struct Heard(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Raw events up to this one are counted.
    upto: Option<i64>,
    /// Those before this one are not looked at yet; 0: there are none, or nobody needs them.
    from: i64,
    /// When that one came.
    back_to: Option<Millis>,
    of: HashMap<String, Arrivals>,
}

impl Heard {
    /// Catches up with what came since the last look.
    pub fn look(&self, store: &Store) -> Result<()> {
        let mut state = self.0.lock().expect("no panic while it is held");
        loop {
            let (upto, newest) = (state.upto, store.read(crate::store::raw::newest)?);
            let Some(upto) = upto else {
                (state.upto, state.from) = (Some(newest), newest + 1);
                return Ok(());
            };
            let came = store.read(|conn| tables::arrivals_after(conn, upto, PIECE))?;
            let Some(last) = came.last() else { return Ok(()) };
            state.upto = Some(last.id);
            let more = came.len() == PIECE as usize;
            for one in came.into_iter().filter(|one| one.webhook) {
                let arrivals = state.of.entry(one.source).or_default();
                arrivals.last = Some((one.id, one.at));
                arrivals.times.push_front(one.at);
                arrivals.times.truncate(KEPT);
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// Goes back until all of these sources can be judged, or everything was looked at. May take seconds, once.
    pub fn look_back(&self, store: &Store, names: &BTreeSet<&str>, stop: &dyn Fn() -> bool) -> Result<()> {
        self.look(store)?;
        while !stop() && self.piece_back(store, names)? {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// `false`: that was all.
    fn piece_back(&self, store: &Store, names: &BTreeSet<&str>) -> Result<bool> {
        let from = self.0.lock().expect("no panic while it is held").from;
        let judged =
            |state: &State| names.iter().all(|name| state.of.get(*name).is_some_and(|a| a.times.len() >= KEPT));
        if from == 0 {
            return Ok(false);
        }
        let came = store.read(|conn| tables::arrivals_before(conn, from, PIECE))?;
        let mut state = self.0.lock().expect("no panic while it is held");
        state.from = came.last().map_or(0, |first| first.id);
        state.back_to = came.last().map(|first| first.at);
        for one in came.into_iter().filter(|one| one.webhook) {
            let arrivals = state.of.entry(one.source).or_default();
            arrivals.last = arrivals.last.or(Some((one.id, one.at)));
            if arrivals.times.len() < KEPT {
                arrivals.times.push_back(one.at);
            }
        }
        if judged(&state) {
            state.from = 0;
        }
        Ok(state.from > 0)
    }

    /// What was heard of a source; nothing, when it was never heard or not as far back as was looked.
    pub fn of(&self, source: &str) -> Arrivals {
        self.0.lock().expect("no panic while it is held").of.get(source).cloned().unwrap_or_default()
    }

    /// How far back was looked, while that is not all.
    pub fn back_to(&self) -> Option<Millis> {
        let state = self.0.lock().expect("no panic while it is held");
        state.back_to.filter(|_| state.from > 0)
    }
}
