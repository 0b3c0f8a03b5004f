//! Stripe's events, as small as they may be.

/// `charge.succeeded` of a payment intent.
pub fn charge(event: &str, payment: &str, amount: i64) -> String {
    charge_in(event, payment, amount, "usd")
}

/// The same in another currency.
pub fn charge_in(event: &str, payment: &str, amount: i64, currency: &str) -> String {
    object(
        event,
        "charge.succeeded",
        &format!(
            r#"{{"id":"ch_{payment}","object":"charge","amount":{amount},"amount_captured":{amount},"captured":true,"currency":"{currency}","customer":"cus_1","payment_intent":"{payment}"}}"#
        ),
    )
}

/// `payment_intent.succeeded`.
pub fn intent(event: &str, payment: &str, amount: i64) -> String {
    object(
        event,
        "payment_intent.succeeded",
        &format!(
            r#"{{"id":"{payment}","object":"payment_intent","amount":{amount},"amount_received":{amount},"currency":"usd","customer":"cus_1","latest_charge":"ch_{payment}","status":"succeeded"}}"#
        ),
    )
}

/// `invoice.paid` of an older API version, which names its payment.
pub fn invoice(event: &str, invoice: &str, payment: &str, amount: i64) -> String {
    object(
        event,
        "invoice.paid",
        &format!(
            r#"{{"id":"{invoice}","object":"invoice","amount_paid":{amount},"attempt_count":1,"currency":"usd","customer":"cus_1","paid_out_of_band":false,"payment_intent":"{payment}","status":"paid"}}"#
        ),
    )
}

/// `refund.created`.
pub fn refund(event: &str, refund: &str, payment: &str, amount: i64) -> String {
    object(
        event,
        "refund.created",
        &format!(
            r#"{{"id":"{refund}","object":"refund","amount":{amount},"balance_transaction":"txn_{refund}","currency":"usd","charge":"ch_{payment}","payment_intent":"{payment}","reason":null,"status":"succeeded"}}"#
        ),
    )
}

/// An event around an object.
pub fn object(event: &str, kind: &str, object: &str) -> String {
    object_at(event, kind, object, 1_795_000_000)
}

/// An event around an object, with its time in seconds.
pub fn object_at(event: &str, kind: &str, object: &str, created: i64) -> String {
    format!(
        r#"{{"id":"{event}","object":"event","api_version":"2026-10-28.endive","created":{created},"data":{{"object":{object}}},"livemode":true,"type":"{kind}"}}"#
    )
}
