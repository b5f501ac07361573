//! Every plugin that a program has, with its settings: those of this build, and those that whoever starts the program adds.
//! And trees of them.
//!
//! A [`Node`] describes a plugin and, in its settings, those that it wraps. It comes from
//! configuration, or is [`default_tree`]; [`build`] makes the plugins of one transfer of it.
//!
//! A plugin from outside is a [`Plugin`] in a `static`: its name, its settings, and how it is made of a node. What it needs of the
//! program it finds in the [`TreeBuilder`].

mod built_in;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_link::Identity;
use towpath_link::tcp::LocalEnd;
use towpath_mirror::KnownMirrors;
use towpath_protocol::PeerConfig;
use towpath_store::Store;
use towpath_transfer::finder::Finder;
use towpath_transfer::{Root, Single, Source};

use crate::Cascade;
use crate::direct::{LedTo, PeerHost};
use crate::local::Allow;
use crate::near::NearSource;
use built_in::{ADAPTIVE, CASCADE, DEALER, DIRECT, HINTS, LOCAL, MIRRORS};
use towpath_reuse::adaptive::{Adaptive, Search};

/// Meaning of a hint's scheme in this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownScheme {
    /// A plugin of this build, by its name.
    Plugin(&'static str),
    /// Nothing in this build; later versions may know it.
    Unknown,
}

/// A plugin as people configure it.
pub struct Plugin {
    /// Its name.
    pub name: &'static str,
    /// The scheme of the hints that it answers.
    pub scheme: Option<&'static str>,
    /// Its purpose, in a sentence.
    pub about: &'static str,
    /// Its settings.
    pub fields: &'static [Field],
    /// Makes it.
    pub build: Build,
}

