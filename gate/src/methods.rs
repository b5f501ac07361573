//! Methods of types: those in all `impl T {}` blocks of a type, in whichever files they are. Traits that a type implements
//! are left out, as the trait's own size is counted.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};
use syn::{Ident, ImplItem, Item, ItemImpl, Type};

use crate::limits::Figure;
use crate::source::{Source, SourceFile, is_for_tests};

/// Types that are listed.
const LISTED: usize = 10;

/// The type that has most, of all crates.
pub fn figure(sources: &[Source]) -> Figure {
    let mut types: Vec<_> = sources.iter().flat_map(methods_of_types).collect();
    types.sort_by(|a, b| b.cmp(a));
    let value = types.first().map_or(0, |(methods, _)| *methods);
    let places = types.iter().take(LISTED).map(|(methods, place)| format!("{methods:4} {place}")).collect();
    Figure { name: "methods_of_largest_type", value, places }
}

/// The methods of each type of a crate, and where the type is.
fn methods_of_types(source: &Source) -> Vec<(usize, String)> {
    let mut found = Found::default();
    for file in source.files.iter().filter(|file| !file.is_test) {
        Reader { file, found: &mut found }.visit_file(&file.parsed);
    }
    let mut counts = BTreeMap::<String, usize>::new();
    for (name, module, methods) in &found.blocks {
        if let Some(place) = found.place(name, module) {
            *counts.entry(place).or_default() += methods;
        }
    }
    counts.into_iter().map(|(place, methods)| (methods, place)).collect()
}

#[derive(Default)]
struct Found<'a> {
    /// The module and place of each type of a name.
    types: BTreeMap<String, Vec<(&'a [String], String)>>,
    /// The type, module and methods of each `impl` block.
    blocks: Vec<(String, &'a [String], usize)>,
}

impl Found<'_> {
    /// The type that a block in `module` means. Of two that have its name it is the nearer one: names are not resolved here.
    fn place(&self, name: &str, module: &[String]) -> Option<String> {
        let shared = |other: &[String]| other.iter().zip(module).take_while(|(a, b)| a == b).count();
        let nearest = self.types.get(name)?.iter().max_by_key(|(other, _)| shared(other));
        nearest.map(|(_, place)| place.clone())
    }
}

struct Reader<'a, 'f> {
    file: &'a SourceFile,
    found: &'f mut Found<'a>,
}

impl<'a> Reader<'a, '_> {
    fn named(&mut self, name: &Ident) {
        let place = format!("{}:{} {name}", self.file.path, name.span().start().line);
        self.found.types.entry(name.to_string()).or_default().push((&self.file.module, place));
    }

    fn block(&mut self, block: &ItemImpl) {
        let methods = block.items.iter().filter(|item| matches!(item, ImplItem::Fn(_))).count();
        if let (None, Type::Path(of)) = (&block.trait_, &*block.self_ty)
            && let Some(name) = of.path.segments.last()
        {
            self.found.blocks.push((name.ident.to_string(), &self.file.module, methods));
        }
    }
}

impl<'a> Visit<'a> for Reader<'a, '_> {
    fn visit_item(&mut self, item: &'a Item) {
        match item {
            Item::Mod(item) if is_for_tests(&item.attrs) => return,
            Item::Impl(item) if !is_for_tests(&item.attrs) => self.block(item),
            Item::Struct(item) => self.named(&item.ident),
            Item::Enum(item) => self.named(&item.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, module: &[&str], text: &str) -> SourceFile {
        let module = module.iter().map(ToString::to_string).collect();
        let parsed = syn::parse_file(text).unwrap();
        SourceFile { path: path.into(), module, is_test: false, lines: 1, parsed }
    }

    #[test]
    fn methods_of_all_blocks_of_a_type_are_added() {
        let files = vec![
            file("a.rs", &["a"], "struct A<T>(T); impl<T> A<T> { fn a() {} const C: u8 = 1; } enum B {}"),
            file("b.rs", &["b"], "impl crate::a::A<u8> { fn b(&self) {} } impl Drop for A { fn drop() {} }"),
            file("c.rs", &["c"], "#[cfg(test)] mod tests { impl A { fn c() {} } } impl B { fn d() {} }"),
        ];
        let figure = figure(&[Source { name: "any".into(), files }]);
        assert_eq!(figure.value, 2);
        assert_eq!(figure.places, ["   2 a.rs:1 A", "   1 a.rs:1 B"]);
    }

    #[test]
    fn of_two_types_of_a_name_the_nearer_is_meant() {
        let files = vec![
            file("a.rs", &["a"], "struct A; impl A { fn a() {} fn b() {} }"),
            file("b.rs", &["b"], "struct A;"),
            file("b/c.rs", &["b", "c"], "impl super::A { fn a() {} fn b() {} fn c() {} }"),
        ];
        let figure = figure(&[Source { name: "any".into(), files }]);
        assert_eq!(figure.places, ["   3 b.rs:1 A", "   2 a.rs:1 A"]);
    }
}
