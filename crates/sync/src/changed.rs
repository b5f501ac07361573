//! The receiver's part of files that come as deltas of what lies in their place, or of what is probably an older version and lies
//! elsewhere: signs that when it asks for them, and puts them together of what is answered.
//!
//! Nothing here proves anything: a file whose hash is not its name is fetched like any other.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rayon::prelude::*;
use tokio::runtime::Handle;
use towpath_content::Oid;

use super::file::CopyFile;
use super::incoming::{Incoming, apply_patch, read, sign_part};
use super::message::{Answer, Base, violation};
use crate::error::CopyError;
use towpath_content::lock::lock;
use towpath_reuse::delta::deltas;
use towpath_reuse::delta::patches;
use towpath_reuse::delta::refine;
use towpath_reuse::policy::network::Network;
use towpath_reuse::policy::table::MISSES;

/// Bytes of signatures on their way, of files that were not answered; further ones are asked for as they are.
const MOST_SIGNED: u64 = 8 << 20;

/// What is known of the network at the moment.
pub type Look = Box<dyn Fn() -> Network + Send + Sync>;
/// Completes when something is.
pub type Known = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the head of this module.
pub struct Changed {
    look: Look,
    /// The other side takes bases, and knows packed messages.
    is_understood: bool,
    /// Until something is known of the network: completes then; and how long that was waited for.
    unknown: Mutex<Option<(Known, Duration)>>,
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
    /// Signatures of its parts that follow the ask.
    pub ahead: u64,
}

