//! Modules: which one uses which, and the circles among them.
//!
//! A module is a file. It uses another one if a path of it outside of tests leads there, by way of `pub use` too; what
//! macros are handed is not looked at. The root of a crate is the roof of all and counts as none.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{ItemMod, ItemUse, UseTree, Visibility};

use crate::limits::Figure;
use crate::source::{Source, SourceFile, is_for_tests};

type Module = Vec<String>;

/// Modules of a crate, and which others each uses.
pub struct Uses(BTreeMap<Module, BTreeSet<Module>>);

/// Top modules in circles, files in the largest circle, and lines of the largest crate.
pub fn figures(sources: &[Source]) -> Vec<Figure> {
    let (mut tops, mut files, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for source in sources {
        let name = &source.name;
        let uses = Uses::of(source);
        tops.extend(
            uses.of_tops().circles().concat().iter().map(|top| format!("{name}::{}", top.join("::"))),
        );
        let circle = uses.circles().into_iter().max_by_key(Vec::len).unwrap_or_default();
        files.push(circle.iter().map(|file| format!("{name}::{}", file.join("::"))).collect::<Vec<_>>());
        let plain = source.files.iter().filter(|file| !file.is_test);
        lines.push((plain.map(SourceFile::plain_lines).sum::<usize>(), name));
    }
    let largest = files.into_iter().max_by_key(Vec::len).unwrap_or_default();
    lines.sort_by_key(|(lines, _)| std::cmp::Reverse(*lines));
    // Hundreds, so that not each change is one of the limit.
    let hundreds = lines.first().map_or(0, |(lines, _)| lines.div_ceil(100));
    let crates = lines.iter().map(|(lines, name)| format!("{lines:6} {name}")).collect();
    vec![
        Figure { name: "top_modules_in_circles", value: tops.len(), places: tops },
        Figure { name: "largest_circle_of_files", value: largest.len(), places: largest },
        Figure { name: "largest_crate_hundred_lines", value: hundreds, places: crates },
    ]
}

impl Uses {
    /// Those of a crate.
    pub fn of(source: &Source) -> Self {
        let files: Vec<_> = source.files.iter().filter(|file| !file.is_test).collect();
        let known = Known::of(&files);
        let mut uses = BTreeMap::new();
        for file in files.iter().filter(|file| !file.module.is_empty()) {
            let mut used: BTreeSet<_> = paths(file).iter().filter_map(|path| known.find(path)).collect();
            used.remove(&file.module);
            used.remove(&Module::new());
            uses.insert(file.module.clone(), used);
        }
        Self(uses)
    }

    /// The same of the modules right below the crate's root.
    fn of_tops(&self) -> Self {
        let mut tops: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (module, used) in &self.0 {
            let used = used.iter().map(|module| module[..1].to_vec()).filter(|used| used[0] != module[0]);
            tops.entry(module[..1].to_vec()).or_default().extend(used);
        }
        Self(tops)
    }

    /// Sets of modules that all reach each other, of two and more.
    fn circles(&self) -> Vec<Vec<Module>> {
        let reached: BTreeMap<_, _> =
            self.0.keys().map(|module| (module, self.reached_from(module))).collect();
        let mut left: BTreeSet<&Module> = self.0.keys().collect();
        let mut circles = Vec::new();
        while let Some(first) = left.pop_first() {
            let is_mutual =
                |other: &&Module| reached[first].contains(*other) && reached[*other].contains(first);
            let others: Vec<&Module> = left.iter().copied().filter(is_mutual).collect();
            left.retain(|other| !others.contains(other));
            if !others.is_empty() {
                circles.push([first].into_iter().chain(others).cloned().collect());
            }
        }
        circles
    }

    fn reached_from(&self, module: &Module) -> BTreeSet<Module> {
        let (mut reached, mut next) = (BTreeSet::new(), vec![module]);
        while let Some(module) = next.pop() {
            for used in self.0.get(module).into_iter().flatten() {
                if reached.insert(used.clone()) {
                    next.push(used);
                }
            }
        }
        reached
    }

    /// For Graphviz; an arrow leads from a module to one that it uses, and those in circles are red.
    pub fn dot(&self) -> String {
        let in_circles: BTreeSet<Module> = self.circles().concat().into_iter().collect();
        let mut dot = String::from("digraph modules {\n    node [shape=box, fontname=\"sans-serif\"];\n");
        for (module, used) in &self.0 {
            let name = module.join("::");
            let color = if in_circles.contains(module) { " [color=red]" } else { "" };
            dot += &format!("    \"{name}\"{color};\n");
            used.iter().for_each(|used| dot += &format!("    \"{name}\" -> \"{}\";\n", used.join("::")));
        }
        dot + "}\n"
    }
}

/// The modules of a crate, and what each one passes on by `pub use`.
struct Known {
    modules: BTreeSet<Module>,
    passed_on: BTreeMap<(Module, String), Module>,
}

impl Known {
    fn of(files: &[&SourceFile]) -> Self {
        let modules = files.iter().map(|file| file.module.clone()).collect();
        let mut passed_on = BTreeMap::new();
        for file in files {
            for item in &file.parsed.items {
                if let syn::Item::Use(item) = item
                    && !matches!(item.vis, Visibility::Inherited)
                {
                    for (name, path) in leaves(&item.tree) {
                        if let Some(path) = absolute(&file.module, &path) {
                            passed_on.insert((file.module.clone(), name), path);
                        }
                    }
                }
            }
        }
        Self { modules, passed_on }
    }

    /// The module that a path from the crate's root leads to.
    fn find(&self, path: &[String]) -> Option<Module> {
        let mut path = path.to_vec();
        // Each step follows one `pub use`; more of them are a circle of their own.
        for _ in 0..8 {
            let length = (0..=path.len()).rev().find(|&length| self.modules.contains(&path[..length]))?;
            let (module, rest) = path.split_at(length);
            let Some((name, rest)) = rest.split_first() else { return Some(module.to_vec()) };
            match self.passed_on.get(&(module.to_vec(), name.clone())) {
                Some(to) if *to != path => path = to.iter().chain(rest).cloned().collect(),
                _ => return Some(module.to_vec()),
            }
        }
        None
    }
}

/// The paths of a file that begin in its crate, from the crate's root.
fn paths(file: &SourceFile) -> Vec<Module> {
    let mut collector = Collector { module: file.module.clone(), found: Vec::new() };
    collector.visit_file(&file.parsed);
    collector.found
}

struct Collector {
    module: Module,
    found: Vec<Module>,
}

impl<'a> Visit<'a> for Collector {
    fn visit_item(&mut self, item: &'a syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        // Re-exports belong to those who use them from here.
        if matches!(item.vis, Visibility::Inherited) {
            let paths = leaves(&item.tree);
            self.found.extend(paths.iter().filter_map(|(_, path)| absolute(&self.module, path)));
        }
    }

    /// `pub(super)` says who may use something, and uses nothing.
    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.found.extend(absolute(&self.module, &names));
        visit::visit_path(self, path);
    }
}

