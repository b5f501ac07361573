//! URLs of files on web servers, and what a link or a redirect found at one of them leads to (RFC 3986 §5). Pure.
//!
//! A query may hold a token. So it is asked for, and never shown.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;
use hyper::http::uri::{Authority, Scheme};
use thiserror::Error;

/// The longest URL, in bytes.
pub const MAX_URL: usize = 2048;

/// End of the names of published files' descriptions.
pub const TOW: &str = ".tow";

/// Stands for a query where a URL is shown.
const HIDDEN: &str = "?…";
/// Characters that are shown of what somebody wrote.
const MAX_SHOWN: usize = 200;

/// Reason why a text is no URL to fetch from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WrongUrl {
    /// It is no URL at all.
    #[error("is not a URL")]
    Malformed,
    /// Its scheme is another one.
    #[error("begins with neither http:// nor https://")]
    Scheme,
    /// It names a user. A password in a URL ends up in logs and histories.
    #[error("holds a name or password, which is never sent")]
    Credentials,
    /// It has more than [`MAX_URL`] bytes.
    #[error("is longer than {MAX_URL} characters")]
    TooLong,
}

/// A URL by `http` or `https`, with a host and without a user. Shown without its query.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct WebUrl(Uri);

impl FromStr for WebUrl {
    type Err = WrongUrl;

    fn from_str(text: &str) -> Result<Self, WrongUrl> {
        if text.len() > MAX_URL {
            return Err(WrongUrl::TooLong);
        }
        let text = normal(text.split('#').next().unwrap_or_default());
        let uri: Uri = text.parse().map_err(|_| WrongUrl::Malformed)?;
        match uri.scheme_str() {
            Some("http" | "https") => {}
            Some(_) => return Err(WrongUrl::Scheme),
            None => return Err(WrongUrl::Malformed),
        }
        let authority = uri.authority().ok_or(WrongUrl::Malformed)?.as_str();
        if authority.contains('@') {
            return Err(WrongUrl::Credentials);
        }
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        has_host.then_some(Self(uri)).ok_or(WrongUrl::Malformed)
    }
}

impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.0.scheme_str().unwrap_or_default();
        write!(f, "{scheme}://{}{}", self.authority(), self.0.path())?;
        if self.0.query().is_some() { f.write_str(HIDDEN) } else { Ok(()) }
    }
}

impl fmt::Debug for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A URL as somebody wrote it, with scheme and host in small letters, which mean the same in any.
pub fn normal(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (host, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // What is in front of an `@` is refused.
    if host.contains('@') {
        return text.to_owned();
    }
    format!("{}://{}{rest}", scheme.to_ascii_lowercase(), host.to_ascii_lowercase())
}

/// True if a text that may be something else is meant as a URL of a web server.
pub fn is_web(text: &str) -> bool {
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)))
}

/// What somebody wrote for a URL, as it may be shown: without a query, a name or a password.
pub fn shown(text: &str) -> String {
    let (text, hidden) = match text.split_once('?') {
        Some((front, _)) => (front, HIDDEN),
        None => (text, ""),
    };
    let authority = text.find("://").map_or(0, |at| at + "://".len());
    let end = text[authority..].find('/').map_or(text.len(), |at| authority + at);
    let host = text[authority..end].rfind('@').map_or(authority, |at| authority + at);
    let text = if host == authority {
        text.to_owned()
    } else {
        format!("{}…{}", &text[..authority], &text[host..])
    };
    text.chars().filter(|c| !c.is_control()).take(MAX_SHOWN).chain(hidden.chars()).collect()
}

