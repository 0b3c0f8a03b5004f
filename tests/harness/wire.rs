//! One raw HTTP connection, and bodies signed as their provider does.

use super::PATIENCE;
use postonce::providers::Catalog;
use postonce::providers::signature::{Delivery, Options, Secret, Verifier};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

/// The headers that the provider of a source would send.
pub fn sign(source: &str, secret: &str, body: &[u8], headers: &[(&str, &str)]) -> Vec<(String, String)> {
    sign_at(source, secret, body, headers, postonce::clock::wall())
}

/// The same, signed at another time.
pub fn sign_at(
    source: &str,
    secret: &str,
    body: &[u8],
    headers: &[(&str, &str)],
    now_ms: i64,
) -> Vec<(String, String)> {
    let provider = source.split('-').next().unwrap_or(source);
    let pairs: Vec<(&str, &[u8])> = headers.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
    let path = format!("/webhooks/{source}");
    let delivery = Delivery { method: "POST", url: &path, path: &path, query: "", headers: &pairs, body };
    verifier(provider, secret).sign(&delivery, now_ms, &format!("msg_{:x}", rand::random::<u64>())).unwrap()
}

/// A provider's rules with one secret.
pub fn verifier(provider: &str, secret: &str) -> Arc<Verifier> {
    static KNOWN: Mutex<BTreeMap<(String, String), Arc<Verifier>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap();
    let make = || {
        let recipe = Catalog::open(None).unwrap().recipe(provider).unwrap().unwrap();
        Verifier::new(&recipe.signature, &[Secret::pasted("test", secret).0], &Options::default()).unwrap()
    };
    known.entry((provider.to_owned(), secret.to_owned())).or_insert_with(|| Arc::new(make())).clone()
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The head, with its lines.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Answer {
    /// The first value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs.into_iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Asserts a 2xx.
    #[track_caller]
    pub fn ok(self) -> Answer {
        assert!((200..300).contains(&self.status), "{self:?}");
        self
    }

    /// Asserts a status.
    #[track_caller]
    pub fn is(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

/// One raw connection, kept alive.
pub struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    /// Connects.
    pub fn to(address: SocketAddr) -> Wire {
        Wire::try_to(address).unwrap()
    }

    /// Connects if there is somebody.
    pub fn try_to(address: SocketAddr) -> std::io::Result<Wire> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Wire { stream, read: Vec::new() })
    }

    /// Sends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// A POST and its answer.
    pub fn post(&mut self, path: &str, headers: &[(String, String)], body: &[u8]) -> Answer {
        self.try_post(path, headers, body).unwrap()
    }

    /// A POST and its answer, if the connection lives that long.
    pub fn try_post(&mut self, path: &str, headers: &[(String, String)], body: &[u8]) -> std::io::Result<Answer> {
        // It may be refused before it is all sent: the answer counts.
        let written = self.write(&post_bytes(path, headers, body));
        self.answer().map_err(|e| written.err().unwrap_or(e))
    }

    /// The next answer.
    pub fn answer(&mut self) -> std::io::Result<Answer> {
        loop {
            if let Some(end) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&self.read[..end]).into_owned();
                let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
                let mut answer = Answer { status, head, body: String::new() };
                let length: usize = answer.header("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
                while self.read.len() < end + 4 + length {
                    self.more()?;
                }
                answer.body = String::from_utf8_lossy(&self.read[end + 4..end + 4 + length]).into_owned();
                self.read.drain(..end + 4 + length);
                return Ok(answer);
            }
            self.more()?;
        }
    }

    fn more(&mut self) -> std::io::Result<()> {
        let mut piece = [0; 16384];
        match self.stream.read(&mut piece)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.read.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }
}

/// A POST as bytes.
pub fn post_bytes(path: &str, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}
