//! Record of what was shared or listened on before, so that the same command gives the same ticket: a
//! receiver that was cut off goes on when the sender comes back.
//!
//! One small JSON file per path in the state folder. It is a help only: without it a new ticket is
//! made. Beside them lie records of tickets that were taken back, and of those that a daemon passes on.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use towpath_content::node_id::hex;
use towpath_content::ticket::BoundSecret;
use towpath_content::{NodeId, Oid};

/// Destinations remembered for each sender.
const MAX_RECEIVED: usize = 64;

/// Reason why a ticket is recorded.
#[derive(Clone, Copy)]
pub enum TicketKind {
    /// It was taken back.
    Withdrawn,
    /// A daemon passes on what came by it.
    PassedOn,
    /// A site's cache has what came by it.
    Cached,
    /// Only so many nodes may fetch by it.
    Limited,
    /// It was shown as a short code.
    Coded,
}

impl TicketKind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Withdrawn => "withdrawn",
            Self::PassedOn => "passed-on",
            Self::Cached => "cached",
            Self::Limited => "limited",
            Self::Coded => "coded",
        }
    }
}

/// Record of a shared path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The object that the ticket names.
    pub oid: Oid,
    /// Its secret, bound to the ticket's terms.
    pub secret: BoundSecret,
}

impl Share {
    /// By its record.
    pub fn of(record: &Value) -> Option<Self> {
        let oid = record.get("oid")?.as_str()?.parse().ok()?;
        let secret = BoundSecret::from_bytes(&unhex(record.get("secret")?.as_str()?)?).ok()?;
        Some(Self { oid, secret })
    }
}

/// The folder of records.
#[derive(Debug, Clone)]
pub struct Shares {
    folder: PathBuf,
}

impl Shares {
    /// Records in `folder`, which is made when needed.
    pub const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn file(&self, kind: &str, name: &[u8]) -> PathBuf {
        let hash = Oid::of(name);
        self.folder.join(format!("{kind}-{}.json", hex(&hash.digest()[..16])))
    }

    /// The last share of `path`.
    pub fn find(&self, path: &Path) -> Option<Share> {
        Share::of(&read(&self.file("share", path.as_os_str().as_bytes()))?)
    }

    /// Records what `path` is shared as.
    pub fn keep(&self, path: &Path, share: &Share) -> std::io::Result<()> {
        let record = json!({
            "path": path.to_string_lossy(),
            "oid": share.oid.to_string(),
            "secret": hex(&share.secret.to_bytes()),
        });
        self.write(&self.file("share", path.as_os_str().as_bytes()), &record)
    }

    /// The port that `user` (a shared path, or the daemon) listened on last.
    pub fn port(&self, user: &[u8]) -> Option<u16> {
        read(&self.file("port", user))?.get("port")?.as_u64()?.try_into().ok()
    }

    /// Records a port.
    pub fn keep_port(&self, user: &[u8], port: u16) -> std::io::Result<()> {
        self.write(&self.file("port", user), &json!({ "port": port }))
    }

    /// Paths that transfers from `node` were written to: what lies there came from it.
    pub fn received(&self, node: &NodeId) -> Vec<PathBuf> {
        let record = read(&self.file("from", &node.0));
        let list =
            record.as_ref().and_then(|record| record.get("into")?.as_array().cloned()).unwrap_or_default();
        list.iter().filter_map(|path| path.as_str()).map(PathBuf::from).collect()
    }

    /// Notes that a transfer from `node` is written to `path`; the oldest of many are forgotten.
    pub fn keep_received(&self, node: &NodeId, path: &Path) -> std::io::Result<()> {
        let mut list = self.received(node);
        list.retain(|known| known != path);
        list.push(path.to_path_buf());
        let newest = &list[list.len().saturating_sub(MAX_RECEIVED)..];
        let names: Vec<_> = newest.iter().filter_map(|path| path.to_str()).collect();
        self.write(&self.file("from", &node.0), &json!({ "into": names }))
    }

    /// True if `node` sent `oid` at some time: then using what is here tells it nothing new.
    pub fn was_sent(&self, node: &NodeId, oid: &Oid) -> bool {
        self.sent(node).join(file_name(oid)).exists()
    }

    /// True if `node` sent anything that [`Self::keep_sent`] noted.
    pub fn has_sent(&self, node: &NodeId) -> bool {
        self.sent(node).exists()
    }

    /// Notes that `node` sent `oid`: an empty file by its name.
    pub fn keep_sent(&self, node: &NodeId, oid: &Oid) -> std::io::Result<()> {
        use std::os::unix::fs::DirBuilderExt;
        let folder = self.sent(node);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        fs::File::create(folder.join(file_name(oid))).map(drop)
    }

    /// Forgets what was sent and is not here any more.
    pub fn forget_sent(&self, is_here: impl Fn(&Oid) -> bool) -> std::io::Result<()> {
        let folder = self.folder.join("sent");
        for node in fs::read_dir(&folder).into_iter().flatten() {
            let node = node?.path();
            for note in fs::read_dir(&node)? {
                let note = note?;
                let oid = note.file_name().to_str().and_then(|name| name.parse().ok());
                if !oid.is_some_and(|oid| is_here(&oid)) {
                    fs::remove_file(note.path())?;
                }
            }
            // Only if nothing is in it.
            let _ = fs::remove_dir(&node);
        }
        Ok(())
    }