impl WebUrl {
    /// True if what is fetched from it crosses networks encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.0.scheme() == Some(&Scheme::HTTPS)
    }

    /// What stands behind a question mark.
    pub(crate) fn query(&self) -> Option<&str> {
        self.0.query()
    }

    /// The host as a name or an address, without brackets.
    pub fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 })
    }

    /// Host and port as they stand in it.
    pub fn authority(&self) -> &str {
        self.0.authority().map_or("", Authority::as_str)
    }

    /// Path and query, which the server is asked for.
    pub fn path_and_query(&self) -> &str {
        self.0.path_and_query().map_or("/", |path| path.as_str())
    }

    /// True if the other one is at the same server by the same scheme.
    pub fn is_beside(&self, other: &Self) -> bool {
        (self.host(), self.port(), self.is_encrypted()) == (other.host(), other.port(), other.is_encrypted())
    }

    /// True if it names a folder, in which files lie by their paths.
    pub fn is_folder(&self) -> bool {
        self.0.query().is_none() && self.0.path().ends_with('/')
    }

    /// True if it names the description of a published file.
    pub fn is_published(&self) -> bool {
        self.0.path().ends_with(TOW)
    }

    /// The URL of the file that this description lies beside.
    pub fn described(&self) -> Option<Self> {
        let path = self.0.path().strip_suffix(TOW).filter(|path| !path.is_empty() && !path.ends_with('/'))?;
        let query = self.0.query().map(|query| format!("?{query}")).unwrap_or_default();
        self.at(&format!("{path}{query}")).ok()
    }

    /// The file at `path`, any bytes with slashes between, in this folder.
    pub fn child(&self, path: &[u8]) -> Option<Self> {
        let is_plain = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
        if !self.is_folder() || !path.split(|byte| *byte == b'/').all(is_plain) {
            return None;
        }
        let mut text = self.0.path().to_owned();
        for &byte in path {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    text.push(char::from(byte));
                }
                _ => text.push_str(&format!("%{byte:02X}")),
            }
        }
        self.at(&text).ok()
    }

    /// What a reference found here leads to.
    pub fn join(&self, reference: &str) -> Result<Self, WrongUrl> {
        let reference = reference.split('#').next().unwrap_or_default();
        if has_scheme(reference) {
            return reference.parse();
        }
        if reference.starts_with("//") {
            return format!("{}:{reference}", self.0.scheme_str().unwrap_or_default()).parse();
        }
        let (path, query) = match reference.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (reference, None),
        };
        let merged = match path {
            "" => self.0.path().to_owned(),
            _ if path.starts_with('/') => without_dots(path),
            _ => {
                let folder = self.0.path().rsplit_once('/').map_or("", |(folder, _)| folder);
                without_dots(&format!("{folder}/{path}"))
            }
        };
        let kept = if path.is_empty() { self.0.query() } else { None };
        let query = query.or(kept).map(|query| format!("?{query}")).unwrap_or_default();
        self.at(&format!("{merged}{query}"))
    }

    fn at(&self, path_and_query: &str) -> Result<Self, WrongUrl> {
        let scheme = self.0.scheme_str().unwrap_or_default();
        format!("{scheme}://{}{path_and_query}", self.authority()).parse()
    }
}

/// True if a reference names its scheme.
fn has_scheme(reference: &str) -> bool {
    let front = reference.split(['/', '?']).next().unwrap_or_default();
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    front.split_once(':').is_some_and(|(name, _)| is_name(name))
}

