//! An older version of a published file on this machine: what of the file it has, found by the sums of blocks in the `.tow`.
//!
//! First the large blocks are looked for. The sums of small ones are fetched only for what lies between those that were found.
//! What is found is a source of its own, which has these bytes and no others: so only the rest is asked of mirrors.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use towpath_content::Oid;
use towpath_content::delta::blocks::{BlockFinder, BlockMatch};
use towpath_content::lock::lock;
use towpath_store::About;
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::want::Payload;
use towpath_transfer::{
    BoxFuture, Context, Delivery, Description, Metadata, Outcome, Source, SourceId, Want, WantId,
};

use crate::published::{Published, SumsOfBlocks};

/// Kind of source.
const SIMILAR: &str = "older version";
/// Reading is quick: a few pieces keep it busy.
const WINDOW: u64 = 8 << 20;
/// Longest time for which somebody is waited for who hears what there is.
const HEARD: Duration = Duration::from_secs(2);
/// Stretches that are told of at once.
const TOLD: usize = 1024;

/// What of a published file an older version has.
#[derive(Debug)]
struct FoundBlocks {
    base: File,
    /// In the file's order, without overlaps.
    matches: Vec<BlockMatch>,
}

/// The source. It has nothing before it was [filled](SimilarSource::fill), if it ever is.
pub struct SimilarSource {
    published: Arc<Published>,
    name: Mutex<SourceId>,
    found: watch::Sender<Option<Arc<FoundBlocks>>>,
    /// True once somebody heard all that it has.
    told: watch::Sender<bool>,
}

impl SimilarSource {
    /// Of a file of which no older version is known yet.
    pub fn new(published: Arc<Published>) -> Arc<Self> {
        let name = Mutex::new(SourceId::other(SIMILAR, None));
        let (found, told) = (watch::channel(None).0, watch::channel(false).0);
        Arc::new(Self { published, name, found, told })
    }

    /// True once an older version is known.
    pub fn is_known(&self) -> bool {
        self.found.borrow().is_some()
    }

    /// Completes once an older version is known.
    pub async fn known(&self) {
        let _ = self.found.subscribe().wait_for(Option::is_some).await;
    }

    /// Looks for the file's blocks in `base`, an older version of `size` bytes that lies at `path`; returns how many bytes
    /// were found, once whoever draws on this source knows them, or soon after.
    pub async fn fill(&self, base: File, size: u64, path: &Path) -> u64 {
        let Some(matches) = self.look(&base, size).await.filter(|matches| !matches.is_empty()) else {
            return 0;
        };
        let bytes = matches.iter().map(|found| found.target.end - found.target.start).sum();
        *lock(&self.name) = SourceId::other(SIMILAR, Some(&path.display().to_string()));
        self.found.send_replace(Some(Arc::new(FoundBlocks { base, matches })));
        let _ = tokio::time::timeout(HEARD, self.told.subscribe().wait_for(|told| *told)).await;
        bytes
    }

    /// Finds blocks; nothing if that can't be done: it is a help, and nothing fails for want of it.
    async fn look(&self, base: &File, size: u64) -> Option<Vec<BlockMatch>> {
        let large = self.published.large_blocks().await?;
        let found = find(base, size, large).await?;
        let missing = missing(&found, self.published.size());
        let Some(small) = self.published.small_blocks(&missing).await else { return Some(found) };
        let more = find(base, size, small).await.unwrap_or_default();
        Some(joined(found, more, &missing))
    }

    fn blocks(&self) -> Option<Arc<FoundBlocks>> {
        self.found.borrow().clone()
    }

    /// Bytes of a want, if this version has all of them.
    fn read(&self, want: &Want) -> Option<Vec<u8>> {
        let (oid, whole) = match want.id {
            WantId::Piece { oid, layout, index } => (oid, layout.range(index)),
            WantId::Chunk { len, .. } => {
                let origin = want.origin?;
                (origin.oid, origin.offset..origin.offset.checked_add(len.into())?)
            }
            WantId::Block { .. } => return None,
        };
        let blocks = self.blocks().filter(|_| oid == *self.published.oid())?;
        let range = match &want.part {
            Some(part) => whole.start + part.start..(whole.start + part.end).min(whole.end),
            None => whole,
        };
        blocks.read(range).ok().flatten()
    }
}

/// Looks for sums in a file, on a thread of its own.
async fn find(base: &File, size: u64, (shape, sums): SumsOfBlocks) -> Option<Vec<BlockMatch>> {
    let base = base.try_clone().ok()?;
    let finding = tokio::task::spawn_blocking(move || {
        BlockFinder::new(shape, sums).find(size, |at, buffer| base.read_exact_at(buffer, at))
    });
    finding.await.ok()?.ok()
}

/// What lies between matches.
fn missing(found: &[BlockMatch], size: u64) -> Vec<Range<u64>> {
    let (mut missing, mut at) = (Vec::new(), 0);
    for one in found.iter().map(|one| one.target.clone()).chain(std::iter::once(size..size)) {
        if one.start > at {
            missing.push(at..one.start);
        }
        at = one.end;
    }
    missing
}

