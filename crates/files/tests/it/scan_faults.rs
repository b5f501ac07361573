//! Trees that change, or refuse, while they are scanned: told, and the scan goes on.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use towpath_files::{FileError, RelPath, ScanError, ScanOptions, Scanned, SourceTree, scan};

use crate::support::{is_root, nest, outline, scan_all};

/// Scans `root` and does `change` when the root was entered.
fn scan_changing(root: &Path, change: impl Fn()) -> Vec<Scanned> {
    let mut steps = Vec::new();
    scan::<()>(root, &ScanOptions::default(), &mut |step| {
        let first_leaf = matches!(step, Scanned::Leaf(_)) && steps.len() == 1;
        steps.push(step);
        if first_leaf {
            change();
        }
        Ok(())
    })
    .unwrap();
    steps
}

fn failures(steps: &[Scanned]) -> Vec<&FileError> {
    steps.iter().filter_map(|s| if let Scanned::Failed(error) = s { Some(error) } else { None }).collect()
}

fn tree() -> tempfile::TempDir {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir(tmp.path().join("d")).unwrap();
    for file in ["a", "d/f", "e", "z"] {
        fs::write(tmp.path().join(file), b"content").unwrap();
    }
    tmp
}

#[test]
fn a_file_and_a_directory_that_vanish_are_told() {
    let tmp = tree();
    let steps = scan_changing(tmp.path(), || {
        fs::remove_dir_all(tmp.path().join("d")).unwrap();
        fs::remove_file(tmp.path().join("e")).unwrap();
    });
    assert_eq!(outline(&steps).join(" "), "+ a ! ! z -");
    let failed = failures(&steps);
    assert!(failed.iter().all(|e| matches!(e, FileError::Vanished { .. })), "{failed:?}");
    assert_eq!(failed[1].path(), tmp.path().join("e"));
}

#[test]
fn a_directory_replaced_by_a_link_is_told_as_the_link() {
    let tmp = tree();
    let steps = scan_changing(tmp.path(), || {
        fs::rename(tmp.path().join("d"), tmp.path().join("moved")).unwrap();
        symlink("/etc", tmp.path().join("d")).unwrap();
    });
    assert_eq!(outline(&steps).join(" "), "+ a d e z -");
}

#[test]
fn a_directory_removed_while_it_is_read_is_told_to_its_end() {
    let tmp = tree();
    let mut lines = Vec::new();
    scan::<()>(tmp.path(), &ScanOptions::default(), &mut |step| {
        lines.extend(outline(&[step]));
        if lines.len() == 3 {
            fs::remove_dir_all(tmp.path().join("d")).unwrap();
        }
        Ok(())
    })
    .unwrap();
    // The names are read after the directory was told, when there are none left.
    assert_eq!(lines.join(" ").replace("! ", ""), "+ a +d - e z -");
}

#[test]
fn an_outer_directory_replaced_while_it_was_closed_is_not_gone_on_with() {
    let tmp = tempfile::tempdir().unwrap();
    nest(tmp.path(), 100);
    let (mut depth, mut steps) = (0, Vec::new());
    scan::<()>(tmp.path(), &ScanOptions::default(), &mut |step| {
        depth += usize::from(matches!(step, Scanned::Enter(_)));
        if depth == 101 {
            depth += 1;
            fs::rename(tmp.path().join("m"), tmp.path().join("moved")).unwrap();
            fs::create_dir(tmp.path().join("m")).unwrap();
            fs::write(tmp.path().join("m/z"), b"another file").unwrap();
        }
        steps.push(step);
        Ok(())
    })
    .unwrap();
    let last = &steps[steps.len() - 4..];
    assert_eq!(outline(last).join(" "), "! - z -");
    assert!(matches!(last[0], Scanned::Failed(FileError::Changed { .. })), "{last:?}");
}

#[test]
fn a_directory_without_permission_is_told_as_empty() {
    if is_root() {
        println!("skipped: root may read everything");
        return;
    }
    let tmp = tree();
    fs::set_permissions(tmp.path().join("d"), fs::Permissions::from_mode(0o000)).unwrap();
    let steps = scan_all(tmp.path(), &ScanOptions::default());
    fs::set_permissions(tmp.path().join("d"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(outline(&steps).join(" "), "+ a +d ! - e z -");
    assert!(matches!(failures(&steps)[..], [FileError::Permission { .. }]));
}

#[test]
fn a_file_without_permission_is_told_when_it_is_opened() {
    if is_root() {
        println!("skipped: root may read everything");
        return;
    }
    let tmp = tree();
    fs::set_permissions(tmp.path().join("a"), fs::Permissions::from_mode(0o000)).unwrap();
    let steps = scan_all(tmp.path(), &ScanOptions::default());
    let Scanned::Leaf(found) = &steps[1] else { panic!("{steps:?}") };
    let refused = found.file.as_ref().unwrap().open();
    assert!(matches!(refused, Err(FileError::Permission { .. })), "{refused:?}");
}

/// Replaces the scanned file `a` by something else and opens it both ways.
fn open_replaced(replace: impl Fn(&Path)) -> [FileError; 2] {
    let tmp = tree();
    let steps = scan_all(tmp.path(), &ScanOptions::default());
    let Scanned::Leaf(found) = &steps[1] else { panic!("{steps:?}") };
    let file = tmp.path().join("a");
    fs::rename(&file, tmp.path().join("aside")).unwrap();
    replace(&file);
    let later = SourceTree::open(tmp.path()).unwrap();
    let path = RelPath::new(["a"]).unwrap();
    [found.file.as_ref().unwrap().open().unwrap_err(), later.open_file(&path, &found.stamp).unwrap_err()]
}

#[test]
fn another_file_under_the_name_is_not_opened() {
    for error in open_replaced(|file| fs::write(file, b"content").unwrap()) {
        assert!(matches!(error, FileError::Changed { .. }), "{error}");
    }
}

#[test]
fn a_link_under_the_name_is_not_followed() {
    for error in open_replaced(|file| symlink("aside", file).unwrap()) {
        assert!(matches!(error, FileError::OutsideTree { .. }), "{error}");
    }
}

#[test]
fn a_pipe_under_the_name_does_not_hang_the_reader() {
    let pipe = |file: &Path| {
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, file, kind, mode, 0).unwrap();
    };
    for error in open_replaced(pipe) {
        assert!(matches!(error, FileError::Changed { .. }), "{error}");
    }
}

#[test]
fn a_visitor_ends_the_scan() {
    let tmp = tree();
    let mut seen = 0;
    let ended = scan(tmp.path(), &ScanOptions::default(), &mut |_| {
        seen += 1;
        if seen == 2 { Err("enough") } else { Ok(()) }
    });
    assert!(matches!(ended, Err(ScanError::Stopped("enough"))));
    assert_eq!(seen, 2);
}
