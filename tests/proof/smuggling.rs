//! No request is smuggled through a proxy: what nginx or Node forward is what the edge reads, request by request.
//!
//! The front notes what it handles, the proxy what it forwards. A request that the edge sees and the proxy does not know
//! of was smuggled. Skipped, with a word, where the proxy is not installed (nginx: in PATH, or named by POSTONCE_NGINX).

use crate::harness::{Folder, eventually};
use postonce::edge::{Front, Limits, Proxies, Response, Route, listen};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Seen = Arc<Mutex<Vec<String>>>;

/// The edge with a handler that notes `METHOD target`.
fn edge() -> (Front, Seen) {
    let seen = Seen::default();
    let noted = seen.clone();
    let front = Front::start(
        listen("127.0.0.1:0".parse().unwrap()).unwrap(),
        Limits::default(),
        Proxies::default(),
        |_, _| Route::Read { limit: 100_000 },
        move |request, reply| {
            let line = format!("{} {}", request.head.method.as_str(), request.head.target());
            noted.lock().unwrap().push(line.clone());
            reply.send(Response::text(200, line));
        },
    )
    .unwrap();
    (front, seen)
}

/// A proxy before the edge; ends when it is dropped.
struct Proxy {
    child: Child,
    address: SocketAddr,
    /// What it forwarded: `METHOD target` a line.
    log: std::path::PathBuf,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn nginx(folder: &Folder, edge: SocketAddr, buffering: &str) -> Option<Proxy> {
    let program = std::env::var("POSTONCE_NGINX").unwrap_or_else(|_| "nginx".into());
    let (port, path) = (free_port(), folder.join(""));
    let path = path.display();
    let config = folder.join("nginx.conf");
    fs::write(
        &config,
        format!(
            "daemon off; master_process off; pid {path}/nginx.pid; error_log {path}/nginx-error.log;
             events {{ worker_connections 64; }}
             http {{ log_format short '$request_method $request_uri'; access_log {path}/nginx.log short;
               client_body_temp_path {path}/b; proxy_temp_path {path}/p; fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;
               upstream edge {{ server {edge}; keepalive 4; }}
               server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://edge; proxy_http_version 1.1;
                 proxy_set_header Connection ''; proxy_request_buffering {buffering}; }} }} }}"
        ),
    )
    .unwrap();
    let child = Command::new(&program)
        .args(["-p", &path.to_string(), "-c"])
        .arg(&config)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        eprintln!("skipped: there is no nginx here (POSTONCE_NGINX names one)");
        return None;
    };
    Some(up(Proxy { child, address: SocketAddr::from(([127, 0, 0, 1], port)), log: folder.join("nginx.log") }))
}

const NODE: &str = r#"
const http = require('node:http'), fs = require('node:fs');
const [, , port, edge, log] = process.argv, [host, to] = edge.split(':');
const agent = new http.Agent({ keepAlive: true, maxSockets: 2 });
http.createServer((request, response) => {
  fs.appendFileSync(log, `${request.method} ${request.url}\n`);
  const headers = { ...request.headers }; delete headers.connection; delete headers.expect;
  const forward = http.request({ host, port: to, agent, method: request.method, path: request.url, headers },
    answer => { response.writeHead(answer.statusCode, answer.headers); answer.pipe(response); });
  forward.on('error', () => { if (!response.headersSent) response.writeHead(502); response.end(); });
  request.on('close', () => { if (!request.complete) forward.destroy(); });
  request.pipe(forward);
}).listen(+port, '127.0.0.1');
"#;

fn node(folder: &Folder, edge: SocketAddr) -> Option<Proxy> {
    let (port, script, log) = (free_port(), folder.join("proxy.cjs"), folder.join("node.log"));
    fs::write(&script, NODE).unwrap();
    fs::write(&log, "").unwrap();
    let child = Command::new("node")
        .arg(script)
        .args([port.to_string(), edge.to_string()])
        .arg(&log)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        eprintln!("skipped: there is no node here");
        return None;
    };
    Some(up(Proxy { child, address: SocketAddr::from(([127, 0, 0, 1], port)), log }))
}

fn up(proxy: Proxy) -> Proxy {
    eventually("the proxy listens", || TcpStream::connect(proxy.address).ok());
    proxy
}

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: edge\r\n\r\n";

