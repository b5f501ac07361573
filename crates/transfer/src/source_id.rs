//! Names of sources: where bytes and claims came from, in deliveries, recipes, progress and reports.

use std::fmt;
use std::sync::{Arc, LazyLock};

use towpath_content::NodeId;

/// Kind of this machine's own disk and store.
pub const THIS_MACHINE: &str = "this machine";
/// Kind of another service.
pub const PEER: &str = "peer";

/// Name of a source within a transfer: its kind, the node that it is, if it is one, and the path by which its bytes come,
/// where that tells sources apart. Cheap to clone. What is shown to people is its `Display`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(Arc<SourceName>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SourceName {
    kind: Box<str>,
    node: Option<NodeId>,
    path: Option<Box<str>>,
}

impl SourceId {
    /// This machine's own disk and store.
    pub fn this_machine() -> Self {
        static THIS: LazyLock<SourceId> = LazyLock::new(|| SourceId::new(THIS_MACHINE, None, None));
        THIS.clone()
    }

    /// The service that `node` is.
    pub fn peer(node: NodeId) -> Self {
        Self::new(PEER, Some(node), None)
    }

    /// The same by one of several ways to it, such as an interface of this machine.
    pub fn peer_by(node: NodeId, way: Option<&str>) -> Self {
        Self::new(PEER, Some(node), way)
    }

    /// A source of another kind, `mirror` say, known by its path if there are several of it: a directory, an address.
    pub fn other(kind: &str, path: Option<&str>) -> Self {
        Self::new(kind, None, path)
    }

    fn new(kind: &str, node: Option<NodeId>, path: Option<&str>) -> Self {
        Self(Arc::new(SourceName { kind: kind.into(), node, path: path.map(Into::into) }))
    }

    /// Kind of source.
    pub fn kind(&self) -> &str {
        &self.0.kind
    }

    /// The node, if it is one.
    pub fn node(&self) -> Option<&NodeId> {
        self.0.node.as_ref()
    }

    /// The path by which its bytes come, if that is part of its name.
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// True of this machine's own disk and store.
    pub fn is_this_machine(&self) -> bool {
        self.kind() == THIS_MACHINE
    }
}

/// As shown to people: `this machine`, `peer 1a2b3c4d`, `directory /media/stick`.
impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        self.node().map_or(Ok(()), |node| write!(f, " {}", node.short()))?;
        self.path().map_or(Ok(()), |path| write!(f, " {path}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_the_kind_and_what_tells_it_apart() {
        assert_eq!(SourceId::this_machine().to_string(), "this machine");
        assert_eq!(SourceId::peer(NodeId([0x1a; 32])).to_string(), "peer 1a1a1a1a");
        assert_eq!(SourceId::peer_by(NodeId([0x1a; 32]), Some("eth0")).to_string(), "peer 1a1a1a1a eth0");
        assert_eq!(SourceId::other("mirror", Some("http://a/b")).to_string(), "mirror http://a/b");
    }

    #[test]
    fn nodes_that_begin_alike_are_told_apart() {
        let (mut one, two) = ([7; 32], NodeId([7; 32]));
        one[31] = 8;
        assert_eq!(SourceId::peer(two).to_string(), SourceId::peer(NodeId(one)).to_string());
        assert_ne!(SourceId::peer(two), SourceId::peer(NodeId(one)));
    }
}
