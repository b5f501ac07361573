//! A peer's words, as they may be shown.

/// Characters that are shown of them.
const MOST: usize = 200;

/// A peer's words, safe to show: bounded, and without characters that control a terminal, turn the writing
/// direction or are not seen.
pub fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && !is_format(*c)).take(MOST).collect()
}

/// Characters of the kind "format" (Unicode's Cf), and those that break a line.
const fn is_format(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{8e2}' | '\u{180e}' | '\u{feff}'
        | '\u{600}'..='\u{605}'
        | '\u{890}'..='\u{891}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_cannot_paint_the_terminal_turn_the_text_or_hide_in_it() {
        assert_eq!(printable("tea\u{7}ti\u{1b}[2Jme\r\n"), "teati[2Jme");
        assert_eq!(printable("no \u{202e}gpj.exe\u{2066}\u{200f}\u{61c}"), "no gpj.exe");
        assert_eq!(printable("a\u{200b}b\u{feff}c\u{ad}d\u{2028}e\u{e0041}f\u{fff9}g"), "abcdefg");
        assert_eq!(printable("Grüße, мир, 平和 \u{1f600}"), "Grüße, мир, 平和 \u{1f600}");
        assert_eq!(printable(&"x".repeat(10_000)).len(), 200);
    }
}
