//! The inspector of every build: refuses objects by name, size or label, as the configuration says.

use glob::{MatchOptions, Pattern};

use crate::processor::{Inspector, Object, Processor};

/// The key under which a sender's rules say how a file may be used.
pub const LABEL: &str = "label";
/// Its name in messages.
pub const NAME: &str = "rules";

/// `*` stops at a slash; letters are the same in either case, as they are on some machines' disks.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: false,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Rules of what is refused, and metadata of what is served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Names that do not pass: of the last component, or, where the pattern has a slash, of a path or the end of one that
    /// begins after a slash. What a path begins with depends on how a copy was asked for.
    pub names: Vec<Pattern>,
    /// Objects of more bytes do not pass. A live object has no size yet and is stopped where it
    /// comes to have more.
    pub largest: Option<u64>,
    /// Objects that their sender gives one of these labels do not pass.
    pub labels: Vec<String>,
    /// The label that this host gives to what it serves.
    pub own_label: Option<String>,
}

impl Rules {
    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn refused_name(&self, path: &[u8]) -> Option<&Pattern> {
        let path = String::from_utf8_lossy(path);
        let name = path.rsplit('/').next().unwrap_or_default();
        self.names.iter().find(|pattern| {
            let of_path = pattern.as_str().contains('/');
            let ends = path.match_indices('/').map(|(at, _)| &path[at + 1..]).filter(|_| of_path);
            let mut subjects = std::iter::once(if of_path { &*path } else { name }).chain(ends);
            subjects.any(|subject| pattern.matches_with(subject, MATCHING))
        })
    }

    fn check_size(&self, size: u64) -> Result<(), String> {
        match self.largest {
            Some(largest) if size > largest => Err(format!("it has {size} bytes or more, over {largest}")),
            _ => Ok(()),
        }
    }
}

impl Processor for Rules {
    fn name(&self) -> &str {
        NAME
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }
}

impl Inspector for Rules {
    fn admit(&self, object: &Object<'_>) -> Result<(), String> {
        if let Some(pattern) = self.refused_name(object.name) {
            return Err(format!("names like '{pattern}' do not pass"));
        }
        self.check_size(object.size.unwrap_or(0))?;
        let given = object.metadata.get(LABEL);
        match self.labels.iter().find(|label| given == Some(label.as_bytes())) {
            Some(label) => Err(format!("what is labelled '{label}' does not pass")),
            None => Ok(()),
        }
    }

    fn inspect(&self, _object: &Object<'_>, offset: u64, bytes: &[u8]) -> Result<(), String> {
        self.check_size(offset + bytes.len() as u64)
    }

    fn describe(&self, _object: &Object<'_>) -> Vec<(String, Vec<u8>)> {
        self.own_label.iter().map(|label| (LABEL.to_owned(), label.clone().into_bytes())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_content::Oid;
    use towpath_transfer::Metadata;

    fn refusal(rules: &Rules, name: &str, size: Option<u64>, label: Option<&str>) -> Option<String> {
        let mut metadata = Metadata::default();
        if let Some(label) = label {
            metadata.insert(LABEL.into(), label.as_bytes().to_vec()).unwrap();
        }
        let object = Object { oid: &Oid::of(b""), name: name.as_bytes(), size, metadata: &metadata };
        rules.admit(&object).err()
    }

    #[test]
    fn names_are_those_of_a_file_or_of_a_path() {
        let names = ["*.exe", "private/*"].map(|text| Pattern::new(text).unwrap());
        let rules = Rules { names: names.into(), ..Rules::default() };
        for (name, is_refused) in [
            ("a.exe", true),
            ("A.EXE", true),
            ("some/where/a.exe", true),
            (".exe", true),
            ("a.exe.txt", false),
            ("private/key", true),
            ("private/deep/key", false),
            ("tree/private/key", true),
            ("unprivate/key", false),
            ("other/private", false),
            ("", false),
        ] {
            assert_eq!(refusal(&rules, name, None, None).is_some(), is_refused, "{name}");
        }
        assert_eq!(refusal(&rules, "x.exe", None, None).unwrap(), "names like '*.exe' do not pass");
    }

    #[test]
    fn sizes_and_labels_are_compared_and_a_live_object_is_stopped_where_it_is_too_long() {
        let rules = Rules { largest: Some(10), labels: vec!["secret".into()], ..Rules::default() };
        assert!(refusal(&rules, "x", Some(10), Some("public")).is_none());
        assert!(refusal(&rules, "x", Some(11), None).unwrap().contains("over 10"));
        assert!(refusal(&rules, "x", None, Some("secret")).unwrap().contains("'secret'"));
        let metadata = Metadata::default();
        let live = Object { oid: &Oid::Live([1; 32]), name: b"", size: None, metadata: &metadata };
        assert!(rules.inspect(&live, 0, &[0; 10]).is_ok());
        assert!(rules.inspect(&live, 8, &[0; 3]).is_err());
    }
}
