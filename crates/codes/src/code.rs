//! The text of a code: the number of a mailbox, which is no secret, and words, which are.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::entropy::Entropy;
use crate::words::{self, BITS};

/// Words of a code unless more are asked for: 20 bits.
pub const USUAL_WORDS: usize = 2;
/// The most words a code may have.
pub const MAX_WORDS: usize = 8;
/// The highest number of a mailbox; the lowest is 1.
pub const MAX_NUMBER: u32 = 999_999;
/// Longer text is no code.
const MAX_TEXT: usize = 256;
/// Letters of a wrong word that are repeated.
const SHOWN: usize = 20;

/// Reason why a text is no code.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CodeError {
    /// It does not begin with a number from 1 to [`MAX_NUMBER`].
    #[error("a code begins with a number, like 7-otter-lagoon")]
    Number,
    /// Fewer words than [`USUAL_WORDS`].
    #[error(
        "a code has at least {USUAL_WORDS} words, here are {found}: write it with hyphens, like 7-otter-lagoon"
    )]
    Few {
        /// Words found.
        found: usize,
    },
    /// More words than [`MAX_WORDS`], or longer text than theirs.
    #[error("a code has at most {MAX_WORDS} words")]
    Long,
    /// A word is not in the list.
    #[error("'{found}' is no word of a code{}", suggest(*.meant))]
    Word {
        /// The word, without characters that are no letters or digits, and not all of a long one.
        found: String,
        /// The word it is nearest to.
        meant: Option<&'static str>,
    },
}

fn suggest(meant: Option<&str>) -> String {
    meant.map_or_else(String::new, |meant| format!("; did you mean '{meant}'?"))
}

/// A code. `Debug` does not show its words, [`fmt::Display`] does.
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    number: u32,
    words: Vec<&'static str>,
}

impl Code {
    /// Chooses so many words, from [`USUAL_WORDS`] to [`MAX_WORDS`], for the mailbox of this number, from 1 to
    /// [`MAX_NUMBER`]; what is outside is brought to the nearest that is allowed.
    pub fn random(number: u32, words: usize, entropy: &mut Entropy) -> Self {
        let count = words.clamp(USUAL_WORDS, MAX_WORDS);
        let word = |_| words::word(u16::from_le_bytes(entropy.array()));
        Self { number: number.clamp(1, MAX_NUMBER), words: (0..count).map(word).collect() }
    }

    /// The number of the mailbox, which everybody may know.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// A guess is right once in two to the power of this.
    pub const fn bits(&self) -> usize {
        self.words.len() * BITS
    }

    /// Both ends prove to each other that they know this.
    pub(crate) fn password(&self) -> String {
        self.words.join("-")
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, self.password())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({}, {} words)", self.number, self.words.len())
    }
}

impl FromStr for Code {
    type Err = CodeError;

    /// Takes blanks, underscores and dashes of any kind and number between the parts, and capitals.
    fn from_str(text: &str) -> Result<Self, CodeError> {
        if text.len() > MAX_TEXT {
            return Err(CodeError::Long);
        }
        let mut parts = text.split(is_between).filter(|part| !part.is_empty());
        let number = read_number(parts.next().unwrap_or_default())?;
        let words = parts.map(read_word).collect::<Result<Vec<_>, _>>()?;
        match words.len() {
            found @ ..USUAL_WORDS => Err(CodeError::Few { found }),
            USUAL_WORDS..=MAX_WORDS => Ok(Self { number, words }),
            _ => Err(CodeError::Long),
        }
    }
}

/// Hyphens, and what programs for writing make of them.
fn is_between(c: char) -> bool {
    c.is_whitespace() || matches!(c, '-' | '_' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{ad}')
}

fn read_number(text: &str) -> Result<u32, CodeError> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if is_digits { text.parse().ok() } else { None };
    number.filter(|number| (1..=MAX_NUMBER).contains(number)).ok_or(CodeError::Number)
}

