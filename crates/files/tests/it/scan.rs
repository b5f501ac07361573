//! Scans of a tree that holds still.

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use towpath_content::tree::{Kind, MAX_DEPTH, MAX_EXTENTS, Time};
use towpath_files::{
    Destination, FileError, Found, RelPath, ScanOptions, Scanned, SourceTree, Stamp, WriteOptions,
    data_extents,
};

use crate::support::{descriptors_below, nest, outline, remove_deep, scan_all};

fn leaf<'s>(steps: &'s [Scanned], name: &[u8]) -> &'s Found {
    let is_it = |step: &&Scanned| matches!(step, Scanned::Leaf(found) if found.entry.name == name);
    match steps.iter().find(is_it) {
        Some(Scanned::Leaf(found)) => found,
        _ => panic!("{} is missing", towpath_files::display_name(name)),
    }
}

#[test]
fn a_tree_comes_depth_first_with_names_sorted_bytewise() {
    let tmp = tempfile::tempdir().unwrap();
    for dir in ["b/inner", "a.d", "a"] {
        fs::create_dir_all(tmp.path().join(dir)).unwrap();
    }
    for file in ["b/inner/z", "b/inner/Z", "a.d/x", "a/y", "ä", "B"] {
        fs::write(tmp.path().join(file), b"").unwrap();
    }
    let steps = scan_all(tmp.path(), &ScanOptions::default());
    let wanted = "+ B +a y - +a.d x - +b +inner Z z - - ä -";
    assert_eq!(outline(&steps).join(" "), wanted);
}

#[test]
fn odd_names_come_back_as_they_are() {
    let tmp = tempfile::tempdir().unwrap();
    let mut names = vec![b"new\nline".to_vec(), b"\xff\xfe".to_vec(), vec![b'n'; 255], b" ".to_vec()];
    for name in &names {
        fs::write(tmp.path().join(std::ffi::OsStr::from_bytes(name)), b"").unwrap();
    }
    names.sort();
    let steps = scan_all(tmp.path(), &ScanOptions::default());
    let found: Vec<Vec<u8>> = steps
        .into_iter()
        .filter_map(|step| if let Scanned::Leaf(found) = step { Some(found.entry.name) } else { None })
        .collect();
    assert_eq!(found, names);
}

#[test]
fn an_entry_has_the_metadata_and_the_stamp_of_its_file() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("f");
    fs::write(&file, b"content").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4750)).unwrap();
    let steps = scan_all(tmp.path(), &ScanOptions::default());
    let (found, is) = (leaf(&steps, b"f"), fs::metadata(&file).unwrap());
    assert_eq!(found.entry.kind, Kind::File { size: 7, oid: None, extents: None });
    assert_eq!(found.entry.metadata.mode, 0o4750);
    assert_eq!((found.entry.metadata.user.id, found.entry.metadata.group.id), (is.uid(), is.gid()));
    let wanted = Stamp {
        device: is.dev(),
        inode: is.ino(),
        size: 7,
        modified: Time { seconds: is.mtime(), nanos: is.mtime_nsec() as u32 },
        changed: Time { seconds: is.ctime(), nanos: is.ctime_nsec() as u32 },
    };
    assert_eq!((found.stamp, found.links), (wanted, 1));
    assert_eq!(Stamp::of(&fs::File::open(&file).unwrap()).unwrap(), wanted);
}

#[test]
fn a_scanned_file_is_opened_and_read() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir(tmp.path().join("d")).unwrap();
    fs::write(tmp.path().join("d/f"), b"content").unwrap();
    let steps = scan_all(tmp.path(), &ScanOptions::default());
    let found = leaf(&steps, b"f");
    let mut read = String::new();
    found.file.as_ref().unwrap().open().unwrap().read_to_string(&mut read).unwrap();
    assert_eq!(read, "content");
    let later = SourceTree::open(tmp.path()).unwrap();
    let path = RelPath::new(["d", "f"]).unwrap();
    later.open_file(&path, &found.stamp).unwrap().read_to_string(&mut read).unwrap();
    assert_eq!(read, "contentcontent");
}

