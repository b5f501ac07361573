//! Paths that a kind of work may write. Decided from paths alone; how they lead through links is looked
//! up once, before.

use std::path::{Component, Path, PathBuf};

use towpath_config::Home;

/// System directories: nothing arrives there that a person asks for, and what is written becomes the system's own.
/// A daemon leaves them alone unless its configuration names them.
const SYSTEM: [&str; 16] = [
    "/bin", "/boot", "/dev", "/efi", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/proc", "/root",
    "/run", "/sbin", "/sys", "/usr",
];
/// In a folder of the system's, but a person's: removable disks, folders of sessions, and memory that is used as a disk.
const WITHIN_SYSTEM: [&str; 3] = ["/run/media", "/run/user", "/dev/shm"];

/// Paths that this process writes whatever its work is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Its own folders: state, index, objects. Not that of its key and its configuration.
    pub own: Vec<PathBuf>,
    /// Directory of the system's temporaries.
    pub temporary: PathBuf,
}

impl Places {
    /// Those of a service with this home, whose folders must be there.
    pub fn of(home: &Home) -> Self {
        Self { own: vec![home.state().into(), home.data().into()], temporary: std::env::temp_dir() }
    }
}

/// Paths that may be written: everything else may only be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writable {
    /// In and below these everything may be done.
    wholly: Vec<PathBuf>,
    /// Here files may be written, but neither folders nor links made.
    temporary: Vec<PathBuf>,
    /// In and below these files may be removed, and nothing else.
    removable: Vec<PathBuf>,
}

impl Writable {
    /// The sending side of a copy; `removed` are the sources whose files are removed once they have
    /// arrived.
    pub fn of_sender(places: &Places, removed: &[PathBuf]) -> Self {
        let removable = removed.iter().map(|source| folder_of(&landing(source))).collect();
        Self { removable, ..Self::bare(places) }
    }

    /// The receiving side of a copy to `destination`; without one, in a dry run, it writes nothing of
    /// it. `backups` is where what is replaced is moved, if that was said: relative to the destination.
    pub fn of_receiver(places: &Places, destination: Option<&Path>, backups: Option<&Path>) -> Self {
        let mut writable = Self::bare(places);
        let Some(destination) = destination else { return writable };
        let folder = folder_of(&landing(destination));
        if let Some(backups) = backups.filter(|backups| leaves(backups)) {
            writable.wholly.push(existing(&landing(&folder.join(backups))));
        }
        writable.wholly.push(folder);
        writable
    }

    /// A daemon: below `listed`, its configuration's own list. If that is empty, below the person's
    /// `home` and all folders of the root, `top`, but those of the system.
    pub fn of_daemon(
        places: &Places,
        runtime: &Path,
        listed: &[PathBuf],
        home: Option<&Path>,
        top: &[PathBuf],
    ) -> Self {
        let mut writable = Self::bare(places);
        writable.wholly.push(runtime.into());
        match listed {
            [] => {
                writable.wholly.extend(home.map(Path::to_path_buf));
                writable.wholly.extend(top.iter().filter(|folder| !is_system(folder)).cloned());
                writable.wholly.extend(WITHIN_SYSTEM.iter().map(PathBuf::from));
            }
            listed => writable.wholly.extend(listed.iter().cloned()),
        }
        writable
    }

    fn bare(places: &Places) -> Self {
        Self { wholly: places.own.clone(), temporary: vec![places.temporary.clone()], removable: Vec::new() }
    }

    /// The same, and everything in and below `folder`.
    #[must_use]
    pub fn with_folder(mut self, folder: PathBuf) -> Self {
        self.wholly.push(folder);
        self
    }

    /// True if a new file at `path` may be made: where links lead now, and where the kernel will look.
    pub fn takes(&self, path: &Path) -> bool {
        let path = landing(path);
        self.wholly.iter().any(|folder| path.starts_with(landing(folder)))
    }

    /// In and below these everything may be done.
    pub fn wholly(&self) -> &[PathBuf] {
        &self.wholly
    }

    /// Here files may be written, but neither folders nor links made.
    pub fn temporary(&self) -> &[PathBuf] {
        &self.temporary
    }

    /// In and below these files may be removed.
    pub fn removable(&self) -> &[PathBuf] {
        &self.removable
    }
}

/// The folders of the root directory, as they are.
pub fn top_folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/").into_iter().flatten().flatten();
    entries.map(|entry| landing(&entry.path())).filter(|path| path.is_dir()).collect()
}

fn is_system(folder: &Path) -> bool {
    SYSTEM.iter().any(|system| folder.starts_with(system))
}

/// True if a path leads out of the directory that it is relative to.
fn leaves(path: &Path) -> bool {
    !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// The directory in which what lies at `path`, or is to lie there, gets its name.
fn folder_of(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.into(),
        false => path.parent().unwrap_or(path).into(),
    }
}

/// The nearest folder above that is there: all folders down to `path` will be made.
fn existing(path: &Path) -> PathBuf {
    path.ancestors().find(|path| path.is_dir()).unwrap_or(path).into()
}

