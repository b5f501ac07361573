//! A whole copy with a generated sender, against a model: the destination is what was asked for, or an error was
//! reported and the old version stands; and nothing beside it changes.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use towpath_api::copy::CopyOptions;
use towpath_content::tree::{Encoder, Entry, Event, Kind, Metadata, Time};
use towpath_service::fuzzing::{FuzzedReceiver, FuzzedSender, merge};

use crate::input::Source;

/// Thing that lies somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    Dir,
    File(Vec<u8>),
    Link(Vec<u8>),
}

type Tree = BTreeMap<String, Thing>;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A copy into a directory that has something already.
pub fn copy_conversation(data: &[u8]) {
    let mut source = Source::new(data);
    let flags = source.byte();
    let has = |bit: u8| flags & 1 << bit != 0;
    let max_delete = has(2).then(|| source.below(4));
    let options =
        CopyOptions { delete: has(0) && !has(4), force: has(1), max_delete, ..CopyOptions::default() };
    let (is_cp, is_incomplete) = (has(4), has(3));
    let before = tree(&mut source, 3, "");
    let mut asked = tree(&mut source, 3, "");
    if is_cp {
        asked = asked.into_iter().map(|(path, thing)| (format!("to/{path}"), thing)).collect();
    }
    let (mut descriptor, contents, lies) = told(&asked, is_cp, &mut source);
    let is_damaged = has(5) && !descriptor.is_empty();
    if is_damaged {
        let at = source.below(descriptor.len() as u64) as usize;
        descriptor[at] ^= source.byte();
    }

    // In memory where that can be: each copy ends with a sync.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
    let (to, beside) = (folder.path().join("to"), folder.path().join("beside"));
    write(&to, &before);
    write(&beside, &Tree::from([("mine".into(), Thing::File(b"mine".to_vec()))]));
    let sender = FuzzedSender { descriptor: &descriptor, contents, is_incomplete };
    let path = if is_cp { folder.path().join("to/new") } else { to.clone() };
    let state = folder.path().join("state");
    fs::create_dir(&state).expect("a directory");
    let ended = merge(sender, FuzzedReceiver { state: &state, path: &path, is_cp, options: options.clone() });

    assert_eq!(read(&beside), Tree::from([("mine".into(), Thing::File(b"mine".to_vec()))]));
    let names = fs::read_dir(folder.path()).expect("a folder").count();
    assert_eq!(names, 3, "nothing new lies beside");
    let after = read(&to);
    if is_damaged {
        return;
    }
    let asked = if is_cp { BTreeMap::new() } else { asked };
    check(&before, &asked, &lies, &after, &options, is_incomplete, ended.is_ok());
}

/// Checks what is there afterwards.
fn check(
    before: &Tree,
    asked: &Tree,
    lies: &[String],
    after: &Tree,
    options: &CopyOptions,
    is_incomplete: bool,
    is_ended: bool,
) {
    for (path, thing) in after {
        let is_new = asked.get(path).is_some_and(|wanted| wanted == thing);
        let is_old = before.get(path).is_some_and(|old| old == thing);
        let is_other = path.starts_with("new") || path.starts_with(".tow-");
        assert!(is_new || is_old || is_other, "{path}: {thing:?} is neither the old nor the new one");
    }
    let gone: Vec<_> = before.keys().filter(|path| !after.contains_key(*path)).collect();
    let may_delete = options.delete || options.force;
    assert!(gone.is_empty() || may_delete || !asked.is_empty(), "{gone:?} went unasked");
    if is_incomplete {
        let dirs = |path: &&&String| matches!(before[**path], Thing::Dir);
        let left = gone.iter().filter(|path| !dirs(path)).count();
        assert_eq!(left, 0, "{gone:?} went though the source was not read");
    }
    if let Some(most) = options.max_delete {
        assert!(gone.len() as u64 <= most, "{gone:?} are more than {most}");
    }
    // A failed entry keeps its old version.
    for path in lies {
        if let Some(old @ Thing::File(_)) = before.get(path) {
            assert!(after.get(path) == Some(old), "{path} was replaced by a lie");
        }
    }
    let is_plain = is_ended && !is_incomplete && lies.is_empty() && gone.len() < before.len();
    if is_plain && options.force && options.delete && options.max_delete.is_none() {
        assert_eq!(after, asked, "the destination is what was asked for");
    }
}

/// A small tree: paths to what lies there.
fn tree(source: &mut Source<'_>, depth: u32, below: &str) -> Tree {
    let mut all = Tree::new();
    for name in NAMES {
        let path = format!("{below}{name}");
        match source.byte() % 6 {
            0 if depth > 0 => {
                all.insert(path.clone(), Thing::Dir);
                all.extend(tree(source, depth - 1, &format!("{path}/")));
            }
            1 => drop(all.insert(path, Thing::File(source.run().to_vec()))),
            2 => drop(all.insert(path, Thing::Link(b"elsewhere".to_vec()))),
            _ => {}
        }
    }
    all
}

