//! The processor seam: what looks at, or changes, every chunk that goes through this host
//! (`papers/dot.txt` §2), whichever plugin brings it and whoever asks for it.
//!
//! ```text
//!   store ── admit, inspect ── encode ──► frame ··· frame ──► decode ── admit, inspect ── session
//! ```
//!
//! # Contract
//!
//! * **Pure for each chunk.** What comes of a chunk depends on it and its object alone, not on the
//!   chunks before or the time: chunks come in any order, more than once, on many threads. What an
//!   encoder keeps from one to the next (tables, room) must not show.
//! * **Inspectors see the bytes themselves**: on their way out before they are encoded, on their way
//!   in after they are decoded, in the second case not checked against any hash yet. What one
//!   refuses does not pass; the receiver is told "refused by", the processor's name, and why. A file
//!   whose tree's descriptor or ticket holds its bytes is inspected like any other; the descriptor
//!   itself is only admitted.
//! * **Encodings are agreed on.** Each side names in its hello those it can take, and those it
//!   wishes for. Data are sent encoded only if the other side takes the encoding and either wishes
//!   for it, and each frame tells its encoding. An encoder may leave a payload alone. Compression is
//!   also used unasked, where that is quicker.
//! * **A decoder is handed a stranger's bytes.** It is told how long the payload must be, takes no
//!   more memory than that, and answers anything else with an error, which ends the connection.
//! * **Nothing blocks.** A processor works on the bytes at hand; it does not wait for disks or
//!   networks.
//!
//! [`conformance`] examines an encoding in a line. An example outside of this crate:
//! `examples/refusing_processor`.

pub mod conformance;
pub mod rules;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_transfer::{Metadata, Outcome};

use crate::direct::compress::{self, Zstd};
use crate::direct::wire::MAX_ENCODINGS;
use crate::registry;

/// The object that a chunk belongs to, as far as it is known where the chunk is.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    /// What it is called: content or live.
    pub oid: &'a Oid,
    /// Its path in its tree, or its own name; empty if it is not known. A stranger's words.
    pub name: &'a [u8],
    /// Bytes; `None` while it is live.
    pub size: Option<u64>,
    /// What its sender says of it besides.
    pub metadata: &'a Metadata,
}

/// Looks at or changes chunks. The contract is at the head of this module.
pub trait Processor: Send + Sync {
    /// Its name in configuration, messages and `--json`.
    fn name(&self) -> &str;

    /// How it looks at chunks, if it does.
    fn inspector(&self) -> Option<&dyn Inspector> {
        None
    }

    /// How it changes chunks between two hosts, if it does.
    fn encoding(&self) -> Option<&dyn Encoding> {
        None
    }
}

/// Lets chunks pass or refuses them, in words for people.
pub trait Inspector: Send + Sync {
    /// Whether an object may pass at all: asked before any of its bytes are read or asked for.
    fn admit(&self, _object: &Object<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Whether these bytes of it, from `offset` on, may pass.
    fn inspect(&self, _object: &Object<'_>, _offset: u64, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// What receivers are told of an object that this host serves, within the limits of [`Metadata`].
    fn describe(&self, _object: &Object<'_>) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }
}

/// A form of payloads on the way between two hosts.
pub trait Encoding: Send + Sync {
    /// Its name, by which a side says that it takes it.
    fn capability(&self) -> &str;
    /// The name by which a side asks for it.
    fn wish(&self) -> &str;
    /// Encodes one request's payloads.
    fn encoder(&self) -> Box<dyn Encode>;
    /// Decodes one connection's payloads.
    fn decoder(&self) -> Box<dyn Decode>;
}

/// Encodes payloads.
pub trait Encode: Send {
    /// The encoded payload, not empty and at most as long as a frame takes; `None` to send it as it
    /// is.
    fn encode(&mut self, payload: &[u8]) -> Option<Bytes>;
}

/// Decodes payloads.
pub trait Decode: Send + Sync {
    /// The payload, which must have `expected` bytes; else what the peer did wrong, as in "sent
    /// damaged data".
    fn decode(&mut self, payload: &[u8], expected: usize) -> Result<Bytes, String>;
}

/// The processors of a host, in their order.
#[derive(Clone)]
pub struct Processors(Arc<[Arc<dyn Processor>]>);

impl Default for Processors {
    /// Those that [`registry`] lists.
    fn default() -> Self {
        Self(registry::processors().into())
    }
}

impl fmt::Debug for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Processors {
    /// Those of [`registry`], and `more`. Two of one name are refused, and so are encodings of one
    /// name or too many.
    pub fn with(more: Vec<Arc<dyn Processor>>) -> Result<Self, String> {
        let all: Arc<[_]> = registry::processors().into_iter().chain(more).collect();
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
    pub fn configured(&self, compresses: bool, rules: &rules::Rules) -> Self {
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
            let is_compression = encoding.capability() == compress::CAPABILITY;
            let number = if is_compression { Some(1) } else { others.next() };
            Some((number?, encoding))
        })
    }

    /// Whether any of them looks at chunks.
    pub fn inspect_any(&self) -> bool {
        self.inspectors().next().is_some()
    }

    fn inspectors(&self) -> impl Iterator<Item = (&str, &dyn Inspector)> {
        self.0.iter().filter_map(|processor| Some((processor.name(), processor.inspector()?)))
    }

    /// Whether an object may pass.
    pub fn admit(&self, object: &Object<'_>) -> Result<(), Outcome> {
        self.inspectors()
            .try_for_each(|(name, inspector)| inspector.admit(object).map_err(|why| refused(name, &why)))
    }

    /// Whether these bytes may pass.
    pub fn inspect(&self, object: &Object<'_>, offset: u64, bytes: &[u8]) -> Result<(), Outcome> {
        self.inspectors().try_for_each(|(name, inspector)| {
            inspector.inspect(object, offset, bytes).map_err(|why| refused(name, &why))
        })
    }

    /// What receivers are told of an object; what goes over the limits is left out.
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
    use super::rules::Rules;
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
