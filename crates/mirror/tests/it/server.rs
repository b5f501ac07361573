//! A web server that does what a test says: right, or wrong in one way.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What a server does wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Fault {
    #[default]
    Nothing,
    /// Answers with all of the file.
    NoRanges,
    /// Each answer ends after so many bytes.
    Truncates(usize),
    /// Every byte is another one.
    Lies,
    /// An error page with status 200.
    ErrorPage,
    /// This status.
    Status(u16, &'static str),
    /// Redirects there.
    Redirects(String),
    /// Everything but this file is redirected to it.
    Moved(String),
    /// Answers, and sends nothing of the body.
    Stalls,
    /// Sends it compressed, as it says.
    Compresses,
    /// Another range than it was asked for.
    OtherRange,
    /// The second question finds another file there.
    ChangesFile,
    /// The connection ends after each answer, and it does not say so.
    ClosesConnections,
}

/// The server, until it is dropped.
pub struct WebServer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    files: Mutex<HashMap<String, Vec<u8>>>,
    fault: Mutex<Fault>,
    /// Path and range of each question.
    asked: Mutex<Vec<String>>,
    connections: AtomicUsize,
}

impl WebServer {
    pub async fn start(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        shared.files.lock().unwrap().extend(files);
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.connections.fetch_add(1, Ordering::Relaxed);
                let serving = Arc::clone(&serving);
                tokio::spawn(async move {
                    let _ = serving.serve(stream).await;
                });
            }
        });
        Self { address, shared, task }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    pub fn fail(&self, fault: Fault) {
        *self.shared.fault.lock().unwrap() = fault;
    }

    /// Paths and ranges that were asked for.
    pub fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let (reading, mut writing) = stream.into_split();
        let mut lines = BufReader::new(reading).lines();
        loop {
            let mut question = Vec::new();
            loop {
                let Some(line) = lines.next_line().await? else { return Ok(()) };
                if line.is_empty() {
                    break;
                }
                question.push(line);
            }
            let header = |name: &str| {
                let line = question.iter().find(|line| line.to_lowercase().starts_with(&format!("{name}: ")));
                line.map(|line| line[name.len() + 2..].to_owned())
            };
            assert_eq!(header("cookie").or(header("authorization")), None, "no credentials go along");
            let path = question[0].split(' ').nth(1).unwrap().trim_start_matches('/').to_owned();
            let range = header("range").unwrap_or_default();
            let number = {
                let mut asked = self.asked.lock().unwrap();
                asked.push(format!("{path} {range}"));
                asked.len()
            };
            let fault = self.fault.lock().unwrap().clone();
            let (answer, goes_on) = self.answer(&path, &range, header("if-range"), &fault, number);
            writing.write_all(&answer).await?;
            if fault == Fault::Stalls {
                std::future::pending::<()>().await;
            }
            if !goes_on {
                return Ok(());
            }
        }
    }

    fn answer(
        &self,
        path: &str,
        range: &str,
        condition: Option<String>,
        fault: &Fault,
        number: usize,
    ) -> (Vec<u8>, bool) {
        let empty = |status: &str, more: &str| {
            (format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n{more}\r\n").into_bytes(), true)
        };
        match fault {
            Fault::Status(status, more) => return empty(&format!("{status} Status"), more),
            Fault::Moved(to) if path != to => return empty("302 Found", &format!("location: /{to}\r\n")),
            Fault::Redirects(place) => return empty("302 Found", &format!("location: {place}\r\n")),
            Fault::ErrorPage => {
                let page = "<h1>Please log in</h1>";
                let len = page.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n{page}");
                return (answer.into_bytes(), true);
            }
            _ => {}
        }
        let files = self.files.lock().unwrap();
        let Some(file) = files.get(path) else { return empty("404 Not Found", "") };
        let tag = if *fault == Fault::ChangesFile && number > 1 { "\"new\"" } else { "\"old\"" };
        let (first, last) = range.trim_start_matches("bytes=").split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        let is_current = condition.is_none_or(|condition| condition == tag);
        let (head, mut body) = if *fault == Fault::NoRanges || !is_current {
            ("HTTP/1.1 200 OK\r\n".to_owned(), file.clone())
        } else if first >= file.len() {
            let said = format!("content-range: bytes */{}\r\n", file.len());
            return empty("416 Range Not Satisfiable", &said);
        } else {
            let end = (last + 1).min(file.len());
            let said = if *fault == Fault::OtherRange { first + 1 } else { first };
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes {said}-{}/{}\r\n",
                end - 1,
                file.len()
            );
            (head, file[first..end].to_vec())
        };
        if *fault == Fault::Lies {
            body.iter_mut().for_each(|byte| *byte ^= 1);
        }
        let coding = if *fault == Fault::Compresses { "content-encoding: gzip\r\n" } else { "" };
        let head = format!("{head}etag: {tag}\r\n{coding}content-length: {}\r\n\r\n", body.len());
        let sent = match fault {
            Fault::Truncates(bytes) => &body[..(*bytes).min(body.len())],
            Fault::Stalls => &[],
            _ => &body[..],
        };
        let goes_on = sent.len() == body.len() && *fault != Fault::ClosesConnections;
        ([head.as_bytes(), sent].concat(), goes_on)
    }
}
