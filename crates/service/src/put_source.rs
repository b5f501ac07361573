//! Source of a put or a share: one path as it is, or several as one tree, in which each has its last name. Filter
//! rules may leave out parts of it.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use towpath_api::{ApiError, ErrorKind, ToldMetadata};
use towpath_content::tree::{Entry, Kind, Metadata, Time};
use towpath_files::filter::FilterBelow;
use towpath_files::metadata::{is_privileged, tells_origin};
use towpath_files::names::check_name;
use towpath_files::{
    Filter, FilterSide, Found, HardLinks, RelPath, RuleList, ScanError, ScanOptions, Scanned, display_name,
    look, scan_pruned,
};
use towpath_store::{About, ObjectKind};

use towpath_words as words;

/// The name of a tree that is made of several paths.
const SHARED: &str = "shared";
/// Its permission bits.
const SHARED_MODE: u32 = 0o755;

/// Paths that become one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutSource {
    /// Absolute, without symbolic links; sorted by their last names, of which none is there twice.
    paths: Vec<PathBuf>,
    filters: Vec<Vec<u8>>,
    name: Option<String>,
    told: ToldMetadata,
}

/// A step of reading the paths as one tree.
pub(crate) enum PutStep {
    /// The tree that several paths are in begins.
    Top(Entry),
    /// As a scan tells it; the directory of a path has its last name.
    Scanned(Scanned),
    /// That tree ends.
    End,
}

impl PutSource {
    /// Looks for the paths; `name` is what receivers call the object, if not as it is called here.
    pub fn new(paths: &[PathBuf], filters: &[Vec<u8>], name: Option<String>) -> Result<Self, ApiError> {
        let whole = |path: &PathBuf| path.canonicalize().map_err(|error| words::io("put", path, &error));
        let mut paths = paths.iter().map(whole).collect::<Result<Vec<_>, _>>()?;
        RuleList::from_lines(filters).map_err(|error| usage(error.to_string()))?;
        name.as_ref().map_or(Ok(()), |name| check(name))?;
        paths.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
        paths.dedup();
        if let Some([one, other]) =
            paths.array_windows().find(|[one, next]| one.file_name() == next.file_name())
        {
            let shown = |path: &Path| display_name(path.as_os_str().as_bytes());
            let message = format!("{} and {} have the same last name", shown(one), shown(other));
            return Err(usage(message).hint("share them one by one, or the directory that both are in"));
        }
        Ok(Self { paths, filters: filters.to_vec(), name, told: ToldMetadata::default() })
    }

    /// The same with other metadata of entries.
    #[must_use]
    pub const fn telling(mut self, told: ToldMetadata) -> Self {
        self.told = told;
        self
    }

    /// One path, all of it.
    pub fn of(path: &Path) -> Result<Self, ApiError> {
        Self::new(&[path.to_path_buf()], &[], None)
    }

    /// The path that says all: it can be read again by that alone.
    pub(crate) fn plain(&self) -> Option<&Path> {
        let has_more = !self.filters.is_empty() || self.name.is_some() || !self.told.is_default();
        let is_plain = self.paths.len() == 1 && !has_more;
        self.paths.first().filter(|_| is_plain).map(PathBuf::as_path)
    }

    /// The path of the first; of a file that is the only one.
    pub(crate) fn first(&self) -> &Path {
        self.paths.first().map_or(Path::new("/"), PathBuf::as_path)
    }

    /// Names all that is put, for records.
    pub fn key(&self) -> PathBuf {
        if let Some(path) = self.plain() {
            return path.to_path_buf();
        }
        let paths = self.paths.iter().map(|path| path.as_os_str().as_bytes());
        let rules = self.filters.iter().map(Vec::as_slice);
        let name = self.name.iter().map(String::as_bytes);
        let parts: Vec<_> = paths.chain([&b""[..]]).chain(rules).chain([&b""[..]]).chain(name).collect();
        let mut key = parts.join(&0);
        if !self.told.is_default() {
            key.extend_from_slice(format!("\0{:?}", self.told).as_bytes());
        }
        OsString::from_vec(key).into()
    }

