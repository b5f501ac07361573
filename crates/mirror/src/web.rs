//! Questions to web servers: connections that are kept, redirects, and which addresses may be dialled.
//!
//! A URL that a person named may lead anywhere. One that somebody else told, and what a redirect leads to at another server,
//! may lead to public addresses only: it is the server's choice, and could be meant for something on this network. No names,
//! passwords or cookies are ever sent.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;
use towpath_content::lock::lock;
use towpath_protocol::Pace;

use crate::answer::{AnsweredRange, WebAnswer, WebError, judge};
use crate::place::MirrorPlace;
use crate::web_url::WebUrl;
use towpath_link::public::is_public;

/// Time for a connection, with its handshake.
const CONNECT: Duration = Duration::from_secs(10);
/// Time for the head of an answer, and for more bytes of it.
const PATIENCE: Duration = Duration::from_secs(20);
/// Redirects that are followed.
const MAX_REDIRECTS: usize = 5;
/// Connections that are kept without use.
const MAX_IDLE: usize = 8;
const USER_AGENT: &str = concat!("towpath/", env!("CARGO_PKG_VERSION"));

/// Who named a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    /// A person, on the command line or in the configuration.
    Person,
    /// Somebody else: a ticket, the description of a published file.
    Stranger,
}

/// What holds for all web servers of one transfer.
#[derive(Clone)]
pub struct WebRules {
    /// No more than so much is taken a second.
    pub pace: Arc<Pace>,
    /// Only encrypted ways are used.
    pub only_encrypted: bool,
    /// What went wrong last, in words for people: where nothing can be had it says why.
    pub trouble: Arc<Mutex<Option<String>>>,
}

impl WebRules {
    /// Taken at this pace.
    pub fn new(pace: Arc<Pace>, only_encrypted: bool) -> Self {
        Self { pace, only_encrypted, trouble: Arc::default() }
    }

    /// True if this place may be asked.
    pub fn allow(&self, place: &MirrorPlace) -> bool {
        !self.only_encrypted || place.is_encrypted()
    }
}

impl Default for WebRules {
    /// No limits.
    fn default() -> Self {
        Self::new(Arc::new(Pace::new(0)), false)
    }
}

/// Ways to web servers, kept from question to question.
pub struct Web {
    named_by: NamedBy,
    rules: WebRules,
    idle: Mutex<Vec<WebConnection>>,
}

/// A connection over which one question goes at a time.
struct WebConnection {
    server: WebUrl,
    sender: SendRequest<Empty<Bytes>>,
    _task: AbortOnDropHandle<()>,
}

/// An answer under way.
pub(crate) struct WebBytes {
    /// Where they come from, after all redirects.
    pub(crate) url: WebUrl,
    /// No question went out in clear text.
    pub(crate) is_encrypted: bool,
    /// What they are.
    pub(crate) range: AnsweredRange,
    /// Time until the head of the answer was here, from when the question went out.
    pub(crate) waited: Duration,
    body: Incoming,
    connection: Option<WebConnection>,
    pace: Arc<Pace>,
}

impl Web {
    /// No connection yet.
    pub fn new(named_by: NamedBy, rules: WebRules) -> Self {
        Self { named_by, rules, idle: Mutex::default() }
    }

    /// Notes what went wrong.
    pub(crate) fn note(&self, trouble: &str) {
        *lock(&self.rules.trouble) = Some(trouble.to_owned());
    }

    /// Asks for a range of a file, on the condition that it has this entity tag. Redirects are followed.
    pub(crate) async fn open(
        &self,
        url: &WebUrl,
        range: &Range<u64>,
        tag: Option<&str>,
    ) -> Result<WebBytes, WebError> {
        let mut seen = vec![url.clone()];
        let mut at = url.clone();
        loop {
            let is_named = self.named_by == NamedBy::Person && at.is_beside(url);
            let asked = Instant::now();
            let (response, connection) = self.ask(&at, is_named, range, tag).await?;
            match judge(response.status(), response.headers(), range, tag)? {
                WebAnswer::Bytes(answered) => {
                    let (body, connection) = (response.into_body(), Some(connection));
                    let (waited, is_encrypted) = (asked.elapsed(), seen.iter().all(WebUrl::is_encrypted));
                    let (url, range, pace) = (at, answered, Arc::clone(&self.rules.pace));
                    return Ok(WebBytes { url, is_encrypted, range, waited, body, connection, pace });
                }
                WebAnswer::Moved(place) => {
                    let next = at.join(&place).map_err(WebError::WrongRedirect)?;
                    if at.is_encrypted() && !next.is_encrypted() {
                        return Err(WebError::Downgrade);
                    }
                    at = next;
                    if seen.contains(&at) || seen.len() > MAX_REDIRECTS {
                        return Err(WebError::Ring);
                    }
                    seen.push(at.clone());
                }
            }
        }
    }

    /// One question, over a connection that is kept or over a new one.
    async fn ask(
        &self,
        url: &WebUrl,
        is_named: bool,
        range: &Range<u64>,
        tag: Option<&str>,
    ) -> Result<(Response<Incoming>, WebConnection), WebError> {
        // The server may have closed a kept one in this very moment: that says nothing of the file.
        while let Some(mut kept) = self.kept(url) {
            if let Ok(response) = kept.ask(url, range, tag).await {
                return Ok((response, kept));
            }
        }
        let mut connection =
            timeout(CONNECT, connect(url, is_named)).await.map_err(|_| WebError::Silent)??;
        let response = connection.ask(url, range, tag).await?;
        Ok((response, connection))
    }