/// The descriptor of a tree, what its files hold by the numbers of their entries, and those of which that is a lie.
fn told(asked: &Tree, is_cp: bool, source: &mut Source<'_>) -> (Vec<u8>, HashMap<u64, Vec<u8>>, Vec<String>) {
    let (mut encoder, mut open, mut number) = (Encoder::new(true), Vec::new(), 1);
    let (mut contents, mut lies) = (HashMap::new(), Vec::new());
    let push = |encoder: &mut Encoder, event: &Event| encoder.push(event).expect("a step of a tree");
    push(&mut encoder, &Event::Enter(entry("", Kind::Directory)));
    let top = if is_cp { "to" } else { "src" };
    push(&mut encoder, &Event::Enter(entry(top, Kind::Directory)));
    // Bytewise within each directory, each with what is in it.
    let mut paths: Vec<_> = asked.keys().collect();
    paths.sort_by(|one, other| one.split('/').cmp(other.split('/')));
    for path in paths {
        let names: Vec<_> = path.split('/').skip(usize::from(is_cp)).collect();
        let Some((name, parents)) = names.split_last() else { continue };
        while open.len() > parents.len() {
            open.pop();
            push(&mut encoder, &Event::Leave);
        }
        number += 1;
        match &asked[path] {
            Thing::Dir => {
                push(&mut encoder, &Event::Enter(entry(name, Kind::Directory)));
                open.push(name.to_string());
            }
            Thing::Link(target) => {
                push(&mut encoder, &Event::Leaf(entry(name, Kind::Symlink { target: target.clone() })));
            }
            Thing::File(content) => {
                let kind = Kind::File { size: content.len() as u64, oid: None, extents: None };
                push(&mut encoder, &Event::Leaf(entry(name, kind)));
                let mut content = content.clone();
                if source.byte() % 8 == 7 {
                    content.push(b'!');
                    lies.push(path.clone());
                }
                contents.insert(number, content);
            }
        }
    }
    for _ in 0..open.len() + 2 {
        push(&mut encoder, &Event::Leave);
    }
    (encoder.finish().expect("a whole tree"), contents, lies)
}

fn entry(name: &str, kind: Kind) -> Entry {
    let modified = Time { seconds: 9, nanos: 0 };
    let mode = if kind == Kind::Directory { 0o755 } else { 0o644 };
    let metadata = Metadata { mode, modified, ..Metadata::default() };
    Entry { name: name.as_bytes().to_vec(), kind, metadata, hard_link: None }
}

fn write(to: &Path, tree: &Tree) {
    fs::create_dir(to).expect("a directory");
    for (path, thing) in tree {
        let path = to.join(path);
        match thing {
            Thing::Dir => fs::create_dir(&path).expect("a directory"),
            Thing::File(content) => fs::write(&path, content).expect("a file"),
            Thing::Link(target) => {
                symlink(String::from_utf8_lossy(target).as_ref(), &path).expect("a link");
            }
        }
    }
}

fn read(at: &Path) -> Tree {
    let mut all = Tree::new();
    for found in fs::read_dir(at).into_iter().flatten().flatten() {
        let (path, name) = (found.path(), found.file_name().to_string_lossy().into_owned());
        let kind = found.file_type().expect("a kind");
        if kind.is_dir() {
            let _ = fs::set_permissions(&path, PermissionsExt::from_mode(0o755));
            all.extend(read(&path).into_iter().map(|(below, thing)| (format!("{name}/{below}"), thing)));
            all.insert(name, Thing::Dir);
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).expect("a link").to_string_lossy().into_owned().into_bytes();
            all.insert(name, Thing::Link(target));
        } else {
            all.insert(name, Thing::File(fs::read(&path).unwrap_or_default()));
        }
    }
    all
}

/// A tree over another one; one that becomes a file; damage.
pub fn seeds() -> Vec<Vec<u8>> {
    let noise =
        |seed: u8| (0..200).map(|at: u32| (at as u8).wrapping_mul(seed).rotate_left(3)).collect::<Vec<_>>();
    let flags = [0b0000_0011, 0b0000_0001, 0b0000_0101, 0b0000_1001, 0b0001_0000, 0b0010_0011];
    let flags = flags.into_iter().flat_map(|flags| [3, 7, 29].map(|seed| (flags, seed)));
    flags.map(|(flags, seed)| [vec![flags], noise(seed)].concat()).collect()
}
