//! Measures of the source: sizes of functions and traits, names of types, tests that sleep or read the clock.

use std::collections::BTreeMap;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, ExprMethodCall, ExprPath, ImplItemFn, Item, ItemFn, ItemTrait, Signature, TraitItem,
    Visibility,
};

use crate::limits::Figure;
use crate::source::{Source, SourceFile, is_for_tests};

/// A function of more lines than this is long.
const LONG: usize = 60;

/// All of them.
pub fn figures(sources: &[Source]) -> Vec<Figure> {
    let mut found = Found::default();
    for file in sources.iter().flat_map(|source| &source.files) {
        Reader { file, is_test: file.is_test, found: &mut found }.visit_file(&file.parsed);
    }
    found.functions.sort_by(|a, b| b.cmp(a));
    found.traits.sort_by(|a, b| b.cmp(a));
    let p90 = found.functions.get(found.functions.len() / 10).map_or(0, |(lines, _)| *lines);
    let long: Vec<_> =
        shown(&found.functions).take_while(|(lines, _)| *lines > LONG).map(|(_, line)| line).collect();
    let twice: Vec<_> = found.types.iter().filter(|(_, places)| places.len() > 1).collect();
    let twice: Vec<_> =
        twice.iter().map(|(name, at)| format!("{:3} {name}: {}", at.len(), at.join(", "))).collect();
    let all = |of: &[(usize, String)]| shown(of).map(|(_, line)| line).collect::<Vec<_>>();
    vec![
        Figure { name: "functions_over_60_lines", value: long.len(), places: long },
        Figure {
            name: "function_lines_p90",
            value: p90,
            places: all(&found.functions[..found.functions.len().min(100)]),
        },
        Figure {
            name: "methods_of_largest_trait",
            value: found.traits.first().map_or(0, |(methods, _)| *methods),
            places: all(&found.traits),
        },
        Figure { name: "type_names_used_twice", value: twice.len(), places: twice },
        Figure { name: "tests_that_sleep", value: found.sleeping.len(), places: found.sleeping },
        Figure { name: "tests_that_read_the_clock", value: found.timing.len(), places: found.timing },
    ]
}

fn shown(of: &[(usize, String)]) -> impl Iterator<Item = (usize, String)> {
    of.iter().map(|(count, place)| (*count, format!("{count:4} {place}")))
}

#[derive(Default)]
struct Found {
    /// Lines and place, outside of tests.
    functions: Vec<(usize, String)>,
    /// Methods and place of each public trait.
    traits: Vec<(usize, String)>,
    /// Files with types of each name, outside of tests.
    types: BTreeMap<String, Vec<String>>,
    /// Functions of tests that call something called `sleep`.
    sleeping: Vec<String>,
    /// Functions of tests that ask how long something took.
    timing: Vec<String>,
}

struct Reader<'a> {
    file: &'a SourceFile,
    is_test: bool,
    found: &'a mut Found,
}

impl Reader<'_> {
    fn place(&self, span: Span) -> String {
        format!("{}:{}", self.file.path, span.start().line)
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        let place = format!("{} {}", self.place(signature.span()), signature.ident);
        if is_simulated(attributes) {
            return;
        }
        if self.is_test || is_for_tests(attributes) {
            if is_bench(&self.file.path) {
                return;
            }
            let mut calls = Calls::default();
            calls.visit_block(body);
            self.found.sleeping.extend(calls.sleeps.then(|| place.clone()));
            self.found.timing.extend(calls.times.then_some(place));
            return;
        }
        let lines = body.span().end().line + 1 - signature.span().start().line;
        self.found.functions.push((lines, place));
    }

    fn named(&mut self, name: &syn::Ident) {
        if !self.is_test {
            let place = self.place(name.span());
            self.found.types.entry(name.to_string()).or_default().push(place);
        }
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        let before = self.is_test;
        match item {
            Item::Mod(item) => self.is_test |= is_for_tests(&item.attrs),
            Item::Impl(item) => self.is_test |= is_for_tests(&item.attrs),
            Item::Struct(item) => self.named(&item.ident),
            Item::Enum(item) => self.named(&item.ident),
            Item::Trait(item) => self.named(&item.ident),
            Item::Type(item) => self.named(&item.ident),
            _ => {}
        }
        visit::visit_item(self, item);
        self.is_test = before;
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_trait(&mut self, item: &'a ItemTrait) {
        if !self.is_test && matches!(item.vis, Visibility::Public(_)) {
            let methods = item.items.iter().filter(|item| matches!(item, TraitItem::Fn(_))).count();
            self.found.traits.push((methods, format!("{} {}", self.place(item.ident.span()), item.ident)));
        }
        visit::visit_item_trait(self, item);
    }
}

