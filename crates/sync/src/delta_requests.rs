//! Requests of changed files: names or signs what lies in their place, or what is probably an older version and lies elsewhere.
//!
//! Nothing here proves anything: a file whose hash is not its name is fetched like any other.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rayon::prelude::*;
use tokio::runtime::Handle;
use towpath_content::Oid;

use super::file::CopyFile;
use towpath_content::delta::exchange::{
    Base, MAX_OUTLINES, NextSignature, PatchParts, Request, Requester, SignedParts, parts,
};
use towpath_content::lock::lock;
use towpath_reuse::policy::network::Network;
use towpath_reuse::policy::table::MISSES;

/// Bytes of signatures on their way, of files that were not answered; further ones are asked for as they are.
const MOST_SIGNED: u64 = 8 << 20;

/// What is known of the network at the moment.
pub type Look = Box<dyn Fn() -> Network + Send + Sync>;
/// Completes when something is.
pub type Known = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the head of this module.
pub struct DeltaRequests {
    look: Look,
    /// Until something is known of the network: completes then; and how long that was waited for.
    unknown: Mutex<Option<(Known, Duration)>>,
    runtime: Handle,
    /// Bytes of signatures of files that were not answered.
    outstanding: Arc<AtomicU64>,
    /// How often the sender had a base that was named, and how often not.
    hits: AtomicU64,
    misses: AtomicU64,
    files: AtomicU64,
    saved: AtomicU64,
}

/// Base in a request.
pub struct DescribedBase {
    /// Its name, if the request has that.
    pub oid: Option<Oid>,
    /// Takes what comes.
    pub requester: Requester,
    /// Number of its parts, and of those whose signatures follow the request.
    parts: (u64, u64),
    _signed: SignedBytes,
}

/// Bytes of signatures that are on their way, until it is dropped.
struct SignedBytes {
    bytes: u64,
    outstanding: Arc<AtomicU64>,
}

impl SignedBytes {
    fn new(bytes: u64, outstanding: &Arc<AtomicU64>) -> Self {
        outstanding.fetch_add(bytes, Ordering::Relaxed);
        Self { bytes, outstanding: Arc::clone(outstanding) }
    }
}

impl Drop for SignedBytes {
    fn drop(&mut self) {
        self.outstanding.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl DeltaRequests {
    /// `look` tells of the network, once `known` completes. Must be made within a runtime.
    pub fn new(look: Look, known: Known) -> Self {
        Self {
            look,
            unknown: Mutex::new(Some((known, Duration::ZERO))),
            runtime: Handle::current(),
            outstanding: Arc::default(),
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
        let level = self.network().pack_level().unwrap_or(0).unsigned_abs();
        level.max(is_asked.into())
    }

    /// Whether deltas of what is signed next may come in steps.
    pub fn likes_steps(&self) -> bool {
        self.network().likes_outlines()
    }

    /// Requests that name or sign what lies in the place of files that are about to be asked for, one for each where that pays;
    /// with `must_sign` they do not name it. Blocks.
    pub fn requests(
        &self,
        files: &[&Arc<CopyFile>],
        must_sign: bool,
    ) -> Vec<Option<(Request, DescribedBase)>> {
        if files.iter().all(|file| file.base().size().is_none()) {
            return files.iter().map(|_| None).collect();
        }
        let old_bytes = files.iter().filter_map(|file| file.base().size()).fold(0, u64::saturating_add);
        let network = self.network_for(old_bytes);
        let (hits, misses) = (self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed));
        let may_name = !must_sign && misses < MISSES + hits;
        let is_idle = self.outstanding.load(Ordering::Relaxed) == 0;
        let describe = |file: &&Arc<CopyFile>| {
            let old = file.base().size().filter(|old| network.likes_name(*old, file.wanted().size))?;
            if self.outstanding.load(Ordering::Relaxed) > MOST_SIGNED {
                return None;
            }
            let (base, bytes) = describe(file, old, &network, may_name)?;
            Some((old, base, SignedBytes::new(bytes, &self.outstanding)))
        };
        let described: Vec<_> = files.par_iter().with_max_len(4).map(describe).collect();
        let is_in_parts = |(_, base, _): &&(u64, Base, SignedBytes)| base.ahead() > 0;
        let in_parts = described.iter().flatten().filter(is_in_parts).count();
        let outlines = if network.likes_outlines() { MAX_OUTLINES } else { 0 };
        let request = |(file, described): (&&Arc<CopyFile>, Option<(u64, Base, SignedBytes)>)| {
            let (old, mut base, signed) = described?;
            if let Base::Parts { count, ahead } = &mut base {
                *ahead = network.signatures_ahead(*count as u32, is_idle && in_parts == 1).into();
            }
            let request = Request { base, is_guess: file.base().is_guess(), outlines };
            let described = DescribedBase::new(&request, old, signed);
            Some((request, described))
        };
        files.iter().zip(described).map(request).collect()
    }

    /// Whether the sender had a base that was named.
    pub fn named(&self, is_hit: bool) {
        let count = if is_hit { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// The signatures that follow an ask for a file at once, one after the other: the first one is on its way while the second
    /// one is made. Blocks.
    pub fn sign_ahead(
        &self,
        described: &DescribedBase,
        file: &CopyFile,
        send: &mut dyn FnMut(&NextSignature),
    ) {
        let ((count, ahead), in_steps) = (described.parts, self.likes_steps());
        for index in 0..ahead {
            let signature = sign_part(file, count, index, in_steps);
            send(&signature.map_or(NextSignature::GivenUp, NextSignature::Signed));
        }
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

impl DescribedBase {
    /// Of a request whose base has so many bytes.
    fn new(request: &Request, old: u64, signed: SignedBytes) -> Self {
        let oid = if let Base::Named(oid) = request.base { Some(oid) } else { None };
        let parts = if let Base::Parts { count, ahead } = request.base { (count, ahead) } else { (1, 0) };
        Self { oid, requester: Requester::new(request, old), parts, _signed: signed }
    }
}

/// A file's base by its name, its signature, or its parts, which are signed later; and how many bytes all signatures may take.
fn describe(file: &CopyFile, old: u64, network: &Network, may_name: bool) -> Option<(Base, u64)> {
    let new = file.wanted().size;
    if may_name
        && PatchParts::new(old, new).is_some()
        && let Some(oid) = file.base().oid()
    {
        return Some((Base::Named(oid), 0));
    }
    if !network.likes_delta(old, new) {
        return None;
    }
    let count = parts::parts(old, new)?;
    let in_steps = network.likes_outlines();
    if count > 1 {
        file.base().open()?;
        let bytes = count * parts::signature_len(old.div_ceil(count), old, in_steps);
        return Some((Base::Parts { count, ahead: 1 }, bytes));
    }
    let signature = sign_part(file, 1, 0, in_steps)?;
    let bytes = signature.len() as u64;
    Some((Base::Signature(signature), bytes))
}

/// The signature of a part of a file's base, as far as its size is known.
fn sign_part(file: &CopyFile, count: u64, index: u64, in_steps: bool) -> Option<Vec<u8>> {
    let base = file.base().open()?;
    let parts = SignedParts::new(base.size(), file.wanted().size, count)?;
    parts.sign(index, &base.read(parts.base(index)?)?, in_steps)
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
        let requests = DeltaRequests::new(Box::new(look), Box::pin(known));
        let (told, known) = oneshot::channel();
        // No thread of the runtime: its time stands still while those work.
        std::thread::spawn(move || {
            // Somebody asks for little first.
            requests.network();
            told.send(requests.network_for(for_bytes)).unwrap();
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
