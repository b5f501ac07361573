//! Names of files are bytes that a stranger may have chosen: which of them are allowed, and how
//! they are shown.
//!
//! A name that is printed as it is can repaint the terminal it is printed on (CVE-2019-6109) or,
//! by turning the writing direction, look like another name. So people see names escaped.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use towpath_content::tree::MAX_NAME;

/// Checks that `name` is one path component below a directory; else says what is wrong with it.
pub fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("an empty name"),
        b"." | b".." => Err("'.' and '..' are not names"),
        _ if name.len() > MAX_NAME => Err("a name over 255 bytes"),
        _ if name.contains(&b'/') => Err("a name with a slash"),
        _ if name.contains(&0) => Err("a name with a NUL byte"),
        _ => Ok(()),
    }
}

/// A name or path as it may be shown on a terminal or written to a log.
///
/// Printable text stays as it is; control characters, characters that turn or hide text, and
/// backslashes are escaped as in Rust's strings, and bytes that are not UTF-8 as `\xNN`.
pub fn display_name(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        chunk.valid().chars().for_each(|c| show_char(&mut shown, c));
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// A text of the other side, in which names are escaped already, as it may be shown: without anything that paints,
/// on one line.
pub fn display_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\\' { shown.push(c) } else { show_char(&mut shown, c) }
    }
    shown
}

pub(crate) fn display_path(path: &Path) -> String {
    display_name(path.as_os_str().as_bytes())
}

fn show_char(shown: &mut String, c: char) {
    match c {
        '\\' => shown.push_str("\\\\"),
        _ if c.is_control() || is_deceptive(c) => shown.extend(c.escape_default()),
        _ => shown.push(c),
    }
}

/// Characters that turn the writing direction, break the line or are not seen at all.
const fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_are_not_one_component_are_refused() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b", &[b'x'; 256]] {
            assert!(check_name(bad).is_err(), "{}", display_name(bad));
        }
        for good in [&b"..."[..], b".a", b"a\nb", b"\xff", b"-rf", &[b'x'; 255]] {
            assert_eq!(check_name(good), Ok(()));
        }
    }

    #[test]
    fn a_name_cannot_repaint_the_terminal_or_turn_the_text() {
        assert_eq!(display_name(b"a\x1b[2K\rb"), "a\\u{1b}[2K\\rb");
        assert_eq!(display_name("exe\u{202e}gpj".as_bytes()), "exe\\u{202e}gpj");
        assert_eq!(display_name("\u{9b}2J".as_bytes()), "\\u{9b}2J");
        assert_eq!(display_name(b"\xffz"), "\\xffz");
        assert_eq!(display_name("Grüße \u{1f600}".as_bytes()), "Grüße \u{1f600}");
    }

    #[test]
    fn a_text_keeps_its_escapes_and_paints_nothing() {
        let text = "a\\u{1b}b: \x1b]52;c;x\x07\n\u{202e}";
        assert_eq!(display_text(text), "a\\u{1b}b: \\u{1b}]52;c;x\\u{7}\\n\\u{202e}");
        assert_eq!(display_text(&display_text(text)), display_text(text));
    }

    #[test]
    fn an_escape_cannot_be_spelled_by_a_name() {
        assert_ne!(display_name(b"\\xff"), display_name(b"\xff"));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_always_printable_and_unambiguous(a: Vec<u8>, b: Vec<u8>) {
            let shown = display_name(&a);
            prop_assert!(!shown.chars().any(|c| c.is_control() || is_deceptive(c)));
            prop_assert_eq!(a == b, shown == display_name(&b));
        }
    }
}
