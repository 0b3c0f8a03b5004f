//! Public keys and certificates: reading them, and asking ring whether a signature is theirs.
//!
//! No cryptography is written here: ring verifies RSA, ECDSA P-256 and Ed25519, the p521 crate verifies P-521, and
//! x509-parser reads certificates. RSA keys below 2048 bits are refused when they are read: no provider uses them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use p521::ecdsa::signature::Verifier as _;
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;
use std::collections::BTreeMap;
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo};
use x509_parser::public_key::PublicKey as Parsed;

/// The smallest RSA modulus, in bits.
const RSA_BITS_MIN: usize = 2048;
/// How many keys a key set may hold.
const KEYS_MAX: usize = 256;

/// How a signature was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    RsaSha1,
    RsaSha256,
    RsaSha512,
    /// ECDSA over P-256, ASN.1 encoded.
    EcdsaAsn1,
    /// ECDSA over P-256, two integers one after the other.
    EcdsaFixed,
    /// ECDSA over P-521 with SHA-512, two integers one after the other.
    Ecdsa512Fixed,
    Ed25519,
}

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PublicKey {
    /// PKCS#1 DER.
    Rsa(Vec<u8>),
    /// Modulus and exponent, big endian.
    RsaParts(Vec<u8>, Vec<u8>),
    /// An uncompressed point.
    P256(Vec<u8>),
    /// An uncompressed point.
    P521(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl PublicKey {
    /// 32 bytes.
    pub(crate) fn ed25519(bytes: &[u8]) -> Result<PublicKey, String> {
        match bytes.len() {
            32 => Ok(PublicKey::Ed25519(bytes.to_vec())),
            n => Err(format!("an Ed25519 public key has 32 bytes, this has {n}")),
        }
    }

    /// A public key or certificate: PEM, or its DER in base64.
    pub(crate) fn from_pem_or_der(text: &str) -> Result<PublicKey, String> {
        let der = der_blocks(text).into_iter().next();
        let der = der.or_else(|| STANDARD.decode(text.split_ascii_whitespace().collect::<String>()).ok());
        let der = der.ok_or("is neither PEM (-----BEGIN PUBLIC KEY-----) nor DER in base64")?;
        if let Ok((_, certificate)) = x509_parser::parse_x509_certificate(&der) {
            return Self::from_spki(certificate.public_key());
        }
        match SubjectPublicKeyInfo::from_der(&der) {
            Ok((_, spki)) => Self::from_spki(&spki),
            Err(_) => {
                Err("holds no public key that can be read; paste it whole, with its BEGIN and END lines".to_owned())
            }
        }
    }

    pub(crate) fn from_spki(spki: &SubjectPublicKeyInfo<'_>) -> Result<PublicKey, String> {
        let raw = spki.subject_public_key.data.to_vec();
        match spki.parsed() {
            Ok(Parsed::RSA(rsa)) if rsa.key_size() < RSA_BITS_MIN => {
                Err(format!("is an RSA key of {} bits; fewer than {RSA_BITS_MIN} are not accepted", rsa.key_size()))
            }
            Ok(Parsed::RSA(_)) => Ok(PublicKey::Rsa(raw)),
            Ok(Parsed::EC(_)) => match raw.len() {
                65 => Ok(PublicKey::P256(raw)),
                133 => Ok(PublicKey::P521(raw)),
                _ => Err("is a key on a curve that no provider here uses".to_owned()),
            },
            _ if spki.algorithm.algorithm.to_id_string() == "1.3.101.112" => Self::ed25519(&raw),
            _ => Err("is a public key of a kind that no provider here uses".to_owned()),
        }
    }

    /// Keys by id: a JWKS, or an object from key id to PEM. Keys of kinds that are not read are passed over.
    pub(crate) fn set(bytes: &[u8]) -> Result<Vec<(String, PublicKey)>, String> {
        if let Ok(set) = serde_json::from_slice::<Jwks>(bytes) {
            return Ok(set
                .keys
                .iter()
                .take(KEYS_MAX)
                .filter_map(|jwk| Some((jwk.kid.clone()?, jwk.read()?)))
                .collect());
        }
        if let Ok(jwk) = serde_json::from_slice::<Jwk>(bytes) {
            return Ok(jwk.read().map(|key| (jwk.kid.clone().unwrap_or_default(), key)).into_iter().collect());
        }
        let pems: BTreeMap<String, String> = serde_json::from_slice(bytes)
            .map_err(|_| "is neither a JWKS nor an object of key ids and PEM texts".to_owned())?;
        Ok(pems
            .iter()
            .take(KEYS_MAX)
            .filter_map(|(id, pem)| Some((id.clone(), Self::from_pem_or_der(pem).ok()?)))
            .collect())
    }

    /// Whether `signature` over `message` is this key's.
    pub(crate) fn verifies(&self, made: Made, message: &[u8], signature: &[u8]) -> bool {
        let ask = |how: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(how, key).verify(message, signature).is_ok()
        };
        match (self, made) {
            (PublicKey::Rsa(key), Made::RsaSha1) => ask(&signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, key),
            (PublicKey::Rsa(key), Made::RsaSha256) => ask(&signature::RSA_PKCS1_2048_8192_SHA256, key),
            (PublicKey::Rsa(key), Made::RsaSha512) => ask(&signature::RSA_PKCS1_2048_8192_SHA512, key),
            (PublicKey::RsaParts(n, e), Made::RsaSha256) => signature::RsaPublicKeyComponents { n, e }
                .verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature)
                .is_ok(),
            (PublicKey::P256(key), Made::EcdsaAsn1) => ask(&signature::ECDSA_P256_SHA256_ASN1, key),
            (PublicKey::P256(key), Made::EcdsaFixed) => ask(&signature::ECDSA_P256_SHA256_FIXED, key),
            (PublicKey::Ed25519(key), Made::Ed25519) => ask(&signature::ED25519, key),
            (PublicKey::P521(key), Made::Ecdsa512Fixed) => {
                let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(key);
                let signature = p521::ecdsa::Signature::from_slice(signature);
                key.is_ok_and(|key| signature.is_ok_and(|signature| key.verify(message, &signature).is_ok()))
            }
            _ => false,
        }
    }
}

/// The DER of each block of a PEM text.
pub(crate) fn der_blocks(text: &str) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let mut inside: Option<String> = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with("-----BEGIN ") {
            inside = Some(String::new());
        } else if line.starts_with("-----END ") {
            blocks.extend(inside.take().and_then(|base64| STANDARD.decode(base64).ok()));
        } else if let Some(base64) = &mut inside {
            base64.push_str(line);
        }
    }
    blocks
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kid: Option<String>,
    kty: String,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

impl Jwk {
    fn read(&self) -> Option<PublicKey> {
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let point = |width: usize| {
            let (x, y) = (bytes(&self.x)?, bytes(&self.y)?);
            let pad = |n: &[u8]| Some([vec![0; width.checked_sub(n.len())?], n.to_vec()].concat());
            Some([vec![4], pad(&x)?, pad(&y)?].concat())
        };
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("EC", Some("P-256")) => point(32).map(PublicKey::P256),
            ("EC", Some("P-521")) => point(66).map(PublicKey::P521),
            ("OKP", Some("Ed25519")) => PublicKey::ed25519(&bytes(&self.x)?).ok(),
            ("RSA", _) => {
                let n = bytes(&self.n)?;
                let n = n[n.iter().position(|b| *b != 0)?..].to_vec();
                (n.len() * 8 >= RSA_BITS_MIN).then_some(PublicKey::RsaParts(n, bytes(&self.e)?))
            }
            _ => None,
        }
    }
}
