//! Sizes as rsync writes them: `10`, `1.5K`, `20MB` (thousands), `1GiB-1`.

/// Parses a size; a bare number counts in `unit` bytes.
pub fn parse(text: &str, unit: u64) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a size; write it as in 10, 1.5K, 20MB or 1GiB-1");
    let (text_of_number, rest) = split(text, |c| c.is_ascii_digit() || c == '.');
    let (suffix, correction) = split(rest, |c| c.is_ascii_alphabetic());
    let factor = factor(suffix, unit).ok_or_else(bad)?;
    let bytes = scaled(text_of_number, factor).ok_or_else(bad)?;
    match correction {
        "" => Some(bytes),
        "+1" => bytes.checked_add(1),
        "-1" => bytes.checked_sub(1),
        _ => None,
    }
    .ok_or_else(bad)
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// `K` and `KiB` are 1024, `KB` is 1000.
fn factor(suffix: &str, unit: u64) -> Option<u64> {
    let suffix = suffix.to_ascii_lowercase();
    let Some(letter) = suffix.chars().next() else { return Some(unit) };
    let power = "bkmgtp".find(letter)? as u32;
    let base: u64 = match &suffix[1..] {
        "" | "ib" => 1024,
        "b" => 1000,
        _ => return None,
    };
    base.checked_pow(power)
}

fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.checked_mul(factor)? };
    if fraction.is_empty() {
        return Some(whole);
    }
    let part: f64 = format!("0.{fraction}").parse().ok()?;
    whole.checked_add((part * factor as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_understood_as_rsync_does() {
        for (text, bytes) in [
            ("0", 0),
            ("100", 100),
            ("100b", 100),
            ("1K", 1024),
            ("1k", 1024),
            ("1KiB", 1024),
            ("1KB", 1000),
            ("1.5m", 3 << 19),
            (".5K", 512),
            ("2G", 2 << 30),
            ("3TB", 3_000_000_000_000),
            ("1P", 1 << 50),
            ("1.5mb-1", 1_499_999),
            ("1g+1", (1 << 30) + 1),
            ("7+1", 8),
        ] {
            assert_eq!(parse(text, 1), Ok(bytes), "{text}");
        }
        assert_eq!(parse("100", 1024), Ok(102_400));
        assert_eq!(parse("100b", 1024), Ok(100));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "K", "1x", "1Kx", "-1", "1K+2", "0-1", "1.2.3", "20000P", "99999999999999999999", "."]
        {
            assert!(parse(text, 1).is_err(), "{text}");
        }
    }
}
