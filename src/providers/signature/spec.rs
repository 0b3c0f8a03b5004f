//! The `[signature]` table of a provider's file: what proves who sent a delivery, as data.
//!
//! Values only: nothing here sees a body or a secret. A table that says something impossible is refused when the file
//! is loaded, with the field and what would be right; it must never be refused by the first delivery.
//!
//! Places, used in `from`, `content` and handshakes: `header:NAME`, `query:NAME`, `form:NAME`, `form:NAME#/pointer`
//! (JSON inside a form field), `json:/pointer`, `sig:KEY` (a part of the signature header), `setting:NAME` (the source's).

use super::template::{Place, Template};
use crate::providers::schemes;
use serde::Deserialize;
use std::collections::BTreeMap;

/// How a delivery of this provider is proven genuine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignatureSpec {
    /// The family of proof.
    pub kind: Kind,
    /// What the proof covers; anything short of the body is not to be trusted blindly.
    pub covers: Covers,
    /// The digest, or for `jwt` the one algorithm that is accepted.
    #[serde(default)]
    pub alg: Option<Alg>,
    /// How the signature is written; hex by default.
    #[serde(default)]
    pub encoding: Encoding,
    /// The header with the signature; of several the first that is there decides. `{n}` stands for 1, 2, 3 …: all tried.
    #[serde(default)]
    pub header: Names,
    /// A place in the body that holds the signature, where no header does.
    #[serde(default)]
    pub from: Option<String>,
    /// Text in front of the value, as in `sha256=`.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Whether a value without the prefix is read all the same.
    #[serde(default)]
    pub prefix_optional: bool,
    /// How the value is taken apart.
    #[serde(default)]
    pub format: Format,
    /// What stands between items (`,` by default).
    #[serde(default)]
    pub item_sep: Option<char>,
    /// What stands between a key and its value (`=` by default).
    #[serde(default)]
    pub kv_sep: Option<char>,
    /// The key of the timestamp in a `kv` header.
    #[serde(default)]
    pub ts_key: Option<String>,
    /// The key, or the version, that a signature stands under; all others are ignored.
    #[serde(default)]
    pub sig_key: Option<String>,
    /// The signed bytes; of several templates any may match, and one whose places are absent does not count.
    #[serde(default)]
    pub content: Names,
    /// When it was signed.
    #[serde(default)]
    pub timestamp: Option<TimestampSpec>,
    /// The message's id where it is signed too; of several places the first that is there.
    #[serde(default)]
    pub id: Names,
    /// How the configured text becomes a key.
    #[serde(default)]
    pub secret: SecretSpec,
    /// A header that names which secret to use.
    #[serde(default)]
    pub key_id: Option<String>,
    /// Further conditions: place = the only value that is accepted.
    #[serde(default)]
    pub require: BTreeMap<String, String>,
    /// Which bytes are signed when the body comes compressed.
    #[serde(default)]
    pub signs: Signs,
    /// For `kind = "scheme"`: the name of the scheme in code.
    #[serde(default)]
    pub scheme: Option<String>,
    /// For `kind = "jwt"`: what its claims must say.
    #[serde(default)]
    pub jwt: JwtSpec,
    /// Where public keys or certificates come from, if the source does not give them.
    #[serde(default)]
    pub keys: KeysSpec,
    /// What a source may or must say beside its secret.
    #[serde(default)]
    pub settings: BTreeMap<String, SettingSpec>,
    /// Another way to sign, looked at only when the header of this one is absent.
    #[serde(default)]
    pub otherwise: Option<Box<SignatureSpec>>,
}

/// The families of proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A keyed digest over `content`.
    Hmac,
    /// A plain digest over `content`, which holds the secret.
    Hash,
    /// The secret itself, in a header or in the body.
    Token,
    /// HTTP basic; the secret is `user:password`.
    Basic,
    /// Ed25519 over `content`.
    Ed25519,
    /// ECDSA (P-256, DER) over `content`.
    Ecdsa,
    /// RSA PKCS#1 v1.5 over `content`.
    Rsa,
    /// A JSON web token with claims.
    Jwt,
    /// Named code under `schemes/`.
    Scheme,
    /// The provider signs nothing.
    None,
}

/// What a proof covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Covers {
    /// Every byte of the body.
    Body,
    /// Some fields, or the body in a way that can be forged.
    Part,
    /// The sender only, or not even that.
    Nothing,
}

impl Covers {
    /// The word of the file and of the stored event.
    pub fn as_str(self) -> &'static str {
        match self {
            Covers::Body => "body",
            Covers::Part => "part",
            Covers::Nothing => "nothing",
        }
    }
}