/// Makes what a plugin is.
pub enum Build {
    /// A source. A leaf that asks others, or looks on this machine, says so to the builder.
    Source(fn(&Node, &mut TreeBuilder<'_>) -> Arc<dyn Source>),
    /// A finder of sources.
    Finder(fn(&Node, &mut TreeBuilder<'_>) -> Arc<dyn Finder>),
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A setting of a plugin.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its kind of value.
    pub kind: FieldKind,
    /// Its purpose, in a sentence.
    pub about: &'static str,
}

/// Kind of value of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A whole number.
    Number {
        /// The smallest that is allowed.
        least: u64,
        /// The largest that is allowed.
        most: u64,
        /// Its value if it is not given.
        default: u64,
    },
    /// A text.
    Text {
        /// Its value if it is not given; `None`: it must be.
        default: Option<&'static str>,
    },
    /// Texts, none if they are not given.
    Texts,
    /// A path; it must be given. One that is not absolute is below the working directory.
    Path,
    /// A time.
    Seconds {
        /// The shortest that is allowed.
        least: u64,
        /// The longest that is allowed.
        most: u64,
        /// Its value if it is not given.
        default: u64,
    },
    /// Another plugin; it must be given.
    Plugin,
    /// One or more plugins in an order that matters; they must be given.
    Plugins,
    /// Finders of sources; those of the ticket's hints and of mirrors if they are not given.
    Finders,
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingValue {
    /// Of [`FieldKind::Number`].
    Number(u64),
    /// Of [`FieldKind::Text`].
    Text(String),
    /// Of [`FieldKind::Texts`].
    Texts(Vec<String>),
    /// Of [`FieldKind::Path`].
    Path(PathBuf),
    /// Of [`FieldKind::Seconds`].
    Seconds(u64),
    /// Of [`FieldKind::Plugin`].
    Plugin(Node),
    /// Of [`FieldKind::Plugins`] or [`FieldKind::Finders`].
    Plugins(Vec<Node>),
}

/// A plugin in a tree, with all of its settings.
#[derive(Debug, Clone)]
pub struct Node {
    plugin: &'static Plugin,
    settings: BTreeMap<&'static str, SettingValue>,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.plugin.name == other.plugin.name && self.settings == other.settings
    }
}

impl Eq for Node {}

/// All plugins of a program.
#[derive(Debug, Clone)]
pub struct Registry(Vec<&'static Plugin>);

impl Default for Registry {
    /// Those of this build.
    fn default() -> Self {
        Self(built_in::ALL.to_vec())
    }
}

impl Registry {
    /// Adds `plugins`; the error names one whose name is taken.
    pub fn with(mut self, plugins: &[&'static Plugin]) -> Result<Self, &'static str> {
        for plugin in plugins {
            if self.by_name(plugin.name).is_some() {
                return Err(plugin.name);
            }
            self.0.push(plugin);
        }
        self.0.sort_by_key(|plugin| plugin.name);
        Ok(self)
    }

    /// The plugin of this name, if there is one.
    pub fn by_name(&self, name: &str) -> Option<&'static Plugin> {
        self.0.iter().find(|plugin| plugin.name == name).copied()
    }

    /// The plugin that answers hints of `scheme`.
    pub fn by_scheme(&self, scheme: &str) -> KnownScheme {
        let found = self.0.iter().find(|plugin| plugin.scheme == Some(scheme));
        found.map_or(KnownScheme::Unknown, |plugin| KnownScheme::Plugin(plugin.name))
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &'static Plugin> {
        self.0.iter().copied()
    }
}

/// Parts that plugins are made from.
pub struct PluginParts {
    /// This machine's store.
    pub store: Arc<dyn Store>,
    /// Objects of it that may be drawn.
    pub allow: Allow,
    /// Identity that dials.
    pub identity: Identity,
    /// Configuration of connections to peers.
    pub peer: PeerConfig,
    /// Ends of this machine that are dialled from, all at once. None: the system chooses one.
    pub from: Vec<LocalEnd>,
    /// The service that the transfer belongs to, if it has connections of its own.
    pub host: Option<Arc<dyn PeerHost>>,
    /// The way to the other service that stands already, as in a copy; else each `direct` dials.
    pub way: Option<Arc<dyn Source>>,
    /// Where that one led, if further ways may be found beside it: to addresses that hints tell, or by other lines of this machine.
    pub led: Option<LedTo>,
    /// Mirrors of this transfer.
    pub mirrors: KnownMirrors,
    /// Search of this machine's disk, if any is allowed.
    pub search: Option<Search>,
    /// The site's cache, if it brings the root: the `dealer` asks it first.
    pub near: Option<NearSource>,
}

/// The plugins of one transfer.
pub struct Tree {
    /// What the session of the transfer asks.
    pub root: Arc<dyn Root>,
    /// Those parts of the tree that ask others, in their order.
    pub remote: Vec<Arc<dyn Source>>,
    /// Those that look on this machine, in their order.
    pub local: Vec<Arc<dyn Source>>,
    /// The outermost part that searches the disk, if there is one.
    pub adaptive: Option<Arc<Adaptive>>,
}

/// Sources in order: first what this machine is known to have, then the ticket's service, and files on the disk beside it.
pub fn default_tree() -> Node {
    let node = Node::new;
    let all = |nodes| BTreeMap::from([("of", SettingValue::Plugins(nodes))]);
    let dealer = node(&DEALER, all(vec![node(&DIRECT, BTreeMap::new())]));
    let known = node(&CASCADE, all(vec![node(&LOCAL, BTreeMap::new()), dealer]));
    node(&ADAPTIVE, BTreeMap::from([("of", SettingValue::Plugin(known))]))
}

/// Makes the plugins that `node` describes.
pub fn build(node: &Node, parts: &PluginParts) -> Tree {
    let mut builder = TreeBuilder { parts, remote: Vec::new(), local: Vec::new(), adaptive: None };
    let source = builder.node(node);
    let root = match &builder.adaptive {
        Some(adaptive) if wraps(&*source, adaptive) => Single::advised(source, Arc::clone(adaptive) as _),
        _ => Single::root(source),
    };
    Tree { root, remote: builder.remote, local: builder.local, adaptive: builder.adaptive }
}

/// True if `source` is this one, or wraps it alone: then its advice holds for it.
fn wraps(source: &dyn Source, adaptive: &Arc<Adaptive>) -> bool {
    let mut next = Some(source);
    while let Some(source) = next {
        if std::ptr::addr_eq(source, Arc::as_ptr(adaptive)) {
            return true;
        }
        next = source.inner();
    }
    false
}

impl Plugin {
    /// True if it finds sources, and is none.
    pub const fn is_finder(&self) -> bool {
        matches!(self.build, Build::Finder(_))
    }

    /// Its setting of this name.
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// A node of this plugin. Settings that are not given have their defaults; the error names
    /// one that must be given and is not, or is none of this plugin's, or has a wrong value.
    pub fn node(&'static self, given: BTreeMap<&'static str, SettingValue>) -> Result<Node, &'static str> {
        let node = Node::new(self, given);
        let is_right = |(name, value): (&&'static str, &SettingValue)| match self.field(name) {
            Some(field) if field.kind.takes(value) => Ok(()),
            _ => Err(*name),
        };
        node.settings.iter().try_for_each(is_right)?;
        let is_missing = |field: &&Field| !node.settings.contains_key(field.name);
        self.fields.iter().find(is_missing).map_or(Ok(node.clone()), |field| Err(field.name))
    }
}

impl FieldKind {
    /// Its value if none is given.
    fn default(&self) -> Option<SettingValue> {
        match self {
            Self::Number { default, .. } => Some(SettingValue::Number(*default)),
            Self::Seconds { default, .. } => Some(SettingValue::Seconds(*default)),
            Self::Text { default } => default.map(|text| SettingValue::Text(text.into())),
            Self::Texts => Some(SettingValue::Texts(Vec::new())),
            Self::Finders => {
                let finders = [&HINTS, &MIRRORS].map(|plugin| Node::new(plugin, BTreeMap::new()));
                Some(SettingValue::Plugins(finders.into()))
            }
            Self::Path | Self::Plugin | Self::Plugins => None,
        }
    }

    fn takes(&self, value: &SettingValue) -> bool {
        match (self, value) {
            (Self::Number { least, most, .. }, SettingValue::Number(number)) => {
                (*least..=*most).contains(number)
            }
            (Self::Seconds { least, most, .. }, SettingValue::Seconds(seconds)) => {
                (*least..=*most).contains(seconds)
            }
            (Self::Text { .. }, SettingValue::Text(_))
            | (Self::Texts, SettingValue::Texts(_))
            | (Self::Path, SettingValue::Path(_)) => true,
            (Self::Plugin, SettingValue::Plugin(node)) => !node.plugin.is_finder(),
            (Self::Plugins, SettingValue::Plugins(nodes)) => {
                !nodes.is_empty() && nodes.iter().all(|node| !node.plugin.is_finder())
            }
            (Self::Finders, SettingValue::Plugins(nodes)) => nodes.iter().all(|node| node.plugin.is_finder()),
            _ => false,
        }
    }
}

impl Node {
    fn new(plugin: &'static Plugin, mut settings: BTreeMap<&'static str, SettingValue>) -> Self {
        for field in plugin.fields {
            if let Some(default) = field.kind.default() {
                settings.entry(field.name).or_insert(default);
            }
        }
        Self { plugin, settings }
    }

    /// The plugin's name.
    pub const fn plugin(&self) -> &'static str {
        self.plugin.name
    }

    /// All of its settings, by name.
    pub const fn settings(&self) -> &BTreeMap<&'static str, SettingValue> {
        &self.settings
    }

    /// Value of a number or of a time in seconds; 0 if the plugin has no such field.
    pub fn number(&self, field: &str) -> u64 {
        match self.settings.get(field) {
            Some(SettingValue::Number(number) | SettingValue::Seconds(number)) => *number,
            _ => 0,
        }
    }

    /// Value of a text; empty if the plugin has no such field.
    pub fn text(&self, field: &str) -> &str {
        match self.settings.get(field) {
            Some(SettingValue::Text(text)) => text,
            _ => "",
        }
    }

    /// Values of texts.
    pub fn texts(&self, field: &str) -> &[String] {
        match self.settings.get(field) {
            Some(SettingValue::Texts(texts)) => texts,
            _ => &[],
        }
    }

    /// Value of a path, if the plugin has such a field.
    pub fn path(&self, field: &str) -> Option<&Path> {
        match self.settings.get(field) {
            Some(SettingValue::Path(path)) => Some(path),
            _ => None,
        }
    }

    fn children(&self, field: &str) -> &[Self] {
        match self.settings.get(field) {
            Some(SettingValue::Plugin(node)) => std::slice::from_ref(node),
            Some(SettingValue::Plugins(nodes)) => nodes,
            _ => &[],
        }
    }
}

/// Builds the plugins of one transfer.
pub struct TreeBuilder<'a> {
    parts: &'a PluginParts,
    remote: Vec<Arc<dyn Source>>,
    local: Vec<Arc<dyn Source>>,
    adaptive: Option<Arc<Adaptive>>,
}

impl TreeBuilder<'_> {
    fn node(&mut self, node: &Node) -> Arc<dyn Source> {
        match node.plugin.build {
            Build::Source(build) => build(node, self),
            Build::Finder(_) => nothing(),
        }
    }

