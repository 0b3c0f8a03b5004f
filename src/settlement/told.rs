//! A report line as an event of our own: the body of a raw event that the read step turns into a movement.
//!
//! For what no webhook announces (fees, reserves), for fees that are known late, and for history that is brought in.
//! Only trusted on raw events that we made ourselves: a delivery can never pass for one.

use crate::event::{Amount, Event, Meaning, Millis, Mode, Movement};
use crate::money::{Currency, Money};
use serde::{Deserialize, Serialize};

/// The header that says what the body is.
pub const HEADER: &str = "postonce-body: report-line";

/// What the line says, as far as it is posted.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// The movement's kind.
    pub kind: String,
    /// Its reference.
    pub reference: String,
    /// Its other names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The movement it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Minor units, never negative.
    pub amount: i64,
    /// ISO 4217.
    pub currency: String,
    /// The fee, minor units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fee: Option<i64>,
    /// Of what, where it is another currency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fee_currency: Option<String>,
    /// Tax inside the amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tax: Option<i64>,
    /// When the money moved.
    pub occurred_at: Millis,
    /// `live` or `test`.
    pub mode: String,
    /// The report and the place in it.
    pub report: i64,
    /// The line.
    pub line: i64,
}

impl Told {
    /// The bytes of the raw event.
    pub fn body(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// What the body means.
pub fn event(bytes: &[u8]) -> Event {
    let parked = |why: String| Event { kind: "report.line".into(), meaning: Meaning::Parked(why), ..Event::default() };
    let told: Told = match serde_json::from_slice(bytes) {
        Ok(told) => told,
        Err(e) => return parked(format!("a report line that cannot be read: {e}")),
    };
    let Some(currency) = Currency::parse(&told.currency) else {
        return parked(format!("unknown currency {}", told.currency));
    };
    let fee_currency = told.fee_currency.as_deref().map_or(Some(currency), Currency::parse);
    let (Some(fee_currency), true) = (fee_currency, told.amount >= 0) else {
        return parked("a report line with an unknown currency or a negative amount".into());
    };
    let movement = Movement {
        kind: told.kind,
        reference: told.reference,
        aliases: told.aliases,
        account: None,
        amount: Amount::Exact(told.amount),
        currency,
        fee: told.fee.map(|minor| Money { minor, currency: fee_currency }),
        tax: told.tax,
        occurred_at: Some(told.occurred_at),
        parent: told.parent,
        if_prior: None,
        role: crate::event::Role::Primary,
        unconfirmed: false,
    };
    Event {
        kind: "report.line".into(),
        mode: Mode::parse(&told.mode),
        occurred_at: Some(told.occurred_at),
        meaning: Meaning::Effects { movements: vec![movement], entities: Vec::new() },
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_the_movement_it_tells_and_nothing_is_guessed() {
        let told = Told {
            kind: "fee".into(),
            reference: "txn_1".into(),
            aliases: vec![],
            parent: None,
            amount: 250,
            currency: "JPY".into(),
            fee: None,
            fee_currency: None,
            tax: None,
            occurred_at: 5,
            mode: "test".into(),
            report: 1,
            line: 2,
        };
        let read = event(&told.body());
        let Meaning::Effects { movements, .. } = &read.meaning else { panic!("{:?}", read.meaning) };
        assert_eq!(
            (&*movements[0].kind, movements[0].amount, read.mode),
            ("fee", Amount::Exact(250), Some(Mode::Test))
        );
        assert_eq!(read.id, None, "the movement's key alone decides");
        for wrong in [Told { amount: -1, ..told.clone() }, Told { currency: "ZZZ".into(), ..told }] {
            assert!(matches!(event(&wrong.body()).meaning, Meaning::Parked(_)));
        }
        assert!(matches!(event(b"{").meaning, Meaning::Parked(_)));
    }
}
