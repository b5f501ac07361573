//! The list of `--files-from`: names below the source, one a line.

use std::ffi::OsStr;
use std::io::Read;

/// The longest list taken into memory.
const MAX_LIST: u64 = 256 << 20;

/// Reads a list; `-` is standard input. With `from0` names end with NUL.
pub fn read(list: &OsStr, from0: bool) -> Result<Vec<Vec<u8>>, String> {
    parse(&bytes(list)?, from0)
}

/// All of a file that the user names; `-` is standard input.
pub fn bytes(path: &OsStr) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let limit = MAX_LIST;
    let read = match path == "-" {
        true => std::io::stdin().take(limit).read_to_end(&mut bytes),
        false => std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)),
    };
    let shown = || towpath_service::display_name(path.as_encoded_bytes());
    match read {
        Ok(length) if length as u64 == limit => Err(format!("{} is longer than 256 MiB", shown())),
        Ok(_) => Ok(bytes),
        Err(error) => Err(format!("reading {}: {error}", shown())),
    }
}

/// The parts of what was read: lines, or what NUL separates. Empty ones and comments are left out.
pub fn parts(bytes: &[u8], from0: bool) -> impl Iterator<Item = &[u8]> {
    let is_end = move |byte: &u8| match from0 {
        true => *byte == 0,
        false => matches!(byte, b'\n' | b'\r'),
    };
    bytes.split(is_end).filter(|part| !matches!(part.first(), None | Some(b'#' | b';')))
}

fn parse(bytes: &[u8], from0: bool) -> Result<Vec<Vec<u8>>, String> {
    parts(bytes, from0).map(name).filter(|name| name.as_ref().map_or(true, |name| !name.is_empty())).collect()
}

/// A name without what does not matter in it; it may not lead out of the source.
fn name(text: &[u8]) -> Result<Vec<u8>, String> {
    let components: Vec<&[u8]> =
        text.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    if components.contains(&&b".."[..]) {
        let shown = towpath_service::display_name(text);
        return Err(format!("'{shown}' has '..' in it; name what is below the source"));
    }
    Ok(components.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &[u8], from0: bool) -> Vec<String> {
        let names = parse(text, from0).unwrap();
        names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    #[test]
    fn lines_are_names_below_the_source() {
        let list = b"# comment\n; another\n\na\n./b/./c/\r\n/d//e\n #f\n./\n";
        assert_eq!(names(list, false), ["a", "b/c", "d/e", " #f"]);
    }

    #[test]
    fn with_from0_a_line_end_is_part_of_a_name() {
        assert_eq!(names(b"a\nb\0#no\0./c\0", true), ["a\nb", "c"]);
    }

    #[test]
    fn a_name_that_leads_out_of_the_source_is_refused() {
        for list in [&b"../x"[..], b"a/../b", b"ok\n.."] {
            assert!(parse(list, false).unwrap_err().contains(".."), "{list:?}");
        }
        assert_eq!(names(b"a..b\n..c", false), ["a..b", "..c"]);
    }
}
