//! Who is really asking: the peer's own address, or the one that a trusted proxy names.
//!
//! A header of a peer that is not a configured proxy is never believed, and only the one header that the proxy is said to
//! set is read: the other may be the client's own invention, passed through.

use super::headers::Headers;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

/// The header in which trusted proxies name the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ForwardHeader {
    /// `X-Forwarded-For: client, proxy`
    #[default]
    XForwardedFor,
    /// `Forwarded: for=client, for=proxy` (RFC 7239)
    Forwarded,
}

/// The proxies that are believed. The default is none.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// Networks they speak from.
    pub nets: Vec<IpNet>,
    /// The header they set.
    pub header: ForwardHeader,
}

impl Proxies {
    /// Whether this address is a trusted proxy's.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.nets.iter().any(|net| net.contains(&address))
    }

    /// The client's address: walks the chain from the peer backwards while each link is trusted, and stops at the first
    /// address that is not, or at the first entry that is no address.
    pub fn client(&self, peer: SocketAddr, headers: &Headers) -> IpAddr {
        let mut client = peer.ip().to_canonical();
        if self.nets.is_empty() || !self.trusts(client) {
            return client;
        }
        let name = match self.header {
            ForwardHeader::XForwardedFor => "x-forwarded-for",
            ForwardHeader::Forwarded => "forwarded",
        };
        let lines: Vec<&[u8]> = headers.get_all(name).collect();
        for entry in lines.iter().rev().flat_map(|line| line.rsplit(|&byte| byte == b',')) {
            let address = std::str::from_utf8(entry).ok().and_then(|entry| match self.header {
                ForwardHeader::XForwardedFor => parse_address(entry),
                ForwardHeader::Forwarded => entry.split(';').find_map(|pair| {
                    let (key, value) = pair.split_once('=')?;
                    if key.trim().eq_ignore_ascii_case("for") { parse_address(value) } else { None }
                }),
            });
            let Some(address) = address else { break };
            client = address;
            if !self.trusts(client) {
                break;
            }
        }
        client
    }
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`, each also in double quotes.
fn parse_address(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    let address = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0.parse().ok(),
        None => text.parse().ok().or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip())),
    };
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(header: ForwardHeader, peer: &str, lines: &[&str]) -> String {
        let proxies =
            Proxies { nets: vec!["10.0.0.0/8".parse().unwrap(), "2001:db8:ffff::/48".parse().unwrap()], header };
        let mut headers = Headers::default();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            headers.push(name, value.as_bytes());
        }
        proxies.client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn a_stranger_cannot_name_another_client() {
        assert_eq!(client(ForwardHeader::XForwardedFor, "203.0.113.9:1", &["X-Forwarded-For: 1.2.3.4"]), "203.0.113.9");
        assert_eq!(client(ForwardHeader::Forwarded, "203.0.113.9:1", &["Forwarded: for=1.2.3.4"]), "203.0.113.9");
    }

    #[test]
    fn a_proxy_is_believed_up_to_the_first_stranger_from_the_right() {
        let by = |lines: &[&str]| client(ForwardHeader::XForwardedFor, "10.0.0.1:1", lines);
        assert_eq!(by(&["X-Forwarded-For: 198.51.100.7"]), "198.51.100.7");
        assert_eq!(by(&["X-Forwarded-For: 6.6.6.6, 198.51.100.7, 10.2.3.4"]), "198.51.100.7");
        assert_eq!(by(&["X-Forwarded-For: 6.6.6.6", "x-forwarded-for: 198.51.100.7"]), "198.51.100.7");
        assert_eq!(by(&["X-Forwarded-For: [2001:db8::5]:443"]), "2001:db8::5");
        assert_eq!(by(&["X-Forwarded-For: 198.51.100.7:55"]), "198.51.100.7");
        assert_eq!(by(&["X-Forwarded-For: 6.6.6.6, unknown"]), "10.0.0.1");
        assert_eq!(by(&[]), "10.0.0.1");
        assert_eq!(by(&["X-Forwarded-For: 10.9.9.9, 10.8.8.8"]), "10.9.9.9");
    }

    #[test]
    fn only_the_header_that_the_proxy_sets_is_read() {
        let both = ["X-Forwarded-For: 198.51.100.7", "Forwarded: for=6.6.6.6"];
        assert_eq!(client(ForwardHeader::XForwardedFor, "10.0.0.1:1", &both), "198.51.100.7");
        assert_eq!(client(ForwardHeader::Forwarded, "10.0.0.1:1", &both), "6.6.6.6");
    }

    #[test]
    fn the_standard_header_is_understood() {
        let by = |line: &str| client(ForwardHeader::Forwarded, "10.0.0.1:1", &[line]);
        assert_eq!(by("Forwarded: proto=https;For=\"[2001:db8::17]:4711\";by=10.0.0.1"), "2001:db8::17");
        assert_eq!(by("Forwarded: for=6.6.6.6, for=198.51.100.7, for=10.0.0.3"), "198.51.100.7");
        assert_eq!(by("Forwarded: for=_hidden"), "10.0.0.1");
    }

    #[test]
    fn an_ipv4_peer_on_an_ipv6_socket_is_the_same_peer() {
        assert_eq!(
            client(ForwardHeader::XForwardedFor, "[::ffff:10.0.0.1]:1", &["X-Forwarded-For: 198.51.100.7"]),
            "198.51.100.7"
        );
        assert_eq!(client(ForwardHeader::XForwardedFor, "[::ffff:192.0.2.1]:1", &[]), "192.0.2.1");
    }
}
