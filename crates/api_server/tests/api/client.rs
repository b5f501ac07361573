//! A small HTTP client that sees everything: heads, chunks, and whether an answer came to its end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;

/// No wait is longer.
pub const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// A connection.
pub struct Connection(pub BufReader<UnixStream>);

/// The head of an answer.
#[derive(Debug, Clone)]
pub struct Head {
    pub status: u16,
    pub fields: Vec<(String, String)>,
}

impl Head {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// An answer that came to its end.
#[derive(Debug)]
pub struct Reply {
    pub head: Head,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("{:?} {}", self.head, String::from_utf8_lossy(&self.body)))
    }

    /// It must have this status.
    pub fn with(self, status: u16) -> Self {
        assert_eq!(self.head.status, status, "{:?} {}", self.head, String::from_utf8_lossy(&self.body));
        self
    }

    /// The events of an answer of lines.
    pub fn events(&self) -> Vec<Value> {
        let lines = self.body.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }
}

impl Connection {
    pub fn open(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        stream.set_write_timeout(Some(WAIT_LIMIT)).unwrap();
        Self(BufReader::new(stream))
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// True if the other side hangs up within this time, whatever it has sent before.
    pub fn is_cut_off_within(&self, time: Duration) -> bool {
        let stream: &UnixStream = self.0.get_ref();
        // Hanging up is told of in any case.
        let mut watched = [PollFd::new(stream, PollFlags::empty())];
        poll(&mut watched, Some(&time.try_into().unwrap())).unwrap() > 0
    }

    /// Sends a request with a body of a known length.
    pub fn request(&mut self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: towpath\r\n");
        fields.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
        text += &format!("Content-Length: {}\r\n\r\n", body.len());
        self.send(text.as_bytes());
        self.send(body);
    }

    pub fn head(&mut self) -> io::Result<Head> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
        let field = |line: &String| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Ok(Head { status, fields: lines[1..].iter().map(field).collect() })
    }

    /// One part of a chunked body; `None` is its end, an error that it was cut off.
    pub fn part(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let len = usize::from_str_radix(line.trim(), 16).unwrap();
        let mut part = vec![0; len + 2];
        self.0.read_exact(&mut part)?;
        part.truncate(len);
        Ok(Some(part).filter(|part| !part.is_empty()))
    }

    /// One line of an answer of lines.
    pub fn event(&mut self) -> Option<Value> {
        Some(serde_json::from_slice(&self.part().ok()??).unwrap())
    }

    /// The rest of the answer; an error if it was cut off.
    pub fn body(&mut self, head: &Head) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if head.field("transfer-encoding") == Some("chunked") {
            while let Some(part) = self.part()? {
                body.extend(part);
            }
            return Ok(body);
        }
        let len = head.field("content-length").map_or(0, |len| len.parse().unwrap());
        body.resize(len, 0);
        self.0.read_exact(&mut body)?;
        Ok(body)
    }

    pub fn reply(&mut self) -> Reply {
        let head = self.head().unwrap();
        let body = self.body(&head).unwrap();
        Reply { head, body }
    }
}

/// A request of its own connection.
pub fn call(socket: &Path, method: &str, path: &str, body: Option<Value>) -> Reply {
    let mut connection = Connection::open(socket);
    match body {
        Some(body) => {
            let fields = [("Content-Type", "application/json")];
            connection.request(method, path, &fields, body.to_string().as_bytes());
        }
        None => connection.request(method, path, &[], b""),
    }
    let head = connection.head().unwrap();
    let body = if method == "HEAD" { Vec::new() } else { connection.body(&head).unwrap() };
    Reply { head, body }
}