/// Requests that two readers may cut at different places, each with another one in what may be its body.
fn attacks() -> Vec<Vec<u8>> {
    let post =
        |headers: &str, body: &str| format!("POST /outer HTTP/1.1\r\nHost: edge\r\n{headers}\r\n{body}").into_bytes();
    let length = SMUGGLED.len();
    let mut all = Vec::new();
    for te in [
        "Transfer-Encoding: chunked",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding:\tchunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding:\r\n chunked",
        "X: x\rTransfer-Encoding: chunked",
        "X: x\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\0",
        "Transfer-Encoding: CHUNKED",
        "Transfer-Encoding: \x0bchunked",
        "transfer_encoding: chunked",
    ] {
        for cl in [0, 4, 5, length + 5] {
            all.push(post(&format!("Content-Length: {cl}\r\n{te}\r\n"), &format!("0\r\n\r\n{SMUGGLED}")));
            all.push(post(&format!("{te}\r\nContent-Length: {cl}\r\n"), &format!("0\r\n\r\n{SMUGGLED}")));
        }
        all.push(post(&format!("{te}\r\n"), &format!("{length:x}\r\n{SMUGGLED}\r\n0\r\n\r\n")));
    }
    for cl in [
        "Content-Length: 0\r\nContent-Length: LEN",
        "Content-Length: LEN\r\nContent-Length: 0",
        "Content-Length: 0, LEN",
        "Content-Length: +LEN",
        "Content-Length: 0xLEN",
        "Content-Length : LEN",
        "Content-Length: LEN\x0b",
        "Content-Length:\r\n LEN",
        "Content-Length: 00LEN",
        "Content-Length: LEN \r\nX-Content-Length: 0",
        "Content-Length: -0",
        "Content-Length: 18446744073709551616",
        "Content_Length: LEN",
        "Expect: 100-continue\r\nContent-Length: LEN",
        "Connection: Content-Length\r\nContent-Length: LEN",
    ] {
        all.push(post(&format!("{}\r\n", cl.replace("LEN", &length.to_string())), SMUGGLED));
    }
    for chunks in [
        "0;x=\"\r\n\r\n",
        "0\n\r\n",
        "00000000000000000\r\n\r\n",
        "0 \r\n\r\n",
        "0x0\r\n\r\n",
        "-0\r\n\r\n",
        "0\r\nTrailer: a\r\n\r\n",
        "1\r\nab\r\n0\r\n\r\n",
        "1;\na\r\n0\r\n\r\n",
        "ffffffffffffffff0\r\n\r\n",
        "0\r\nContent-Length: 50\r\n\r\n",
    ] {
        all.push(post("Transfer-Encoding: chunked\r\n", &format!("{chunks}{SMUGGLED}")));
    }
    for line in [
        "GET /outer HTTP/1.1\r\nHost: edge\r\nContent-Length: LEN\r\n\r\n",
        "HEAD /outer HTTP/1.1\r\nHost: edge\r\nContent-Length: LEN\r\n\r\n",
        "POST /outer HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /outer HTTP/1.1\r\nHost: edge\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: LEN\r\n\r\n",
        "POST http://edge/outer HTTP/1.1\r\nHost: other\r\nContent-Length: LEN\r\n\r\n",
        "POST /outer HTTP/1.1\r\nHost: edge\r\nContent-Length: LEN\r\nConnection: close\r\n\r\n",
    ] {
        all.push(format!("{}{SMUGGLED}", line.replace("LEN", &length.to_string())).into_bytes());
    }
    all
}

/// Sends bytes, reads until it is closed or says nothing for so long.
fn throw(to: SocketAddr, bytes: &[u8], patience: Duration) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(patience)).unwrap();
    let _ = stream.write_all(bytes);
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        text.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Every attack, each followed by an innocent request of somebody else over the same upstream connections.
fn nothing_is_smuggled_through(proxy: &Proxy, seen: &Seen) {
    let count = |lines: &[String]| lines.iter().filter(|line| line.ends_with("/smuggled")).count();
    for (n, attack) in attacks().iter().enumerate() {
        throw(proxy.address, attack, Duration::from_millis(150));
        let innocent = format!("GET /innocent-{n} HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n");
        let innocent = throw(proxy.address, innocent.as_bytes(), Duration::from_secs(10));
        let shown = String::from_utf8_lossy(attack);
        assert!(innocent.contains(&format!("GET /innocent-{n}")), "after {shown:?} somebody else got {innocent:?}");
        let at_edge = count(&seen.lock().unwrap());
        let log = fs::read_to_string(&proxy.log).unwrap_or_default();
        let forwarded = count(&log.lines().map(str::to_owned).collect::<Vec<_>>());
        assert!(at_edge <= forwarded, "smuggled by {shown:?}: the edge saw {at_edge}, the proxy knows of {forwarded}");
    }
    let innocent = seen.lock().unwrap().iter().filter(|line| line.contains("/innocent-")).count();
    assert_eq!(innocent, attacks().len(), "every innocent request came through, once");
}

#[test]
fn nothing_is_smuggled_through_nginx() {
    for buffering in ["on", "off"] {
        let (folder, (front, seen)) = (Folder::new(), edge());
        let Some(proxy) = nginx(&folder, front.local_addr(), buffering) else { return };
        nothing_is_smuggled_through(&proxy, &seen);
    }
}

#[test]
fn nothing_is_smuggled_through_node() {
    let (folder, (front, seen)) = (Folder::new(), edge());
    let Some(proxy) = node(&folder, front.local_addr()) else { return };
    nothing_is_smuggled_through(&proxy, &seen);
}
