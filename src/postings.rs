//! What each kind of movement posts: which account is debited, which is credited.
//!
//! One table, read top to bottom. Money of unknown kinds goes to `suspense`, where a person sees it. Amounts and keys are
//! not this file's business.

use crate::event::Movement;
use crate::providers::LedgerFacts;

/// An account by its code, and whether it is kept per customer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    /// The name in tables and pages.
    pub code: &'static str,
    /// ASSET, LIABILITY, INCOME, EXPENSE.
    pub class: Class,
    /// Is there a sub-account for each customer?
    pub per_customer: bool,
}

pub use crate::store::ledger::Class;

const fn house(code: &'static str, class: Class) -> Code {
    Code { code, class, per_customer: false }
}

const fn customer(code: &'static str, class: Class) -> Code {
    Code { code, class, per_customer: true }
}

/// What the provider holds for us.
pub const CLEARING: Code = house("clearing", Class::Asset);
const TRANSIT: Code = house("transit", Class::Asset);
const HOLD: Code = customer("hold", Class::Asset);
const RESERVE: Code = house("reserve", Class::Asset);
const FX: Code = house("fx", Class::Asset);
const SUSPENSE: Code = house("suspense", Class::Asset);
const SALES: Code = customer("sales", Class::Income);
const FEE_INCOME: Code = house("fee_income", Class::Income);
const REFUNDS: Code = customer("refunds", Class::Expense);
const FAILED_PAYMENTS: Code = customer("failed_payments", Class::Expense);
const DISPUTE_LOSS: Code = customer("dispute_loss", Class::Expense);
/// What the provider keeps for its service.
pub const FEES: Code = house("fees", Class::Expense);
const TRANSFERS: Code = house("transfers", Class::Expense);
const CREDIT: Code = customer("credit", Class::Liability);

/// Every account there is.
pub const CODES: [Code; 14] = [
    CLEARING,
    TRANSIT,
    HOLD,
    RESERVE,
    FX,
    SUSPENSE,
    SALES,
    FEE_INCOME,
    REFUNDS,
    FAILED_PAYMENTS,
    DISPUTE_LOSS,
    FEES,
    TRANSFERS,
    CREDIT,
];

/// How a movement of one kind is booked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Debited with the amount.
    pub debit: Code,
    /// Credited with it.
    pub credit: Code,
    /// Is a line of a settlement report expected for it?
    pub settles: bool,
    /// Is the kind known? An unknown one is for a person.
    pub known: bool,
}

/// The rule of a kind.
pub fn rule(kind: &str, facts: LedgerFacts) -> Rule {
    let dispute = if facts.disputes_end_silently { DISPUTE_LOSS } else { HOLD };
    let (debit, credit, settles) = match kind {
        "payment" => (CLEARING, SALES, true),
        "payment_reversed" => (FAILED_PAYMENTS, CLEARING, true),
        "refund" | "reversal" => (REFUNDS, CLEARING, true),
        "refund_reversed" => (CLEARING, REFUNDS, true),
        "dispute_opened" => (dispute, CLEARING, true),
        "dispute_won" => (CLEARING, dispute, true),
        "dispute_lost" => (DISPUTE_LOSS, HOLD, false),
        "fee" => (FEES, CLEARING, true),
        "fee_reversal" => (CLEARING, FEES, true),
        "payout" => (TRANSIT, CLEARING, true),
        "payout_failed" | "topup" => (CLEARING, TRANSIT, true),
        "topup_reversed" => (TRANSIT, CLEARING, true),
        "transfer" => (TRANSFERS, CLEARING, true),
        "transfer_reversed" => (CLEARING, TRANSFERS, true),
        "application_fee" => (CLEARING, FEE_INCOME, true),
        "application_fee_refund" => (FEE_INCOME, CLEARING, true),
        "reserve" | "hold" => (RESERVE, CLEARING, true),
        "reserve_release" | "hold_release" => (CLEARING, RESERVE, true),
        "conversion_out" => (FX, CLEARING, true),
        "conversion_in" => (CLEARING, FX, true),
        "credit" => (SALES, CREDIT, false),
        "credit_reversed" | "credit_redeemed" => (CREDIT, SALES, false),
        "adjustment" => (CLEARING, SUSPENSE, true),
        "adjustment_out" => (SUSPENSE, CLEARING, true),
        _ => return Rule { debit: CLEARING, credit: SUSPENSE, settles: true, known: false },
    };
    Rule { debit, credit, settles, known: true }
}

/// How much of a movement's amount is booked: all of it, less the tax that a merchant of record remits itself.
pub fn booked(movement: &Movement, amount: i64, facts: LedgerFacts) -> i64 {
    match movement.tax {
        Some(tax) if facts.merchant_of_record => amount - tax,
        _ => amount,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_that_leaves_and_comes_back_uses_the_same_two_accounts() {
        for facts in [LedgerFacts::default(), LedgerFacts { disputes_end_silently: true, ..LedgerFacts::default() }] {
            for (out, back) in [
                ("refund", "refund_reversed"),
                ("dispute_opened", "dispute_won"),
                ("payout", "payout_failed"),
                ("topup", "topup_reversed"),
                ("transfer", "transfer_reversed"),
                ("fee", "fee_reversal"),
                ("reserve", "reserve_release"),
                ("application_fee", "application_fee_refund"),
            ] {
                let (there, again) = (rule(out, facts), rule(back, facts));
                assert_eq!((there.debit, there.credit), (again.credit, again.debit), "{out} and {back}");
            }
        }
    }

    #[test]
    fn a_kind_nobody_knows_goes_to_suspense() {
        let rule = rule("confetti", LedgerFacts::default());
        assert!(!rule.known && rule.credit.code == "suspense");
    }
}
