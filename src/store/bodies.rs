//! The bytes of a delivery as they are stored: packed where that makes them smaller, and exactly as sent when they come back.

use std::cell::RefCell;
use std::sync::LazyLock;
use zstd::bulk::{Compressor, Decompressor};
use zstd::dict::{DecoderDictionary, EncoderDictionary};

/// Bytes as they are stored.
#[derive(Clone, Debug)]
pub struct StoredBody {
    pub(super) codec: i64,
    pub(super) bytes: Vec<u8>,
    pub(super) sha256: [u8; 32],
    /// As sent, where it is small and `bytes` are packed: it is taken up in a moment.
    plain: Option<Vec<u8>>,
}

/// Larger ones are unpacked when they are taken up: they would wait in memory twice.
const PLAIN_MAX: usize = 16 << 10;

/// Smaller bodies gain nothing from compression.
const COMPRESS_FROM: usize = 128;

/// What events of many providers have in common, so that a body is packed as if they had come before it: half the bytes in
/// half the time. Made by `zstd --train --maxdict=16384` of the events in tests/vectors. It never changes, or what was packed
/// with it could not be read: another one would be another codec.
const DICTIONARY: &[u8] = include_bytes!("bodies.zdict");

impl StoredBody {
    /// Packs the bytes of a delivery. They come back exactly as they were ([`super::raw::body`]).
    pub fn pack(bytes: &[u8]) -> StoredBody {
        use sha2::{Digest as _, Sha256};
        let sha256 = Sha256::digest(bytes).into();
        if bytes.len() >= COMPRESS_FROM
            && let Some(packed) = compress(bytes)
            && packed.len() < bytes.len()
        {
            let plain = (bytes.len() <= PLAIN_MAX).then(|| bytes.to_vec());
            return StoredBody { codec: 1, bytes: packed, sha256, plain };
        }
        StoredBody { codec: 0, bytes: bytes.to_vec(), sha256, plain: None }
    }

    /// How many bytes it takes.
    pub fn stored(&self) -> usize {
        self.bytes.len()
    }

    /// As sent, where that is at hand; `None`: it is to be read back.
    pub(super) fn into_plain(self) -> Option<Vec<u8>> {
        if self.codec == 0 { Some(self.bytes) } else { self.plain }
    }
}

/// Level 1 with the thread's own context: making one for each body would cost more than the compression.
fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    static DICT: LazyLock<EncoderDictionary<'static>> = LazyLock::new(|| EncoderDictionary::copy(DICTIONARY, 1));
    thread_local! {
        static PACKER: RefCell<Option<Compressor<'static>>> = RefCell::new(Compressor::with_prepared_dictionary(&DICT).ok());
    }
    PACKER.with_borrow_mut(|packer| packer.as_mut()?.compress(bytes).ok())
}

/// The largest body that is unpacked: above the limit of any source.
const UNPACKED_MAX: usize = 64 << 20;

static UNPACK_DICT: LazyLock<DecoderDictionary<'static>> = LazyLock::new(|| DecoderDictionary::copy(DICTIONARY));
thread_local! {
    /// Making a context for each body would cost more than unpacking it.
    static UNPACKER: RefCell<Option<Decompressor<'static>>> =
        RefCell::new(Decompressor::with_prepared_dictionary(&UNPACK_DICT).ok());
}

/// As sent; `None`: it cannot be unpacked.
pub(super) fn unpack(codec: i64, bytes: Vec<u8>) -> Option<Vec<u8>> {
    match codec {
        0 => Some(bytes),
        _ => {
            let size = zstd::zstd_safe::get_frame_content_size(&bytes).ok()??;
            let size = usize::try_from(size).ok()?.min(UNPACKED_MAX);
            UNPACKER.with_borrow_mut(|unpacker| unpacker.as_mut()?.decompress(&bytes, size).ok())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &[u8] =
        br#"{"id":"evt_9QkLmNoPqRsTuV","object":"event","api_version":"2026-10-28.endive","created":1796045602,
"data":{"object":{"id":"ch_9QkLmAbCdEfGhI","object":"charge","amount":1250,"amount_captured":1250,"amount_refunded":0,
"balance_transaction":"txn_9QkLmXyZ","billing_details":{"email":"somebody@example.org","name":"Some Body","phone":null},
"captured":true,"created":1796045600,"currency":"chf","customer":"cus_Qrst","description":null,"disputed":false,
"metadata":{"order":"A-77"},"paid":true,"payment_intent":"pi_9QkLmStUv","receipt_email":null,"refunded":false,
"status":"succeeded"}},"livemode":true,"pending_webhooks":2,"request":{"id":null,"idempotency_key":null},
"type":"charge.succeeded"}"#;

    #[test]
    fn what_was_packed_comes_back_as_it_was_sent() {
        let noise: Vec<u8> = (0..40_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for sent in [b"".as_slice(), b"{}", &EVENT[..127], &EVENT[..128], EVENT, &EVENT.repeat(40), &noise] {
            let stored = StoredBody::pack(sent);
            assert!(stored.stored() <= sent.len());
            assert_eq!(unpack(stored.codec, stored.bytes.clone()).as_deref(), Some(sent));
            match stored.codec == 1 && sent.len() > PLAIN_MAX {
                true => assert_eq!(stored.into_plain(), None),
                false => assert_eq!(stored.into_plain().as_deref(), Some(sent)),
            }
        }
    }

    #[test]
    fn an_event_takes_less_with_what_events_have_in_common() {
        let without = zstd::bulk::compress(EVENT, 1).unwrap();
        let with = StoredBody::pack(EVENT);
        assert!(with.stored() * 3 < without.len() * 2, "{} bytes, and {} without it", with.stored(), without.len());
    }

    #[test]
    fn what_any_version_packed_can_be_read_by_this_one() {
        // before there was a dictionary
        let without = zstd::bulk::compress(EVENT, 1).unwrap();
        assert_eq!(unpack(1, without).as_deref(), Some(EVENT));
        // and with it: such bytes are in files out there
        let with = concat!(
            "28b52ffd6101b801850600134614ab1518f6d14baf90cbc3cb642ca0fdac15a8c78a355a515967dad44cf6cb2ccdb429ee97",
            "a99a81bc422e0fcf5a51790e5f10ebb3eae88d08b2462b2af831dcf698936a4a49588c4cd12be4f2f0c20edb0133fc441e10",
            "e02f545afedc6f967ac157022dad80f8853554ce0a02623a0ca1abaaf5d936904c3528d2c48d15de0390d37c495fb370a23f",
            "9cb18cc565232229f6f6a87d2d80caff8560e59b05b69d9c36845b77e50ea062baaba85b7540bff66843352ecf00d3bc8fdd",
            "829748368ea9f1e244a4456b2438b0a083d431",
        );
        assert_eq!(unpack(1, hex::decode(with).unwrap()).as_deref(), Some(EVENT));
    }

    #[test]
    fn the_dictionary_never_changes() {
        use sha2::{Digest as _, Sha256};
        assert_eq!(
            hex::encode(Sha256::digest(DICTIONARY)),
            "56ed96e16215fc31e4f9393edc5fdae42f6f84426dee961a2186b88d9b647df1"
        );
    }

    #[test]
    fn bytes_that_are_no_packed_body_are_refused() {
        let packed = StoredBody::pack(EVENT).bytes;
        assert_eq!(unpack(1, packed[..packed.len() / 2].to_vec()), None);
        assert_eq!(unpack(1, b"{}".to_vec()), None);
        assert_eq!(unpack(1, Vec::new()), None);
    }
}
