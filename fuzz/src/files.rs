//! Parsers of `towpath-files`: filter rules and changes of modes that the other side sent.

use towpath_files::{Chmod, Filter, FilterSide, RelPath, RuleList};

/// Filter rules that the other side sent, one a line, and what is made of them.
pub fn filter_rules(data: &[u8]) {
    let lines: Vec<Vec<u8>> = data.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    let Ok(rules) = RuleList::from_lines(&lines) else { return };
    assert_eq!(RuleList::from_lines(&rules.to_lines()).expect("a list that was taken"), rules);
    let mut filter = Filter::new(rules, FilterSide::Sender, false);
    // Names that the rules are likely to speak of: their own words.
    for names in lines.iter().map(|line| line.split(|b| matches!(b, b'/' | b' '))) {
        let Ok(path) = RelPath::new(names.filter(|name| !name.is_empty())) else { continue };
        let (as_dir, as_file) = (filter.shows(&path, true), filter.shows(&path, false));
        assert_eq!((as_dir, as_file), (filter.shows(&path, true), filter.shows(&path, false)));
    }
}

/// Bits that changes of modes may touch.
const MODE: u32 = 0o7777;

/// Changes of modes as `--chmod` takes them. Two lists one after the other are what both are as one.
pub fn chmod(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for umask in [0, 0o022, 0o777, u32::MAX] {
        let Ok(changes) = Chmod::parse(text, umask) else { return };
        let parts: Vec<Chmod> = text
            .split(',')
            .map(|part| Chmod::parse(part, umask).expect("a part of what was taken"))
            .collect();
        for mode in [0, 0o644, 0o755, 0o7777, 0o100_644, 0o040_755, u32::MAX] {
            for is_dir in [false, true] {
                let changed = changes.apply(mode, is_dir);
                assert_eq!(changed & !MODE, mode & !MODE, "only bits of permissions are changed");
                let may_execute = is_dir || mode & 0o111 != 0;
                let has_same_x = |mode: u32| (is_dir || mode & 0o111 != 0) == may_execute;
                let one_by_one = parts.iter().try_fold(mode, |mode, part| {
                    // The question of `X` is whether it held before any change.
                    has_same_x(mode).then(|| part.apply(mode, is_dir))
                });
                assert!(one_by_one.is_none_or(|mode| mode == changed));
            }
        }
    }
}
