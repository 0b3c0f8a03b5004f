//! The edge: a small HTTP/1.1 front for strangers, on `httparse` and `polling`.
//!
//! One thread accepts and reads; a request reaches the handler when it is complete, so that neither idle connections nor
//! slow bodies hold a thread. Everything a peer sends is bounded in bytes and in time ([`Limits`]).
//! Before a body is read the owner says whether it is wanted ([`Route`]); the answer is given through a [`Reply`], from any
//! thread, later. A connection's requests are read one at a time, so that answers keep their order.
//! The edge never looks into a body: content encodings, signatures and JSON are its owner's.

mod body;
mod conn;
mod forwarded;
mod front;
mod headers;
mod limits;
mod parse;
mod peer;
mod pool;
mod response;

pub use conn::Reply;
pub use forwarded::{ForwardHeader, Proxies};
pub use front::{Front, Stats, Stopped};
pub use headers::Headers;
pub use limits::Limits;
pub use parse::{Fault, Head, Method, Reader, Step};
pub use response::Response;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

/// Who sent a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client {
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// The client: the peer's address, or the one that a trusted proxy names ([`Proxies`]).
    pub address: IpAddr,
}

/// A complete request.
#[derive(Debug)]
pub struct Request {
    /// Method, target and headers.
    pub head: Head,
    /// Who sent it.
    pub client: Client,
    /// The body: all of it, the transfer coding undone, the content encoding not.
    pub body: Vec<u8>,
}

/// What is to become of a request whose head is read.
#[derive(Debug)]
pub enum Route {
    /// Read the body, at most so many bytes (more: 413), and call the handler.
    Read {
        /// The largest body taken.
        limit: u64,
    },
    /// Answer this without reading the body. The connection stays open if the request has none.
    Answer(Response),
}

/// Decides on a head; runs on the polling thread and must not block.
type Router = dyn Fn(&Head, &Client) -> Route + Send;
/// Takes a complete request and sees to it that its reply is answered. Must not block where it runs on the polling thread
/// ([`Limits::at_once`]).
type Handler = dyn Fn(Request, Reply) + Send + Sync;

/// Opens a listener with a queue long enough for bursts of connections.
///
/// # Errors
/// Those of the operating system: the address is in use, not ours, or needs rights.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    /// The kernel cuts this to its own maximum (usually 4096).
    const BACKLOG: i32 = 4096;
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
