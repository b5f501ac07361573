//! Generated trees and rule lists, over names so few that rules hit.

use std::path::Path;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::{Select, select};

use towpath_files::display_name;

use crate::walk::make;

/// Place of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Sender,
    Receiver,
    Both,
}

fn one_of(texts: &[&'static [u8]]) -> Select<&'static [u8]> {
    select(texts.to_vec())
}

/// An entry of a generated tree.
#[derive(Clone)]
pub enum Node {
    File(On),
    Dir(On, Vec<(&'static [u8], Node)>),
    /// A file of rules, which may differ between the sides.
    Rules {
        sender: Option<Vec<u8>>,
        receiver: Option<Vec<u8>>,
    },
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |content: &Option<Vec<u8>>| content.as_deref().map(display_name);
        match self {
            Self::File(on) => write!(f, "file on {on:?}"),
            Self::Dir(on, inner) => {
                let named = |(name, node): &(&[u8], Self)| (display_name(name), node.clone());
                write!(f, "dir on {on:?} {:?}", inner.iter().map(named).collect::<Vec<_>>())
            }
            Self::Rules { sender, receiver } => write!(f, "rules {:?} {:?}", text(sender), text(receiver)),
        }
    }
}

/// The names of files of rules: `.r` most often.
const RULE_FILES: [&[u8]; 3] = [b".r", b".q", b".n"];

const NAMES: [&[u8]; 15] = [
    b"a",
    b"b",
    b"c",
    b"ab",
    b"foo.o",
    b"foo.c",
    b"x",
    b"[x]",
    b"a*",
    b"a b",
    b" b",
    b"\xff\xfe",
    b".h",
    b"a\\b",
    b"#c",
];

/// Directories whose names rsync does not take for patterns when a file of rules lies in them.
const DIR_NAMES: [&[u8]; 9] = [b"a", b"b", b"c", b"ab", b"d.o", b"a b", b"\xff", b".d", b"x"];

fn on() -> impl Strategy<Value = On> {
    prop_oneof![1 => Just(On::Sender), 2 => Just(On::Receiver), 3 => Just(On::Both)]
}

/// The entries of a directory, to a depth of 4.
pub fn tree() -> impl Strategy<Value = Vec<(&'static [u8], Node)>> {
    level(3)
}

fn level(depth: u32) -> BoxedStrategy<Vec<(&'static [u8], Node)>> {
    let files = btree_map(select(&NAMES[..]), on().prop_map(Node::File), 0..5);
    let content = || proptest::option::weighted(0.8, vec(line(), 0..4).prop_map(|lines| lines.concat()));
    let rules = (content(), content()).prop_map(|(sender, receiver)| Node::Rules { sender, receiver });
    let rules = btree_map(select(&RULE_FILES[..]), rules, 0..2);
    if depth == 0 {
        return (files, rules).prop_map(|(files, rules)| files.into_iter().chain(rules).collect()).boxed();
    }
    let dir = (on(), level(depth - 1)).prop_map(|(on, inner)| Node::Dir(on, inner));
    let dirs = btree_map(select(&DIR_NAMES[..]), dir, 0..4);
    let join = |(mut all, rules, dirs): (std::collections::BTreeMap<_, _>, _, _)| {
        all.extend(rules);
        all.extend(dirs);
        all.into_iter().collect()
    };
    (files, rules, dirs).prop_map(join).boxed()
}

/// Makes what the sender, and what the receiver has.
pub fn make_tree(tree: &[(&'static [u8], Node)], sender: &Path, receiver: &Path) {
    std::fs::create_dir(sender).unwrap();
    std::fs::create_dir(receiver).unwrap();
    make_level(tree, b"", (Some(sender), Some(receiver)));
}

fn make_level(tree: &[(&'static [u8], Node)], path: &[u8], tops: (Option<&Path>, Option<&Path>)) {
    let limit = |on| match on {
        On::Sender => (tops.0, None),
        On::Receiver => (None, tops.1),
        On::Both => tops,
    };
    let put = |tops: (Option<&Path>, Option<&Path>), path: &[u8]| {
        [tops.0, tops.1].into_iter().flatten().for_each(|top| make(top, path, b""));
    };
    for (name, node) in tree {
        let path = [path, name].concat();
        match node {
            Node::File(on) => put(limit(*on), &path),
            Node::Dir(on, inner) => {
                let below = [&path[..], b"/"].concat();
                put(limit(*on), &below);
                make_level(inner, &below, limit(*on));
            }
            Node::Rules { sender, receiver } => {
                let sides = [(tops.0, sender), (tops.1, receiver)];
                for (top, content) in sides.into_iter().filter_map(|(top, content)| top.zip(content.as_ref()))
                {
                    make(top, &path, content);
                }
            }
        }
    }
}

/// A line of a file of rules.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let end = one_of(&[&b"\n"[..], b"\n", b"\r\n", b"\n\n", b"\n# - *\n"]);
    (prop_oneof![12 => rule(false), 1 => Just(b"!".to_vec())], end)
        .prop_map(|(rule, end)| [&rule, end].concat())
}

/// An option that adds rules, and its argument.
pub fn option() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    prop_oneof![
        12 => rule(true).prop_map(|rule| ("--filter", rule)),
        3 => old_pattern().prop_map(|pattern| ("--exclude", pattern)),
        2 => old_pattern().prop_map(|pattern| ("--include", pattern)),
        1 => Just(("--filter", b"!".to_vec())),
    ]
}

fn old_pattern() -> impl Strategy<Value = Vec<u8>> {
    let prefix = one_of(&[&b""[..], b"", b"", b"- ", b"+ "]);
    prop_oneof![
        20 => (prefix, pattern()).prop_map(|(prefix, pattern)| [prefix, &pattern].concat()),
        1 => Just(b"!".to_vec()),
    ]
}

/// A rule for `--filter`, or for a line in a tree, where nothing outside of it may be named.
fn rule(is_argument: bool) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        10 => match_rule(),
        4 => dir_merge(is_argument),
    ]
}

fn match_rule() -> impl Strategy<Value = Vec<u8>> {
    let names = one_of(&[
        &b"-"[..],
        b"-",
        b"-",
        b"-",
        b"+",
        b"+",
        b"+",
        b"-,",
        b"-!",
        b"+!",
        b"-s",
        b"-r",
        b"-p",
        b"-sr",
        b"+r",
        b"+s",
        b"-,p",
        b"H",
        b"S",
        b"P",
        b"R",
        b"Pp",
        b"P!",
        b"exclude",
        b"exclude,p",
        b"include",
        b"hide",
        b"show",
        b"protect",
        b"risk",
        b"+p!",
    ]);
    let gap = one_of(&[&b" "[..], b" ", b" ", b"_"]);
    (names, gap, pattern()).prop_map(|(name, gap, pattern)| [name, gap, &pattern].concat())
}

/// The ways of naming a file of rules whose lines are rules, and whose lines are patterns.
fn dir_merge(is_argument: bool) -> impl Strategy<Value = Vec<u8>> {
    let full = [
        &b": .r"[..],
        b": .r",
        b"dir-merge .r",
        b":e .r",
        b":n .r",
        b":p .r",
        b": .q",
        b":ne .q",
        b":,n .n",
        b": sub/.r",
    ];
    let patterns =
        [&b":- .n"[..], b":+ .n", b":n- .n", b":w- .n", b"dir-merge,-e .n", b":s- .n", b":r- .n", b":-p .n"];
    let full = if is_argument { full.to_vec() } else { full[..full.len() - 1].to_vec() };
    prop_oneof![3 => select(full), 1 => select(patterns.to_vec())].prop_map(<[u8]>::to_vec)
}

/// A pattern of a few parts.
fn pattern() -> impl Strategy<Value = Vec<u8>> {
    const PARTS: [&[u8]; 36] = [
        b"a",
        b"b",
        b"c",
        b"ab",
        b"foo.o",
        b"x",
        b"[x]",
        b"*",
        b"*.o",
        b"foo*",
        b"?",
        b"a?",
        b"[a-c]",
        b"[!a]",
        b"[^ab]*",
        b"**",
        b"***",
        b"a**",
        b"**b",
        b"[[:alpha:]]",
        b"[[:space:]]*",
        b"\\[x\\]",
        b"a\\*",
        b"a*",
        b"a b",
        b"a[ ]b",
        b"\xff*",
        b"\xff",
        b".*",
        b"a\\b",
        b"a\\\\*",
        b"[",
        b"*[*",
        b".r",
        b"#c",
        b"[]x[]x]",
    ];
    let start = one_of(&[&b""[..], b"", b"/", b"**/"]);
    let end = one_of(&[&b""[..], b"", b"", b"/", b"/**", b"/***", b"/*", b"//"]);
    let part = || select(&PARTS[..]);
    let middle = prop_oneof![
        5 => part().prop_map(<[u8]>::to_vec),
        3 => (part(), part()).prop_map(|(a, b)| [a, b"/", b].concat()),
        1 => (part(), part(), part()).prop_map(|(a, b, c)| [a, b"/", b, b"/", c].concat()),
        1 => (part(), part()).prop_map(|(a, b)| [a, b"/**/", b].concat()),
        1 => (part(), part()).prop_map(|(a, b)| [a, b].concat()),
    ];
    (start, middle, end).prop_map(|(start, middle, end)| [start, &middle, end].concat())
}