#[test]
fn a_held_root_is_scanned_wherever_it_was_moved() {
    let tmp = tempfile::tempdir().unwrap();
    let tree = tmp.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), b"").unwrap();
    let source = SourceTree::open(&tree).unwrap();
    let to = Destination::open(&tree, WriteOptions::default()).unwrap();
    fs::rename(&tree, tmp.path().join("moved")).unwrap();
    let (options, mut steps) = (ScanOptions::default(), Vec::new());
    let mut visit = |step| -> Result<(), ()> {
        steps.push(step);
        Ok(())
    };
    source.scan(&options, &mut visit).and(to.scan(&options, &mut visit)).unwrap();
    assert_eq!(outline(&steps).join(" "), "+ f - + f -");
}

#[test]
fn links_pipes_sockets_and_devices_are_told_for_what_they_are() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = fs::File::open(tmp.path()).unwrap();
    symlink("/etc", tmp.path().join("link")).unwrap();
    let _socket = UnixListener::bind(tmp.path().join("socket")).unwrap();
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(&dir, "fifo", rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let steps = scan_all(tmp.path(), &ScanOptions::default());
    assert_eq!(outline(&steps).join(" "), "+ fifo link socket -");
    assert_eq!(leaf(&steps, b"link").entry.kind, Kind::Symlink { target: b"/etc".to_vec() });
    assert_eq!(leaf(&steps, b"fifo").entry.kind, Kind::Fifo);
    assert_eq!(leaf(&steps, b"socket").entry.kind, Kind::Socket);
    let null = scan_all(Path::new("/dev"), &ScanOptions::default());
    assert_eq!(leaf(&null, b"null").entry.kind, Kind::CharDevice { major: 1, minor: 3 });
}

#[test]
fn a_root_given_as_a_link_is_read_and_a_file_is_not() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir(tmp.path().join("d")).unwrap();
    fs::write(tmp.path().join("d/f"), b"").unwrap();
    symlink("d", tmp.path().join("link")).unwrap();
    let steps = scan_all(&tmp.path().join("link"), &ScanOptions::default());
    assert_eq!(outline(&steps).join(" "), "+ f -");
    let options = ScanOptions::default();
    let refused = towpath_files::scan::<()>(&tmp.path().join("d/f"), &options, &mut |_| Ok(()));
    let is_told = matches!(refused, Err(towpath_files::ScanError::Root(FileError::NotADirectory { .. })));
    assert!(is_told, "{refused:?}");
}

#[test]
fn names_over_the_budget_come_in_the_same_order_as_names_in_memory() {
    let tmp = tempfile::tempdir().unwrap();
    let (tree, scratch) = (tmp.path().join("tree"), tmp.path().join("scratch"));
    fs::create_dir_all(tree.join("9-sub")).unwrap();
    fs::create_dir(&scratch).unwrap();
    for i in 0..3000u32 {
        let name = format!("{:x}-{}", i.wrapping_mul(2_654_435_761), "n".repeat(i as usize % 40));
        fs::write(tree.join(&name), b"").unwrap();
        if i % 3 == 0 {
            fs::write(tree.join("9-sub").join(&name), b"").unwrap();
        }
    }
    let in_memory = scan_all(&tree, &ScanOptions { scratch: "/nonexistent".into(), ..Default::default() });
    for budget in [0, 2000, 20_000] {
        let spilled = scan_all(
            &tree,
            &ScanOptions { names_budget: budget, scratch: scratch.clone(), ..Default::default() },
        );
        assert!(outline(&spilled) == outline(&in_memory), "budget {budget}");
    }
    assert!(outline(&in_memory).len() == 4004);
}

