//! The configuration: one TOML file, or none. And where the service's folders lie ([`home`]).
//!
//! ```text
//!   file ── source (lines, errors) ── settings (one list of fields) ─┬─► Config
//!                                     plugins (a tree) ──────────────┘      │
//!   docs/guide/configuration.md, dist/config.toml, --check-config ◄── shown ┘
//! ```
//!
//! | part | story |
//! |---|---|
//! | `settings` | every field with its type, default and purpose: the list that all else is made from |
//! | `value` | kinds of values: how each is written |
//! | `byte_place` | those that name a place for the daemon's own bytes |
//! | `plugins` | the tree of plugins |
//! | `source` | a file's text and tables; errors that name file, line and field |
//! | `shown` | a configuration as text; the reference and the example file |
//! | `live` | the configuration that holds now |
//! | [`fetch_log`] | records in the state folder: who fetched what |
//! | [`running_tickets`] | those of tickets that commands serve while they run |
//! | [`shares`] | records in the state folder: of tickets, ports and senders |
//!
//! A file that is wrong anywhere is refused as a whole. Nothing here looks at the environment.

mod byte_place;
pub mod fetch_log;
pub mod home;
mod live;
mod plugins;
pub mod running_tickets;
mod settings;
pub mod shares;
mod shown;
mod source;
mod value;

use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use towpath_files::display_name;
use towpath_plugins::registry::{Node, Registry, default_tree};
use towpath_store::CachePolicy;

pub use byte_place::{BytePlace, FilePath, ServerUrl};
pub use home::{Home, NoHome};
pub use live::Live;
pub use settings::{
    General, Limits, Metrics, ProcessorSettings, RendezvousSettings, Sharing, SiteCache, StoreSettings,
};
pub use shown::{example, reference};
pub use source::ConfigError;
pub use value::{
    Bytes, CacheAddress, Compression, ConfigRate, ConfigSeconds, Count, Directory, Label, LogLevel, Switch,
    node_at, parse_bytes,
};

use settings::Section;
use source::{ConfigSource, ConfigTable};

/// A file that is larger is something else.
const MAX_FILE: u64 = 1 << 20;
/// The modes of what its group, and what everybody, may write to.
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
/// The mode of a folder in which nobody may replace what is somebody else's, as `/tmp` is.
const STICKY: u32 = 0o1000;

/// Configuration of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Settings at the top of the file.
    pub general: General,
    /// `[store]`
    pub store: StoreSettings,
    /// `[limits]`
    pub limits: Limits,
    /// `[processors]`: what every chunk passes.
    pub processors: ProcessorSettings,
    /// `[sharing]`: what is passed on of what was fetched.
    pub sharing: Sharing,
    /// `[site_cache]`: the cache of a site, which serves its machines.
    pub site_cache: SiteCache,
    /// `[rendezvous]`: where peers find each other.
    pub rendezvous: RendezvousSettings,
    /// `[metrics]`
    pub metrics: Metrics,
    /// `[plugins]`: what objects are fetched through.
    pub plugins: Node,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            general: General::default(),
            store: StoreSettings::default(),
            limits: Limits::default(),
            processors: ProcessorSettings::default(),
            sharing: Sharing::default(),
            site_cache: SiteCache::default(),
            rendezvous: RendezvousSettings::default(),
            metrics: Metrics::default(),
            plugins: default_tree(),
        }
    }
}

