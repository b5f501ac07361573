//! A published file: its `.tow` as it was fetched, and what it answers. Head and values are here from the beginning; the other
//! sections come when they are asked for.

use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt;
use thiserror::Error;
use tokio::sync::mpsc;
use towpath_content::delta::blocks::{BLOCKS_FRONT, BlockShape, NumberedSum};
use towpath_content::pieces::{Layout, PieceTree};
use towpath_content::published::{
    FRONT_LEN, MAX_HEAD, PublishedHead, SectionKind, recipe_from_bytes, values_from_bytes,
};
use towpath_content::{DecodeError, Oid};
use towpath_store::{About, ObjectKind};
use towpath_transfer::want::Proof;
use towpath_transfer::{BoxFuture, Description, Metadata, Outcome, Query, RecipePart, SourceId};

use crate::answer::WebError;
use crate::place::MirrorPlace;
use crate::web::{NamedBy, Web, WebRules};
use crate::web_url::WebUrl;

/// Bytes that are asked for at first: all of most small ones.
const FIRST: u64 = 64 << 10;
/// The longest `.tow` that a server without ranges may send.
const MAX_WHOLE: u64 = 64 << 20;
/// Pieces whose values are told at a time.
const PIECES: u64 = 4096;
/// Bytes of sums that are read though nobody wants them: another question would cost about as much.
const FAR: u64 = 512;
/// Questions for sums at once: their answers are short, so most of the time is on the way.
const SUM_QUESTIONS: usize = 8;

/// Sums of some blocks, and their shape.
pub(crate) type SumsOfBlocks = (BlockShape, Vec<NumberedSum>);