#[test]
fn names_of_a_directory_that_was_left_take_no_room_on_disk() {
    let tmp = tempfile::tempdir().unwrap();
    let (tree, scratch) = (tmp.path().join("tree"), tmp.path().join("scratch"));
    fs::create_dir(&scratch).unwrap();
    for dir in 0..30 {
        fs::create_dir_all(tree.join(format!("{dir}"))).unwrap();
        (0..20).for_each(|i| fs::write(tree.join(format!("{dir}/{i}")), b"").unwrap());
    }
    let scratch_size = || -> u64 {
        let open = fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().path());
        let ours = open.filter(|fd| fs::read_link(fd).is_ok_and(|to| to.starts_with(&scratch)));
        ours.filter_map(|fd| fs::metadata(fd).ok()).map(|is| is.len()).sum()
    };
    let options = ScanOptions { names_budget: 0, scratch: scratch.clone(), ..Default::default() };
    let mut sizes = Vec::new();
    towpath_files::scan::<()>(&tree, &options, &mut |step| {
        if matches!(step, Scanned::Leave) {
            sizes.push(scratch_size());
        }
        Ok(())
    })
    .unwrap();
    assert!(sizes[0] > 0 && sizes.iter().all(|&size| size <= sizes[0]), "{sizes:?}");
}

#[test]
fn a_scratch_directory_that_fails_is_told_and_the_scan_goes_on() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir(tmp.path().join("d")).unwrap();
    fs::write(tmp.path().join("d/f"), b"").unwrap();
    let options = ScanOptions { names_budget: 0, scratch: "/nonexistent".into(), ..Default::default() };
    // Entries held in memory when it failed are still reported.
    assert_eq!(outline(&scan_all(tmp.path(), &options)).join(" "), "+ ! +d ! f - -");
}

#[test]
fn a_deep_tree_is_read_with_few_descriptors() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().join("tree");
    fs::create_dir(&root).unwrap();
    nest(&root, 1000);
    let (mut most, mut lines) = (0, Vec::new());
    towpath_files::scan::<()>(&root, &ScanOptions::default(), &mut |step| {
        if matches!(step, Scanned::Enter(_)) && lines.len() % 100 == 0 {
            most = most.max(descriptors_below(tmp.path()));
        }
        lines.extend(outline(&[step]));
        Ok(())
    })
    .unwrap();
    remove_deep(&root);
    let wanted = format!("+{} a +m{} a z -{} z -", "", " a +m".repeat(999), " z -".repeat(999));
    assert!(lines.join(" ") == wanted);
    assert!(most > 0 && most < 80, "{most} descriptors");
}

#[test]
fn a_tree_deeper_than_the_limit_is_told_and_left_out_there() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().join("tree");
    fs::create_dir(&root).unwrap();
    nest(&root, MAX_DEPTH + 5);
    let (mut entered, mut left, mut leaves, mut failed) = (0, 0, 0, Vec::new());
    towpath_files::scan::<()>(&root, &ScanOptions::default(), &mut |step| {
        match step {
            Scanned::Enter(_) => entered += 1,
            Scanned::Leave => left += 1,
            Scanned::Leaf(_) => leaves += 1,
            Scanned::Failed(error) => failed.push(error),
        }
        Ok(())
    })
    .unwrap();
    remove_deep(&root);
    assert_eq!((entered, left, leaves), (MAX_DEPTH, MAX_DEPTH, 2 * MAX_DEPTH));
    assert!(matches!(failed[..], [FileError::TooDeep { .. }]), "{failed:?}");
}

#[test]
fn a_file_with_holes_is_noticed_and_its_data_found() {
    let tmp = tempfile::tempdir().unwrap();
    let file = fs::File::create(tmp.path().join("sparse")).unwrap();
    file.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"data", 32 << 20).unwrap();
    fs::write(tmp.path().join("full"), vec![1; 10_000]).unwrap();
    let steps = scan_all(tmp.path(), &ScanOptions::default());
    assert!(!leaf(&steps, b"full").file.as_ref().unwrap().looks_sparse());
    let sparse = leaf(&steps, b"sparse").file.as_ref().unwrap();
    assert!(sparse.looks_sparse());
    let found = data_extents(&sparse.open().unwrap(), sparse.stamp().size, MAX_EXTENTS).unwrap();
    assert_eq!(found.iter().map(|extent| extent.offset).collect::<Vec<_>>(), [32 << 20]);
}