    /// The finders in a field of `node`, made.
    pub fn finders(&mut self, node: &Node, field: &str) -> Vec<Arc<dyn Finder>> {
        let finder = |child: &Node| match child.plugin.build {
            Build::Finder(build) => Some(build(child, self)),
            Build::Source(_) => None,
        };
        node.children(field).iter().filter_map(finder).collect()
    }

    /// Parts that plugins are made from.
    pub const fn parts(&self) -> &PluginParts {
        self.parts
    }

    /// The plugins in a field of `node`, made.
    pub fn children(&mut self, node: &Node, field: &str) -> Vec<Arc<dyn Source>> {
        node.children(field).iter().map(|child| self.node(child)).collect()
    }

    /// The plugin in a field of `node`, made.
    pub fn child(&mut self, node: &Node, field: &str) -> Arc<dyn Source> {
        node.children(field).first().map_or_else(nothing, |child| self.node(child))
    }

    /// It asks others: it is asked what an object is, and told when nothing more is needed.
    pub fn remote(&mut self, plugin: Arc<dyn Source>) -> Arc<dyn Source> {
        self.remote.push(Arc::clone(&plugin));
        plugin
    }

    /// It looks on this machine: it is asked what an object is when no other one knows.
    pub fn local(&mut self, plugin: Arc<dyn Source>) -> Arc<dyn Source> {
        self.local.push(Arc::clone(&plugin));
        plugin
    }
}