/// Target of a path: through links to directories, and as it is written where nothing is yet. A link
/// to anything else is what lies there, as it is replaced and not followed.
fn landing(path: &Path) -> PathBuf {
    let here = match path.is_absolute() {
        true => PathBuf::new(),
        false => std::env::current_dir().unwrap_or_default(),
    };
    path.components().fold(here, |mut at, part| match part {
        Component::ParentDir => {
            at.pop();
            at
        }
        Component::CurDir => at,
        part => {
            at.push(part);
            let leads = at.canonicalize().ok().filter(|to| to.is_dir());
            leads.unwrap_or(at)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn places() -> Places {
        Places { own: vec!["/own".into()], temporary: "/temporary".into() }
    }

    /// Paths that it may write besides its own, below `root`.
    fn besides(writable: &Writable, root: &Path) -> Vec<String> {
        let below = |path: &PathBuf| path.strip_prefix(root).ok().map(|path| path.display().to_string());
        let mut found: Vec<_> = writable.wholly().iter().filter_map(below).collect();
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn a_receiver_writes_its_destination_or_the_folder_that_gets_it() {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("parent/there")).unwrap();
        fs::create_dir(root.join("elsewhere")).unwrap();
        fs::write(root.join("parent/file"), b"").unwrap();
        symlink("../elsewhere", root.join("parent/link")).unwrap();
        symlink("../elsewhere/none", root.join("parent/lost")).unwrap();
        for (destination, folder) in [
            ("parent/there", "parent/there"),
            ("parent/there/", "parent/there"),
            ("parent/there/.", "parent/there"),
            ("parent/there/..", "parent"),
            ("parent/new", "parent"),
            ("parent/new/", "parent"),
            ("parent/file", "parent"),
            ("parent/link", "elsewhere"),
            ("parent/link/new", "elsewhere"),
            ("parent/link/..", ""),
            ("parent/lost", "parent"),
        ] {
            let writable = Writable::of_receiver(&places(), Some(&root.join(destination)), None);
            assert_eq!(besides(&writable, &root), [folder], "{destination}");
        }
        let dry = Writable::of_receiver(&places(), None, Some(Path::new("../old")));
        assert_eq!(dry, Writable::of_sender(&places(), &[]), "a dry run writes its records alone");
    }

    #[test]
    fn backups_elsewhere_are_written_and_those_within_are_nothing_more() {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("parent/there")).unwrap();
        fs::create_dir(root.join("old")).unwrap();
        let absolute = root.join("old/a/b");
        for (backups, folders) in [
            ("old", &["parent/there"][..]),
            ("../../old", &["old", "parent/there"]),
            ("../new/x", &["parent", "parent/there"]),
            (absolute.to_str().unwrap(), &["old", "parent/there"]),
        ] {
            let destination = root.join("parent/there");
            let writable = Writable::of_receiver(&places(), Some(&destination), Some(Path::new(backups)));
            assert_eq!(besides(&writable, &root), folders, "{backups}");
        }
    }

    #[test]
    fn a_sender_writes_nothing_and_removes_only_if_asked_to() {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path().canonicalize().unwrap();
        fs::create_dir(root.join("dir")).unwrap();
        fs::write(root.join("file"), b"").unwrap();
        let none = Writable::of_sender(&places(), &[]);
        assert_eq!((none.wholly(), none.removable().len()), (&["/own".into()][..], 0));
        let some = Writable::of_sender(&places(), &[root.join("dir"), root.join("file")]);
        assert_eq!(some.removable(), [root.join("dir"), root]);
        assert_eq!(some.wholly(), none.wholly());
    }

    #[test]
    fn a_daemon_writes_where_people_put_things_unless_its_configuration_says_where() {
        let top = ["/data", "/etc", "/home", "/lib64", "/opt", "/root", "/run", "/srv", "/tmp", "/usr"];
        let (top, runtime) = (top.map(PathBuf::from), Path::new("/run/user/1/towpath"));
        let any = Writable::of_daemon(&places(), runtime, &[], Some(Path::new("/root")), &top);
        for (path, expected) in [
            ("/data/x", true),
            ("/home/ann/x", true),
            ("/opt/x", true),
            ("/root/x", true),
            ("/run/media/ann/disk/x", true),
            ("/dev/shm/x", true),
            ("/dev/null", false),
            ("/etc/cron.d/x", false),
            ("/usr/bin/x", false),
            ("/run/systemd/system/x", false),
            ("/x", false),
        ] {
            assert_eq!(any.takes(Path::new(path)), expected, "{path}");
        }
        let some =
            Writable::of_daemon(&places(), runtime, &["/srv/in".into()], Some(Path::new("/root")), &top);
        for (path, expected) in
            [("/srv/in/x", true), ("/srv/other", false), ("/root/x", false), ("/data/x", false)]
        {
            assert_eq!(some.takes(Path::new(path)), expected, "{path}");
        }
    }
}