    fn sent(&self, node: &NodeId) -> PathBuf {
        self.folder.join("sent").join(hex(&node.0))
    }

    /// Records of tickets, all of a kind.
    pub fn tickets(&self, kind: TicketKind) -> Vec<Value> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_one = |file: &fs::DirEntry| {
            let name = file.file_name();
            name.as_bytes().starts_with(kind.prefix().as_bytes()) && name.as_bytes().ends_with(b".json")
        };
        files.filter(is_one).filter_map(|file| read(&file.path())).collect()
    }

    /// Records one, under a name of its own.
    pub fn keep_ticket(&self, kind: TicketKind, name: &[u8], record: &Value) -> std::io::Result<()> {
        self.write(&self.file(kind.prefix(), name), record)
    }

    /// The record of that name.
    pub fn ticket_as(&self, kind: TicketKind, name: &[u8]) -> Option<Value> {
        read(&self.file(kind.prefix(), name))
    }

    /// Removes the record of that name; one that is left is of no harm.
    pub fn forget_ticket(&self, kind: TicketKind, name: &[u8]) {
        let _ = fs::remove_file(self.file(kind.prefix(), name));
    }

    /// Replaces a record as a whole; it holds a secret, so it is for its owner alone.
    fn write(&self, file: &Path, record: &Value) -> std::io::Result<()> {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let temp = file.with_extension(format!("{}.tmp", std::process::id()));
        let mut out =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
        out.write_all(record.to_string().as_bytes())?;
        out.sync_all()?;
        fs::rename(&temp, file)
    }
}

/// Bytes by their hexadecimal digits.
pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(value(*high)? << 4 | value(*low)?)).collect()
}

fn file_name(oid: &Oid) -> String {
    oid.to_string()
}

fn read(file: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use towpath_content::ticket::{Secret, Terms};

    #[test]
    fn a_share_comes_back_for_its_path_alone_and_nobody_else_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let shares = Shares::new(dir.path().join("shares"));
        let share = Share { oid: Oid::Live([3; 32]), secret: Secret([7; 16]).into() };
        assert_eq!(shares.find(Path::new("/a")), None);
        shares.keep(Path::new("/a"), &share).unwrap();
        assert_eq!(shares.find(Path::new("/a")), Some(share));
        assert_eq!(shares.find(Path::new("/b")), None);
        for entry in fs::read_dir(dir.path().join("shares")).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o077, 0);
        }
    }

    #[test]
    fn the_newest_destinations_of_each_sender_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let shares = Shares::new(dir.path().to_path_buf());
        let node = NodeId([1; 32]);
        for number in 0..MAX_RECEIVED + 5 {
            shares.keep_received(&node, &PathBuf::from(format!("/d{number}"))).unwrap();
        }
        let received = shares.received(&node);
        assert_eq!((received.len(), received.last()), (MAX_RECEIVED, Some(&PathBuf::from("/d68"))));
        assert_eq!(shares.received(&NodeId([2; 32])), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_a_sender_sent_is_known_until_it_is_not_here_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let shares = Shares::new(dir.path().to_path_buf());
        let (node, other) = (NodeId([1; 32]), NodeId([2; 32]));
        let (here, gone) = (Oid::of(b"here"), Oid::of(b"gone"));
        [here, gone].iter().for_each(|oid| shares.keep_sent(&node, oid).unwrap());
        assert!(shares.was_sent(&node, &here) && shares.has_sent(&node) && !shares.has_sent(&other));
        shares.forget_sent(|oid| *oid == here).unwrap();
        assert_eq!((shares.was_sent(&node, &here), shares.was_sent(&node, &gone)), (true, false));
        shares.forget_sent(|_| false).unwrap();
        assert!(!shares.has_sent(&node));
    }

    #[test]
    fn the_terms_of_a_share_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let shares = Shares::new(dir.path().to_path_buf());
        let terms = Terms { expires: Some(1_800_000_000), no_swarm: true };
        let share = Share { oid: Oid::of(b"x"), secret: BoundSecret { secret: Secret([0xa7; 16]), terms } };
        shares.keep(Path::new("/a"), &share).unwrap();
        assert_eq!(shares.find(Path::new("/a")), Some(share));
        for damaged in ["", "0", "zz", "0g", "00", "é"] {
            let record = json!({ "oid": Oid::of(b"x").to_string(), "secret": damaged });
            assert_eq!(Share::of(&record), None, "{damaged}");
        }
    }

    #[test]
    fn a_damaged_record_is_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let shares = Shares::new(dir.path().to_path_buf());
        shares.keep_port(b"daemon", 7000).unwrap();
        assert_eq!(shares.port(b"daemon"), Some(7000));
        fs::write(shares.file("port", b"daemon"), b"{\"port\": 70000").unwrap();
        assert_eq!(shares.port(b"daemon"), None);
    }
}