    /// Description of it for receivers, and the bytes of a file.
    pub(crate) fn describe(&self) -> Result<(About, u64), ApiError> {
        let [path] = &self.paths[..] else { return Ok((self.of_several()?, 0)) };
        let metadata = metadata(path)?;
        let own_name = path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        let shown = RelPath::new([&own_name]).ok();
        if metadata.is_file() && shown.is_some_and(|name| !self.filter().shows(&name, false)) {
            return Err(usage(format!("{} is left out by the filters", display_name(&own_name))));
        }
        let about = About {
            kind: if metadata.is_dir() { ObjectKind::Tree } else { ObjectKind::Blob },
            name: self.name.as_ref().map_or(own_name, |name| name.clone().into_bytes()),
            mode: Some(metadata.mode() & 0o7777),
            modified: Some(modified(&metadata)),
        };
        Ok((about, metadata.size()))
    }

    fn of_several(&self) -> Result<About, ApiError> {
        let mut newest = None;
        for path in &self.paths {
            if path.file_name().is_none() {
                return Err(usage(format!("{} has no name of its own: put it alone", path.display())));
            }
            newest = newest.max(Some(modified(&metadata(path)?)));
        }
        let name = self.name.as_deref().unwrap_or(SHARED).as_bytes().to_vec();
        Ok(About { kind: ObjectKind::Tree, name, mode: Some(SHARED_MODE), modified: newest })
    }

    fn filter(&self) -> Filter {
        let rules = RuleList::from_lines(&self.filters).unwrap_or_default();
        Filter::new(rules, FilterSide::Sender, false)
    }

    /// Reads all of it as one tree, in the order of a descriptor, and tells each step with the directory that the paths
    /// of the tree are below.
    pub(crate) fn scan(
        &self,
        about: &About,
        each: &mut dyn FnMut(&Path, PutStep) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let mut walk = PutWalk { filter: self.filter(), told: self.told, links: HardLinks::default() };
        if let [path] = &self.paths[..] {
            return walk.scan(path, &RelPath::root(), &mut |step| each(path, PutStep::Scanned(step)));
        }
        each(self.first(), PutStep::Top(top(about)))?;
        for path in &self.paths {
            walk.one_of_several(path, each)?;
        }
        each(self.first(), PutStep::End)
    }
}

/// State of reading one path after the other.
struct PutWalk {
    filter: Filter,
    told: ToldMetadata,
    /// Groups of names go on from path to path.
    links: HardLinks,
}

impl PutWalk {
    /// Reads a path under its last name, if the filter shows it.
    fn one_of_several(
        &mut self,
        path: &Path,
        each: &mut dyn FnMut(&Path, PutStep) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let (base, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
        let shown = RelPath::new([name.as_bytes()]).map_err(|error| words::file(&error))?;
        let mut found = look(path, &self.options()).map_err(|error| words::file(&error))?;
        let is_dir = found.entry.kind == Kind::Directory;
        if !self.filter.shows(&shown, is_dir) {
            return Ok(());
        }
        if !is_dir {
            if self.told.hard_links {
                self.links.number(&mut found);
            }
            withhold(&mut found, self.told);
            return each(base, PutStep::Scanned(Scanned::Leaf(found)));
        }
        let mut top = Some(found.entry.name);
        self.scan(path, &shown, &mut |mut step| {
            if let (Scanned::Enter(found), Some(name)) = (&mut step, top.take()) {
                found.entry.name = name;
            }
            each(base, PutStep::Scanned(step))
        })
    }

    fn scan(
        &mut self,
        path: &Path,
        top: &RelPath,
        visit: &mut dyn FnMut(Scanned) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let (options, told) = (self.options(), self.told);
        let visit = &mut |mut step| {
            if let Scanned::Enter(found) | Scanned::Leaf(found) = &mut step {
                withhold(found, told);
            }
            visit(step)
        };
        let prune = &mut FilterBelow::new(top, &mut self.filter);
        scan_pruned(path, &options, &mut self.links, prune, visit).map_err(|error| match error {
            ScanError::Root(error) => words::file(&error),
            ScanError::Stopped(error) => error,
        })
    }

    fn options(&self) -> ScanOptions {
        let ToldMetadata { owner_names, hard_links, acls, xattrs, .. } = self.told;
        ScanOptions { owner_names, hard_links, acls, xattrs, ..ScanOptions::default() }
    }
}

/// Takes off attributes that strangers are told only if their owner says so.
fn withhold(found: &mut Found, told: ToldMetadata) {
    let is_kept = |name: &[u8]| told.all_xattrs || !is_privileged(name) && !tells_origin(name);
    found.entry.metadata.xattrs.retain(|xattr| is_kept(&xattr.name));
}

/// Fails unless receivers could call it so.
fn check(name: &str) -> Result<(), ApiError> {
    let wrong = |why| usage(format!("{} is no name: {why}", display_name(name.as_bytes())));
    check_name(name.as_bytes()).map_err(wrong)
}

/// Of a file or a directory; nothing else is put by its path.
fn metadata(path: &Path) -> Result<std::fs::Metadata, ApiError> {
    let metadata = path.metadata().map_err(|error| words::io("put", path, &error))?;
    if !metadata.is_dir() && !metadata.is_file() {
        let message = format!("{} is neither a file nor a directory", path.display());
        return Err(usage(message).hint("to put a stream, pipe it into 'tow put -'"));
    }
    Ok(metadata)
}

/// The root of a tree that is nowhere on disk.
fn top(about: &About) -> Entry {
    let (mode, modified) = (about.mode.unwrap_or(SHARED_MODE), about.modified.unwrap_or_default());
    let metadata = Metadata { mode, modified, ..Metadata::default() };
    Entry { name: Vec::new(), kind: Kind::Directory, metadata, hard_link: None }
}

fn modified(metadata: &std::fs::Metadata) -> Time {
    Time { seconds: metadata.mtime(), nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0) }
}