/// True if a file is one of those that measure, which read the clock.
fn is_bench(path: &str) -> bool {
    path.contains("/benches/")
}

/// True if a test's time is tokio's, which passes as soon as everything waits.
fn is_simulated(attributes: &[Attribute]) -> bool {
    let lists = attributes.iter().filter_map(|attribute| attribute.meta.require_list().ok());
    lists.map(|list| list.tokens.to_string()).any(|tokens| tokens.contains("start_paused"))
}

/// Calls of a test's function, what it hands to macros left out.
#[derive(Default)]
struct Calls {
    sleeps: bool,
    times: bool,
}

impl<'a> Visit<'a> for Calls {
    fn visit_expr_path(&mut self, path: &'a ExprPath) {
        self.sleeps |= path.path.segments.last().is_some_and(|last| last.ident == "sleep");
        visit::visit_expr_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        self.times |= call.method == "elapsed";
        visit::visit_expr_method_call(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of one file, by their names.
    fn values(text: &str) -> BTreeMap<&'static str, usize> {
        values_of("src/a.rs", text, false)
    }

    fn values_of(path: &str, text: &str, is_test: bool) -> BTreeMap<&'static str, usize> {
        let parsed = syn::parse_file(text).unwrap();
        let file = SourceFile { path: path.into(), module: Vec::new(), is_test, lines: 1, parsed };
        let figures = figures(&[Source { name: "any".into(), files: vec![file] }]);
        figures.iter().map(|figure| (figure.name, figure.value)).collect()
    }

    #[test]
    fn functions_over_sixty_lines_are_long() {
        let function = |lines: usize| format!("fn f() {{{}}}", "\n".repeat(lines - 1));
        assert_eq!(values(&function(60))["functions_over_60_lines"], 0);
        assert_eq!(values(&function(61))["functions_over_60_lines"], 1);
        assert_eq!(
            values(&format!("#[cfg(test)] mod t {{ {} }}", function(61)))["functions_over_60_lines"],
            0
        );
    }

    #[test]
    fn public_traits_and_names_are_counted() {
        let text = "pub trait T { fn a(); fn b(&self) {} const C: u8; } trait U { fn a(); fn b(); fn c(); } \
            struct Same; mod m { enum Same {} } #[cfg(test)] mod t { struct Other; } struct Other;";
        let values = values(text);
        assert_eq!(values["methods_of_largest_trait"], 2);
        assert_eq!(values["type_names_used_twice"], 1);
    }

    #[test]
    fn tests_that_sleep_are_counted_and_nothing_else_that_does() {
        let text = "fn f() { thread::sleep(D) } #[test] fn a() { sleep(D); } \
            #[cfg(test)] mod t { fn b() { let s = now.elapsed(); } #[tokio::test] async fn c() { time::sleep(D).await } \
            #[tokio::test(start_paused = true)] async fn d() { sleep(D).await } }";
        let values = values(text);
        assert_eq!((values["tests_that_sleep"], values["tests_that_read_the_clock"]), (2, 1));
    }

    #[test]
    fn benches_may_read_the_clock() {
        let text = "fn timed() { run(); let took = start.elapsed(); }";
        for (path, count) in [("crates/a/tests/a.rs", 1), ("crates/a/benches/a.rs", 0)] {
            assert_eq!(values_of(path, text, true)["tests_that_read_the_clock"], count, "{path}");
        }
    }
}