impl Config {
    /// Reads a file, in which `plugins` may be named. `None` if there is none.
    pub fn load(file: &Path, plugins: &Registry) -> Result<Option<Self>, ConfigError> {
        match read(file) {
            Ok(text) => Self::parse(file, &text?, plugins).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ConfigError::of_file(file, &format!("can't be read: {error}"))),
        }
    }

    /// Understands the text of `file`.
    pub fn parse(file: &Path, text: &str, plugins: &Registry) -> Result<Self, ConfigError> {
        let source = ConfigSource::new(file, text);
        let mut top = source.parse()?;
        let config = Self {
            store: section(&mut top, "store")?,
            limits: section(&mut top, "limits")?,
            processors: section(&mut top, "processors")?,
            sharing: section(&mut top, "sharing")?,
            site_cache: section(&mut top, "site_cache")?,
            rendezvous: section(&mut top, "rendezvous")?,
            metrics: section(&mut top, "metrics")?,
            plugins: match top.table("plugins")? {
                Some(table) => plugins::read(table, plugins)?,
                None => default_tree(),
            },
            general: General::read(&mut top)?,
        };
        top.finish()?;
        Ok(config)
    }

    /// Limit of the store's content that nobody holds a lease of.
    pub const fn cache_policy(&self) -> CachePolicy {
        CachePolicy { owned_bytes: self.store.cache.0, referred_files: self.store.referred_files.0 }
    }

    /// The fields that differ from `other` and are looked at only when the service starts.
    pub fn waits_for_restart(&self, other: &Self) -> Vec<String> {
        let [now, then] = [self, other].map(Self::sections);
        let fields = now.iter().zip(&then).flat_map(|((name, now), (_, then))| {
            now.iter().zip(then).map(move |(now, then)| (source::full_name(name, now.name), now, then))
        });
        let waiting = fields.filter(|(_, now, then)| !now.is_live && now.value != then.value);
        waiting.map(|(name, ..)| name).collect()
    }
}

fn section<S: Section>(top: &mut ConfigTable<'_>, name: &'static str) -> Result<S, ConfigError> {
    match top.table(name)? {
        Some(mut table) => {
            let section = S::read(&mut table)?;
            table.finish()?;
            Ok(section)
        }
        None => Ok(S::default()),
    }
}

/// The text of a file that only its owner and root can have written, or put in its place.
fn read(path: &Path) -> std::io::Result<Result<String, ConfigError>> {
    let mut file = std::fs::File::open(path)?;
    let metadata = file.metadata()?;
    let refuse = |problem: &str| Ok(Err(ConfigError::of_file(path, problem)));
    if !metadata.is_file() {
        return refuse("is not a file");
    }
    if let Some(problem) = exposed(path, &metadata)? {
        return refuse(&problem);
    }
    if metadata.len() > MAX_FILE {
        return refuse("is too large for a configuration: more than 1M");
    }
    let mut text = String::new();
    match file.by_ref().take(MAX_FILE).read_to_string(&mut text) {
        Ok(_) => Ok(Ok(text)),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => refuse("is not text in UTF-8"),
        Err(error) => Err(error),
    }
}

/// True if others than its owner may write to it. A group with the number of the owner is the one that
/// many systems give to each user alone, and let write by default.
const fn others_write(mode: u32, owner: u32, group: u32) -> bool {
    mode & ALL_WRITE != 0 || (mode & GROUP_WRITES != 0 && group != owner)
}

