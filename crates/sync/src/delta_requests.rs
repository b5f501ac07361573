//! Requests of changed files: names or signs what lies in their place, or what is probably an older version and lies elsewhere.
//!
//! Nothing here proves anything: a file whose hash is not its name is fetched like any other.

use std::sync::{Arc, Mutex};

use rayon::prelude::*;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use towpath_content::Oid;

use super::file::CopyFile;
use super::network_look::NetworkLook;
use towpath_content::delta::exchange::{
    Base, MAX_SIGNATURE_LEN, NextSignature, PatchParts, Request, Requester, SignedParts, parts,
};
use towpath_content::lock::lock;
use towpath_reuse::delta::made::{MadeDelta, MadeDeltas};
use towpath_reuse::policy::network::Network;
use towpath_reuse::policy::table::MISSES;

/// Bytes of signatures on their way, of files that were not answered; what finds no room is asked for as it is.
const MOST_SIGNED: usize = 8 << 20;

/// See the head of this module.
pub struct DeltaRequests {
    network: NetworkLook,
    counts: Mutex<DeltaCounts>,
    /// Bytes that further signatures may have.
    room: Arc<Semaphore>,
}

/// What came of requests so far.
#[derive(Default)]
struct DeltaCounts {
    /// How often the sender had a base that was named, and how often not.
    hits: u64,
    misses: u64,
    /// Files that were made of older versions.
    made: MadeDeltas,
}

/// Base in a request.
pub struct DescribedBase {
    /// Its name, if the request has that.
    pub oid: Option<Oid>,
    /// Takes what comes.
    pub requester: Requester,
    /// Number of its parts, and of those whose signatures follow the request.
    parts: (u64, u64),
    /// Room of its signatures, until the answer.
    _signed: OwnedSemaphorePermit,
}

impl DeltaRequests {
    /// Asks as `network` makes it worth.
    pub fn new(network: NetworkLook) -> Self {
        Self { network, counts: Mutex::default(), room: Arc::new(Semaphore::new(MOST_SIGNED)) }
    }

    /// The network, if to know it could save so many bytes. The first time this waits a little for somebody to know it. Blocks.
    pub fn network_for(&self, bytes: u64) -> Network {
        self.network.network_for(bytes)
    }

    /// The same for files that are about to be asked for.
    pub fn network_of(&self, files: &[Arc<CopyFile>]) -> Network {
        let bases = files.iter().filter_map(|file| file.base().size());
        self.network_for(bases.fold(0, u64::saturating_add))
    }

    /// How hard answers should be packed; 0: not. `is_asked`: the person wants it in any case.
    pub fn pack_level(&self, is_asked: bool) -> u32 {
        let level = self.network_for(0).pack_level().unwrap_or(0).unsigned_abs();
        level.max(is_asked.into())
    }

    /// Whether deltas of what is signed next may come in steps.
    pub fn likes_steps(&self) -> bool {
        self.network_for(0).likes_outlines()
    }

    /// Requests that name or sign the bases of files that are about to be asked for, one for each where that pays; with `must_sign`
    /// they do not name them. Blocks.
    pub fn requests(
        &self,
        files: &[Arc<CopyFile>],
        must_sign: bool,
    ) -> Vec<Option<(Request, DescribedBase)>> {
        let network = self.network_of(files);
        let DeltaCounts { hits, misses, .. } = *lock(&self.counts);
        let may_name = !must_sign && misses < MISSES + hits;
        let count = |file: &CopyFile| parts::parts(file.base().size()?, file.wanted().size);
        let in_parts = files.iter().filter(|file| count(file) > Some(1)).count();
        let is_alone = in_parts == 1 && self.room.available_permits() == MOST_SIGNED;
        let describe = |file: &Arc<CopyFile>| self.describe(file, &network, may_name, is_alone);
        files.par_iter().with_max_len(4).map(describe).collect()
    }

    /// The request with the name of a file's base, its signature, or its parts, which are signed later; none where that does not pay,
    /// or there is no room for its signatures.
    fn describe(
        &self,
        file: &CopyFile,
        network: &Network,
        may_name: bool,
        is_alone: bool,
    ) -> Option<(Request, DescribedBase)> {
        let (old, new) = (file.base().size()?, file.wanted().size);
        if !network.likes_name(old, new) || self.room.available_permits() < MAX_SIGNATURE_LEN {
            return None;
        }
        let is_named = may_name && PatchParts::new(old, new).is_some();
        let (base, bytes) = match is_named.then(|| file.base().oid()).flatten() {
            Some(oid) => (Base::Named(oid), 0),
            None if !network.likes_delta(old, new) => return None,
            None => sign(file, old, network, is_alone)?,
        };
        let signed = Arc::clone(&self.room).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()?;
        let request = Request { base, is_guess: file.base().is_guess(), outlines: network.outlines() };
        let parts = if let Base::Parts { count, ahead } = request.base { (count, ahead) } else { (1, 0) };
        let (oid, requester) = (request.base.oid(), Requester::new(&request, old));
        Some((request, DescribedBase { oid, requester, parts, _signed: signed }))
    }

    /// Whether the sender had a base that was named.
    pub fn named(&self, is_hit: bool) {
        let mut counts = lock(&self.counts);
        *if is_hit { &mut counts.hits } else { &mut counts.misses } += 1;
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

    /// A file was made of its older version, for which so many bytes came.
    pub fn made(&self, file: &CopyFile, came: u64) {
        let Some((base, reason)) = file.base().named() else { return };
        let (path, made) = (file.wanted().shown.clone(), file.size());
        lock(&self.counts).made.add(MadeDelta { path, base, reason, made, came });
    }

    /// Files that were made so.
    pub fn made_of_older(&self) -> MadeDeltas {
        lock(&self.counts).made.clone()
    }
}

/// A file's base by its signature or its parts; and how many bytes all signatures may take.
fn sign(file: &CopyFile, old: u64, network: &Network, is_alone: bool) -> Option<(Base, u64)> {
    let (count, in_steps) = (parts::parts(old, file.wanted().size)?, network.likes_outlines());
    if count > 1 {
        file.base().open()?;
        let bytes = count * parts::signature_len(old.div_ceil(count), old, in_steps);
        let ahead = network.signatures_ahead(count as u32, is_alone).into();
        return Some((Base::Parts { count, ahead }, bytes));
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