/// Removes `.` and `..` from a path (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    for part in &parts {
        match *part {
            "." => {}
            ".." => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    // What ends so is a folder.
    if matches!(parts.last(), Some(&("." | ".."))) {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> WebUrl {
        text.parse().unwrap()
    }

    /// All of it, as it is asked for.
    fn whole(url: WebUrl) -> String {
        url.0.to_string()
    }

    #[test]
    fn a_query_is_asked_for_and_not_shown() {
        let token = url("https://h/x.iso.tow?token=secret#part");
        for shown in [
            token.to_string(),
            format!("{token:?}"),
            shown("https://h/x.iso.tow?token=secret"),
            shown("https://me:secret@h/x.iso.tow?x"),
            shown("ftp://h?secret"),
        ] {
            assert!(!shown.contains("secret") && shown.ends_with("?…"), "{shown}");
        }
        assert_eq!(token.to_string(), "https://h/x.iso.tow?…");
        assert_eq!(shown("https://me:secret@h/x@y"), "https://…@h/x@y");
        assert_eq!(shown("tow:abc"), "tow:abc");
        assert_eq!(token.path_and_query(), "/x.iso.tow?token=secret");
        let file = token.described().unwrap();
        assert_eq!(
            (file.path_and_query(), file.to_string().as_str()),
            ("/x.iso?token=secret", "https://h/x.iso?…")
        );
    }

    #[test]
    fn scheme_and_host_are_the_same_in_any_letters() {
        let capitals = url("HTTPS://Host.Example:8443/A?B");
        assert_eq!(capitals, url("https://host.example:8443/A?B"));
        assert!(capitals.is_encrypted() && is_web("HTTPS://h/x.tow") && is_web("Http://h"));
        assert_eq!(capitals.path_and_query(), "/A?B");
        for (text, as_normal) in [
            ("HTTP://H?A=B://C", "http://h?A=B://C"),
            ("HTTP://H", "http://h"),
            ("HTTPS://H/{oid}/X", "https://h/{oid}/X"),
            ("A/B", "A/B"),
        ] {
            assert_eq!(normal(text), as_normal);
        }
        assert!(!is_web("tow:http") && !is_web("http") && !is_web("httpx://h"));
        assert_eq!("HTTPS://Me@h/".parse::<WebUrl>(), Err(WrongUrl::Credentials));
    }

    #[test]
    fn what_is_no_url_to_fetch_from_is_refused() {
        for (text, why) in [
            ("", WrongUrl::Malformed),
            ("file.iso", WrongUrl::Malformed),
            ("/file.iso", WrongUrl::Malformed),
            ("ftp://host/file", WrongUrl::Scheme),
            ("file:///etc/passwd", WrongUrl::Malformed),
            ("http://user@host/", WrongUrl::Credentials),
            ("https://user:secret@host/", WrongUrl::Credentials),
            ("http:///path", WrongUrl::Malformed),
            ("http://a b/", WrongUrl::Malformed),
        ] {
            assert_eq!(text.parse::<WebUrl>(), Err(why), "{text}");
        }
        assert_eq!(format!("http://h/{}", "x".repeat(MAX_URL)).parse::<WebUrl>(), Err(WrongUrl::TooLong));
    }

    #[test]
    fn host_and_port_are_told() {
        for (text, host, port, is_encrypted) in [
            ("http://host/a", "host", 80, false),
            ("https://host/a", "host", 443, true),
            ("https://host:8443", "host", 8443, true),
            ("http://[2001:db8::1]:81/a", "2001:db8::1", 81, false),
        ] {
            let url = url(text);
            assert_eq!((url.host(), url.port(), url.is_encrypted()), (host, port, is_encrypted), "{text}");
        }
        assert_eq!(url("https://host").path_and_query(), "/");
        assert!(url("https://host/a").is_beside(&url("https://host:443/b")));
        assert!(!url("https://host/a").is_beside(&url("http://host:443/b")));
    }

    #[test]
    fn references_lead_where_the_standard_says() {
        // The examples of RFC 3986 §5.4 that are of use here.
        let base = url("http://a/b/c/d;p?q");
        for (reference, target) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g/", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("g#s", "http://a/b/c/g"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("https://other:1/x", "https://other:1/x"),
        ] {
            assert_eq!(base.join(reference).map(whole), Ok(target.into()), "{reference}");
        }
        assert_eq!(base.join("ftp://a/"), Err(WrongUrl::Scheme));
        assert_eq!(base.join("javascript:alert(1)"), Err(WrongUrl::Malformed));
    }

    #[test]
    fn a_file_lies_beside_its_description() {
        for (text, file) in [
            ("https://h/a/x.iso.tow", Some("https://h/a/x.iso")),
            ("https://h/a/x.iso.tow?v=1", Some("https://h/a/x.iso?v=1")),
            ("https://h/a/.tow", None),
            ("https://h/a/x.iso", None),
        ] {
            assert_eq!(url(text).described().map(whole).as_deref(), file, "{text}");
        }
    }

    #[test]
    fn paths_of_a_tree_are_written_so_that_they_stay_in_the_folder() {
        let folder = url("http://h/pub/");
        let child = |path: &[u8]| folder.child(path).map(|url| url.to_string());
        assert_eq!(child(b"a/b c").as_deref(), Some("http://h/pub/a/b%20c"));
        assert_eq!(child(b"50%?#\xff").as_deref(), Some("http://h/pub/50%25%3F%23%FF"));
        for bad in [&b"../x"[..], b"/x", b"a//b", b"a/.", b""] {
            assert_eq!(child(bad), None, "{bad:?}");
        }
        assert_eq!(url("http://h/pub").child(b"a"), None);
    }
}
