//! Where on web servers the bytes of an object lie. Pure.

use std::fmt;

use towpath_content::Oid;
use towpath_content::node_id::hex;

use crate::web_url::{WebUrl, WrongUrl, normal, shown};

/// Stands in a URL for the hexadecimal digits of an object's id.
const BY_OID: &str = "{oid}";

/// A place on a web server, as people and tickets name it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum MirrorPlace {
    /// URL of one file: the transfer's own object.
    File(WebUrl),
    /// URL of a folder, in which the files of the transfer's tree lie by their paths.
    Folder(WebUrl),
    /// URL with `{oid}` in it: each object lies under its own id, in hexadecimal digits.
    ByOid(String),
}

impl fmt::Debug for MirrorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl MirrorPlace {
    /// Reads a URL; one with `{oid}` in it names all objects.
    pub fn new(text: &str) -> Result<Self, WrongUrl> {
        if text.contains(BY_OID) {
            by_oid(text, &Oid::Blake3([0; 32]))?;
            return Ok(Self::ByOid(normal(text)));
        }
        let url: WebUrl = text.parse()?;
        Ok(if url.is_folder() { Self::Folder(url) } else { Self::File(url) })
    }

    /// URL of an object of the transfer of `root`; `path` is its path in the tree, empty if it is no file of one.
    pub fn url_of(&self, oid: &Oid, root: &Oid, path: &[u8]) -> Option<WebUrl> {
        match self {
            // What was shared while it had no name yet is wanted by the name that it got.
            Self::File(url) => (oid == root || root.is_live() && path.is_empty()).then(|| url.clone()),
            // The descriptor of the tree lies in no folder.
            Self::Folder(url) => url.child(path).filter(|_| oid != root),
            Self::ByOid(text) => by_oid(text, oid).ok().filter(|_| !oid.is_live()),
        }
    }

    /// As it is shown to people: without a query, which may hold a token.
    pub fn shown(&self) -> String {
        match self {
            Self::File(url) | Self::Folder(url) => url.to_string(),
            Self::ByOid(text) => shown(text),
        }
    }

    /// Name of the source: as it is shown, and with digits that differ where only the queries do.
    pub(crate) fn name(&self) -> String {
        let (shown, query) = match self {
            Self::File(url) | Self::Folder(url) => (url.to_string(), url.query()),
            Self::ByOid(text) => (shown(text), text.split_once('?').map(|(_, query)| query)),
        };
        query.map_or(shown.clone(), |query| {
            format!("{shown}{}", hex(&Oid::of(query.as_bytes()).digest()[..2]))
        })
    }

    /// True if what is fetched from it crosses networks encrypted.
    pub fn is_encrypted(&self) -> bool {
        match self {
            Self::File(url) | Self::Folder(url) => url.is_encrypted(),
            Self::ByOid(text) => text.starts_with("https:"),
        }
    }
}

fn by_oid(text: &str, oid: &Oid) -> Result<WebUrl, WrongUrl> {
    text.replace(BY_OID, &hex(oid.digest())).parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_place_has_what_it_has() {
        let (root, other, live) = (Oid::of(b"root"), Oid::of(b"other"), Oid::Live([1; 32]));
        let digits = hex(other.digest());
        let expected = format!("https://h/c/{digits}");
        for (place, oid, path, url) in [
            ("https://h/x.iso", root, &b""[..], Some("https://h/x.iso")),
            ("https://h/x.iso", other, b"", None),
            ("https://h/pub/", other, b"a/b", Some("https://h/pub/a/b")),
            ("https://h/pub/", other, b"../b", None),
            ("https://h/pub/", other, b"", None),
            ("https://h/pub/", root, b"a", None),
            ("https://h/c/{oid}", other, b"a", Some(expected.as_str())),
            ("https://h/c/{oid}", live, b"a", None),
        ] {
            let found = MirrorPlace::new(place).unwrap().url_of(&oid, &root, path);
            assert_eq!(found.map(|url| url.to_string()).as_deref(), url, "{place} {oid}");
        }
        let file = MirrorPlace::new("https://h/x.iso").unwrap();
        assert!(file.url_of(&live, &live, b"").is_some(), "what is shared live is the file");
        assert!(file.url_of(&other, &live, b"").is_some(), "also by the name that it got");
        assert!(file.url_of(&other, &live, b"a").is_none(), "a file of a tree");
        assert_eq!(MirrorPlace::new("ftp://h/{oid}"), Err(WrongUrl::Scheme));
    }

    #[test]
    fn places_that_differ_in_their_query_are_two_sources() {
        let name = |place: &str| MirrorPlace::new(place).unwrap().name();
        assert_eq!(name("https://h/x"), "https://h/x");
        for [one, other] in
            [["https://h/x?a=1", "https://h/x?a=2"], ["https://h/{oid}?a", "https://h/{oid}?b"]]
        {
            assert_ne!(name(one), name(other));
            assert_eq!(name(one), name(one));
            let shown = MirrorPlace::new(one).unwrap().shown();
            assert!(name(one).starts_with(&shown) && name(one).len() == shown.len() + 4, "{}", name(one));
        }
    }

    #[test]
    fn a_place_is_shown_without_its_query() {
        for (place, as_shown) in [
            ("https://h/x.iso?token=secret", "https://h/x.iso?…"),
            ("https://h/{oid}?token=secret", "https://h/{oid}?…"),
            ("https://h/get?secret={oid}", "https://h/get?…"),
            ("https://h/pub/", "https://h/pub/"),
        ] {
            let place = MirrorPlace::new(place).unwrap();
            assert_eq!((place.shown().as_str(), format!("{place:?}").as_str()), (as_shown, as_shown));
        }
        let oid = Oid::of(b"x");
        let by_oid = MirrorPlace::new("HTTPS://H/get?secret={oid}").unwrap();
        assert!(by_oid.is_encrypted(), "capitals are the same");
        let asked = by_oid.url_of(&oid, &oid, b"").unwrap();
        assert_eq!(asked.path_and_query(), format!("/get?secret={}", hex(oid.digest())));
    }
}
