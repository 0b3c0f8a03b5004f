//! Digests with and without a key, and signatures as text.
//!
//! A keyed digest is set up once per secret and cloned per delivery: the key schedule is not paid again. Tags are
//! compared in constant time only, and have neither `Debug` nor `Display`.

use super::spec::{Alg, Encoding};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Digest as _;
use subtle::ConstantTimeEq as _;

/// The longest tag in bytes (SHA-512).
pub(crate) const TAG_BYTES_MAX: usize = 64;

/// A digest's value.
pub(crate) struct Tag {
    bytes: [u8; TAG_BYTES_MAX],
    length: usize,
}

impl Tag {
    fn of(value: &[u8]) -> Tag {
        let mut bytes = [0; TAG_BYTES_MAX];
        let length = value.len().min(TAG_BYTES_MAX);
        bytes[..length].copy_from_slice(&value[..length]);
        Tag { bytes, length }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Whether these are the same bytes, in constant time.
    pub(crate) fn is(&self, other: &[u8]) -> bool {
        same(self.bytes(), other)
    }
}

/// Whether two secrets, or things made from them, are the same; takes as long whatever they hold.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

/// A keyed digest that is ready to be fed; cloning it is cheap.
#[derive(Clone)]
pub(crate) enum Keyed {
    Md5(Hmac<md5::Md5>),
    Sha1(Hmac<sha1::Sha1>),
    Sha256(Hmac<sha2::Sha256>),
    Sha512(Box<Hmac<sha2::Sha512>>),
}

impl Keyed {
    /// `None` when `alg` is no digest.
    pub(crate) fn new(alg: Alg, key: &[u8]) -> Option<Keyed> {
        Some(match alg {
            Alg::Md5 => Keyed::Md5(Hmac::new_from_slice(key).ok()?),
            Alg::Sha1 => Keyed::Sha1(Hmac::new_from_slice(key).ok()?),
            Alg::Sha256 | Alg::Hs256 => Keyed::Sha256(Hmac::new_from_slice(key).ok()?),
            Alg::Sha512 => Keyed::Sha512(Box::new(Hmac::new_from_slice(key).ok()?)),
            Alg::Rs256 | Alg::Es256 => return None,
        })
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Keyed::Md5(mac) => mac.update(bytes),
            Keyed::Sha1(mac) => mac.update(bytes),
            Keyed::Sha256(mac) => mac.update(bytes),
            Keyed::Sha512(mac) => mac.update(bytes),
        }
    }

    pub(crate) fn tag(self) -> Tag {
        match self {
            Keyed::Md5(mac) => Tag::of(&mac.finalize().into_bytes()),
            Keyed::Sha1(mac) => Tag::of(&mac.finalize().into_bytes()),
            Keyed::Sha256(mac) => Tag::of(&mac.finalize().into_bytes()),
            Keyed::Sha512(mac) => Tag::of(&mac.finalize().into_bytes()),
        }
    }

    /// The tag of one piece.
    pub(crate) fn over(&self, bytes: &[u8]) -> Tag {
        let mut mac = self.clone();
        mac.update(bytes);
        mac.tag()
    }
}

/// A digest without a key.
pub(crate) enum Plain {
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

impl Plain {
    /// `None` when `alg` is no digest.
    pub(crate) fn new(alg: Alg) -> Option<Plain> {
        Some(match alg {
            Alg::Md5 => Plain::Md5(md5::Md5::new()),
            Alg::Sha1 => Plain::Sha1(sha1::Sha1::new()),
            Alg::Sha256 => Plain::Sha256(sha2::Sha256::new()),
            Alg::Sha512 => Plain::Sha512(sha2::Sha512::new()),
            Alg::Hs256 | Alg::Rs256 | Alg::Es256 => return None,
        })
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Plain::Md5(hash) => hash.update(bytes),
            Plain::Sha1(hash) => hash.update(bytes),
            Plain::Sha256(hash) => hash.update(bytes),
            Plain::Sha512(hash) => hash.update(bytes),
        }
    }

    pub(crate) fn tag(self) -> Tag {
        match self {
            Plain::Md5(hash) => Tag::of(&hash.finalize()),
            Plain::Sha1(hash) => Tag::of(&hash.finalize()),
            Plain::Sha256(hash) => Tag::of(&hash.finalize()),
            Plain::Sha512(hash) => Tag::of(&hash.finalize()),
        }
    }
}

/// Decodes a signature that is at most as long as a tag, without allocating; `None` when it is written otherwise.
pub(crate) fn decode_tag(encoding: Encoding, text: &[u8], out: &mut [u8; TAG_BYTES_MAX + 8]) -> Option<usize> {
    match encoding {
        Encoding::Hex => {
            let length = text.len() / 2;
            let out = out.get_mut(..length)?;
            hex::decode_to_slice(text, out).ok()?;
            Some(length)
        }
        Encoding::Base64 => STANDARD.decode_slice(text, out).ok(),
        Encoding::Base64url => URL_SAFE_NO_PAD.decode_slice(text, out).ok(),
    }
}

/// Decodes a signature of any length.
pub(crate) fn decode(encoding: Encoding, text: &[u8]) -> Option<Vec<u8>> {
    match encoding {
        Encoding::Hex => hex::decode(text).ok(),
        Encoding::Base64 => STANDARD.decode(text).ok(),
        Encoding::Base64url => URL_SAFE_NO_PAD.decode(text).ok(),
    }
}

/// Writes bytes as a signature is written.
pub(crate) fn encode(encoding: Encoding, bytes: &[u8]) -> String {
    match encoding {
        Encoding::Hex => hex::encode(bytes),
        Encoding::Base64 => STANDARD.encode(bytes),
        Encoding::Base64url => URL_SAFE_NO_PAD.encode(bytes),
    }
}