impl Changed {
    /// `look` tells of the network, once `known` completes; `is_understood`: the sender takes bases. Must be made within a
    /// runtime.
    pub fn new(look: Look, known: Known, is_understood: bool) -> Self {
        Self {
            look,
            is_understood,
            unknown: Mutex::new(Some((known, Duration::ZERO))),
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
    pub fn network(&self) -> Network {
        self.network_for(0)
    }

    /// The same, if that could save so many bytes.
    pub fn network_for(&self, bytes: u64) -> Network {
        let wait_limit = Network::first_wait(bytes);
        let mut unknown = lock(&self.unknown);
        if let Some((known, waited)) = &mut *unknown {
            let rest = wait_limit.saturating_sub(std::mem::replace(waited, wait_limit.max(*waited)));
            let is_known = async { tokio::time::timeout(rest, known).await.is_ok() };
            if self.runtime.block_on(is_known) {
                *unknown = None;
            }
        }
        drop(unknown);
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

    /// How many outlines may precede a part's delta where that saves much.
    pub fn takes_outlines(&self) -> u32 {
        let is_liked = self.is_understood && self.network().likes_outlines();
        if is_liked { refine::MOST_OUTLINES as u32 } else { 0 }
    }

    /// Names or signs what lies in the place of files that are about to be asked for, where that pays; with
    /// `must_sign` it does not name it. Blocks.
    pub fn sign(&self, files: &[(u64, Arc<CopyFile>)], must_sign: bool) -> Vec<Base> {
        if !self.is_understood || files.iter().all(|(_, file)| file.old_size().is_none()) {
            return Vec::new();
        }
        let old_sizes = files.iter().filter_map(|(_, file)| file.old_size());
        let old_bytes = old_sizes.fold(0, u64::saturating_add);
        let network = self.network_for(old_bytes);
        let (hits, misses) = (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed));
        let may_name = !must_sign && misses < MISSES + hits;
        let is_idle = self.outstanding.load(Ordering::Relaxed) == 0;
        let signed = files.par_iter().with_max_len(4).filter_map(|(entry, file)| {
            let new = file.wanted().size;
            let old = file.old_size().filter(|old| network.likes_name(*old, new))?;
            if self.outstanding.load(Ordering::Relaxed) > MOST_SIGNED {
                return None;
            }
            let is_guess = file.has_guessed_base();
            if may_name
                && patches::parts(old, new).is_some()
                && let Some(oid) = file.old_oid()
            {
                lock(&self.signed).insert(*entry, Told { oid: Some(oid), ..Told::default() });
                let oid = Bytes::copy_from_slice(&oid.to_bytes());
                return Some(Base { entry: *entry, oid, in_parts: true, is_guess, ..Base::default() });
            }
            if !network.likes_delta(old, new) {
                return None;
            }
            let (base, bytes) = base_of(file, old, &network)?;
            lock(&self.signed).insert(*entry, Told { bytes, ..Told::default() });
            self.outstanding.fetch_add(bytes, Ordering::Relaxed);
            Some(Base { entry: *entry, is_guess, ..base })
        });
        let mut signed: Vec<_> = signed.collect();
        let is_alone = is_idle && signed.iter().filter(|base| base.parts > 0).count() == 1;
        for base in signed.iter_mut().filter(|base| base.parts > 0) {
            base.ahead = network.signatures_ahead(base.parts, is_alone);
            if let Some(told) = lock(&self.signed).get_mut(&base.entry) {
                told.ahead = base.ahead.into();
            }
        }
        signed
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

    /// A file begins to come in parts, or as one patch. So many parts of its base were `signed`.
    pub fn begin(
        &self,
        file: Arc<CopyFile>,
        oid: Oid,
        answer: &Answer,
        signed: u64,
    ) -> Result<Option<Incoming>, CopyError> {
        let (parts, is_patch, size) = (u64::from(answer.parts), answer.is_patch, file.size());
        let is_possible = match (is_patch, parts) {
            (true, 1) => patches::may_be_whole(0, size),
            (true, _) => deltas::part(size, parts, 0).is_some(),
            (false, _) => parts <= deltas::MAX_PARTS && deltas::part(size, parts, 0).is_some(),
        };
        if !is_possible {
            return Err(violation("parts that are too many or too long"));
        }
        let Some((base, old)) = file.base() else { return Ok(None) };
        if is_patch && parts > 1 && patches::parts(old, size) != Some(parts) {
            return Err(violation("more or fewer parts than a patch has"));
        }
        Ok(Some(Incoming::new(file, oid, (base, old), (parts, signed), is_patch)))
    }

    /// The signatures that follow an ask for a file at once, one after the other: the first one is on its way while the second
    /// one is made. Blocks.
    pub fn sign_first(
        &self,
        base: &Base,
        file: &CopyFile,
        mut say: impl FnMut(Bytes) -> Result<(), CopyError>,
    ) -> Result<(), CopyError> {
        let (in_steps, new) = (self.network().likes_outlines(), file.wanted().size);
        for index in 0..base.ahead {
            let sign = |(old, size)| sign_part(&old, size, new, base.parts.into(), index.into(), in_steps);
            say(Bytes::from(file.base().and_then(sign).unwrap_or_default()))?;
        }
        Ok(())
    }

    /// The signature of the next part of a file.
    pub fn sign_next(&self, incoming: &mut Incoming) -> Result<Bytes, CopyError> {
        let signature = incoming.sign_next(self.network().likes_outlines())?;
        Ok(signature.unwrap_or_default().into())
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

/// A file's signature, or its parts, which are signed later; and how many bytes all of that may take.
fn base_of(file: &CopyFile, old: u64, network: &Network) -> Option<(Base, u64)> {
    let (base, new) = (file.base()?.0, file.wanted().size);
    let parts = deltas::parts(old, new)?;
    let in_steps = network.likes_outlines();
    if parts > 1 {
        let bytes = parts * deltas::signature_len(old.div_ceil(parts), old, in_steps);
        return Some((Base { parts: parts as u32, ..Base::default() }, bytes));
    }
    let signature = Bytes::from(sign_part(&base, old, new, 1, 0, in_steps)?);
    let bytes = signature.len() as u64;
    Some((Base { signature, ..Base::default() }, bytes))
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::AtomicBool;

    use tokio::sync::oneshot;
    use tokio::time::{Instant, sleep};
    use towpath_reuse::policy::table::{FIRST_WAIT as WAIT_LIMIT, MOST_FIRST_WAIT as MAX_WAIT_LIMIT};

    use super::*;

    const SLOW: Network = Network { rate: 2e5, round_trip: Duration::from_millis(40) };

    /// What is known of a network `for_bytes`, if a connection that tells of it stands once `standing` is over.
    async fn known(standing: impl Future<Output = ()> + Send + 'static, for_bytes: u64) -> Network {
        let stands = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stands);
        let look = move || if seen.load(Ordering::Relaxed) { SLOW } else { Network::default() };
        let known = async move {
            standing.await;
            stands.store(true, Ordering::Relaxed);
        };
        let changed = Changed::new(Box::new(look), Box::pin(known), true);
        let (told, known) = oneshot::channel();
        // No thread of the runtime: its time stands still while those work.
        std::thread::spawn(move || {
            // Somebody asks for little first.
            changed.network();
            told.send(changed.network_for(for_bytes)).unwrap();
        });
        known.await.unwrap()
    }

    /// A connection over 40 ms took 120, and 50 MB of which half was there came without a delta of that.
    #[tokio::test(start_paused = true)]
    async fn large_files_wait_longer_for_a_connection_that_tells_of_the_network() {
        assert_eq!(known(sleep(Duration::from_millis(150)), 50_000_000).await, SLOW);
        let started = Instant::now();
        assert_eq!(known(pending(), 100_000).await, Network::default());
        let waited = started.elapsed();
        assert!(waited >= WAIT_LIMIT && waited < MAX_WAIT_LIMIT, "{waited:?}");
        let started = Instant::now();
        assert_eq!(known(pending(), u64::MAX).await, Network::default());
        let waited = started.elapsed();
        assert!(
            waited >= MAX_WAIT_LIMIT && waited < MAX_WAIT_LIMIT + Duration::from_millis(10),
            "{waited:?}"
        );
    }
}