/// A node can be made only with all of its settings, each of its kind; should one be wrong all the same, it has nothing.
fn nothing() -> Arc<dyn Source> {
    Arc::new(Cascade::new(Vec::new()))
}

#[cfg(test)]
mod tests {
    use towpath_content::Oid;
    use towpath_store::{DiskStore, MemoryStore};
    use towpath_transfer::{Group, ObjectFacts, OpenWays};

    use super::*;
    use towpath_disk_search::Scope;

    fn plugin(name: &str) -> &'static Plugin {
        Registry::default().by_name(name).unwrap()
    }

    fn leaf(name: &str) -> Node {
        plugin(name).node(BTreeMap::new()).unwrap()
    }

    fn tree(node: &Node) -> Tree {
        build(node, &parts())
    }

    fn parts() -> PluginParts {
        PluginParts {
            mirrors: Default::default(),
            store: Arc::new(MemoryStore::new()),
            allow: Arc::new(|_| true),
            identity: Identity::generate().unwrap(),
            peer: PeerConfig::default(),
            from: Vec::new(),
            host: None,
            way: None,
            led: None,
            search: None,
            near: None,
        }
    }

    #[test]
    fn unknown_schemes_are_told_apart() {
        assert_eq!(Registry::default().by_scheme("tow"), KnownScheme::Plugin("direct"));
        assert_eq!(Registry::default().by_scheme("ftp"), KnownScheme::Unknown);
    }

    #[test]
    fn names_are_in_order_and_those_of_the_plugins_themselves() {
        assert!(built_in::ALL.is_sorted_by_key(|plugin| plugin.name));
        for name in ["direct", "local", "cascade"] {
            let of = || BTreeMap::from([("of", SettingValue::Plugins(vec![leaf("local")]))]);
            let node = if name == "cascade" { plugin(name).node(of()).unwrap() } else { leaf(name) };
            assert_eq!(tree(&node).root.name(), name);
        }
    }

    #[tokio::test]
    async fn a_tree_is_built_as_described() {
        let built = tree(&default_tree());
        assert_eq!((built.remote.len(), built.local.len()), (1, 1));
        assert_eq!(built.root.name(), "cascade", "without a right to search it has no part");
        let ways = [
            ("first", SettingValue::Plugin(leaf("local"))),
            ("better", SettingValue::Plugin(leaf("direct"))),
        ];
        let takeover = plugin("takeover").node(ways.into()).unwrap();
        let built = tree(&takeover);
        assert_eq!((built.root.name(), built.remote.len(), built.local.len()), ("takeover", 1, 1));
        // The better one is asked.
        assert_eq!(built.root.state().window, built.remote[0].state().window);
    }

    #[test]
    fn a_way_that_stands_takes_the_place_of_those_that_would_be_dialled() {
        let way: Arc<dyn Source> = Arc::new(Cascade::new(Vec::new()));
        let built = build(&default_tree(), &PluginParts { way: Some(Arc::clone(&way)), ..parts() });
        assert_eq!(built.remote[0].state().window, way.state().window);
    }

    #[tokio::test]
    async fn what_may_search_the_disk_does() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(DiskStore::open(&dir.path().join("state"), &dir.path().join("data")).unwrap());
        let search = Search {
            store: Arc::clone(&store),
            scope: Scope::default(),
            leave_out: Arc::new(|_| false),
            effort: towpath_reuse::adaptive::Effort::Some,
            limit_rate: 0,
        };
        let built = build(&default_tree(), &PluginParts { store, search: Some(search), ..parts() });
        assert_eq!((built.root.name(), built.remote.len(), built.local.len()), ("adaptive", 1, 1));
        let group = Group::default();
        let oid = Oid::of(b"it");
        let open = OpenWays::default();
        let facts = ObjectFacts {
            oid,
            asked_as: oid,
            size: 1,
            missing: 1,
            read_rate: 0.0,
            kept: 0,
            group: &group,
            open,
        };
        assert!(built.adaptive.is_some() && built.root.advise(&facts).chunks_at_once);
    }

    #[test]
    fn settings_that_are_missing_wrong_or_unknown_are_named() {
        assert_eq!(plugin("cascade").node(BTreeMap::new()), Err("of"));
        assert_eq!(plugin("adaptive").node(BTreeMap::new()), Err("of"));
        assert_eq!(plugin("cascade").node([("of", SettingValue::Plugins(vec![]))].into()), Err("of"));
        assert_eq!(
            plugin("takeover").node([("first", SettingValue::Plugin(leaf("local")))].into()),
            Err("better")
        );
        assert_eq!(
            plugin("direct").node([("connections", SettingValue::Number(0))].into()),
            Err("connections")
        );
        assert_eq!(
            plugin("local").node([("connections", SettingValue::Number(1))].into()),
            Err("connections")
        );
        let direct = plugin("direct").node([("connections", SettingValue::Number(3))].into()).unwrap();
        assert_eq!(direct.settings()["connect_seconds"], SettingValue::Seconds(10));
    }
}
