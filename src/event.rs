//! What a body means: the provider's events, the movements of money they announce, the entities whose state they carry.
//!
//! Values only. Interpretation makes them, the claim step keys them, the apply step posts them.

use crate::money::{Currency, Money};
use std::fmt;

/// An instant in milliseconds since 1970-01-01T00:00:00Z.
pub type Millis = i64;

/// Live or test money. Part of every key: the two never share a ledger.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Mode {
    /// Real money.
    Live,
    /// Sandbox, test keys, test gateways.
    Test,
}

impl Mode {
    /// The word used in tables, the API and the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Live => "live",
            Mode::Test => "test",
        }
    }

    /// The reverse of [`Mode::as_str`].
    pub fn parse(text: &str) -> Option<Mode> {
        match text {
            "live" => Some(Mode::Live),
            "test" => Some(Mode::Test),
            _ => None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One event of the provider, as read from a body. A batch body gives several.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Event {
    /// The provider's event id, or what its file composes from stable parts; `None` where there is nothing to go by.
    pub id: Option<String>,
    /// The id does not prove a repeat (derived, or per second): it is shown, but only the movement keys decide.
    pub weak_id: bool,
    /// The provider's name of the type, `charge.succeeded`.
    pub kind: String,
    /// Where the body says so; `None`: the source's configured mode.
    pub mode: Option<Mode>,
    /// The provider's own account (Stripe Connect and the like), where every money event carries it: part of the keys.
    pub provider_account: Option<String>,
    /// The provider's account where only some events carry it: shown, and never part of a key.
    pub account_seen: Option<String>,
    /// The provider's clock; `None`: the time of receipt stands in.
    pub occurred_at: Option<Millis>,
    /// The provider's API version, where the body says so.
    pub api_version: Option<String>,
    /// Who knows its type; [`Known::No`] is counted by type, so that a newcomer sees what they are missing.
    pub known: Known,
    /// What proves that the provider says it.
    pub proof: Proof,
    /// What to do with it.
    pub meaning: Meaning,
    /// With [`Meaning::Fetch`]: how the answer is read (`event`, or the name its rules carry).
    pub answer: Option<String>,
    /// With [`Meaning::Parked`]: the states of objects that could be read all the same; they are no money and need not wait.
    pub states_of_parked: Vec<EntityState>,
}

/// Who knows the type of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Known {
    /// A rule for money, for a state, or for a fetch (whether or not its conditions hold).
    #[default]
    Rule,
    /// The provider's file lists it as an announcement without money of its own.
    Announcement,
    /// A test call from the provider's dashboard.
    Ping,
    /// Nobody.
    No,
}

/// What proves that the provider says what an event says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Proof {
    /// A signature over the whole body.
    #[default]
    Body,
    /// A signature over a part of it, or one that can be forged.
    Part,
    /// Nothing that depends on the body: a token, a password, or not even that.
    Nothing,
    /// It was fetched from the provider's API, or compared with what stands there.
    Fetched,
}

impl Proof {
    /// The word in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            Proof::Body => "body",
            Proof::Part => "part",
            Proof::Nothing => "nothing",
            Proof::Fetched => "fetched",
        }
    }
}

/// What an event asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Movements to post and entity states to keep (either list may be empty, not both).
    Effects {
        /// Money that moved.
        movements: Vec<Movement>,
        /// Objects whose state this event carries.
        entities: Vec<EntityState>,
    },
    /// Known, and nothing to do: an announcement without money, a test ping. The text says why.
    Ignored(String),
    /// The body only points at the object: get this (an absolute URL, or a path below the provider's API base) and
    /// interpret the answer in its place.
    Fetch(String),
    /// Money that a rule cannot read without guessing (no reference, unknown currency, inexact amount, …): a person.
    Parked(String),
}

impl Default for Meaning {
    fn default() -> Self {
        Meaning::Ignored(String::new())
    }
}

/// Where two event types announce the same money with different amounts, whose word counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord)]
pub enum Role {
    /// A mere announcement; a later primary corrects it with one entry.
    Secondary,
    /// Owns the money. Two primaries that differ are a conflict.
    #[default]
    Primary,
}

/// A movement of money, announced by an event or listed by a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Movement {
    /// `payment`, `refund`, `dispute_opened`, … (DESIGN.md section 6); part of the key.
    pub kind: String,
    /// The provider's own reference; part of the key. Never made up.
    pub reference: String,
    /// Other names of the same movement (Stripe's `ch_` beside `pi_`).
    pub aliases: Vec<String>,
    /// The customer, as the provider names them.
    pub account: Option<String>,
    /// How much.
    pub amount: Amount,
    /// Its currency.
    pub currency: Currency,
    /// The provider's fee: positive a cost, negative given back, `None` not told (yet). May be in another currency.
    pub fee: Option<Money>,
    /// Tax inside the amount that the provider remits itself (merchant of record), in the movement's currency.
    pub tax: Option<i64>,
    /// When the money moved, by the provider's clock; `None`: the event's time.
    pub occurred_at: Option<Millis>,
    /// The reference of the movement this one belongs to (a refund's payment).
    pub parent: Option<String>,
    /// Post only if a movement of this kind with the same reference is posted; wait for it otherwise.
    pub if_prior: Option<String>,
    /// Whose word counts when two event types announce one movement.
    pub role: Role,
    /// The signature did not cover these fields, or the body was rebuilt: confirm by fetching before posting.
    pub unconfirmed: bool,
}

/// The amount of a movement, in minor units (ISO exponent) of its currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This much, never negative; 0 posts nothing and may still send a message.
    Exact(i64),
    /// The provider tells only the total so far for the parent: the ledger posts the difference to what it has.
    RunningTotal(i64),
}

impl Amount {
    /// The number the provider sent.
    pub fn minor(self) -> i64 {
        match self {
            Amount::Exact(minor) | Amount::RunningTotal(minor) => minor,
        }
    }
}

/// The state of an object that the app asks about (a subscription), as one event tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntityState {
    /// `subscription`, `dispute`, …
    pub kind: String,
    /// The provider's id of the object.
    pub id: String,
    /// Our word: pending, trialing, active, past_due, paused, canceling, canceled, ended, expired, …
    pub status: String,
    /// The provider's word.
    pub provider_status: Option<String>,
    /// The provider's version counter, where it has one: compared before the time.
    pub version: Option<i64>,
    /// The provider's time of the state in milliseconds, `None`: the event's.
    pub as_of: Option<Millis>,
    /// The customer, as the provider names them.
    pub account: Option<String>,
}
