//! The words of codes: 1,024 that are told apart when they are spoken and typed, each worth 10 bits.
//!
//! `words.txt` is part of the format: a word's index goes into no message, but both ends must know the same ones,
//! and a fingerprint is spoken with them. So the list never changes; another one would be another version.

use std::sync::LazyLock;

/// How many words there are.
pub const COUNT: usize = 1 << BITS;
/// Bits that each of them is worth, if it is chosen at random.
pub const BITS: usize = 10;
/// A word further off than this many typing errors is not meant.
const MOST_ERRORS: usize = 2;

static LIST: LazyLock<Vec<&'static str>> = LazyLock::new(|| include_str!("words.txt").lines().collect());

/// The word at an index, of which the lowest [`BITS`] bits count.
pub fn word(index: u16) -> &'static str {
    LIST[usize::from(index) % COUNT]
}

/// The word of the list that equals this text.
pub fn find(text: &str) -> Option<&'static str> {
    LIST.binary_search(&text).ok().map(|index| LIST[index])
}

/// The word that was meant by one that is not in the list; `None` if all are far off.
pub fn nearest(text: &str) -> Option<&'static str> {
    let typed: Vec<char> = text.chars().take(32).collect();
    // Short words have neighbours by chance: one error from three letters on, two from five.
    let most = MOST_ERRORS.min(typed.len().saturating_sub(1) / 2);
    let far = |word: &str| (errors(&typed, word), !text.starts_with(&word[..1]));
    let (near, word) = LIST.iter().map(|word| (far(word), *word)).min()?;
    (near.0 <= most).then_some(word)
}

/// Typing errors between a text and a word: letters changed, missing, too many, or two of them the wrong way round.
fn errors(typed: &[char], word: &str) -> usize {
    let word: Vec<char> = word.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=word.len()).collect();
    for (i, letter) in typed.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, other) in word.iter().enumerate() {
            let changed = row[j] + usize::from(letter != other);
            let mut least = changed.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *letter == word[j - 1] && typed[i - 1] == *other {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[word.len()]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_list_is_complete_sorted_and_of_short_words() {
        assert_eq!(LIST.len(), COUNT);
        assert!(LIST.is_sorted_by(|a, b| a < b), "sorted, without repetition");
        for word in LIST.iter() {
            let is_plain =
                (3..=8).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_lowercase());
            assert!(is_plain, "{word}");
            assert_eq!(find(word), Some(*word));
        }
        assert_eq!(
            LIST.iter().map(|word| word.len()).max(),
            Some(8),
            "and not one line end of another system"
        );
    }

    #[test]
    fn no_word_begins_another_or_is_one_typing_error_away() {
        for (index, word) in LIST.iter().enumerate() {
            let letters: Vec<char> = word.chars().collect();
            for other in &LIST[index + 1..] {
                assert!(!other.starts_with(word), "{word} {other}");
                assert!(errors(&letters, other) >= 2, "{word} {other}");
            }
        }
    }

    /// A word as it roughly sounds: one vowel like another, letters that are spoken alike made equal, none doubled.
    fn sound(word: &str) -> String {
        let mut word = word.to_owned();
        let alike = [
            ("ph", "f"),
            ("ck", "k"),
            ("qu", "kw"),
            ("c", "k"),
            ("z", "s"),
            ("kn", "n"),
            ("wr", "r"),
            ("wh", "w"),
        ];
        alike.iter().for_each(|(from, to)| word = word.replace(from, to));
        let mut spoken: Vec<char> =
            word.chars().map(|c| if "aeiouy".contains(c) { 'a' } else { c }).collect();
        spoken.dedup();
        spoken.into_iter().collect()
    }

    #[test]
    fn no_two_words_sound_alike() {
        let sounds: BTreeSet<String> = LIST.iter().map(|word| sound(word)).collect();
        assert_eq!(sounds.len(), COUNT);
    }

    #[test]
    fn a_mistyped_word_is_the_one_it_is_nearest_to() {
        let near = [
            ("oter", Some("otter")),
            ("ottre", Some("otter")),
            ("otters", Some("otter")),
            ("lagon", Some("lagoon")),
            ("lagoun", Some("lagoon")),
            ("zebbra", Some("zebra")),
            ("owk", Some("owl")),
            ("ok", None),
            ("", None),
            ("qqqqqq", None),
            ("öttér", Some("otter")),
        ];
        for (typed, word) in near {
            assert_eq!(nearest(typed), word, "{typed}");
        }
        assert_eq!(nearest(&"otter".repeat(10_000)), None, "and takes no time for it");
    }
}