fn usage(message: String) -> ApiError {
    ApiError::new(ErrorKind::Usage, message)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::SocketAddr;
    use std::sync::Arc;

    use towpath_api::GetRequest;
    use towpath_config::Home;
    use towpath_content::Oid;
    use towpath_targets::spool::Spool;
    use towpath_transfer::want::Coverage;
    use towpath_transfer::{FetchError, Fetched, Group, ObjectRequest};

    use super::*;
    use crate::getting::GetUnderWay;
    use crate::{Options, Service};

    fn source(folder: &Path, names: &[&str], filters: &[&str]) -> Result<PutSource, ApiError> {
        let paths: Vec<_> = names.iter().map(|name| folder.join(name)).collect();
        let filters: Vec<_> = filters.iter().map(|rule| rule.as_bytes().to_vec()).collect();
        PutSource::new(&paths, &filters, None)
    }

    /// Entries that a scan tells: directories with a slash, and `-` where one ends.
    fn told(source: &PutSource) -> String {
        let (about, _) = source.describe().unwrap();
        let mut told = Vec::new();
        let each = &mut |_: &Path, step: PutStep| {
            let name = |entry: &Entry| String::from_utf8(entry.name.clone()).unwrap();
            told.push(match &step {
                PutStep::Top(entry) => format!("{}/", name(entry)),
                PutStep::Scanned(Scanned::Enter(found)) => format!("{}/", name(&found.entry)),
                PutStep::Scanned(Scanned::Leaf(found)) => name(&found.entry),
                PutStep::Scanned(Scanned::Leave) | PutStep::End => "-".into(),
                PutStep::Scanned(Scanned::Failed(error)) => error.to_string(),
            });
            Ok(())
        };
        source.scan(&about, each).unwrap();
        told.join(" ")
    }

    #[test]
    fn several_paths_are_one_tree_less_what_rules_leave_out() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("dir/sub")).unwrap();
        for name in ["dir/sub/a.o", "dir/b", "file", "x.o"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let names = &["x.o", "file", "dir"][..];
        assert_eq!(told(&source(folder.path(), names, &[]).unwrap()), "/ dir/ b sub/ a.o - - file x.o -");
        assert_eq!(told(&source(folder.path(), names, &["- *.o"]).unwrap()), "/ dir/ b sub/ - - file -");
        assert_eq!(told(&source(folder.path(), names, &["- /dir/sub"]).unwrap()), "/ dir/ b - file x.o -");
        // Of one directory the patterns begin in it, as what receivers see does.
        assert_eq!(told(&source(folder.path(), &["dir"], &["- /sub"]).unwrap()), "/ b -");
        // Rules in the tree are read as well.
        fs::write(folder.path().join("dir/.rules"), "- b\n").unwrap();
        assert_eq!(
            told(&source(folder.path(), &["dir"], &[": .rules", "- .rules"]).unwrap()),
            "/ sub/ a.o - -"
        );
        let error = source(folder.path(), &["x.o"], &["- *.o"]).unwrap().describe().unwrap_err();
        assert_eq!((error.kind, &*error.message), (ErrorKind::Usage, "x.o is left out by the filters"));
    }

    #[test]
    fn what_is_put_is_named_by_all_that_says_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("other")).unwrap();
        for name in ["a", "b", "other/a"] {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let key = |names: &[&str], filters: &[&str]| source(folder.path(), names, filters).unwrap().key();
        assert_eq!(key(&["a"], &[]), folder.path().canonicalize().unwrap().join("a"));
        assert_eq!(key(&["a", "b"], &[]), key(&["b", "a", "a"], &[]));
        let keys = [key(&["a"], &[]), key(&["a", "b"], &[]), key(&["a"], &["- b"]), key(&["a"], &["- c"])];
        assert!((1..keys.len()).all(|end| !keys[..end].contains(&keys[end])), "{keys:?}");
        let error = source(folder.path(), &["a", "other/a"], &[]).unwrap_err();
        assert!(error.message.contains("have the same last name"), "{error}");
    }

    #[test]
    fn owners_names_and_where_files_came_from_are_told_only_where_asked() {
        use std::process::Command;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        fs::hard_link(&path, folder.path().join("same")).unwrap();
        for name in ["user.note", "user.xdg.origin.url"] {
            let set = Command::new("setfattr").args(["-n", name, "-v", "x"]).arg(&path).status();
            if !set.is_ok_and(|status| status.success()) {
                println!("skipped: no setfattr, or no attributes here");
                return;
            }
        }
        let found = |told: ToldMetadata| {
            let source = source(folder.path(), &["file", "same"], &[]).unwrap().telling(told);
            let (about, _) = source.describe().unwrap();
            let mut entries = Vec::new();
            let each = &mut |_: &Path, step: PutStep| {
                if let PutStep::Scanned(Scanned::Leaf(found)) = step {
                    entries.push(found.entry);
                }
                Ok(())
            };
            source.scan(&about, each).unwrap();
            let metadata = &entries[0].metadata;
            let names = metadata.xattrs.iter().map(|xattr| String::from_utf8_lossy(&xattr.name).into_owned());
            let names: Vec<_> = names.filter(|name| name.starts_with("user.")).collect();
            let links = entries.iter().map(|entry| entry.hard_link).collect::<Vec<_>>();
            (metadata.user.name.is_empty(), names.join(" "), links)
        };
        let plain = ToldMetadata::default();
        assert_eq!(found(plain), (true, "user.note".into(), vec![Some(0), Some(0)]));
        let all = ToldMetadata { owner_names: true, all_xattrs: true, hard_links: false, ..plain };
        assert_eq!(found(all), (false, "user.note user.xdg.origin.url".into(), vec![None, None]));
        let none = ToldMetadata { xattrs: false, ..plain };
        assert_eq!(found(none).1, "");
    }

    /// Asks the sender of `ticket` for an object of its tree.
    async fn ask(receiver: &Arc<Service>, ticket: &str, content: &[u8]) -> Result<Fetched, FetchError> {
        let request =
            GetRequest { ticket: ticket.into(), timeout: 5, no_search: true, ..GetRequest::default() };
        let get = GetUnderWay::new(receiver, &request).unwrap();
        let group = Group { coverage: Some(Coverage { block: 0 }), ..Group::default() };
        let (oid, size) = (Oid::of(content), Some(content.len() as u64));
        let target = Spool::into_empty(tempfile::tempfile().unwrap());
        let session = get.session();
        session.fetch(ObjectRequest { oid, size, group: Arc::new(group), target, recipe: None }).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_left_out_is_not_served_to_who_knows_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let (public, private) = (vec![1; 5000], vec![2; 5000]);
        fs::write(tree.join("public"), &public).unwrap();
        fs::write(tree.join("private"), &private).unwrap();
        let service =
            |name: &str| Service::open(Home::under(&folder.path().join(name)), Options::default()).unwrap();
        let (sender, receiver) = (service("sender"), service("receiver"));
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        sender.door.listen(b"test", &[loopback]).await.unwrap();
        sender.door.open();
        let terms = towpath_content::ticket::Terms::default();
        // It has both, and serves the other one to somebody else.
        let shared =
            crate::put::share(&sender, source(folder.path(), &["tree"], &[]).unwrap(), terms).await.unwrap();
        shared.reading.await.unwrap().unwrap();
        let filtered =
            crate::put::share(&sender, source(folder.path(), &["tree"], &["- private"]).unwrap(), terms)
                .await
                .unwrap();
        let whole = filtered.reading.await.unwrap().unwrap();
        assert_ne!(whole.ticket, shared.reply.ticket);
        ask(&receiver, &whole.ticket, &public).await.unwrap();
        ask(&receiver, &shared.reply.ticket, &private).await.unwrap();
        let refused = ask(&service("another"), &whole.ticket, &private).await.unwrap_err();
        assert!(matches!(refused, FetchError::Ended(_)), "{refused}");
    }
}
