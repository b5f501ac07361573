//! The processors of a host in their order, and those of every build.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use towpath_content::Oid;
use towpath_transfer::{Metadata, Outcome};

use crate::MAX_ENCODINGS;
use crate::compression::{self, Zstd};
use crate::processor::{Encoding, Inspector, Object, Processor};
use crate::rules::Rules;

/// The processors of this build.
fn built_in() -> Vec<Arc<dyn Processor>> {
    vec![Arc::new(Zstd)]
}

/// The processors of a host, in their order.
#[derive(Clone)]
pub struct Processors(Arc<[Arc<dyn Processor>]>);

impl Default for Processors {
    /// Those of this build.
    fn default() -> Self {
        Self(built_in().into())
    }
}

impl fmt::Debug for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Processors {
    /// Those of this build, and `more`. Two of one name are refused, and so are encodings of one
    /// name or too many.
    pub fn with(more: Vec<Arc<dyn Processor>>) -> Result<Self, String> {
        let all: Arc<[_]> = built_in().into_iter().chain(more).collect();
        let all = Self(all);
        all.check()?;
        Ok(all)
    }

    fn check(&self) -> Result<(), String> {
        let mut known = BTreeSet::new();
        if let Some(name) = self.names().find(|name| !known.insert(*name)) {
            return Err(format!("two processors are called '{name}'"));
        }
        let mut known: BTreeSet<&str> = ["chunks", "live", "control"].into();
        let mut names = self.encodings().flat_map(|(_, encoding)| [encoding.capability(), encoding.wish()]);
        if let Some(name) = names.find(|name| !known.insert(*name)) {
            return Err(format!("the capability '{name}' has another meaning already"));
        }
        if self.encodings().nth(MAX_ENCODINGS).is_some() {
            return Err(format!("there can't be more than {MAX_ENCODINGS} encodings"));
        }
        Ok(())
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|processor| processor.name())
    }

    /// The same as the configuration wants them: without compression, if it is never to be used, and
    /// with rules, if there are any.
    pub fn configured(&self, compresses: bool, rules: &Rules) -> Self {
        let is_kept = |processor: &&Arc<dyn Processor>| compresses || processor.name() != Zstd.name();
        let kept = self.0.iter().filter(is_kept).map(Arc::clone);
        let rules = (!rules.is_empty()).then(|| Arc::new(rules.clone()) as Arc<dyn Processor>);
        Self(kept.chain(rules).collect())
    }

    /// The encodings and their numbers in frames and in the hello. The first number is that of
    /// compression for good, also where a host has none.
    pub fn encodings(&self) -> impl Iterator<Item = (u8, &dyn Encoding)> {
        let mut others = 2..;
        self.0.iter().filter_map(|processor| processor.encoding()).filter_map(move |encoding| {
            let is_compression = encoding.capability() == compression::CAPABILITY;
            let number = if is_compression { Some(1) } else { others.next() };
            Some((number?, encoding))
        })
    }

    /// True if any of them looks at chunks.
    pub fn inspect_any(&self) -> bool {
        self.inspectors().next().is_some()
    }

    fn inspectors(&self) -> impl Iterator<Item = (&str, &dyn Inspector)> {
        self.0.iter().filter_map(|processor| Some((processor.name(), processor.inspector()?)))
    }

    /// Checks that an object may pass.
    pub fn admit(&self, object: &Object<'_>) -> Result<(), Outcome> {
        self.inspectors()
            .try_for_each(|(name, inspector)| inspector.admit(object).map_err(|why| refused(name, &why)))
    }

    /// Checks that these bytes may pass.
    pub fn inspect(&self, object: &Object<'_>, offset: u64, bytes: &[u8]) -> Result<(), Outcome> {
        self.inspectors().try_for_each(|(name, inspector)| {
            inspector.inspect(object, offset, bytes).map_err(|why| refused(name, &why))
        })
    }

    /// Checks that an object that rides along, in a ticket or a descriptor, may pass.
    pub fn pass_whole(&self, oid: &Oid, name: &[u8], content: &[u8]) -> Result<(), Outcome> {
        let metadata = Metadata::default();
        let object = Object { oid, name, size: Some(content.len() as u64), metadata: &metadata };
        self.admit(&object)?;
        self.inspect(&object, 0, content)
    }

    /// Metadata for receivers of an object; entries over the limits are left out.
    pub fn describe(&self, object: &Object<'_>) -> Metadata {
        let mut metadata = Metadata::default();
        for (name, inspector) in self.inspectors() {
            for (key, value) in inspector.describe(object) {
                if let Err(error) = metadata.insert(key, value) {
                    tracing::warn!(processor = name, %error, "metadata are left out");
                }
            }
        }
        metadata
    }
}

fn refused(name: &str, why: &str) -> Outcome {
    Outcome::Refused(format!("by {name}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str);

    impl Processor for Named {
        fn name(&self) -> &str {
            self.0
        }
    }

    #[test]
    fn the_first_encoding_is_the_one_that_every_version_knows() {
        let all = Processors::default();
        let first = all.encodings().next().map(|(number, encoding)| (number, encoding.capability()));
        assert_eq!(first, Some((1, "zstd")));
    }

    #[test]
    fn a_configuration_takes_compression_away_and_adds_rules() {
        let all = Processors::default();
        assert_eq!(all.configured(true, &Rules::default()).names().collect::<Vec<_>>(), ["zstd"]);
        let rules = Rules { largest: Some(1), ..Rules::default() };
        let chosen = all.configured(false, &rules);
        assert_eq!(chosen.names().collect::<Vec<_>>(), ["rules"]);
        assert!(chosen.encodings().next().is_none() && chosen.inspect_any());
    }

    #[test]
    fn two_of_one_name_are_refused() {
        assert!(Processors::with(vec![Arc::new(Named("a")), Arc::new(Named("b"))]).is_ok());
        let twice = Processors::with(vec![Arc::new(Named("a")), Arc::new(Named("a"))]).unwrap_err();
        assert_eq!(twice, "two processors are called 'a'");
        assert!(Processors::with(vec![Arc::new(Named("zstd"))]).is_err());
    }
}