/// A path from the crate's root, of one that begins with `crate`, `self` or `super`.
fn absolute(module: &[String], path: &[String]) -> Option<Module> {
    let (first, mut rest) = path.split_first()?;
    let mut from = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module.split_last()?.1.to_vec(),
        _ => return None,
    };
    while rest.first().is_some_and(|name| name == "super") {
        from.pop()?;
        rest = &rest[1..];
    }
    Some(from.into_iter().chain(rest.iter().cloned()).collect())
}

/// The paths of a `use`, each with the name that it gives.
fn leaves(tree: &UseTree) -> Vec<(String, Module)> {
    match tree {
        UseTree::Path(path) => {
            let mut below = leaves(&path.tree);
            for (name, rest) in &mut below {
                rest.insert(0, path.ident.to_string());
                // `use a::{self}` gives the name `a`.
                if rest.last().is_some_and(|last| last == "self") && rest.len() == 2 {
                    rest.pop();
                    *name = path.ident.to_string();
                }
            }
            below
        }
        UseTree::Name(name) => vec![(name.ident.to_string(), vec![name.ident.to_string()])],
        UseTree::Rename(rename) => vec![(rename.rename.to_string(), vec![rename.ident.to_string()])],
        UseTree::Glob(_) => vec![(String::from("*"), Vec::new())],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item::*;
    match item {
        Const(item) => &item.attrs,
        Enum(item) => &item.attrs,
        Fn(item) => &item.attrs,
        Impl(item) => &item.attrs,
        Mod(item) => &item.attrs,
        Static(item) => &item.attrs,
        Struct(item) => &item.attrs,
        Trait(item) => &item.attrs,
        Type(item) => &item.attrs,
        Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(files: &[(&str, &str)]) -> Source {
        let file = |(name, text): &(&str, &str)| SourceFile {
            path: (*name).into(),
            module: name.split("::").filter(|name| !name.is_empty()).map(Into::into).collect(),
            is_test: false,
            lines: text.lines().count(),
            parsed: syn::parse_file(text).unwrap(),
        };
        Source { name: "any".into(), files: files.iter().map(file).collect() }
    }

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let circles = Uses::of(&source(files)).circles();
        circles.iter().map(|circle| circle.iter().map(|module| module.join("::")).collect()).collect()
    }

    #[test]
    fn modules_that_use_each_other_are_a_circle() {
        let root = ("", "mod a; mod b; mod c;");
        assert!(
            circles(&[root, ("a", "use crate::b::B;"), ("b", ""), ("c", "fn f() { crate::a::g() }")])
                .is_empty()
        );
        let ring =
            [root, ("a", "use super::b::B;"), ("b", "fn f() { crate::c::g() }"), ("c", "use crate::{a};")];
        assert_eq!(circles(&ring), [["a", "b", "c"]]);
    }

    #[test]
    fn tests_make_no_circle() {
        let with_tests = "#[cfg(test)] mod tests { use crate::a::A; }";
        assert!(circles(&[("", ""), ("a", "use crate::b::B;"), ("b", with_tests)]).is_empty());
    }

    #[test]
    fn a_visibility_makes_no_circle() {
        let seen = "pub(super) struct A; pub(in crate::b) struct B;";
        assert!(
            circles(&[
                ("", ""),
                ("a", "use self::low::A;"),
                ("a::low", seen),
                ("b", "use crate::a::low::B;")
            ])
            .is_empty()
        );
    }

    #[test]
    fn a_name_that_is_passed_on_is_its_maker_s() {
        let root = ("", "pub use a::low::Low;");
        let files = [
            root,
            ("a", "pub use self::low::Low;"),
            ("a::low", ""),
            ("b", "use crate::Low; use crate::a::Low as L;"),
        ];
        assert!(circles(&files).is_empty());
        let back = [files[0], files[1], ("a::low", "use crate::b::B;"), files[3]];
        assert_eq!(circles(&back), [["a::low", "b"]]);
    }

    #[test]
    fn the_picture_has_each_arrow() {
        let dot =
            Uses::of(&source(&[("", ""), ("a", "use super::b::B;"), ("b", "use crate::a::A;"), ("c", "")]))
                .dot();
        for line in ["\"a\" [color=red];", "\"a\" -> \"b\";", "\"b\" -> \"a\";", "\"c\";"] {
            assert!(dot.contains(line), "{dot}");
        }
    }
}
