//! Prose: the sentences of the design pages, and how many words they have.

use std::path::Path;

use crate::limits::Figure;
use crate::source::children;

/// A sentence of more words than this is long.
const LONG: usize = 30;

/// The mean of the words a sentence, and how many of a hundred sentences are long, both rounded up.
pub fn figures(folder: &Path) -> Result<Vec<Figure>, String> {
    let mut sentences: Vec<(usize, String)> = Vec::new();
    for path in children(folder)? {
        if path.extension().is_some_and(|extension| extension == "md") {
            let text =
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let counted = split(&text).into_iter().map(|sentence| {
                let words =
                    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
                (words, format!("{words:4} {name}: {sentence}"))
            });
            sentences.extend(counted);
        }
    }
    sentences.sort_by_key(|(words, _)| std::cmp::Reverse(*words));
    let words: usize = sentences.iter().map(|(words, _)| words).sum();
    let long = sentences.iter().filter(|(words, _)| *words > LONG).count();
    let (count, places): (usize, Vec<_>) =
        (sentences.len().max(1), sentences.into_iter().map(|(_, place)| place).collect());
    Ok(vec![
        Figure { name: "words_per_sentence", value: words.div_ceil(count), places: places.clone() },
        Figure {
            name: "long_sentences_percent",
            value: (100 * long).div_ceil(count),
            places: places[..long].to_vec(),
        },
    ])
}

/// The sentences of a Markdown page; headings, tables and blocks of code have none. An item of a list ends one.
fn split(text: &str) -> Vec<String> {
    let (mut sentences, mut current, mut is_code) = (Vec::new(), String::new(), false);
    let mut end = |current: &mut String| {
        let sentence = std::mem::take(current);
        if sentence.chars().any(char::is_alphabetic) {
            sentences.push(sentence);
        }
    };
    for line in text.lines().map(str::trim) {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let item = item(line);
        let has_none = is_code || is_fence || line.starts_with(['#', '|']);
        if has_none || line.is_empty() || item.is_some() {
            end(&mut current);
        }
        if has_none {
            continue;
        }
        let line = item.unwrap_or(line);
        for word in line.split_whitespace() {
            current += if current.is_empty() { "" } else { " " };
            current += word;
            if word.trim_end_matches([')', '"', '*', '`']).ends_with(['.', '?', '!']) {
                end(&mut current);
            }
        }
    }
    end(&mut current);
    sentences
}

/// Text of a list's item, of a line that begins one.
fn item(line: &str) -> Option<&str> {
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = numbered.strip_prefix(". ").filter(|_| line.starts_with(|c: char| c.is_ascii_digit()));
    line.strip_prefix("- ").or(line.strip_prefix("* ")).or(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_with_points_items_and_paragraphs() {
        let page = "# A heading. No sentence\n\nOne is\nhere. Two (of `1.5` words.) Three\n\n- four is\n  long\n- five\n1. six\n\n\
            | a table. |\n|---|\n\n```\ncode. code.\n```\nseven";
        let found =
            ["One is here.", "Two (of `1.5` words.)", "Three", "four is long", "five", "six", "seven"];
        let found: Vec<_> = found.into_iter().map(String::from).collect();
        let sentences: Vec<_> =
            split(page).into_iter().map(|s| s.trim_start_matches("1. ").to_owned()).collect();
        assert_eq!(sentences, found);
    }
}
