//! Certificate chains: from a leaf, over certificates that are issued by one another, to a root that is trusted.
//!
//! x509-parser reads and ring verifies; here is only the walk. Every certificate must be valid at the given time, every
//! issuer must be a certificate authority, and the last one must be signed by a trusted root. Online revocation is not
//! asked for: no network here.

use crate::providers::signature::{SecretError, keys};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::prelude::*;
use x509_parser::x509::SubjectPublicKeyInfo;

/// How long a chain may be, without its root.
const CHAIN_MAX: usize = 5;

/// A root: its name and its key, both in DER, and until when it is good where that is known.
pub(super) struct Root {
    name: Vec<u8>,
    spki: Vec<u8>,
    life: Option<(i64, i64)>,
}

impl Root {
    /// A root certificate: PEM, or DER in base64.
    pub(super) fn read(text: &str) -> Result<Root, SecretError> {
        let wrong = |problem: &str| SecretError::new("(root certificate)", problem);
        let der = keys::der_blocks(text).into_iter().next().or_else(|| STANDARD.decode(text.trim()).ok());
        let der = der.ok_or_else(|| wrong("is neither PEM nor DER in base64"))?;
        let (_, root) = X509Certificate::from_der(&der).map_err(|_| wrong("is no certificate that can be read"))?;
        let life = Some((root.validity().not_before.timestamp(), root.validity().not_after.timestamp()));
        Ok(Root { name: root.subject().as_raw().to_vec(), spki: root.public_key().raw.to_vec(), life })
    }

    /// The roots of the public web, as browsers trust them.
    pub(super) fn of_the_web() -> Vec<Root> {
        let wrapped = |content: &[u8]| {
            // The anchors hold the content of a SEQUENCE without its head.
            let mut der = vec![0x30];
            match content.len() {
                n @ 0..=127 => der.push(n as u8),
                n => {
                    let size = (n as u32).to_be_bytes();
                    let size = &size[size.iter().position(|b| *b != 0).unwrap_or(3)..];
                    der.push(0x80 | size.len() as u8);
                    der.extend_from_slice(size);
                }
            }
            der.extend_from_slice(content);
            der
        };
        let roots = webpki_roots::TLS_SERVER_ROOTS.iter();
        roots
            .map(|a| Root { name: wrapped(&a.subject), spki: wrapped(&a.subject_public_key_info), life: None })
            .collect()
    }

    fn signed(&self, certificate: &X509Certificate<'_>, at_s: i64) -> bool {
        if certificate.issuer().as_raw() != self.name || self.life.is_some_and(|(from, to)| at_s < from || at_s > to) {
            return false;
        }
        match SubjectPublicKeyInfo::from_der(&self.spki) {
            Ok((_, key)) => certificate.verify_signature(Some(&key)).is_ok(),
            Err(_) => false,
        }
    }
}

/// Whether `chain` (leaf first, each issued by the next) leads to one of `roots` at `at_s` (Unix seconds). What comes
/// after the certificate that a root signed is not looked at. The error is a sentence for people.
pub(super) fn leads_to(chain: &[X509Certificate<'_>], roots: &[Root], at_s: i64) -> Result<(), &'static str> {
    if chain.is_empty() || chain.len() > CHAIN_MAX {
        return Err("the chain of certificates is empty or too long");
    }
    for (at, certificate) in chain.iter().enumerate() {
        let life = certificate.validity();
        if at_s < life.not_before.timestamp() || at_s > life.not_after.timestamp() {
            return Err("a certificate of the chain is not valid at this time");
        }
        let may_issue =
            certificate.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()));
        if at > 0 && !(certificate.is_ca() && may_issue) {
            return Err("a certificate of the chain may not issue others");
        }
        if roots.iter().any(|root| root.signed(certificate, at_s)) {
            return Ok(());
        }
        match chain.get(at + 1) {
            None => break,
            Some(issuer) => {
                let named = certificate.issuer().as_raw() == issuer.subject().as_raw();
                if !named || certificate.verify_signature(Some(issuer.public_key())).is_err() {
                    return Err("the certificates do not form a chain");
                }
            }
        }
    }
    Err("the chain of certificates leads to no root that is trusted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roots_of_the_web_are_whole() {
        let roots = Root::of_the_web();
        assert!(roots.len() > 50);
        for root in &roots {
            let (rest, _) = SubjectPublicKeyInfo::from_der(&root.spki).expect("a public key");
            assert!(rest.is_empty());
            let (rest, _) = X509Name::from_der(&root.name).expect("a name");
            assert!(rest.is_empty());
        }
    }
}
