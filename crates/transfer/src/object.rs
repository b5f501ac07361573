//! One object on its way: which piece values are known, and the check of each piece.
//!
//! Values of a content object are learnt from proofs that lead to its OID, those of a live one
//! from statements signed by the ticket's node. Nothing else is believed.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;
use towpath_content::Oid;
use towpath_content::pieces::{self, Layout, MIN_LOG2, PieceError, Value};
use towpath_store::About;

use crate::following::{Following, PieceMatch, Samples};
use crate::target::Target;
use crate::want::{Group, ObjectKey, Proof};

/// Reason why bytes were not taken for what they were said to be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CheckError {
    /// The bytes do not have the piece's or chunk's hash.
    #[error("sent bytes that do not match their hash")]
    WrongBytes,
    /// Another number of bytes than wanted.
    #[error("sent {found} bytes instead of {expected}")]
    WrongLength {
        /// Bytes wanted.
        expected: u64,
        /// Bytes sent.
        found: u64,
    },
    /// The proof is not one.
    #[error("sent a wrong proof: {0}")]
    WrongProof(#[from] PieceError),
    /// No value is known and none was proved.
    #[error("sent a piece without the proof that it needs")]
    NoProof,
}

/// Shared between the session's actor and its workers.
pub struct ObjectInFlight {
    /// Its name within the session.
    pub key: ObjectKey,
    /// Object that was requested.
    pub oid: Oid,
    /// File that it belongs to.
    pub group: Arc<Group>,
    /// Target of its bytes.
    pub target: Arc<dyn Target>,
    known: Mutex<KnownPieces>,
    writing: Mutex<()>,
    followed: Mutex<Option<Followed>>,
}

/// An object that is drawn from an older version, too.
pub struct Followed {
    /// Samples to find it there.
    pub samples: Samples,
    /// Position where it was found last.
    pub following: Following,
    /// Making of pieces of which a part is wanted.
    pub piece_matches: HashMap<u64, PieceMatch>,
}

#[derive(Default)]
struct KnownPieces {
    /// The content OID: given, or bound later.
    content: Option<Oid>,
    layout: Option<Layout>,
    values: Vec<Option<Value>>,
    about: About,
    begun: bool,
}

impl ObjectInFlight {
    /// An object of which nothing is known but its name.
    pub fn new(key: ObjectKey, oid: Oid, group: Arc<Group>, target: Arc<dyn Target>) -> Self {
        let content = (!oid.is_live()).then_some(oid);
        let known = Mutex::new(KnownPieces { content, ..KnownPieces::default() });
        Self { key, oid, group, target, known, writing: Mutex::default(), followed: Mutex::default() }
    }

    /// Waits for its turn to write. The system lets one thread at a time write to a file, and the others
    /// wait for that with a processor kept busy.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Knowledge to draw it from an older version, if it is.
    pub fn followed(&self) -> MutexGuard<'_, Option<Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next samples, behind those that came before; false if these are none.
    pub fn learn_samples(&self, first: u64, bytes: &[u8]) -> bool {
        let Some(layout) = self.layout() else { return false };
        let mut followed = self.followed();
        let followed = followed.get_or_insert_with(|| Followed {
            samples: Samples::new(layout),
            following: Following::default(),
            piece_matches: HashMap::new(),
        });
        followed.samples.learn(first, bytes)
    }

