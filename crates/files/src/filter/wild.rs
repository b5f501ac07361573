//! Wildcards: `?` and `[...]` take one byte that is no slash, `*` a run of such, `**` any run.
//!
//! Matching follows all ways through the pattern at once, so its time is bounded by the product of
//! the lengths of pattern and text, whatever they are.

/// A pattern with wildcards, as what comes before its first star, what comes after its last, and
/// what is between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wild {
    head: Vec<One>,
    /// Empty, or beginning and ending with a star; no two stars side by side.
    middle: Vec<Token>,
    tail: Vec<One>,
}

/// A name with a shell's wildcards, for names of any bytes: a wildcard is no dot at the front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellPattern {
    wild: Wild,
    takes_hidden: bool,
}

impl ShellPattern {
    /// Reads a pattern of one name; `None` if it has no wildcard or is malformed, and so stands for itself alone.
    pub fn new(pattern: &[u8]) -> Option<Self> {
        let has_wildcard = pattern.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['));
        let wild = Wild::new(pattern).filter(|_| has_wildcard)?;
        Some(Self { wild, takes_hidden: pattern.starts_with(b".") })
    }

    /// True if a name matches.
    pub fn matches(&self, name: &[u8]) -> bool {
        (self.takes_hidden || !name.starts_with(b".")) && self.wild.matches(name)
    }
}

/// Token that takes exactly one byte.
#[derive(Debug, Clone, PartialEq, Eq)]
enum One {
    Byte(u8),
    NoSlash,
    Class(Box<ByteSet>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    One(One),
    /// Any run without a slash.
    Star,
    /// Any run.
    Run,
}

impl One {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => *own == byte,
            Self::NoSlash => byte != b'/',
            Self::Class(set) => set.contains(byte),
        }
    }
}

impl Wild {
    /// Reads a pattern; `None` if it is malformed, and so matches nothing.
    pub(super) fn new(pattern: &[u8]) -> Option<Self> {
        Some(Self::of(read(pattern)?))
    }

    /// As [`Wild::new`], but the pattern may begin anywhere in the text after a slash.
    pub(super) fn after_any_slash(pattern: &[u8]) -> Option<Self> {
        let mut tokens = vec![Token::Run, Token::One(One::Byte(b'/'))];
        tokens.extend(read(pattern)?);
        Some(Self::of(tokens))
    }

    fn of(mut tokens: Vec<Token>) -> Self {
        let is_star = |token: &Token| !matches!(token, Token::One(_));
        let first = tokens.iter().position(is_star).unwrap_or(tokens.len());
        let after = tokens.iter().rposition(is_star).map_or(tokens.len(), |last| last + 1);
        let tail = ones(tokens.split_off(after));
        let middle = tokens.split_off(first);
        Self { head: ones(tokens), middle, tail }
    }

    /// True if the whole text matches.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let fixed = self.head.len() + self.tail.len();
        let fits = if self.middle.is_empty() { text.len() == fixed } else { text.len() >= fixed };
        if !fits {
            return false;
        }
        let (head, rest) = text.split_at(self.head.len());
        let (middle, tail) = rest.split_at(rest.len() - self.tail.len());
        all_take(&self.head, head) && all_take(&self.tail, tail) && run(&self.middle, middle)
    }
}

fn ones(tokens: Vec<Token>) -> Vec<One> {
    tokens
        .into_iter()
        .filter_map(|token| if let Token::One(one) = token { Some(one) } else { None })
        .collect()
}

fn all_take(ones: &[One], text: &[u8]) -> bool {
    ones.iter().zip(text).all(|(one, byte)| one.takes(*byte))
}

/// True if tokens that begin and end with a star take all of the text.
fn run(tokens: &[Token], text: &[u8]) -> bool {
    match tokens {
        [] | [Token::Run] => return true,
        [Token::Star] => return !text.contains(&b'/'),
        _ => {}
    }
    // The tokens that may take the next byte, in order.
    let (mut now, mut next) = (Vec::new(), Vec::new());
    reach(&mut now, tokens, 0);
    for byte in text {
        next.clear();
        for &at in &now {
            match tokens.get(at) {
                Some(Token::Run) => reach(&mut next, tokens, at),
                Some(Token::Star) if *byte != b'/' => reach(&mut next, tokens, at),
                Some(Token::One(one)) if one.takes(*byte) => reach(&mut next, tokens, at + 1),
                _ => {}
            }
        }
        std::mem::swap(&mut now, &mut next);
        if now.is_empty() {
            return false;
        }
    }
    now.last() == Some(&tokens.len())
}

/// Adds `at`, and what follows it if it is a star, which may take nothing.
fn reach(places: &mut Vec<usize>, tokens: &[Token], at: usize) {
    let skips = matches!(tokens.get(at), Some(Token::Star | Token::Run));
    for place in at..=at + usize::from(skips) {
        if places.last().is_none_or(|last| *last < place) {
            places.push(place);
        }
    }
}

fn read(pattern: &[u8]) -> Option<Vec<Token>> {
    let (mut tokens, mut rest) = (Vec::new(), pattern);
    while let [first, after @ ..] = rest {
        rest = after;
        tokens.push(match first {
            b'\\' => {
                let (escaped, after) = rest.split_first()?;
                rest = after;
                Token::One(One::Byte(*escaped))
            }
            b'?' => Token::One(One::NoSlash),
            b'*' => {
                let more = rest.iter().take_while(|b| **b == b'*').count();
                rest = &rest[more..];
                if more > 0 { Token::Run } else { Token::Star }
            }
            b'[' => {
                let (set, after) = read_class(rest)?;
                rest = after;
                Token::One(One::Class(Box::new(set)))
            }
            byte => Token::One(One::Byte(*byte)),
        });
    }
    Some(tokens)
}