/// User or group that may change the opened file, which was found at `path`; `None` if nobody else.
fn exposed(path: &Path, file: &Metadata) -> std::io::Result<Option<String>> {
    let own = rustix::process::geteuid().as_raw();
    let is_trusted = |metadata: &Metadata| metadata.uid() == own || metadata.uid() == 0;
    if !is_trusted(file) {
        return Ok(Some("belongs to another user; it must be your own, or root's".into()));
    }
    if others_write(file.mode(), file.uid(), file.gid()) {
        return Ok(Some("can be written by others; run: chmod go-w".into()));
    }
    if !is_trusted(&path.symlink_metadata()?) {
        return Ok(Some("is a link that belongs to another user".into()));
    }
    // The folder of the name, and that of the file if the name is a link.
    let real = path.canonicalize()?;
    for folder in [path, &real].into_iter().filter_map(Path::parent) {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let metadata = folder.metadata()?;
        let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
        let is_shared = mode & STICKY == 0 && others_write(mode, uid, gid);
        if is_shared || !is_trusted(&metadata) {
            let shown = display_name(folder.as_os_str().as_encoded_bytes());
            return Ok(Some(format!("lies in a folder that others can write to: {shown}; run: chmod go-w")));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("c.toml"), text, &Registry::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(parse(""), Ok(Config::default()));
        assert_eq!(parse("[limits]\n[store]\n"), Ok(Config::default()));
        assert_eq!(Config::default().cache_policy(), CachePolicy::default());
    }

    #[test]
    fn every_section_is_read() {
        let config = parse(
            "listen = [\"192.0.2.1:7000\", \"[::1]:7000\"]\nlimit_rate = \"10M\"\nlog_level = \"debug\"\n\
             [store]\ncache = \"500M\"\n[limits]\nconnections = 7\n[metrics]\nlisten = \"127.0.0.1:9464\"\n\
             [plugins]\nplugin = \"direct\"\nconnections = 2\n",
        );
        let config = config.unwrap();
        assert_eq!(config.general.listen.len(), 2);
        assert_eq!((config.general.limit_rate.0, config.general.log_level), (10 << 20, LogLevel::Debug));
        assert_eq!((config.cache_policy().owned_bytes, config.limits.connections.0), (500 << 20, 7));
        assert_eq!(config.metrics.listen, Some("127.0.0.1:9464".parse().unwrap()));
        assert_eq!(config.plugins.plugin(), "direct");
        let config = parse(
            "[processors]\ncompression = \"always\"\nrefuse_names = [\"*.exe\"]\nrefuse_larger = \"1G\"\n\
             refuse_labels = [\"a\", \"b\"]\nlabel = \"c\"\n",
        );
        let processors = config.unwrap().processors;
        let rules = processors.rules();
        assert_eq!(processors.wishes(), ["compress"]);
        assert_eq!((rules.names.len(), rules.largest, rules.labels.len()), (1, Some(1 << 30), 2));
        assert_eq!(rules.own_label.as_deref(), Some("c"));
    }

    #[test]
    fn errors_name_file_line_field_and_what_would_be_right() {
        let table = [
            (
                "\n[limits]\nconnections = \"many\"\n",
                "c.toml:3: limits.connections: \"many\" is not a whole number from 1 to 1000000000",
            ),
            (
                "[limits]\nconnections = 0",
                "c.toml:2: limits.connections: 0 is not a whole number from 1 to 1000000000",
            ),
            (
                "listen = \"x\"",
                "c.toml:1: listen: \"x\" is not a list of addresses, as in [\"192.0.2.1:7000\"]",
            ),
            (
                "\nlisten = [\"127.0.0.1\"]",
                "c.toml:2: listen: \"127.0.0.1\" is not an address with a port, as in \"192.0.2.1:7000\"",
            ),
            (
                "index = [\"/a\", \"b\"]",
                "c.toml:1: index: \"b\" is not the absolute path of a directory, as in \"/home/ann/pictures\"",
            ),
            (
                "log_level = \"loud\"",
                "c.toml:1: log_level: \"loud\" is not one of \"error\", \"warn\", \"info\", \"debug\", \"trace\"",
            ),
            ("[metrics]\nport = 1", "c.toml:2: metrics.port: there is no such field; [metrics] has: listen"),
            (
                "[store]\ncash = 1\n",
                "c.toml:2: store.cash: there is no such field; [store] has: cache, referred_files, bytes, bytes_endpoint, bytes_region, bytes_credentials, bytes_read_ahead, bytes_spool",
            ),
            (
                "[store]\nbytes = \"s3://B\"\n",
                "c.toml:2: store.bytes: \"s3://B\" is not the absolute path of a directory, nor s3://BUCKET/PREFIX (a \
                 bucket's name has 3 to 63 of a-z, 0-9, '-' and '.')",
            ),
            (
                "[store]\nbytes_endpoint = \"s3.example.org\"\n",
                "c.toml:2: store.bytes_endpoint: \"s3.example.org\" is not a URL of a server, as in \
                 \"https://s3.example.org\"",
            ),
            ("limits = 3", "c.toml:1: limits: 3 is not a table; write [limits] above its fields"),
            (
                "\n\n[plugins]\nplugin = \"multipath\"",
                "c.toml:4: plugins.plugin: this build has no plugin 'multipath'; it has: adaptive, cascade, dealer, direct, hints, local, mirrors, \
                 takeover",
            ),
            (
                "[processors]\ncompression = \"sometimes\"",
                "c.toml:2: processors.compression: \"sometimes\" is not one of \"never\", \"asked\", \"always\"",
            ),
            (
                "[processors]\nrefuse_names = [\"*.exe\", \"a[\"]",
                "c.toml:2: processors.refuse_names: \"a[\" is not a pattern of names, as in \"*.exe\" or \
                 \"private/*\"",
            ),
            (
                "[processors]\nlabel = \"\"",
                "c.toml:2: processors.label: \"\" is not a text of 1 to 1024 bytes",
            ),
            (
                "[plugins]\nconnections = 1",
                "c.toml:1: plugins: says no 'plugin'; this build has: adaptive, cascade, dealer, direct, hints, local, mirrors, takeover",
            ),
            (
                "[plugins]\nplugin = \"cascade\"\nof = [\n  { plugin = \"local\" },\n  { plugin = \"direct\", connections = 99 },\n]",
                "c.toml:5: plugins.of.1.connections: 99 is not a whole number from 1 to 16",
            ),
            (
                "[plugins]\nplugin = \"cascade\"\nof = []",
                "c.toml:3: plugins.of: an empty list is not a list of plugins, as in [{ plugin = \"local\" }]",
            ),
            (
                "[plugins]\nplugin = \"takeover\"\nfirst = { plugin = \"local\" }",
                "c.toml:1: plugins: 'better' is missing, a plugin, as in { plugin = \"local\" }",
            ),
            (
                "[plugins]\nplugin = \"local\"\nspeed = 1",
                "c.toml:3: plugins.speed: there is no such field; the plugin 'local' has none",
            ),
        ];
        for (text, error) in table {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_line() {
        let error = parse("a = 1\nb = = 2\n").unwrap_err();
        assert!(error.starts_with("c.toml:2: "), "{error}");
        let twice = parse("grace = 1\ngrace = 2\n").unwrap_err();
        assert!(twice.starts_with("c.toml:2: "), "{twice}");
    }

    #[test]
    fn only_a_file_of_the_users_own_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        assert_eq!(Config::load(&file, &Registry::default()).unwrap(), None);
        std::fs::write(&file, "grace = 3\n").unwrap();
        assert_eq!(
            Config::load(&file, &Registry::default()).unwrap().unwrap().general.grace,
            ConfigSeconds(3)
        );
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
        };
        set(&file, 0o646);
        let error = Config::load(&file, &Registry::default()).unwrap_err().to_string();
        assert!(error.contains("config.toml") && error.contains("chmod go-w"), "{error}");
        set(&file, 0o644);
        // Writers of its folder may put another file there; where that is sticky they may not.
        for (mode, is_refused) in [(0o777, true), (0o702, true), (0o1777, false), (0o700, false)] {
            set(dir.path(), mode);
            assert_eq!(Config::load(&file, &Registry::default()).is_err(), is_refused, "{mode:o}");
        }
        std::fs::write(&file, [b'a', 0xff]).unwrap();
        assert!(Config::load(&file, &Registry::default()).unwrap_err().to_string().contains("UTF-8"));
        assert!(
            Config::load(dir.path(), &Registry::default()).unwrap_err().to_string().contains("not a file")
        );
    }

    #[test]
    fn a_group_that_is_not_the_owners_alone_is_others() {
        for (mode, owner, group, others) in [
            (0o600, 1000, 100, false),
            (0o644, 1000, 100, false),
            (0o664, 1000, 1000, false),
            (0o664, 1000, 100, true),
            (0o664, 0, 4, true),
            (0o646, 1000, 1000, true),
        ] {
            assert_eq!(others_write(mode, owner, group), others, "{mode:o} {owner} {group}");
        }
    }

    #[test]
    fn what_waits_for_a_restart_is_named() {
        let old = Config::default();
        let new =
            parse("listen = [\"127.0.0.1:1\"]\ngrace = 3\n[metrics]\nlisten = \"127.0.0.1:2\"\n").unwrap();
        assert_eq!(old.waits_for_restart(&new), ["listen", "metrics.listen"]);
        assert!(old.waits_for_restart(&parse("limit_rate = 5").unwrap()).is_empty());
    }
}
