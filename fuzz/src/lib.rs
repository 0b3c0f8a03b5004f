//! What is fuzzed: everything that reads bytes of strangers. Each target takes any bytes and asserts what must hold for
//! all of them: no panic, no bytes held beyond the limits, and the same reading however the bytes were cut.
//!
//! The proofs run the same functions on mutated seeds, without a fuzzer.

use postonce::edge::{Head, Limits, Reader, Step};
use postonce::providers::interpret::Interpreter;
use postonce::providers::json::{Document, Value};
use postonce::providers::report::{ReadError, ReadOptions, ReportSpec, read};
use postonce::providers::signature::{Delivery, Options, Secret, Verifier};
use postonce::providers::{Catalog, Recipe};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Every provider's file.
static RECIPES: LazyLock<Vec<Recipe>> = LazyLock::new(|| {
    let catalog = Catalog::open(None).expect("the built-in files");
    catalog.names().map(|name| catalog.recipe(name).expect("it is there").expect("it is right")).collect()
});

static VERIFIERS: LazyLock<Vec<Verifier>> = LazyLock::new(|| {
    let secret = "whsec_dGhlIHNlY3JldCBvZiB0aGUgdGVzdHMgMDEyMzQ1Njc4OQ==";
    let made = |recipe: &Recipe| {
        Verifier::new(&recipe.signature, &[Secret::pasted("fuzz", secret).0], &Options::default()).ok()
    };
    RECIPES.iter().filter_map(made).collect()
});

static INTERPRETERS: LazyLock<Vec<Interpreter>> = LazyLock::new(|| {
    RECIPES.iter().filter_map(|recipe| Interpreter::new(&recipe.events(), &BTreeMap::new()).ok()).collect()
});

static REPORTS: LazyLock<Vec<ReportSpec>> =
    LazyLock::new(|| RECIPES.iter().flat_map(|recipe| recipe.report.values().cloned()).collect());

/// The number of what the first byte chooses among.
pub fn choices(target: &str) -> usize {
    match target {
        "signature" => VERIFIERS.len(),
        "interpret" => INTERPRETERS.len(),
        "report" => REPORTS.len(),
        _ => 0,
    }
}

/// The largest body that the reader accepts here.
const BODY_MAX: u64 = 4096;

/// Requests and how it ended.
type Requests = (Vec<(String, Vec<u8>)>, Option<u16>);

fn requests<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Requests {
    let limits = Limits::default();
    let mut reader = Reader::new(&limits);
    let (mut got, mut head): (Vec<(String, Vec<u8>)>, Option<Head>) = (Vec::new(), None);
    for mut piece in pieces {
        loop {
            let (taken, step) = match reader.advance(piece) {
                Ok(came) => came,
                Err(fault) => return (got, Some(fault.status())),
            };
            piece = &piece[taken..];
            match step {
                Step::More => {
                    assert!(piece.is_empty(), "it asks for more and left {} bytes", piece.len());
                    break;
                }
                Step::Head(new) => {
                    if let Err(fault) = reader.accept(BODY_MAX) {
                        return (got, Some(fault.status()));
                    }
                    for (name, value) in new.headers.iter() {
                        assert!(!name.is_empty() && !value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)));
                    }
                    head = Some(new);
                }
                Step::Body(body) => {
                    assert!(body.len() as u64 <= BODY_MAX);
                    let head = head.take().expect("a head comes before its body");
                    got.push((format!("{} {}", head.method.as_str(), head.target()), body));
                }
            }
            assert!(reader.held() <= limits.head_bytes * 2 + BODY_MAX as usize + piece.len().max(64));
        }
    }
    (got, None)
}

/// The HTTP reader: the same requests and the same fault, in one piece, byte by byte, and cut anywhere.
pub fn http(data: &[u8]) {
    let whole = requests(std::iter::once(data));
    assert_eq!(whole, requests(data.chunks(1)), "byte by byte");
    let cut = data.first().map_or(1, |b| usize::from(*b) + 1);
    assert_eq!(whole, requests(data.chunks(cut)), "in pieces of {cut}");
}

/// Verification by any provider's rules: headers up to an empty line, then the body. Nothing of it is genuine.
pub fn signature(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let verifier = &VERIFIERS[usize::from(*choice) % VERIFIERS.len()];
    let (head, body) =
        rest.windows(2).position(|w| w == b"\n\n").map_or((rest, &[][..]), |at| (&rest[..at], &rest[at + 2..]));
    let lines: Vec<(String, &[u8])> = head
        .split(|b| *b == b'\n')
        .filter_map(|line| {
            let at = line.iter().position(|b| *b == b':')?;
            Some((String::from_utf8_lossy(&line[..at]).into_owned(), line[at + 1..].trim_ascii()))
        })
        .collect();
    let headers: Vec<(&str, &[u8])> = lines.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    let url = "https://hooks.example.com/webhooks/x?a=1";
    let delivery = Delivery { method: "POST", url, path: "/webhooks/x", query: "a=1", headers: &headers, body };
    if verifier.verify(&delivery, 1_795_000_000_000).is_ok() {
        // Only by its own secret as it is (a static token), which mutation may copy from a seed.
        let told = rest.windows(8).any(|w| w == b"whsec_dG") || verifier.settings().is_empty();
        assert!(told, "an unsigned delivery is genuine");
    }
}

/// Interpretation by any provider's rules: the same bytes mean the same, and no amount is outside of what is bookable.
pub fn interpret(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else { return };
    let interpreter = &INTERPRETERS[usize::from(*choice) % INTERPRETERS.len()];
    for content_type in ["application/json", "application/x-www-form-urlencoded"] {
        let headers = [("content-type", content_type)];
        let first = interpreter.interpret(body, &headers, "", 1_795_000_000_000);
        let again = interpreter.interpret(body, &headers, "", 1_795_000_000_000);
        assert_eq!(format!("{:?}", first.events), format!("{:?}", again.events));
    }
}

/// Any report: read to its end or refused, never more than the bytes it has.
pub fn report(data: &[u8]) {
    let Some((choice, file)) = data.split_first() else { return };
    let spec = &REPORTS[usize::from(*choice) % REPORTS.len()];
    let mut lines = 0;
    let _ = read::<ReadError>(spec, file, &ReadOptions::default(), &mut |line| {
        lines += 1;
        let _ = spec.json(&line);
        Ok(())
    });
    assert!(lines <= file.len() + 1);
}

/// The JSON reader: every value of what it takes can be walked, and there are no more of them than bytes.
pub fn json(data: &[u8]) {
    fn walk(value: Value) -> usize {
        let _ = (value.kind(), value.raw(), value.text(), value.get("id"));
        1 + value.elements().map(|element| walk(element)).sum::<usize>()
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(document) = Document::read(text) {
        assert!(walk(document.root()) <= data.len() + 1);
    }
}
