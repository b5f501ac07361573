//! Names of versions, distinguished from what they are versions of. Pure.

/// A path with one sign in the place of each number, and of each row of numbers joined by dots: `lib.so.1.31.0` and
/// `lib.so.2` have the same.
pub fn pattern(path: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        match number(rest) {
            0 => {
                pattern.push(first);
                rest = after;
            }
            len => {
                pattern.push(NUMBER);
                rest = &rest[len..];
            }
        }
    }
    pattern
}

/// No name of a file has it.
const NUMBER: u8 = 0;

/// Bytes of the number, or row of them, that this begins with.
fn number(bytes: &[u8]) -> usize {
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut len = digits(0);
    while len > 0 && bytes.get(len) == Some(&b'.') {
        match digits(len + 1) {
            0 => break,
            more => len += 1 + more,
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_names() {
        for (one, other, is_same) in [
            ("libonnxruntime.so.1.31.0", "libonnxruntime.so.1.31.1", true),
            ("libonnxruntime.so.1.31.0", "libonnxruntime.so.1", true),
            ("node-26.9.0/bin/node", "node-26.10.0/bin/node", true),
            ("linux-headers-6.1.0-47-amd64/x", "linux-headers-6.1.0-50-amd64/x", true),
            ("modules/6.1.0-47-amd64", "modules/6.1.0-50-arm64", false),
            ("file", "file.1", false),
            ("v1.", "v2.", true),
            ("v1.", "v2", false),
            ("1..2", "1.2", false),
            ("a1/b", "a/1b", false),
            ("", "1", false),
            ("log.1", "log.10", true),
        ] {
            assert_eq!(pattern(one.as_bytes()) == pattern(other.as_bytes()), is_same, "{one} {other}");
        }
    }
}