    fn kept(&self, url: &WebUrl) -> Option<WebConnection> {
        let mut idle = lock(&self.idle);
        idle.retain(|connection| !connection.sender.is_closed());
        let at = idle.iter().position(|connection| connection.server.is_beside(url))?;
        Some(idle.swap_remove(at))
    }

    fn keep(&self, connection: WebConnection) {
        let mut idle = lock(&self.idle);
        if idle.len() < MAX_IDLE && !connection.sender.is_closed() {
            idle.push(connection);
        }
    }
}

impl WebConnection {
    async fn ask(
        &mut self,
        url: &WebUrl,
        range: &Range<u64>,
        tag: Option<&str>,
    ) -> Result<Response<Incoming>, WebError> {
        let request = question(url, range, tag)?;
        let asking = async {
            self.sender.ready().await?;
            self.sender.send_request(request).await
        };
        let answered = timeout(PATIENCE, asking).await.map_err(|_| WebError::Silent)?;
        answered.map_err(|error| WebError::Unreachable(innermost(&error)))
    }
}

impl WebBytes {
    /// The next bytes; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, WebError> {
        loop {
            let frame = timeout(PATIENCE, self.body.frame()).await.map_err(|_| WebError::Silent)?;
            match frame {
                None => return Ok(None),
                Some(Err(_)) => return Err(WebError::CutShort),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.pace.pass(data.len() as u64).await;
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// All bytes of the answer, of which there may be `limit`.
    pub(crate) async fn whole(mut self, web: &Web, limit: u64) -> Result<Vec<u8>, WebError> {
        let mut bytes = Vec::new();
        while let Some(data) = self.next().await? {
            if (bytes.len() + data.len()) as u64 > limit {
                return Err(WebError::NotAsAsked("more than there may be"));
            }
            bytes.extend_from_slice(&data);
        }
        if self.range.end.is_some_and(|end| end - self.range.start != bytes.len() as u64) {
            return Err(WebError::CutShort);
        }
        self.done(web);
        Ok(bytes)
    }

    /// The answer was read to its end: its connection may be used again.
    pub(crate) fn done(&mut self, web: &Web) {
        if let Some(connection) = self.connection.take() {
            web.keep(connection);
        }
    }
}

/// The request for a range of a file.
fn question(url: &WebUrl, range: &Range<u64>, tag: Option<&str>) -> Result<Request<Empty<Bytes>>, WebError> {
    let last = range.end.saturating_sub(1);
    let mut request = Request::get(url.path_and_query())
        .header(header::HOST, url.authority())
        .header(header::USER_AGENT, USER_AGENT)
        .header(header::ACCEPT, "*/*")
        .header(header::ACCEPT_ENCODING, "identity")
        .header(header::RANGE, format!("bytes={}-{last}", range.start));
    if let Some(tag) = tag {
        request = request.header(header::IF_RANGE, tag);
    }
    request.body(Empty::new()).map_err(|_| WebError::NotAsAsked("a URL that can't be asked for"))
}

/// Dials the server of `url`; only at public addresses, unless somebody here named it.
async fn connect(url: &WebUrl, is_named: bool) -> Result<WebConnection, WebError> {
    let found = tokio::net::lookup_host((url.host(), url.port())).await.map_err(unreachable)?;
    let addresses: Vec<SocketAddr> = found.filter(|address| is_named || is_public(address.ip())).collect();
    if addresses.is_empty() {
        return Err(WebError::NotPublic);
    }
    let stream = TcpStream::connect(&addresses[..]).await.map_err(unreachable)?;
    let _ = stream.set_nodelay(true);
    if !url.is_encrypted() {
        return begin(url, stream).await;
    }
    begin(url, encrypted(url, stream).await?).await
}

/// The same with TLS on it, by a certificate that this machine trusts.
async fn encrypted(url: &WebUrl, stream: TcpStream) -> Result<TlsStream<TcpStream>, WebError> {
    let name = ServerName::try_from(url.host().to_owned());
    let name = name.map_err(|_| WebError::Unreachable("its name is none that a certificate has".into()))?;
    let connector = TlsConnector::from(tls()?);
    connector.connect(name, stream).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => WebError::Untrusted(innermost(&error)),
        _ => unreachable(error),
    })
}

async fn begin(
    url: &WebUrl,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<WebConnection, WebError> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| WebError::Unreachable(innermost(&error)))?;
    let task = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to a web server ended");
        }
    });
    Ok(WebConnection { server: url.clone(), sender, _task: AbortOnDropHandle::new(task) })
}

/// The certificates that this machine trusts, read once.
fn tls() -> Result<Arc<ClientConfig>, WebError> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("this machine has no certificates to trust; install ca-certificates".to_owned());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?;
        Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
    });
    config.clone().map_err(WebError::Unreachable)
}

fn unreachable(error: std::io::Error) -> WebError {
    WebError::Unreachable(innermost(&error))
}

/// What went wrong in the end: what is around it says only that something did.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
