//! Adyen's standard notifications: each item of the body carries its own signature over eight of its fields.
//!
//! Every item must be good, under one and the same secret; an item without a signature makes the whole delivery bad.
//! Only those eight fields are covered, joined by ":" without escaping, so this proves a part of the body and no more.

use crate::providers::signature::{
    Alg, Case, Encoding, Keyed, Match, Ready, Reason, Refusal, TAG_BYTES_MAX, Trace, decode_tag,
};
use serde::Deserialize;

/// How many items one delivery may hold.
const ITEMS_MAX: usize = 1000;

/// A keyed digest per secret.
pub(crate) struct Adyen {
    macs: Vec<(String, Option<Keyed>)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notification {
    notification_items: Vec<Wrapper>,
}

#[derive(Deserialize)]
struct Wrapper {
    #[serde(rename = "NotificationRequestItem")]
    item: Item,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    psp_reference: Option<Scalar>,
    original_reference: Option<Scalar>,
    merchant_account_code: Option<Scalar>,
    merchant_reference: Option<Scalar>,
    amount: Option<Amount>,
    event_code: Option<Scalar>,
    success: Option<Scalar>,
    additional_data: Option<Additional>,
}

#[derive(Deserialize)]
struct Amount {
    value: Option<Scalar>,
    currency: Option<Scalar>,
}

#[derive(Deserialize)]
struct Additional {
    #[serde(rename = "hmacSignature")]
    signature: Option<String>,
}

/// A text, number or switch, as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Number(serde_json::Number),
    Switch(bool),
}

impl Scalar {
    fn text(&self) -> String {
        match self {
            Scalar::Text(text) => text.clone(),
            Scalar::Number(number) => number.to_string(),
            Scalar::Switch(value) => value.to_string(),
        }
    }
}

impl Item {
    fn signed(&self) -> String {
        let amount = self.amount.as_ref();
        let fields = [
            &self.psp_reference,
            &self.original_reference,
            &self.merchant_account_code,
            &self.merchant_reference,
            amount.map_or(&None, |amount| &amount.value),
            amount.map_or(&None, |amount| &amount.currency),
            &self.event_code,
            &self.success,
        ];
        fields.map(|field| field.as_ref().map(Scalar::text).unwrap_or_default()).join(":")
    }
}

impl Adyen {
    pub(crate) fn new(secrets: &[Ready]) -> Adyen {
        Adyen {
            macs: secrets.iter().map(|ready| (ready.name.clone(), Keyed::new(Alg::Sha256, ready.bytes()))).collect(),
        }
    }

    pub(crate) fn verify(&self, case: &Case<'_>, trace: &mut Trace) -> Result<Match, Refusal> {
        let malformed = |about: &'static str| Refusal::new(Reason::MalformedBody, about);
        let body: Notification = serde_json::from_slice(case.delivery.body)
            .map_err(|_| malformed("the body is no JSON with notificationItems"))?;
        let count = body.notification_items.len();
        if count == 0 || count > ITEMS_MAX {
            return Err(malformed("notificationItems is empty or too long"));
        }
        let mut items = Vec::with_capacity(count);
        for Wrapper { item } in &body.notification_items {
            let signature = item.additional_data.as_ref().and_then(|data| data.signature.as_deref());
            let signature = signature.ok_or_else(|| malformed("an item has no additionalData.hmacSignature"))?;
            items.push((item.signed(), signature));
        }
        trace.note(true, || format!("{count} item(s), each with a signature over eight of its fields"));
        let mut buffer = [0; TAG_BYTES_MAX + 8];
        let secret = case.secret_where(trace, |ready| {
            let Some((_, Some(mac))) = self.macs.iter().find(|(name, _)| *name == ready.name) else { return Ok(false) };
            Ok(items.iter().all(|(signed, signature)| {
                let length = decode_tag(Encoding::Base64, signature.as_bytes(), &mut buffer);
                length.is_some_and(|length| mac.over(signed.as_bytes()).is(&buffer[..length]))
            }))
        })?;
        Ok(Match { secret: Some(secret), id: None, signed_at_ms: None })
    }
}
