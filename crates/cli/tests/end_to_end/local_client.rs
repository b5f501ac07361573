//! HTTP on a daemon's socket, as a program speaks it that must bear the daemon's death at any
//! moment: whatever is cut off is an error, never an end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;

use crate::environment::{Machine, WAIT_LIMIT};

/// The way to a daemon's socket; each call has a connection of its own.
#[derive(Clone)]
pub struct LocalClient(PathBuf);

impl LocalClient {
    /// To the daemon of `machine`.
    pub fn of(machine: &Machine) -> Self {
        Self(machine.home("run/tow.sock"))
    }

    /// A connection on which nothing was said yet.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(&self.0)?;
        stream.set_read_timeout(Some(WAIT_LIMIT))?;
        stream.set_write_timeout(Some(WAIT_LIMIT))?;
        Ok(stream)
    }

    /// Sends a request; `call` is its method and path.
    pub fn call(&self, call: &str, fields: &str, body: &[u8]) -> io::Result<Answer> {
        let mut stream = self.connect()?;
        let len = body.len();
        let mut request = format!(
            "{call} HTTP/1.1\r\nHost: tow\r\nConnection: close\r\n{fields}Content-Length: {len}\r\n\r\n"
        )
        .into_bytes();
        request.extend_from_slice(body);
        stream.write_all(&request)?;
        Answer::read(BufReader::new(stream))
    }

    /// A call whose answer is JSON and must have status 200.
    pub fn json(&self, call: &str, body: &Value) -> io::Result<Value> {
        let fields = "Content-Type: application/json\r\n";
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let bytes = self.call(call, fields, &body)?.ok(call)?;
        Ok(serde_json::from_slice(&bytes).unwrap())
    }

    /// A call whose body is bytes; its answer is JSON and must have status 200.
    pub fn send(&self, call: &str, body: &[u8]) -> io::Result<Value> {
        Ok(serde_json::from_slice(&self.call(call, "", body)?.ok(call)?).unwrap())
    }

    /// An object as a stream.
    pub fn content(&self, ticket: &str, timeout: u32) -> io::Result<Answer> {
        self.call(&format!("GET /v1/content?ticket={ticket}&timeout={timeout}"), "", b"")
    }

    /// Puts bytes in parts of `part` bytes; `open` is told the ticket before the first one.
    pub fn put_parts(&self, bytes: &[u8], part: usize, opened: impl FnOnce(&str)) -> io::Result<()> {
        let reply = self.json("POST /v1/puts", &serde_json::json!({}))?;
        opened(reply["ticket"].as_str().unwrap());
        let id = reply["oid"].as_str().unwrap();
        for (number, part_bytes) in bytes.chunks(part).enumerate() {
            let reply =
                self.send(&format!("POST /v1/puts/{id}/data?offset={}", number * part), part_bytes)?;
            assert_eq!(reply["size"], number * part + part_bytes.len());
        }
        self.send(&format!("POST /v1/puts/{id}/commit"), b"").map(drop)
    }
}

/// An answer, whose body is read from it.
pub struct Answer {
    /// Its status.
    pub status: u16,
    stream: BufReader<UnixStream>,
    is_chunked: bool,
    /// Bytes that are still to come: of the body, or of its present chunk.
    left: u64,
    has_ended: bool,
}

fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the answer was cut off")
}

fn line(stream: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(cut_off)
}

impl Answer {
    fn read(mut stream: BufReader<UnixStream>) -> io::Result<Self> {
        let status = line(&mut stream)?.split(' ').nth(1).unwrap().parse().unwrap();
        let (mut is_chunked, mut left) = (false, 0);
        loop {
            let field = line(&mut stream)?.to_ascii_lowercase();
            match field.split_once(": ") {
                None => break,
                Some(("content-length", length)) => left = length.parse().unwrap(),
                Some(("transfer-encoding", _)) => is_chunked = true,
                Some(_) => {}
            }
        }
        let has_ended = !is_chunked && left == 0;
        Ok(Self { status, stream, is_chunked, left, has_ended })
    }

    /// The whole body; the status must be 200.
    pub fn ok(mut self, what: &str) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        self.read_to_end(&mut body)?;
        assert_eq!(self.status, 200, "{what}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// True if the body came to its end.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl Read for Answer {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.has_ended {
            return Ok(0);
        }
        if self.left == 0 {
            self.left = u64::from_str_radix(&line(&mut self.stream)?, 16).unwrap();
        }
        let len = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.stream.read(&mut buf[..len])?;
        if read == 0 && self.left > 0 {
            return Err(cut_off());
        }
        let was_last = self.left == 0;
        self.left -= read as u64;
        if self.left == 0 && self.is_chunked {
            line(&mut self.stream)?;
        }
        self.has_ended = self.left == 0 && (was_last || !self.is_chunked);
        Ok(read)
    }
}