    fn with<T>(&self, f: impl FnOnce(&mut KnownPieces) -> T) -> T {
        f(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The layout, once the size is known.
    pub fn layout(&self) -> Option<Layout> {
        self.with(|known| known.layout)
    }

    /// The content OID, once known.
    pub fn content(&self) -> Option<Oid> {
        self.with(|known| known.content)
    }

    /// Description by its source, as far as it was asked.
    pub fn about(&self) -> About {
        self.with(|known| known.about.clone())
    }

    /// Its source described it.
    pub fn set_about(&self, about: About) {
        self.with(|known| known.about = about);
    }

    /// Opens the target, unless that was done before.
    pub fn begin(&self, size: Option<u64>) -> io::Result<()> {
        if self.with(|known| std::mem::replace(&mut known.begun, true)) {
            return Ok(());
        }
        self.target.begin(size, &self.about())
    }

    /// The target takes all bytes of an object of one piece; false if it was opened before.
    pub fn take(&self, bytes: &[u8]) -> io::Result<bool> {
        let content = |known: &mut KnownPieces| {
            let content = known.content.filter(|_| !known.begun)?;
            known.begun = true;
            Some((content, known.about.clone()))
        };
        let Some((content, about)) = self.with(content) else { return Ok(false) };
        self.target.take(&content, bytes, &about).map(|()| true)
    }

    /// The size is known now.
    pub fn set_layout(&self, layout: Layout) {
        self.with(|known| known.layout = Some(layout));
    }

    /// A live object is bound.
    pub fn bind(&self, content: Oid, layout: Layout) {
        self.with(|known| {
            known.content = Some(content);
            known.layout = Some(layout);
        });
    }

    /// Takes signed values of a live object; returns false if they contradict earlier ones, as
    /// they do when the producer started over.
    pub fn learn_values(&self, first: u64, values: &[Value]) -> bool {
        self.with(|known| known.learn(first, values))
    }

    /// Checks a proof and keeps the values it proves.
    pub fn learn_proof(&self, proof: &Proof) -> Result<(), CheckError> {
        self.with(|known| known.learn_proof(proof))
    }

    /// The value that piece `index` must have, if known.
    pub fn expected(&self, index: u64) -> Option<Value> {
        self.with(|known| known.expected(index))
    }

    /// All values, if all are known.
    pub fn all_values(&self) -> Option<Vec<Value>> {
        self.with(|known| {
            let count = known.layout?.count();
            (0..count).map(|index| known.expected(index)).collect()
        })
    }

    /// Checks that `bytes` are piece `index` in `layout`, with the proof that came along if the
    /// piece's value is not known yet. Returns the value.
    pub fn check_piece(
        &self,
        layout: &Layout,
        index: u64,
        bytes: &[u8],
        proof: Option<&Proof>,
    ) -> Result<Value, CheckError> {
        let (expected, found) = (layout.len(index), bytes.len() as u64);
        if expected != found {
            return Err(CheckError::WrongLength { expected, found });
        }
        let value = self.value_for(index, proof)?;
        if self.value_of(index, bytes) != value {
            return Err(CheckError::WrongBytes);
        }
        Ok(value)
    }

    /// The value that `bytes` have as piece `index`. A live object's first piece stays an inner
    /// one until it is bound: there is no value of it before a further byte is known. Once it is
    /// bound its own layout counts, whatever a want was cut by that was asked before.
    fn value_of(&self, index: u64, bytes: &[u8]) -> Value {
        match self.with(|known| known.layout.filter(|_| known.content.is_some())) {
            Some(layout) => layout.value(index, bytes),
            None => pieces::inner_value(index, MIN_LOG2, bytes),
        }
    }

    fn value_for(&self, index: u64, proof: Option<&Proof>) -> Result<Value, CheckError> {
        if let Some(value) = self.expected(index) {
            return Ok(value);
        }
        self.learn_proof(proof.ok_or(CheckError::NoProof)?)?;
        self.expected(index).ok_or(CheckError::NoProof)
    }

    /// The bytes of piece `index`, by the layout known so far.
    pub fn piece_range(&self, index: u64) -> Range<u64> {
        match self.layout() {
            Some(layout) => layout.range(index),
            None => index << MIN_LOG2..(index + 1) << MIN_LOG2,
        }
    }
}

impl KnownPieces {
    fn learn(&mut self, first: u64, values: &[Value]) -> bool {
        let first = first as usize;
        if self.values.len() < first + values.len() {
            self.values.resize(first + values.len(), None);
        }
        let slots = &mut self.values[first..first + values.len()];
        let agree = slots.iter().zip(values).all(|(slot, value)| slot.is_none_or(|known| known == *value));
        if agree {
            slots.iter_mut().zip(values).for_each(|(slot, value)| *slot = Some(*value));
        }
        agree
    }

    fn learn_proof(&mut self, proof: &Proof) -> Result<(), CheckError> {
        let (Some(content), Some(layout)) = (self.content, self.layout) else {
            return Err(CheckError::NoProof);
        };
        let values = pieces::verify(content.digest(), &layout, proof.run.clone(), &proof.nodes)?;
        self.learn(proof.run.start, &values);
        Ok(())
    }

    fn expected(&self, index: u64) -> Option<Value> {
        if self.layout.is_some_and(|layout| layout.count() == 1) {
            return self.content.map(|content| *content.digest());
        }
        self.values.get(index as usize).copied().flatten()
    }
}