/// Digests and token algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "the names are the algorithms' own")]
pub enum Alg {
    #[serde(rename = "md5")]
    Md5,
    #[serde(rename = "sha1")]
    Sha1,
    #[serde(rename = "sha256")]
    Sha256,
    #[serde(rename = "sha512")]
    Sha512,
    #[serde(rename = "HS256")]
    Hs256,
    #[serde(rename = "RS256")]
    Rs256,
    #[serde(rename = "ES256")]
    Es256,
}

/// How a signature is written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Hex in either case: it is compared as bytes.
    #[default]
    Hex,
    /// The standard alphabet, padded, canonical.
    Base64,
    /// The URL alphabet without padding.
    Base64url,
}

/// How the signature's text is taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// One value.
    #[default]
    Raw,
    /// `key=value` items; several may stand under `sig_key`.
    Kv,
    /// `version<sep>value` items.
    VersionedList,
    /// The timestamp, then values.
    Positional,
    /// Values.
    List,
    /// `key id<sep>value` items: a value counts only for the secret of that key id.
    Keyed,
}

/// Which bytes a signature is over when the body comes compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signs {
    /// What the body is after inflating it.
    #[default]
    Inflated,
    /// The bytes as they were sent.
    Sent,
}

/// One name or several.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(untagged)]
pub enum Names {
    /// Nothing said.
    #[default]
    None,
    /// One.
    One(String),
    /// Several, in order.
    Many(Vec<String>),
}

impl Names {
    /// All of them, in order.
    pub fn all(&self) -> &[String] {
        match self {
            Names::None => &[],
            Names::One(name) => std::slice::from_ref(name),
            Names::Many(names) => names,
        }
    }
}

/// Where the time of signing stands, and how far it may be from ours.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimestampSpec {
    /// Its places; the first that is there.
    pub from: Names,
    /// How it is written.
    pub unit: Unit,
    /// How old a delivery may be, in seconds; not limited when absent. A source may set its own.
    #[serde(default)]
    pub tolerance_s: Option<u64>,
    /// How far ahead of us, in seconds; as `tolerance_s` when absent.
    #[serde(default)]
    pub future_s: Option<u64>,
}

/// Units of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Unix seconds.
    S,
    /// Unix milliseconds.
    Ms,
    /// Either: what has more than eleven digits is milliseconds.
    SOrMs,
    /// ISO 8601; without a zone it is UTC.
    Iso8601,
}

/// How a configured secret becomes a key, and what people paste by mistake.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretSpec {
    /// What it is, for people: "the endpoint's signing secret".
    #[serde(default)]
    pub is: Option<String>,
    /// From text to key.
    #[serde(default)]
    pub decode: Decode,
    /// A prefix to take off before decoding; a text without it is decoded all the same.
    #[serde(default)]
    pub strip_prefix: Option<String>,
    /// What it must not start with: prefix = what that is.
    #[serde(default)]
    pub refuse: BTreeMap<String, String>,
    /// Whether a source may do without (keys come from `keys`, or nothing is signed).
    #[serde(default)]
    pub optional: bool,
}

/// From a secret's text to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decode {
    /// The text's bytes.
    #[default]
    Utf8,
    /// Base64 text.
    Base64,
    /// Hex text.
    Hex,
    /// The SHA-1 of the text.
    Sha1,
    /// The SHA-256 of the text, written in hex.
    Sha256Hex,
    /// A public key or certificate: PEM, or DER in base64.
    Pem,
    /// Public keys by id: a JWKS, or an object from key id to PEM.
    KeySet,
}

/// What a token's claims must say.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtSpec {
    /// Claim = the value, or any of several; text may hold `{setting:…}` and `{url}`.
    #[serde(default)]
    pub claims: BTreeMap<String, Claim>,
    /// The claim with the body's SHA-256.
    #[serde(default)]
    pub body_hash_claim: Option<String>,
    /// How that hash is written.
    #[serde(default)]
    pub body_hash_encoding: Encoding,
    /// Whether `exp` must be there.
    #[serde(default)]
    pub exp_required: bool,
    /// Leeway for `exp`, `nbf` and `iat`, in seconds.
    #[serde(default)]
    pub skew_s: u64,
    /// How old `iat` may be, in seconds; it must be there then.
    #[serde(default)]
    pub iat_max_age_s: Option<u64>,
    /// The longest life (`exp` − `iat`) that is accepted, in seconds.
    #[serde(default)]
    pub lifetime_max_s: Option<u64>,
}

/// What a claim may be.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Claim {
    /// A switch.
    Is(bool),
    /// A text.
    Text(String),
    /// Any of these texts.
    AnyOf(Vec<String>),
}

