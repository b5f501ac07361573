//! What of a get lies on web servers: mirrors that its person names, and the description of a published file, fetched before
//! anything else.

use std::sync::Arc;
use std::time::Duration;

use towpath_api::{ApiError, ErrorKind, GetRequest};
use towpath_content::hint::MAX_HINTS;
use towpath_content::{Hint, Oid, Ticket};
use towpath_mirror::answer::WebError;
use towpath_mirror::{
    KnownMirrors, MirrorFinder, MirrorPlace, NamedBy, Published, PublishedError, SimilarSource, ToldValues,
    WebRules, WebUrl, WrongUrl, web_url,
};
use towpath_plugins::Many;
use towpath_protocol::Pace;
use towpath_transfer::{Outcome, Source};

use crate::state;

/// Time for the `.tow`, unless the request names another.
const TOW_LIMIT: Duration = Duration::from_secs(60);

/// Ways by web servers to what a get fetches.
#[derive(Default)]
pub(crate) struct WebWays {
    /// The way, if there is no sender.
    pub(crate) way: Option<Arc<dyn Source>>,
    /// What an older version has, once one is found.
    pub(crate) similar: Option<Arc<SimilarSource>>,
    /// What is drawn on beside the sender.
    pub(crate) mirrors: KnownMirrors,
}

/// Places on web servers that a get draws on. None: it is by a ticket alone.
#[derive(Clone, Default)]
pub(crate) struct WebPlaces {
    published: Option<Arc<Published>>,
    mirrors: Vec<MirrorPlace>,
}

impl WebPlaces {
    /// Those of `request`; fetches the `.tow` that it names, if it names one.
    pub(crate) async fn of(request: &GetRequest) -> Result<Self, ApiError> {
        let name = request.ticket.trim();
        if let Some(url) = tow_url(name)? {
            let published = published(&url, None, request).await?;
            let mirrors = request.from.iter().map(|from| mirror(from)).collect::<Result<_, _>>()?;
            return Ok(Self { published: Some(published), mirrors });
        }
        let (mut found, mut mirrors) = (None, Vec::new());
        for from in &request.from {
            match mirror(from)? {
                MirrorPlace::File(url) if url.is_published() => {
                    found = Some(published(&url, Some(&content(name)?), request).await?);
                }
                place => mirrors.push(place),
            }
        }
        if found.is_none() && !mirrors.is_empty() && !name.starts_with("tow:") {
            let message = "a plain web server can't say what its pieces must be";
            let hint = "name the .tow beside the file, too (--from URL.tow), or a ticket; 'tow publish' writes a .tow";
            return Err(ApiError::new(ErrorKind::Usage, message).hint(hint));
        }
        Ok(Self { published: found, mirrors })
    }

    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.published.is_none() && self.mirrors.is_empty()
    }

    /// Bytes a second that can be expected, at most as many as the request allows.
    pub(crate) fn rate(&self, request: &GetRequest) -> u64 {
        match (&self.published, request.limit_rate) {
            (Some(published), 0) => published.rate(),
            (_, limit) => limit,
        }
    }

    /// The content that the `.tow` names.
    pub(crate) fn oid(&self) -> Option<Oid> {
        self.published.as_ref().map(|published| *published.oid())
    }

    /// The way to the content, if nobody issued a ticket for it: what the `.tow` tells, what an older version on this machine has of it,
    /// and all mirrors. Else mirrors that come to what the ticket names. For all of them these rules hold.
    pub(crate) fn ways(&self, is_way: bool, rules: WebRules) -> WebWays {
        let named = self.mirrors.iter().map(|place| (place.clone(), NamedBy::Person));
        let published = self.published.iter().flat_map(|published| published.places());
        let places = named.chain(published).collect();
        let Some(published) = self.published.as_ref().filter(|_| is_way) else {
            let mirrors = KnownMirrors { places, told: None, rules };
            return WebWays { mirrors, ..WebWays::default() };
        };
        let told = Arc::new(ToldValues::new(Arc::clone(published)));
        let similar = Some(Arc::clone(told.similar()));
        let finder = MirrorFinder::new(KnownMirrors { places, told: Some(told), rules });
        let way = Some(Arc::new(Many::new(Vec::new(), vec![Arc::new(finder)])) as Arc<dyn Source>);
        WebWays { way, similar, mirrors: KnownMirrors::default() }
    }
}

/// The URL of a `.tow` in place of a ticket; nothing if it is no URL at all.
fn tow_url(name: &str) -> Result<Option<WebUrl>, ApiError> {
    if !web_url::is_web(name) {
        return Ok(None);
    }
    let url: WebUrl = name.parse().map_err(|why| wrong(name, why))?;
    match url.is_published() {
        true => Ok(Some(url)),
        false => Err(ApiError::new(ErrorKind::Usage, format!("{url} is no ticket, and no .tow")).hint(
            "fetch URL.tow if 'tow publish' wrote one beside it, or name the URL as a mirror: tow get TICKET --from URL",
        )),
    }
}

