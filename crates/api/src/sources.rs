//! Sources of a transfer's bytes, as events and summaries list them.

use serde::{Deserialize, Serialize};

/// Kind of this machine's own disk and store.
pub const THIS_MACHINE: &str = "this machine";
/// Kind of another service.
pub const PEER: &str = "peer";
/// Path of what comes by a relay, and in the place of an address of who fetches by one.
pub const RELAYED: &str = "by relay";
/// Digits of a node id that people see.
const SHORT: usize = 8;

/// A source, and the bytes that it brought.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SourceBytes {
    /// Kind of source: [`THIS_MACHINE`], [`PEER`], or what a plugin says.
    pub kind: String,
    /// Of another service: its node id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The way there, or which one of several of a kind; in a copy what the person calls the other side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Bytes that it brought.
    pub bytes: u64,
}

impl SourceBytes {
    /// True of this machine's own disk and store.
    pub fn is_this_machine(&self) -> bool {
        self.kind == THIS_MACHINE
    }

    /// True if both are of one source, by whatever path.
    fn is_beside(&self, other: &Self) -> bool {
        self.kind == other.kind && self.node == other.node
    }

    fn is_same(&self, other: &Self) -> bool {
        self.is_beside(other) && self.path == other.path
    }
}

/// Bytes by where they came from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceList(pub Vec<SourceBytes>);

impl SourceList {
    /// Adds bytes to those of the same source.
    pub fn add(&mut self, source: SourceBytes) {
        match self.0.iter_mut().find(|known| known.is_same(&source)) {
            Some(known) => known.bytes = known.bytes.saturating_add(source.bytes),
            None => self.0.push(source),
        }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of this one.
    pub fn bytes_of(&self, source: &SourceBytes) -> u64 {
        self.0.iter().find(|known| known.is_same(source)).map_or(0, |known| known.bytes)
    }

    /// Bytes of all of them.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, source| sum.saturating_add(source.bytes))
    }

    /// Bytes of all but this machine.
    pub fn from_elsewhere(&self) -> u64 {
        let others = self.0.iter().filter(|source| !source.is_this_machine());
        others.fold(0, |sum, source| sum.saturating_add(source.bytes))
    }

    /// What people call each of them, and its bytes: `peer 1a2b3c4d`, `directory /media/stick`, and what they called the other
    /// side of a copy. A node's path is told if it has several, or no address.
    pub fn shown(&self) -> Vec<(String, u64)> {
        self.0.iter().map(|source| (self.shown_name(source), source.bytes)).collect()
    }

    fn shown_name(&self, source: &SourceBytes) -> String {
        let kind = &source.kind;
        match (&source.node, &source.path) {
            (None, None) => kind.clone(),
            (None, Some(path)) if kind == PEER => path.clone(),
            (None, Some(path)) => format!("{kind} {path}"),
            (Some(node), path) => {
                let has_several = self.0.iter().filter(|other| other.is_beside(source)).count() > 1;
                let digits: String = node.chars().take(SHORT).collect();
                match path.as_ref().filter(|path| has_several || *path == RELAYED) {
                    Some(path) => format!("{kind} {digits} {path}"),
                    None => format!("{kind} {digits}"),
                }
            }
        }
    }
}

impl FromIterator<SourceBytes> for SourceList {
    fn from_iter<I: IntoIterator<Item = SourceBytes>>(sources: I) -> Self {
        let mut all = Self::default();
        sources.into_iter().for_each(|source| all.add(source));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(kind: &str, node: Option<&str>, path: Option<&str>, bytes: u64) -> SourceBytes {
        SourceBytes { kind: kind.into(), node: node.map(Into::into), path: path.map(Into::into), bytes }
    }

    #[test]
    fn people_see_a_path_where_it_tells_sources_apart() {
        let (one, other) = ("1a2b3c4d5e6f", "99887766aabb");
        let sources = SourceList::from_iter([
            source(THIS_MACHINE, None, None, 1),
            source(PEER, Some(one), Some("192.0.2.1"), 2),
            source(PEER, Some(one), Some("192.0.2.2"), 3),
            source(PEER, Some(other), Some("192.0.2.3"), 4),
            source(PEER, Some("4444444444"), Some(RELAYED), 1),
            source(PEER, None, Some("host"), 5),
            source("directory", None, Some("/media/stick"), 6),
        ]);
        let names: Vec<String> = sources.shown().into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            names,
            [
                "this machine",
                "peer 1a2b3c4d 192.0.2.1",
                "peer 1a2b3c4d 192.0.2.2",
                "peer 99887766",
                "peer 44444444 by relay",
                "host",
                "directory /media/stick",
            ]
        );
        assert_eq!((sources.total(), sources.from_elsewhere()), (22, 21));
    }

    #[test]
    fn bytes_of_one_source_are_one_sum_and_never_too_many() {
        let mut sources = SourceList::from_iter([
            source(PEER, Some("1a"), None, 1),
            source(PEER, Some("1b"), None, 2),
            source(PEER, Some("1a"), None, 3),
        ]);
        assert_eq!(sources.0, [source(PEER, Some("1a"), None, 4), source(PEER, Some("1b"), None, 2)]);
        sources.add(source(PEER, Some("1a"), None, u64::MAX));
        assert_eq!((sources.total(), sources.from_elsewhere()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn a_list_of_them_is_what_programs_read() {
        let sources =
            SourceList(vec![source(PEER, Some("1a"), None, 4), source(THIS_MACHINE, None, None, 2)]);
        let text = serde_json::to_string(&sources).unwrap();
        assert_eq!(text, r#"[{"kind":"peer","node":"1a","bytes":4},{"kind":"this machine","bytes":2}]"#);
        assert_eq!(serde_json::from_str::<SourceList>(&text).unwrap(), sources);
    }
}
