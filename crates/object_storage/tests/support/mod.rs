//! A server of object storage on loopback, and a front before it that fails on purpose.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use towpath_byte_store::BucketPlace;
use towpath_object_storage::{Credentials, S3Bytes, S3Settings};

/// Bytes of a body that the front takes.
const MAX_BODY: usize = 32 << 20;
/// Lines in which a server says that it is there.
const MAX_LINES: usize = 200;

/// The byte store of a place at a server.
pub fn bytes_at(url: &str, place: &str) -> S3Bytes {
    bytes_with_keys(url, place, "secret")
}

/// The same with a secret key.
pub fn bytes_with_keys(url: &str, place: &str, secret: &str) -> S3Bytes {
    use std::os::unix::fs::OpenOptionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let text = format!("aws_access_key_id = test\naws_secret_access_key = {secret}\n");
    std::io::Write::write_all(&mut file.unwrap(), text.as_bytes()).unwrap();
    let settings = S3Settings {
        place: BucketPlace::parse(place).unwrap(),
        endpoint: Some(url.into()),
        region: "us-east-1".into(),
        credentials: Credentials::from_file(&path).unwrap(),
    };
    S3Bytes::new(settings).unwrap()
}

/// Where `scripts/test-tools.sh` puts the server, or where it is installed.
fn program() -> Option<PathBuf> {
    let kept = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/test-tools/versitygw");
    let in_path = std::env::var_os("PATH").into_iter();
    let dirs = in_path.flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    std::iter::once(kept).chain(dirs.map(|dir| dir.join("versitygw"))).find(|path| path.is_file())
}

/// A running server with an empty bucket `bytes`.
pub struct Server {
    pub url: String,
    child: Child,
    _folder: TempDir,
}

impl Server {
    /// Starts one; `None`, with a word, if there is none to be had.
    pub fn start() -> Option<Self> {
        let Some(program) = program() else {
            assert!(std::env::var_os("CI").is_none(), "versitygw is missing; run scripts/test-tools.sh");
            eprintln!("skipped: versitygw is missing; scripts/test-tools.sh gets it");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("bytes")).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let mut child = Command::new(program)
            .env("ROOT_ACCESS_KEY", "test")
            .env("ROOT_SECRET_KEY", "secret")
            .args(["--port", &address, "posix"])
            .arg(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        // It lists its addresses once it listens.
        let is_there = (0..MAX_LINES).any(|_| {
            line.clear();
            lines.read_line(&mut line).is_ok() && line.contains(&address)
        });
        assert!(is_there, "the server does not say that it listens");
        // What else it says is taken, so that it does not block.
        std::thread::spawn(move || drop(lines.read_to_end(&mut Vec::new())));
        Some(Self { url: format!("http://{address}"), child, _folder: folder })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A request that the front sees.
pub struct Seen {
    pub is_get: bool,
    /// It brings an object or a part of one.
    pub is_put: bool,
}

/// What the front does instead of asking the server.
#[derive(Clone)]
pub enum Answer {
    /// It answers with an error.
    Error(StatusCode, String),
    /// It asks, and breaks off in the middle of the answer.
    Cut,
}

impl Answer {
    pub fn error(status: u16, code: &str) -> Self {
        let body = format!("<Error><Code>{code}</Code><Message>on purpose</Message></Error>");
        Self::Error(StatusCode::from_u16(status).unwrap(), body)
    }
}

type Rule = dyn Fn(&Seen) -> Option<Answer> + Send + Sync;

#[derive(Clone)]
struct Fronting {
    rule: Arc<Rule>,
    server: String,
    client: Client<HttpConnector, Body>,
}

/// A front before a server.
pub struct Front {
    pub url: String,
    _runtime: Runtime,
}

impl Front {
    pub fn start(server: &str, rule: impl Fn(&Seen) -> Option<Answer> + Send + Sync + 'static) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::builder(TokioExecutor::new()).build_http();
        let state = Fronting { rule: Arc::new(rule), server: server.into(), client };
        let app = Router::new().fallback(answer).with_state(state);
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self { url, _runtime: runtime }
    }
}

async fn answer(State(front): State<Fronting>, request: Request) -> Response {
    let seen = Seen {
        is_get: request.method() == Method::GET,
        is_put: request.method() == Method::PUT || request.method() == Method::POST,
    };
    match (front.rule)(&seen) {
        Some(Answer::Error(status, body)) => {
            // The body of the request is read, as a server does that wants to keep the connection.
            let _ = axum::body::to_bytes(request.into_body(), MAX_BODY).await;
            (status, body).into_response()
        }
        cut => pass_on(&front, request, cut.is_some()).await,
    }
}

/// Asks the server. The signature is of the front's name, so the name is passed on.
async fn pass_on(front: &Fronting, request: Request, is_cut: bool) -> Response {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    head.uri = format!("{}{path}", front.server).parse().unwrap();
    let body = axum::body::to_bytes(body, MAX_BODY).await.unwrap();
    let answer = front.client.request(Request::from_parts(head, Body::from(body))).await.unwrap();
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    if !is_cut {
        return Response::from_parts(head, Body::from(bytes));
    }
    let headers: HeaderMap = head.headers;
    let half = bytes.slice(..bytes.len() / 2);
    let parts = [Ok(half), Err(std::io::Error::other("cut"))];
    let mut response = Response::new(Body::from_stream(futures_util::stream::iter(parts)));
    (*response.status_mut(), *response.headers_mut()) = (head.status, headers);
    response
}
