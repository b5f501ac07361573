//! A processor outside of Towpath's own crates: it refuses objects by a rule, whichever way they go
//! and whoever brings them. With it a host keeps certain files in, or out.
//!
//! ```
//! use std::sync::Arc;
//! use towpath_protocol::processors::Processors;
//! use towpath_refusing_processor::{Refusing, Rules};
//!
//! let rules = Rules { endings: vec![".exe".into()], largest: Some(1 << 30), ..Rules::default() };
//! let processors = Processors::with(vec![Arc::new(Refusing::new("house-rules", rules))]);
//! assert!(processors.is_ok_and(|all| all.names().any(|name| name == "house-rules")));
//! ```

use std::collections::BTreeSet;

use towpath_content::Oid;
use towpath_protocol::processor::{Inspector, Object, Processor};

/// The key under which a sender's rules say how a file may be used.
pub const LABEL: &str = "label";

/// Rules for what is refused.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Names that end so, whatever their case.
    pub endings: Vec<String>,
    /// Objects of more bytes.
    pub largest: Option<u64>,
    /// Objects with these names of content.
    pub listed: BTreeSet<Oid>,
    /// Bytes that no chunk may hold; one that lies over the end of a chunk is not found.
    pub words: Vec<Vec<u8>>,
    /// Objects that their sender gives this label.
    pub label: Option<Vec<u8>>,
    /// The label that this host gives to what it serves.
    pub own_label: Option<Vec<u8>>,
}

/// Refuses objects by [`Rules`].
#[derive(Debug, Clone)]
pub struct Refusing {
    name: String,
    rules: Rules,
}

impl Refusing {
    /// A processor called `name` in what receivers are told.
    pub fn new(name: &str, rules: Rules) -> Self {
        Self { name: name.into(), rules }
    }
}

impl Processor for Refusing {
    fn name(&self) -> &str {
        &self.name
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(&self.rules)
    }
}

impl Inspector for Rules {
    fn admit(&self, object: &Object<'_>) -> Result<(), String> {
        let name = String::from_utf8_lossy(object.name).to_lowercase();
        if let Some(ending) = self.endings.iter().find(|ending| name.ends_with(ending.as_str())) {
            return Err(format!("names that end in '{ending}' do not pass"));
        }
        if let (Some(largest), Some(size)) = (self.largest, object.size)
            && size > largest
        {
            return Err(format!("it has {size} bytes, more than {largest}"));
        }
        if self.listed.contains(object.oid) {
            return Err("it is on the list".into());
        }
        match (&self.label, object.metadata.get(LABEL)) {
            (Some(label), Some(given)) if label == given => Err("of the label it has".into()),
            _ => Ok(()),
        }
    }

    fn inspect(&self, _object: &Object<'_>, _offset: u64, bytes: &[u8]) -> Result<(), String> {
        let holds = |word: &Vec<u8>| !word.is_empty() && bytes.windows(word.len()).any(|found| found == word);
        if self.words.iter().any(holds) { Err("it holds a word that does not pass".into()) } else { Ok(()) }
    }

    fn describe(&self, _object: &Object<'_>) -> Vec<(String, Vec<u8>)> {
        self.own_label.iter().map(|label| (LABEL.to_owned(), label.clone())).collect()
    }
}
