//! The receiver's part of files that come as deltas of what lies in their place: signs that when it asks
//! for them, and puts them together of what is answered.
//!
//! Nothing here proves anything: a file whose hash is not its name is fetched like any other.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rayon::prelude::*;
use tokio::runtime::Handle;
use towpath_api::ApiError;
use towpath_content::Oid;

use super::deltas::{self, PART};
use super::file::CopyFile;
use super::finer;
use super::message::{Base, Delta, violation};
use super::network::Network;
use crate::lock::lock;

/// Bytes of signatures on their way, of files that were not answered; further ones are asked for as they are.
const MOST_SIGNED: u64 = 8 << 20;
/// Bytes that a delta may have more than what it makes: it may not shrink, and ops take a few.
const ROOM: u64 = 1 << 20;
/// So many bases are named in vain before only signatures are sent.
const MISSES: u64 = 16;
/// Bytes of a file's outlines whose literals are to come, at most.
const MOST_OUTLINED: usize = 16 << 20;
/// How long the first ask waits for a better connection than ssh's: of ssh's own pipe the kernel tells nothing.
const PATIENCE: Duration = Duration::from_millis(60);

/// What is known of the network at the moment.
pub type Look = Box<dyn Fn() -> Network + Send + Sync>;
/// When it is known.
pub type Standing = Pin<Box<dyn Future<Output = bool> + Send>>;

/// See the head of this module.
pub struct Changed {
    look: Look,
    /// The other side takes bases, and knows packed messages.
    is_understood: bool,
    /// Completes when there is a connection that tells of the network.
    standing: Mutex<Option<Standing>>,
    runtime: Handle,
    /// By entry.
    signed: Mutex<HashMap<u64, Told>>,
    outstanding: AtomicU64,
    /// How often the sender had a base that was named, and how often not.
    hits: AtomicU64,
    misses: AtomicU64,
    files: AtomicU64,
    saved: AtomicU64,
}

/// What the sender was told of a file's base.
#[derive(Default)]
pub struct Told {
    /// Bytes of its signatures.
    bytes: u64,
    /// Its name, if that was told instead.
    pub oid: Option<Oid>,
}

/// A file that comes in parts.
pub struct Incoming {
    /// Which.
    pub file: Arc<CopyFile>,
    /// What it is called.
    pub oid: Oid,
    base: File,
    old: u64,
    parts: u64,
    is_patch: bool,
    next: u64,
    /// The next part's delta, as far as it came.
    delta: Vec<u8>,
    /// Parts whose literals are to come, with their outlines.
    outlined: VecDeque<(u64, Vec<u8>)>,
    made: u64,
}

/// What came of a run of a delta.
pub enum Taken {
    /// More is to come.
    Some,
    /// An outline, to be answered with this signature.
    Outline(Vec<u8>),
    /// A part, and how many bytes came for it.
    Part {
        /// Where it begins.
        offset: u64,
        /// Its bytes.
        content: Vec<u8>,
        /// Bytes on the network.
        came: u64,
        /// It was the last one.
        is_last: bool,
    },
    /// Nothing will come of it.
    Nothing,
}

impl Changed {
    /// `look` tells of the network, once `standing` completes if there is that; `is_understood`: the sender
    /// takes bases. Must be made within a runtime.
    pub fn new(look: Look, standing: Option<Standing>, is_understood: bool) -> Self {
        Self {
            look,
            is_understood,
            standing: Mutex::new(standing),
            runtime: Handle::current(),
            signed: Mutex::default(),
            outstanding: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            files: AtomicU64::new(0),
            saved: AtomicU64::new(0),
        }
    }