fn read_word(text: &str) -> Result<&'static str, CodeError> {
    let lower = text.to_lowercase();
    words::find(&lower).ok_or_else(|| {
        let found = text.chars().filter(|c| c.is_alphanumeric()).take(SHOWN).collect();
        CodeError::Word { found, meant: words::nearest(&lower) }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn people_write_codes_in_many_ways() {
        let ways = [
            "7-otter-lagoon",
            "7 otter lagoon",
            "  7_Otter_LAGOON\n",
            "07 -- otter - lagoon ",
            "7\u{2013}otter\u{2014}lagoon",
            "7\u{a0}otter\u{a0}lagoon",
        ];
        for way in ways {
            assert_eq!(way.parse::<Code>().unwrap().to_string(), "7-otter-lagoon", "{way:?}");
        }
        let long = "999999-otter-lagoon-owl".parse::<Code>().unwrap();
        assert_eq!((long.number(), long.bits()), (MAX_NUMBER, 30));
        assert_eq!(format!("{long:?}"), "Code(999999, 3 words)");
    }

    #[test]
    fn what_is_no_code_is_refused_with_the_reason() {
        let reasons = [
            ("", "a code begins with a number, like 7-otter-lagoon"),
            ("otter-lagoon", "a code begins with a number, like 7-otter-lagoon"),
            ("0-otter-lagoon", "a code begins with a number, like 7-otter-lagoon"),
            ("1000000-otter-lagoon", "a code begins with a number, like 7-otter-lagoon"),
            ("+7-otter-lagoon", "a code begins with a number, like 7-otter-lagoon"),
            ("99999999999999999999-otter-lagoon", "a code begins with a number, like 7-otter-lagoon"),
            ("7", "a code has at least 2 words, here are 0: write it with hyphens, like 7-otter-lagoon"),
            (
                "7-otter",
                "a code has at least 2 words, here are 1: write it with hyphens, like 7-otter-lagoon",
            ),
            ("7-oter-lagoon", "'oter' is no word of a code; did you mean 'otter'?"),
            ("7-otter-Lagoun", "'Lagoun' is no word of a code; did you mean 'lagoon'?"),
            ("7-otter-\u{1b}[31mxyzzy", "'31mxyzzy' is no word of a code"),
            ("7-otter-7", "'7' is no word of a code"),
            ("7-otterlagoon", "'otterlagoon' is no word of a code"),
            ("7-owl-owl-owl-owl-owl-owl-owl-owl-owl", "a code has at most 8 words"),
        ];
        for (text, reason) in reasons {
            assert_eq!(text.parse::<Code>().unwrap_err().to_string(), reason, "{text:?}");
        }
        assert_eq!("7-otter-lagoon ".repeat(30).parse::<Code>(), Err(CodeError::Long));
    }

    #[test]
    fn a_random_code_has_the_words_that_were_asked_for() {
        let mut entropy = Entropy::from_seed(&[1; 32]);
        for (asked, bits) in [(0, 20), (2, 20), (3, 30), (8, 80), (9, 80)] {
            assert_eq!(Code::random(7, asked, &mut entropy).bits(), bits);
        }
        assert_eq!(Code::random(0, 2, &mut entropy).number(), 1);
        assert_eq!(Code::random(u32::MAX, 2, &mut entropy).number(), MAX_NUMBER);
    }

    #[test]
    fn every_word_is_as_likely_as_any_other() {
        let mut entropy = Entropy::of_system().unwrap();
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..100 * words::COUNT / MAX_WORDS {
            for word in Code::random(7, MAX_WORDS, &mut entropy).words {
                *counts.entry(word).or_insert(0) += 1;
            }
        }
        // A hundred of each, give or take ten: seven times as much befalls one run in a hundred million.
        assert_eq!(counts.len(), words::COUNT);
        assert!(counts.values().all(|count| (30..170).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn a_code_comes_back_from_its_text(seed: [u8; 32], number in 1..=MAX_NUMBER, words in 2..=MAX_WORDS) {
            let code = Code::random(number, words, &mut Entropy::from_seed(&seed));
            let text = code.to_string();
            prop_assert_eq!(text.parse::<Code>(), Ok(code.clone()));
            let shouted = text.to_uppercase().replace('-', " _ ");
            prop_assert_eq!(shouted.parse::<Code>(), Ok(code));
        }

        #[test]
        fn any_text_is_a_code_that_comes_back_or_an_error_on_one_line(text: String) {
            match text.parse::<Code>() {
                Ok(code) => prop_assert_eq!(code.to_string().parse::<Code>(), Ok(code)),
                Err(error) => prop_assert!(!error.to_string().chars().any(char::is_control)),
            }
        }

        #[test]
        fn one_typing_error_in_a_word_is_answered_with_that_word_or_one_as_near(index: u16, at: prop::sample::Index, letter in "[a-z]") {
            let word = words::word(index);
            let mut typed = word.to_owned();
            let at = at.index(word.len());
            typed.replace_range(at..=at, &letter);
            let text = format!("7-{typed}-otter");
            match text.parse::<Code>() {
                Ok(code) => prop_assert_eq!(code.to_string(), format!("7-{word}-otter"), "no error was made"),
                Err(CodeError::Word { meant, .. }) => prop_assert!(meant.is_some()),
                Err(error) => prop_assert!(false, "{}", error),
            }
        }
    }
}
