//! Messages that the other side of a copy may send.

use towpath_api::copy::{CopyEvent, CopyOptions, CopySummary, FailureKind, FileTime};
use towpath_api::{SourceBytes, SourceList};
use towpath_service::fuzzing;

use super::content::target;
use crate::copy::patch_base;
use crate::input::Written;

/// Every message, one a line in hexadecimal digits, then what it is.
const MESSAGES: &str = include_str!("../../../docs/formats/vectors/copy.txt");

pub fn messages() -> Vec<Vec<u8>> {
    let read = |line: &str| {
        let digits = line.split_whitespace().next().filter(|word| word.len() % 2 == 0)?;
        let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>()
    };
    let messages: Vec<Vec<u8>> = MESSAGES.lines().filter_map(read).filter(|it| !it.is_empty()).collect();
    assert!(messages.len() > 20, "the vectors are where they were");
    messages
}

/// A patch of each form, of a little base and of a larger one.
pub fn patches() -> Vec<Vec<u8>> {
    let (target, len) = (target(), target().len() as u64);
    let of = |old: u64| {
        let base = patch_base(old);
        let patches = fuzzing::make_patches(&base, &target);
        assert_eq!(patches.len(), 3, "each form can be made");
        let told = |patch: Vec<u8>| {
            assert_eq!(
                fuzzing::apply_patch(&patch, &base, len).as_ref(),
                Some(&target),
                "it makes the target"
            );
            Written::default().number(old).number(len).rest(&patch).done()
        };
        patches.into_iter().map(told).collect::<Vec<_>>()
    };
    [0, 69_486_560].into_iter().flat_map(of).collect()
}

fn json(value: impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(&value).expect("what can be told")
}

pub fn options() -> Vec<Vec<u8>> {
    let full = CopyOptions {
        search: vec![b"/srv".to_vec()],
        max_delete: Some(7),
        filters: vec![b"- *.o".to_vec(), b"+ /a/".to_vec()],
        files_from: Some(vec![b"a/b".to_vec()]),
        suffix: b"~".to_vec(),
        backup_dir: Some(b"old".to_vec()),
        chmod: vec!["D755,F644".into()],
        chown: Some("ann:users".into()),
        ..CopyOptions::default()
    };
    vec![fuzzing::write_options(&CopyOptions::default()), fuzzing::write_options(&full), Vec::new()]
}

fn peer() -> SourceList {
    SourceList(vec![SourceBytes { kind: "peer".into(), path: Some("host".into()), node: None, bytes: 1 }])
}

pub fn events() -> Vec<Vec<u8>> {
    let item = CopyEvent::Item {
        changes: *b">f+++++++++",
        path: b"a\xff".to_vec(),
        target: Some(b"b".to_vec()),
        size: 7,
        modified: FileTime { seconds: -1, nanos: 999_999_999 },
    };
    let (path, hint) = (b"x".to_vec(), Some("look".into()));
    let failed =
        CopyEvent::Failed { path: path.clone(), error: "no".into(), hint, kind: FailureKind::Vanished };
    let progress = CopyEvent::Progress {
        done: 1,
        expected: 2,
        files_done: 3,
        files_seen: 4,
        sources: peer(),
        trouble: Some("slow".into()),
    };
    [item, CopyEvent::Deleted { path, is_dir: true }, failed, progress].map(json).into()
}

pub fn summaries() -> Vec<Vec<u8>> {
    let some = CopySummary { transferred: 1, sources: peer(), ..CopySummary::default() };
    vec![json(some), json(CopySummary::default())]
}

/// The messages that end a copy.
pub fn errors() -> Vec<Vec<u8>> {
    const FATAL: u8 = 0x1a;
    let errors: Vec<_> = messages().into_iter().filter(|message| message.first() == Some(&FATAL)).collect();
    assert!(errors.len() > 2, "the vectors are where they were");
    errors
}
