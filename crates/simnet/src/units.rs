//! Quantities as people write them: `100mbit`, `16.5ms`, `1%`, `256k`.

use std::time::Duration;

/// Bits per second: `bit`, `kbit`, `mbit`, `gbit`, powers of 1000.
pub fn rate(text: &str) -> Result<u64, String> {
    let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)];
    let rate = quantity(text, &units).ok_or_else(|| format!("`{text}` is not a rate like 100mbit"))?;
    match rate >= 1.0 {
        true => Ok(rate as u64),
        false => Err(format!("`{text}` is no rate: to cut a link, write cut = true")),
    }
}

/// `us`, `ms`, `s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    quantity(text, &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)])
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("`{text}` is not a time like 16.5ms"))
}

/// A part of one: `1%` or `0.01`.
pub fn share(text: &str) -> Result<f64, String> {
    quantity(text, &[("%", 0.01), ("", 1.0)])
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("`{text}` is not a share like 1% or 0.01"))
}

/// Bytes: `k`, `m`, `g` are powers of 1024.
pub fn bytes(text: &str) -> Result<u64, String> {
    let units = [("k", 1024.0), ("m", 1024.0 * 1024.0), ("g", 1024.0 * 1024.0 * 1024.0), ("", 1.0)];
    let bytes = quantity(text, &units).ok_or_else(|| format!("`{text}` is not a size like 256k"))?;
    Ok(bytes as u64)
}

/// A number, not negative, with one of the units; the first that fits.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        (number.is_finite() && number >= 0.0).then_some(number * factor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_they_are_written() {
        assert_eq!(rate("100mbit"), Ok(100_000_000));
        assert_eq!(rate("1 gbit"), Ok(1_000_000_000));
        assert_eq!(rate("9600bit"), Ok(9600));
        assert_eq!(duration("16.5ms"), Ok(Duration::from_micros(16_500)));
        assert_eq!(duration("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(share("1%"), Ok(0.01));
        assert_eq!(share("0.25"), Ok(0.25));
        assert_eq!(bytes("256k"), Ok(256 << 10));
        assert_eq!(bytes("1500"), Ok(1500));
    }

    #[test]
    fn what_is_no_quantity_is_named() {
        for text in ["", "fast", "-1mbit", "nanmbit", "infmbit", "1", "0mbit"] {
            assert!(rate(text).is_err_and(|error| error.contains(text)), "{text}");
        }
        assert!(duration("5").is_err(), "a time needs its unit");
        assert!(share("101%").is_err());
        assert!(bytes("1x").is_err());
    }
}