    /// The network. The first time this waits a little for somebody to know it. Blocks.
    fn network(&self) -> Network {
        if let Some(standing) = lock(&self.standing).take() {
            // Without one it is as good as unknown.
            let _ = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, standing).await });
        }
        (self.look)()
    }

    /// How hard answers should be packed; 0: not. `is_asked`: the person wants it in any case.
    pub fn pack_level(&self, is_asked: bool) -> u32 {
        if !self.is_understood {
            return 0;
        }
        let level = self.network().pack_level().unwrap_or(0).unsigned_abs();
        level.max(is_asked.into())
    }

    /// Whether deltas should come in two steps where that saves much.
    pub fn takes_outlines(&self) -> bool {
        self.is_understood && self.network().likes_outlines()
    }

    /// Names or signs what lies in the place of files that are about to be asked for, where that pays; with
    /// `must_sign` it does not name it. Blocks.
    pub fn sign(&self, files: &[(u64, Arc<CopyFile>)], must_sign: bool) -> Vec<Base> {
        if !self.is_understood || files.iter().all(|(_, file)| file.old_size().is_none()) {
            return Vec::new();
        }
        let network = self.network();
        let (hits, misses) = (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed));
        let may_name = !must_sign && misses < MISSES + hits;
        let signed = files.par_iter().with_max_len(4).filter_map(|(entry, file)| {
            let old = file.old_size().filter(|old| network.likes_delta(*old, file.wanted().size))?;
            if self.outstanding.load(Ordering::Relaxed) > MOST_SIGNED {
                return None;
            }
            if may_name
                && deltas::may_be_patch(old, file.wanted().size)
                && let Some(oid) = file.old_oid()
            {
                lock(&self.signed).insert(*entry, Told { bytes: 0, oid: Some(oid) });
                let oid = Bytes::copy_from_slice(&oid.to_bytes());
                return Some(Base { entry: *entry, signatures: Vec::new(), oid });
            }
            let signatures = sign(file, old)?;
            let bytes = signatures.iter().map(|signature| signature.len() as u64).sum();
            lock(&self.signed).insert(*entry, Told { bytes, oid: None });
            self.outstanding.fetch_add(bytes, Ordering::Relaxed);
            Some(Base { entry: *entry, signatures, oid: Bytes::new() })
        });
        signed.collect()
    }

    /// Whether the sender had a base that was named.
    pub fn named(&self, is_hit: bool) {
        let count = if is_hit { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// A file was answered, one way or the other: what had been told of its base, if anything.
    pub fn answered(&self, entry: u64) -> Option<Told> {
        let told = lock(&self.signed).remove(&entry)?;
        self.outstanding.fetch_sub(told.bytes, Ordering::Relaxed);
        Some(told)
    }

    /// The content that a delta makes of a file's base, if it has one part.
    pub fn whole(&self, file: &CopyFile, delta: &[u8]) -> Option<Vec<u8>> {
        let (base, old) = file.base()?;
        let base = read(&base, &deltas::part(old, 1, 0)?)?;
        deltas::part(file.size(), 1, 0)?;
        deltas::apply(delta, &base, file.size())
    }

    /// The content that a patch makes of a file's base.
    pub fn patched(&self, file: &CopyFile, patch: &[u8]) -> Option<Vec<u8>> {
        let (base, old) = file.base()?;
        apply_patch(&base, old, file.size(), patch)
    }

    /// A file begins to come in parts, or as one patch.
    pub fn begin(
        &self,
        file: Arc<CopyFile>,
        oid: Oid,
        parts: u32,
        is_patch: bool,
    ) -> Result<Option<Incoming>, ApiError> {
        let (parts, size) = (u64::from(parts), file.size());
        let is_possible = match is_patch {
            true => parts == 1 && deltas::may_be_patch(0, size),
            false => parts <= deltas::MAX_PARTS && deltas::part(size, parts, 0).is_some(),
        };
        if !is_possible {
            return Err(violation("parts that are too many or too long"));
        }
        let Some((base, old)) = file.base() else { return Ok(None) };
        Ok(Some(Incoming {
            file,
            oid,
            base,
            old,
            parts,
            is_patch,
            next: 0,
            delta: Vec::new(),
            outlined: VecDeque::new(),
            made: 0,
        }))
    }

    /// A file was made of its older version.
    pub fn made(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes did not have to come.
    pub fn saved(&self, bytes: u64) {
        self.saved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How many files were made so, and how many bytes did not have to come.
    pub fn account(&self) -> (u64, u64) {
        (self.files.load(Ordering::Relaxed), self.saved.load(Ordering::Relaxed))
    }
}

fn sign(file: &CopyFile, old: u64) -> Option<Vec<Bytes>> {
    let new = file.wanted().size;
    let parts = deltas::parts(old, new)?;
    let (base, _) = file.base()?;
    (0..parts)
        .map(|index| {
            let target = deltas::part(new, parts, index)?;
            let bytes = read(&base, &deltas::part(old, parts, index)?)?;
            deltas::sign(&bytes, old, target.end - target.start).map(Bytes::from)
        })
        .collect()
}

fn apply_patch(base: &File, old: u64, new: u64, patch: &[u8]) -> Option<Vec<u8>> {
    if !deltas::may_be_patch(old, new) {
        return None;
    }
    deltas::apply_patch(patch, &read(base, &(0..old))?, new)
}

fn read(file: &File, range: &std::ops::Range<u64>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    file.read_exact_at(&mut bytes, range.start).ok().map(|()| bytes)
}

impl Incoming {
    /// The next run of its deltas.
    pub fn take(&mut self, run: &Delta) -> Result<Taken, ApiError> {
        if run.is_given_up {
            return Ok(Taken::Nothing);
        }
        let most = if self.is_patch { self.file.size() + ROOM } else { PART + ROOM };
        if (self.delta.len() + run.bytes.len()) as u64 > most {
            return Err(violation("a delta that is longer than what it makes"));
        }
        self.delta.extend_from_slice(&run.bytes);
        if !run.is_last {
            return Ok(Taken::Some);
        }
        let came = std::mem::take(&mut self.delta);
        if run.is_outline {
            return self.take_outline(came);
        }
        let count = came.len() as u64;
        let Some((offset, content, before)) = self.part(&came, run.is_packed)? else {
            return Ok(Taken::Nothing);
        };
        self.made += 1;
        Ok(Taken::Part { offset, content, came: before + count, is_last: self.made == self.parts })
    }

    /// The next part's outline.
    fn take_outline(&mut self, outline: Vec<u8>) -> Result<Taken, ApiError> {
        let held: usize = self.outlined.iter().map(|(_, outline)| outline.len()).sum();
        if self.is_patch || self.next == self.parts || held + outline.len() > MOST_OUTLINED {
            return Err(violation("an outline of nothing, or more than it may have"));
        }
        let base = self.base_of(self.next);
        let Some(signature) = base.and_then(|base| finer::sign(&outline, &base)) else {
            return Ok(Taken::Nothing);
        };
        self.outlined.push_back((self.next, outline));
        self.next += 1;
        Ok(Taken::Outline(signature))
    }

    /// The part that a delta makes: where it begins, its bytes, and how many of them came before.
    fn part(&mut self, came: &[u8], is_packed: bool) -> Result<Option<(u64, Vec<u8>, u64)>, ApiError> {
        let size = self.file.size();
        if self.is_patch {
            return Ok(apply_patch(&self.base, self.old, size, came).map(|content| (0, content, 0)));
        }
        let outlined = if self.next == self.parts { self.outlined.pop_front() } else { None };
        let (index, outline) = match outlined {
            Some((index, outline)) => (index, Some(outline)),
            None if self.next == self.parts => return Err(violation("more parts than were told")),
            None => (self.next, None),
        };
        self.next = self.parts.min(self.next + 1);
        let Some(range) = deltas::part(size, self.parts, index) else { return Ok(None) };
        let content = self.apply(came, is_packed, index, outline.as_deref(), range.end - range.start);
        Ok(content.map(|content| (range.start, content, outline.map_or(0, |outline| outline.len() as u64))))
    }

    fn apply(
        &self,
        came: &[u8],
        is_packed: bool,
        index: u64,
        outline: Option<&[u8]>,
        len: u64,
    ) -> Option<Vec<u8>> {
        let unpacked = if is_packed { Some(deltas::unpack(came)?) } else { None };
        let delta = unpacked.as_deref().unwrap_or(came);
        let base = self.base_of(index)?;
        match outline {
            Some(outline) => finer::apply(outline, delta, &base, len),
            None => deltas::apply(delta, &base, len),
        }
    }

    fn base_of(&self, index: u64) -> Option<Vec<u8>> {
        read(&self.base, &deltas::part(self.old, self.parts, index)?)
    }
}