/// The content that a ticket or an OID names: a `.tow` by that name can't lie about it.
fn content(name: &str) -> Result<Oid, ApiError> {
    let oid = state::parse_name(name)?;
    match oid.is_live() {
        false => Ok(oid),
        true => Err(ApiError::new(
            ErrorKind::Usage,
            "the ticket's content has no name yet, so no .tow can name it",
        )
        .hint("name the file itself as a mirror")),
    }
}

fn mirror(from: &str) -> Result<MirrorPlace, ApiError> {
    MirrorPlace::new(from).map_err(|why| wrong(from, why))
}

/// Hints of mirrors, for a ticket.
pub(crate) fn mirror_hints(urls: &[String]) -> Result<Vec<Hint>, ApiError> {
    let hint = |url: &String| {
        mirror(url)?;
        let shown = web_url::shown(url);
        let hint = Hint::new(web_url::normal(url), 0, 1);
        hint.map_err(|why| {
            ApiError::new(ErrorKind::Usage, format!("'{shown}' can't stand in a ticket: {why}"))
        })
    };
    urls.iter().map(hint).collect()
}

/// A ticket that names these places, too. One that holds the object itself needs none.
pub(crate) fn with_mirrors(ticket: String, mirrors: Vec<Hint>) -> String {
    match ticket.parse::<Ticket>() {
        Ok(mut longer) if !mirrors.is_empty() && longer.enclosed.is_none() => {
            longer.hints.truncate(MAX_HINTS.saturating_sub(mirrors.len()));
            longer.hints.extend(mirrors);
            longer.hints.truncate(MAX_HINTS);
            longer.to_string()
        }
        _ => ticket,
    }
}

fn wrong(url: &str, why: WrongUrl) -> ApiError {
    ApiError::new(ErrorKind::Usage, format!("'{}' {why}", web_url::shown(url)))
}

async fn published(
    url: &WebUrl,
    expected: Option<&Oid>,
    request: &GetRequest,
) -> Result<Arc<Published>, ApiError> {
    if request.require_encryption && !url.is_encrypted() {
        return Err(ApiError::new(ErrorKind::Refused, format!("{url} is not encrypted, as was required")));
    }
    let rules = WebRules::new(Arc::new(Pace::new(request.limit_rate)), request.require_encryption);
    let limit = if request.timeout > 0 { Duration::from_secs(request.timeout) } else { TOW_LIMIT };
    let fetching = tokio::time::timeout(limit, Published::fetch(url, expected, rules)).await;
    let fetched = fetching.unwrap_or(Err(PublishedError::Web(WebError::Silent)));
    fetched.map(Arc::new).map_err(|error| {
        let message = format!("{url} {error}");
        match error {
            PublishedError::Plain => ApiError::new(ErrorKind::Refused, message)
                .hint("fetch it by https, or name its content: tow get OID --from URL"),
            PublishedError::Web(error) if matches!(error.outcome(), Outcome::RetryLater(_)) => {
                ApiError::new(ErrorKind::Failed, message).hint("try again later")
            }
            _ => ApiError::new(ErrorKind::Failed, message),
        }
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn refused(ticket: &str, from: &[&str]) -> String {
        let from = from.iter().map(|url| (*url).to_owned()).collect();
        let request = GetRequest { ticket: ticket.into(), from, ..GetRequest::default() };
        match WebPlaces::of(&request).await {
            Ok(_) => String::new(),
            Err(error) => error.message,
        }
    }

    #[tokio::test]
    async fn what_names_nothing_to_fetch_is_said_before_anything_is_asked() {
        let (oid, live) = (Oid::of(b"x").to_string(), Oid::Live([1; 32]).to_string());
        for (ticket, from, words) in [
            ("https://h/x.iso", &[][..], "is no ticket, and no .tow"),
            ("https://me:secret@h/x.tow", &[], "'https://…@h/x.tow' holds a name or password"),
            ("HTTPS://H/x.iso?token=secret", &[], "https://h/x.iso?… is no ticket, and no .tow"),
            (&oid, &["https://h/x.iso"], "can't say what its pieces must be"),
            (&oid, &["ftp://h/x.iso"], "begins with neither http:// nor https://"),
            (&live, &["https://h/x.tow"], "has no name yet"),
            ("nonsense", &["https://h/x.tow"], "is no ticket"),
        ] {
            let message = refused(ticket, from).await;
            assert!(message.contains(words), "{ticket} {from:?}: {message}");
        }
        assert_eq!(refused(&oid, &[]).await, "");
    }

    #[tokio::test]
    async fn a_tow_that_trickles_is_given_up_in_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/x.tow", listener.local_addr().unwrap());
        let request = GetRequest {
            ticket: Oid::of(b"x").to_string(),
            from: vec![url],
            timeout: 1,
            ..GetRequest::default()
        };
        // A byte now and then: each comes in time.
        let trickling = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0, "it was asked");
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await.unwrap();
            let mut ticks = tokio::time::interval(Duration::from_millis(50));
            while stream.write_all(b"t").await.is_ok() {
                ticks.tick().await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            result = WebPlaces::of(&request) => {
                let error = result.err().unwrap();
                assert!(error.message.contains("says nothing"), "{}", error.message);
            }
            () = trickling => {}
        }
    }
}