/// Reason why a `.tow` is not used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PublishedError {
    /// It did not come.
    #[error("{0}")]
    Web(#[from] WebError),
    /// It is none.
    #[error("is no .tow file: {0}")]
    Format(#[from] DecodeError),
    /// It is too short to be one.
    #[error("is no .tow file: it has {0} bytes")]
    TooShort(u64),
    /// It came in a way in which anybody could change it, and nobody here said what it must name.
    #[error("came without encryption, where anybody on the way can change it")]
    Plain,
    /// It names another content than it must.
    #[error("names other content: {found}")]
    OtherContent {
        /// Content that it names.
        found: Oid,
    },
    /// One of its sections is not what its head says.
    #[error("does not fit together; it may just have been replaced")]
    WrongSection,
    /// It holds no values.
    #[error("tells nothing by which pieces could be checked")]
    NoValues,
}

/// See the head of this module.
pub struct Published {
    head: PublishedHead,
    /// Bytes of mark, length and head.
    front: u64,
    tree: PieceTree,
    file: TowFile,
}

/// The `.tow` itself.
struct TowFile {
    url: WebUrl,
    web: Web,
    /// Its first bytes, which came at once.
    first: Vec<u8>,
    /// Its bytes, if they are known.
    size: Option<u64>,
    tag: Option<String>,
    /// All hops to it were encrypted.
    is_encrypted: bool,
    /// Bytes a second at which these came, the question included.
    rate: f64,
}

impl Published {
    /// Fetches head and values. `expected` is the content that it must name; without it the way there must be encrypted.
    pub async fn fetch(
        url: &WebUrl,
        expected: Option<&Oid>,
        rules: WebRules,
    ) -> Result<Self, PublishedError> {
        let file = TowFile::open(url, rules).await?;
        if let Some(size) = file.size.filter(|size| *size < FRONT_LEN as u64) {
            return Err(PublishedError::TooShort(size));
        }
        if expected.is_none() && !file.is_encrypted {
            return Err(PublishedError::Plain);
        }
        let front = file.read(0..FRONT_LEN as u64).await?;
        let front = (FRONT_LEN + PublishedHead::len_of(&front)?) as u64;
        let head = PublishedHead::from_bytes(&file.read(FRONT_LEN as u64..front).await?)?;
        if expected.is_some_and(|expected| *expected != head.oid) {
            return Err(PublishedError::OtherContent { found: head.oid });
        }
        let layout = Layout::of(head.size).map_err(|_| PublishedError::NoValues)?;
        let values = match layout.count() {
            1 => vec![*head.oid.digest()],
            _ => {
                let values = section(&file, &head, front, SectionKind::Values).await?;
                values_from_bytes(&values.ok_or(PublishedError::NoValues)?, &layout)?
            }
        };
        let tree = PieceTree::new(layout, values).ok_or(PublishedError::NoValues)?;
        if tree.oid() != head.oid {
            return Err(PublishedError::WrongSection);
        }
        Ok(Self { head, front, tree, file })
    }

    /// The content.
    pub const fn oid(&self) -> &Oid {
        &self.head.oid
    }

    /// Bytes a second at which the `.tow` came: a first guess of what its server is good for.
    pub const fn rate(&self) -> u64 {
        self.file.rate as u64
    }

    /// Its bytes.
    pub const fn size(&self) -> u64 {
        self.head.size
    }

    /// Its cutting into pieces.
    pub const fn layout(&self) -> Layout {
        self.tree.layout()
    }

    /// What people call it.
    pub fn about(&self) -> About {
        let PublishedHead { name, mode, modified, .. } = &self.head;
        About { kind: ObjectKind::Blob, name: name.clone(), mode: *mode, modified: *modified }
    }

    /// URLs of the file, and who named each: whoever named the `.tow` meant its server, too.
    pub fn places(&self) -> Vec<(MirrorPlace, NamedBy)> {
        let tow = &self.file.url;
        if self.head.places.is_empty() {
            return tow
                .described()
                .map(|url| (MirrorPlace::File(url), NamedBy::Person))
                .into_iter()
                .collect();
        }
        let places = self.head.places.iter().filter_map(|place| tow.join(place).ok());
        let named = |url: &WebUrl| match url.is_beside(tow) {
            true => NamedBy::Person,
            false => NamedBy::Stranger,
        };
        places.map(|url| (MirrorPlace::File(url.clone()), named(&url))).collect()
    }

    /// Answers a question about it; `maker` is to blame if the recipe is wrong.
    pub(crate) async fn describe(
        &self,
        query: &Query,
        maker: &SourceId,
        answers: mpsc::Sender<Description>,
    ) -> Result<(), Outcome> {
        let layout = self.tree.layout();
        let (about, metadata) = (self.about(), Metadata::default());
        // Nobody need listen.
        let _ = answers.send(Description::Object { about, layout: Some(layout), metadata }).await;
        let asked = query.proofs.clone().unwrap_or_default();
        let mut next = asked.start;
        while next < asked.end.min(layout.count()) && !answers.is_closed() {
            let run = next..asked.end.min(layout.count()).min(next + PIECES);
            let nodes = self.tree.proof(run.clone()).map_err(|_| Outcome::NotHere)?.into();
            next = run.end;
            let _ = answers.send(Description::Proof(Proof { run, nodes })).await;
        }
        if query.recipe
            && let Some(part) = self.recipe(maker).await
        {
            let _ = answers.send(Description::Recipe(part)).await;
        }
        Ok(())
    }

    /// The recipe, if it has one and it can be had: it is a help, and nothing fails for want of it.
    async fn recipe(&self, maker: &SourceId) -> Option<RecipePart> {
        let bytes = self.section(SectionKind::Recipe).await.ok()??;
        let (root, nodes) = recipe_from_bytes(&bytes).ok()?;
        let nodes = nodes.into_iter().map(Bytes::from).collect();
        Some(RecipePart { maker: maker.clone(), root: Some(root.into()), nodes })
    }

    /// The sums of its large blocks.
    pub(crate) async fn large_blocks(&self) -> Option<SumsOfBlocks> {
        let bytes = self.section(SectionKind::LargeBlocks).await.ok()??;
        let shape = BlockShape::from_bytes(&bytes).ok()?;
        Some((shape, shape.sums(0, bytes.get(BLOCKS_FRONT..)?).ok()?))
    }

    /// The sums of the small blocks that lie wholly in these stretches. They come by ranges of their section, so nobody checks its hash;
    /// wrong ones cost time only.
    pub(crate) async fn small_blocks(&self, stretches: &[Range<u64>]) -> Option<SumsOfBlocks> {
        let (_, section) = self.head.section(SectionKind::SmallBlocks, self.front)?;
        let front = self.file.read(section.start..section.start + BLOCKS_FRONT as u64).await.ok()?;
        let shape = BlockShape::from_bytes(&front).ok()?;
        let len = shape.block_len();
        let within = |range: &Range<u64>| range.start.div_ceil(len)..range.end / len;
        let runs = runs(stretches.iter().map(within), FAR / shape.sum_len() as u64);
        let reading = runs
            .into_iter()
            .map(|run| -> BoxFuture<'_, _> { Box::pin(self.sums_of(section.clone(), shape, run)) });
        let read: Vec<Option<Vec<NumberedSum>>> =
            futures_util::stream::iter(reading).buffered(SUM_QUESTIONS).collect().await;
        Some((shape, read.into_iter().flatten().flatten().collect()))
    }

    /// Sums of a run of blocks, from the section in which those of all are.
    async fn sums_of(
        &self,
        section: Range<u64>,
        shape: BlockShape,
        run: Range<u64>,
    ) -> Option<Vec<NumberedSum>> {
        let place = shape.place_of(&run);
        let place = section.start + place.start..section.start + place.end;
        match place.end <= section.end {
            true => shape.sums(run.start, &self.file.read(place).await.ok()?).ok(),
            false => None,
        }
    }

    /// A section, if it has that one.
    async fn section(&self, kind: SectionKind) -> Result<Option<Vec<u8>>, PublishedError> {
        section(&self.file, &self.head, self.front, kind).await
    }
}

async fn section(
    file: &TowFile,
    head: &PublishedHead,
    front: u64,
    kind: SectionKind,
) -> Result<Option<Vec<u8>>, PublishedError> {
    let Some((section, range)) = head.section(kind, front) else { return Ok(None) };
    let bytes = file.read(range).await?;
    match section.is(&bytes) {
        true => Ok(Some(bytes)),
        false => Err(PublishedError::WrongSection),
    }
}

/// Runs of blocks that are read at once: those less than `far` blocks apart are one.
fn runs(blocks: impl Iterator<Item = Range<u64>>, far: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for next in blocks.filter(|run| run.start < run.end) {
        match runs.last_mut() {
            Some(last) if next.start <= last.end + far => last.end = next.end.max(last.end),
            _ => runs.push(next),
        }
    }
    runs
}

impl TowFile {
    async fn open(url: &WebUrl, rules: WebRules) -> Result<Self, PublishedError> {
        let (web, asked) = (Web::new(NamedBy::Person, rules), Instant::now());
        let answer = match web.open(url, &(0..FIRST.max((FRONT_LEN + MAX_HEAD) as u64)), None).await {
            // Of an empty file there is no range. Not all servers say how long it is; and nothing was known that could have changed.
            Err(WebError::OtherSize { found: 0, .. } | WebError::Changed) => {
                return Err(PublishedError::TooShort(0));
            }
            answer => answer?,
        };
        let (tag, is_encrypted) = (answer.range.tag.clone(), answer.is_encrypted);
        let (is_whole, total) = (answer.range.is_whole, answer.range.total);
        let first = answer.whole(&web, MAX_WHOLE).await?;
        let size = if is_whole { Some(first.len() as u64) } else { total };
        let rate = first.len() as f64 / asked.elapsed().as_secs_f64();
        Ok(Self { url: url.clone(), web, first, size, tag, is_encrypted, rate })
    }

    async fn read(&self, range: Range<u64>) -> Result<Vec<u8>, WebError> {
        if let Some(here) = self.first.get(range.start as usize..range.end as usize) {
            return Ok(here.to_vec());
        }
        let answer = self.web.open(&self.url, &range, self.tag.as_deref()).await?;
        if answer.range.is_whole {
            return Err(WebError::Changed);
        }
        let bytes = answer.whole(&self.web, range.end - range.start).await?;
        match bytes.len() as u64 == range.end - range.start {
            true => Ok(bytes),
            false => Err(WebError::CutShort),
        }
    }
}