/// Where public keys come from.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeysSpec {
    /// The address of the key set; may hold `{setting:…}`. For schemes that read it from the delivery: absent.
    #[serde(default)]
    pub url: Option<String>,
    /// The only addresses that a delivery may name itself.
    #[serde(default)]
    pub urls: Vec<String>,
    /// The only hosts that a delivery may name, each with its sub-domains.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// A JSON body to post to `url`, for one key at a time; may hold `{setting:…}` and `{kid}`.
    #[serde(default)]
    pub post: Option<BTreeMap<String, String>>,
    /// Where in the answer the key stands (a JSON pointer); the whole answer when absent.
    #[serde(default)]
    pub pointer: Option<String>,
    /// The root certificates to trust (DER in base64); the public web's when absent.
    #[serde(default)]
    pub roots: Vec<String>,
}

/// One thing that a source may or must say beside its secret.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingSpec {
    /// What it is, for people.
    pub is: String,
    /// Whether a source without it does not start.
    #[serde(default)]
    pub required: bool,
    /// Its value when the source says nothing.
    #[serde(default)]
    pub default: Option<String>,
}

impl SignatureSpec {
    /// Is this header a shared secret itself (a static token, a password), so that it must not be kept with the delivery?
    pub fn carries_secret_in(&self, header: &str) -> bool {
        matches!(self.kind, Kind::Token | Kind::Basic) && self.reads(header)
            || self.otherwise.as_ref().is_some_and(|other| other.carries_secret_in(header))
    }

    /// Does this header prove who sent the delivery? Its value is made from the secret, and nobody needs to see it.
    pub fn is_proven_by(&self, header: &str) -> bool {
        let of_scheme = self.scheme.as_deref().map_or(&[][..], schemes::signature_headers);
        self.reads(header)
            || of_scheme.iter().any(|name| name.eq_ignore_ascii_case(header))
            || self.otherwise.as_ref().is_some_and(|other| other.is_proven_by(header))
    }

    fn reads(&self, header: &str) -> bool {
        let starts = |with: &str| header.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
        self.header.all().iter().any(|name| match name.split_once("{n}") {
            Some((before, _)) => starts(before),
            None => name.eq_ignore_ascii_case(header),
        })
    }

    /// Says what is impossible in this table, as one sentence with the field's name.
    pub fn check(&self) -> Result<(), String> {
        let needs = |what: bool, field: &str, right: &str| {
            if what { Ok(()) } else { Err(format!("[signature] {field}: {right}")) }
        };
        let digest = matches!(self.alg, Some(Alg::Md5 | Alg::Sha1 | Alg::Sha256 | Alg::Sha512));
        let has_place = !self.header.all().is_empty() || self.from.is_some();
        match self.kind {
            Kind::Hmac | Kind::Hash => needs(digest, "alg", "one of md5, sha1, sha256, sha512")?,
            Kind::Rsa => {
                needs(matches!(self.alg, Some(Alg::Sha1 | Alg::Sha256 | Alg::Sha512)), "alg", "sha1, sha256 or sha512")?
            }
            Kind::Ecdsa => needs(self.alg == Some(Alg::Sha256), "alg", "sha256 is the one that is known")?,
            Kind::Jwt => {
                needs(
                    matches!(self.alg, Some(Alg::Hs256 | Alg::Rs256 | Alg::Es256)),
                    "alg",
                    "one of HS256, RS256, ES256",
                )?;
            }
            Kind::Scheme => match &self.scheme {
                None => return Err("[signature] scheme: the name of the scheme in code".to_owned()),
                Some(name) => needs(
                    crate::providers::schemes::is_known(name),
                    "scheme",
                    &format!("\"{name}\" is none of {}", crate::providers::schemes::NAMES.join(", ")),
                )?,
            },
            Kind::Token | Kind::Basic | Kind::Ed25519 | Kind::None => {}
        }
        if matches!(self.kind, Kind::Hmac | Kind::Hash | Kind::Ed25519 | Kind::Ecdsa | Kind::Rsa) {
            needs(
                !self.content.all().is_empty(),
                "content",
                "the template of the signed bytes, as in \"{ts}.{body}\"",
            )?;
        }
        if !matches!(self.kind, Kind::Scheme | Kind::None) {
            needs(has_place, "header", "the header that holds the signature, or `from` with its place in the body")?;
        }
        if self.format == Format::Kv {
            needs(self.sig_key.is_some(), "sig_key", "the key that the signature stands under, as in \"v1\"")?;
        }
        for text in self.content.all() {
            Template::parse(text).map_err(|e| format!("[signature] content: {e}"))?;
        }
        let places = self.from.iter().chain(self.id.all()).chain(self.require.keys());
        let places = places.chain(self.timestamp.iter().flat_map(|t| t.from.all()));
        for text in places {
            Place::parse(text).map_err(|e| format!("[signature] {e}"))?;
        }
        match &self.otherwise {
            None => Ok(()),
            Some(other) if other.otherwise.is_some() => {
                Err("[signature.otherwise] otherwise: one alternative is enough".to_owned())
            }
            Some(other) => other.check(),
        }
    }
}