/// Both, in order: of `more` only what lies in `missing`.
fn joined(found: Vec<BlockMatch>, more: Vec<BlockMatch>, missing: &[Range<u64>]) -> Vec<BlockMatch> {
    let mut all = found;
    for gap in missing {
        let first = more.partition_point(|one| one.target.end <= gap.start);
        for one in more[first..].iter().take_while(|one| one.target.start < gap.end) {
            let target = one.target.start.max(gap.start)..one.target.end.min(gap.end);
            let base = one.base + (target.start - one.target.start);
            all.push(BlockMatch { target, base });
        }
    }
    all.sort_unstable_by_key(|one| one.target.start);
    all
}

impl FoundBlocks {
    /// Bytes of the file, if all of them are here.
    fn read(&self, range: Range<u64>) -> io::Result<Option<Vec<u8>>> {
        let (mut bytes, mut at) = (vec![0; range.end.saturating_sub(range.start) as usize], range.start);
        let first = self.matches.partition_point(|one| one.target.end <= range.start);
        for one in &self.matches[first..] {
            if at >= range.end || one.target.start > at {
                break;
            }
            let end = one.target.end.min(range.end);
            let place = (at - range.start) as usize..(end - range.start) as usize;
            self.base.read_exact_at(&mut bytes[place], one.base + (at - one.target.start))?;
            at = end;
        }
        Ok((at >= range.end && !bytes.is_empty()).then_some(bytes))
    }

    /// Stretches of the file that are here, of which neighbours are one.
    fn stretches(&self) -> Vec<Range<u64>> {
        let mut stretches: Vec<Range<u64>> = Vec::new();
        for one in &self.matches {
            match stretches.last_mut() {
                Some(last) if last.end == one.target.start => last.end = one.target.end,
                _ => stretches.push(one.target.clone()),
            }
        }
        stretches
    }
}

impl Source for SimilarSource {
    fn name(&self) -> &str {
        SIMILAR
    }

    fn state(&self) -> SourceState {
        SourceState { proves: false, price: 0, ..SourceState::of_window(WINDOW) }
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        _context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            if query.oid != *self.published.oid() || !self.is_known() {
                return Err(Outcome::NotHere);
            }
            let (about, layout) = (About::default(), Some(self.published.layout()));
            // Nobody need listen.
            let _ = answers.send(Description::Object { about, layout, metadata: Metadata::default() }).await;
            Ok(())
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, _context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let source = lock(&self.name).clone();
            for want in wants {
                let asked = Instant::now();
                let Some(bytes) = self.read(&want) else {
                    sink.outcome(want.tag, Outcome::NotHere);
                    continue;
                };
                let (payload, timing) = (Payload::Bytes(bytes.into()), (asked, Instant::now()));
                let (tag, source) = (want.tag, source.clone());
                sink.deliver(Delivery { tag, payload, proof: None, source, timing, saved: 0 }).await;
            }
        })
    }

    fn have<'a>(
        &'a self,
        oid: Oid,
        _context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let blocks = self.blocks().filter(|_| oid == *self.published.oid());
            for told in blocks.map(|blocks| blocks.stretches()).unwrap_or_default().chunks(TOLD) {
                if ranges.send(told.to_vec()).await.is_err() {
                    return;
                }
            }
            // The last of them is heard when there is room for another.
            let _ = ranges.reserve_many(ranges.max_capacity()).await;
            self.told.send_replace(true);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(target: Range<u64>, base: u64) -> BlockMatch {
        BlockMatch { target, base }
    }

    #[test]
    fn small_blocks_fill_what_lies_between_large_ones() {
        let large = vec![found(100..200, 0), found(300..400, 500)];
        let missing = missing(&large, 450);
        assert_eq!(missing, [0..100, 200..300, 400..450]);
        let small =
            vec![found(90..110, 1000), found(150..160, 2000), found(210..220, 3000), found(290..440, 4000)];
        let all = joined(large, small, &missing);
        let expected = [
            found(90..100, 1000),
            found(100..200, 0),
            found(210..220, 3000),
            found(290..300, 4000),
            found(300..400, 500),
            found(400..440, 4110),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_range_is_read_across_matches_or_not_at_all() {
        let base = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..100).collect();
        base.write_all_at(&bytes, 0).unwrap();
        let blocks =
            FoundBlocks { base, matches: vec![found(10..20, 50), found(20..30, 0), found(40..50, 90)] };
        assert_eq!(blocks.read(15..25).unwrap(), Some(vec![55, 56, 57, 58, 59, 0, 1, 2, 3, 4]));
        assert_eq!(blocks.read(15..35).unwrap(), None);
        assert_eq!(blocks.read(5..15).unwrap(), None);
        assert_eq!(blocks.stretches(), [10..30, 40..50]);
    }
}