/// Reads a class behind its bracket; what follows its end.
fn read_class(text: &[u8]) -> Option<(ByteSet, &[u8])> {
    let inner = text.strip_prefix(b"!").or_else(|| text.strip_prefix(b"^"));
    let mut rest = inner.unwrap_or(text);
    let mut set = ByteSet::default();
    // The byte before, where a range may begin.
    let mut before = None;
    loop {
        before = match rest {
            [b'\\', byte, after @ ..] => {
                rest = after;
                set.add(*byte);
                Some(*byte)
            }
            [b'-', end, ..] if before.is_some() && *end != b']' => {
                let (end, after) = range_end(&rest[1..])?;
                rest = after;
                (before.unwrap_or(end)..=end).for_each(|byte| set.add(byte));
                None
            }
            [b'[', b':', after @ ..] => {
                let close = after.iter().position(|b| *b == b']')?;
                match after[..close].strip_suffix(b":") {
                    Some(name) => {
                        set.add_named(name)?;
                        rest = &after[close + 1..];
                        None
                    }
                    None => {
                        set.add(b'[');
                        rest = &rest[1..];
                        Some(b'[')
                    }
                }
            }
            [b'\\'] | [] => return None,
            [byte, after @ ..] => {
                rest = after;
                set.add(*byte);
                Some(*byte)
            }
        };
        if let Some(after) = rest.strip_prefix(b"]") {
            return Some((set.without_slash(inner.is_some()), after));
        }
    }
}

fn range_end(text: &[u8]) -> Option<(u8, &[u8])> {
    match text {
        [b'\\', byte, after @ ..] => Some((*byte, after)),
        [b'\\'] | [] => None,
        [byte, after @ ..] => Some((*byte, after)),
    }
}

/// A set of bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & 1 << (byte & 63) != 0
    }

    /// Adds the bytes of a POSIX class, as in the C locale; `None` if there is no such class.
    fn add_named(&mut self, name: &[u8]) -> Option<()> {
        let holds: fn(u8) -> bool = match name {
            b"alnum" => |b| b.is_ascii_alphanumeric(),
            b"alpha" => |b| b.is_ascii_alphabetic(),
            b"blank" => |b| matches!(b, b' ' | b'\t'),
            b"cntrl" => |b| b.is_ascii_control(),
            b"digit" => |b| b.is_ascii_digit(),
            b"graph" => |b| b.is_ascii_graphic(),
            b"lower" => |b| b.is_ascii_lowercase(),
            b"print" => |b| b == b' ' || b.is_ascii_graphic(),
            b"punct" => |b| b.is_ascii_punctuation(),
            b"space" => super::source::is_space,
            b"upper" => |b| b.is_ascii_uppercase(),
            b"xdigit" => |b| b.is_ascii_hexdigit(),
            _ => return None,
        };
        (0..=u8::MAX).filter(|b| holds(*b)).for_each(|b| self.add(b));
        Some(())
    }

    /// The set, or its complement; a slash is in neither.
    fn without_slash(mut self, negated: bool) -> Self {
        if negated {
            self.0 = self.0.map(|word| !word);
        }
        self.0[usize::from(b'/' >> 6)] &= !(1 << (b'/' & 63));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Wild::new(pattern.as_bytes()).is_some_and(|wild| wild.matches(text.as_bytes()))
    }

    #[test]
    fn stars_stop_at_slashes_and_double_stars_do_not() {
        for (pattern, text) in [
            ("*", ""),
            ("*.o", "a.o"),
            ("a*b*c", "abbc"),
            ("a/*/c", "a/b/c"),
            ("a**c", "a/b/c"),
            ("**", "a/b"),
            ("a/***", "a/"),
            ("**/b/*", "x/y/b/c"),
            ("*a**a*", "xa/ya"),
            ("?", "\u{7f}"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("*", "a/b"), ("a?b", "a/b"), ("a/*/c", "a/b/b/c"), ("*a**a*", "xa"), ("", "a")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn classes_know_ranges_names_escapes_and_negation() {
        for (pattern, text) in [
            ("[a-c]", "b"),
            ("[!a-c]", "d"),
            ("[^a]", "b"),
            ("[]]", "]"),
            ("[]-]", "-"),
            ("[a-]", "-"),
            ("[\\]x]", "]"),
            ("[[:digit:]x]", "7"),
            ("[[:digit:]-z]", "-"),
            ("[[:x]", ":"),
            ("[[]", "["),
            ("[a-\\c]", "c"),
            ("[[:space:]]", "\u{b}"),
            ("\\[x\\]", "[x]"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("[!a]", "/"),
            ("[,-0]", "/"),
            ("[a", "a"),
            ("[", "["),
            ("[[:nope:]]", "n"),
            ("[[::]]", ":"),
            ("a\\", "a"),
            ("a\\", "a\\"),
            ("[c-a]", "b"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn hostile_patterns_take_no_exponential_time() {
        let text = "a".repeat(1000);
        for pattern in ["*a".repeat(400) + "b*", "**a".repeat(400) + "b*", "a**b*".repeat(200)] {
            assert!(!matches(&pattern, &text));
        }
    }
}
