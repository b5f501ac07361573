//! A file that comes in parts, as deltas or patches of what lies in its place: put together as runs come.
//!
//! Nothing here proves anything: the caller hashes the whole.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use towpath_content::Oid;

use super::file::CopyFile;
use super::message::{Delta, violation};
use crate::error::CopyError;
use towpath_content::delta::exchange::PatchParts;
use towpath_content::delta::exchange::parts::{self as deltas, MAX_PART_LEN};
use towpath_content::delta::exchange::refine;
use towpath_reuse::delta::patches;

/// Bytes that a delta may have more than what it makes: it may not shrink, and ops take a few.
const ROOM: u64 = 1 << 20;
/// Bytes of a file's outlines whose literals are to come, at most.
const MOST_OUTLINED: usize = 16 << 20;

/// A file that comes in parts.
pub struct Incoming {
    /// Which.
    pub file: Arc<CopyFile>,
    /// What it is called.
    pub oid: Oid,
    base: File,
    old: u64,
    is_patch: bool,
    turns: Turns,
    /// What came of the current delta.
    delta: Vec<u8>,
    made: u64,
}

/// Which part is next to come and to be signed. Pure.
struct Turns {
    parts: u64,
    next: u64,
    signed: u64,
    /// Parts whose literals are to come, with their outlines, in the order in which they come.
    outlined: VecDeque<(u64, Vec<Vec<u8>>)>,
}

impl Turns {
    /// The part that comes: the next one, or the one whose literals' turn it is, with its outlines.
    fn take(&mut self, is_rest: bool) -> Result<(u64, Vec<Vec<u8>>), CopyError> {
        if is_rest {
            return self.outlined.pop_front().ok_or_else(|| violation("literals of no outline"));
        }
        let index = self.next;
        if index == self.parts {
            return Err(violation("more parts than were told"));
        }
        self.next += 1;
        Ok((index, Vec::new()))
    }

    /// The literals of a part come later. It must not have too many outlines, nor all of them too many bytes.
    fn put_off(&mut self, index: u64, outlines: Vec<Vec<u8>>) -> Result<(), CopyError> {
        self.outlined.push_back((index, outlines));
        let held = self.outlined.iter().flat_map(|(_, outlines)| outlines).map(Vec::len).sum::<usize>();
        let is_deep = self
            .outlined
            .back()
            .is_some_and(|(_, outlines)| outlines.len() > towpath_content::delta::exchange::MAX_OUTLINES);
        match is_deep || held > MOST_OUTLINED {
            true => Err(violation("more outlines than a part may have")),
            false => Ok(()),
        }
    }

    /// The part to sign next.
    fn sign(&mut self) -> Result<u64, CopyError> {
        let index = self.signed;
        if index >= self.parts {
            return Err(violation("more signatures than there are parts"));
        }
        self.signed += 1;
        Ok(index)
    }
}

/// The signature of a part of a base of `old` bytes for a file of `new`, whose delta may come in steps.
pub fn sign_part(base: &File, old: u64, new: u64, parts: u64, index: u64, in_steps: bool) -> Option<Vec<u8>> {
    let target = deltas::part(new, parts, index)?;
    let bytes = read(base, &deltas::part(old, parts, index)?)?;
    deltas::sign(&bytes, old, target.end - target.start, in_steps)
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

impl Incoming {
    /// Nothing has come of it; `base` with its bytes. Of its `parts` so many were `signed`.
    pub fn new(
        file: Arc<CopyFile>,
        oid: Oid,
        base: (File, u64),
        (parts, signed): (u64, u64),
        is_patch: bool,
    ) -> Self {
        let (base, old) = base;
        let turns = Turns { parts, next: 0, signed, outlined: VecDeque::new() };
        Self { file, oid, base, old, is_patch, turns, delta: Vec::new(), made: 0 }
    }

    /// The signature of the next part that was not signed; none if it can't be read.
    pub fn sign_next(&mut self, in_steps: bool) -> Result<Option<Vec<u8>>, CopyError> {
        if self.is_patch {
            return Err(violation("a signature for a patch"));
        }
        let index = self.turns.sign()?;
        Ok(sign_part(&self.base, self.old, self.file.size(), self.turns.parts, index, in_steps))
    }

    /// The next run of its deltas.
    pub fn take(&mut self, run: &Delta) -> Result<Taken, CopyError> {
        if run.is_given_up {
            return Ok(Taken::Nothing);
        }
        let is_whole = self.is_patch && self.turns.parts == 1;
        let most = if is_whole { self.file.size() + ROOM } else { MAX_PART_LEN + ROOM };
        if (self.delta.len() + run.bytes.len()) as u64 > most {
            return Err(violation("a delta that is longer than what it makes"));
        }
        self.delta.extend_from_slice(&run.bytes);
        if !run.is_last {
            return Ok(Taken::Some);
        }
        let came = std::mem::take(&mut self.delta);
        if run.is_outline {
            return self.take_outline(came, run);
        }
        let count = came.len() as u64;
        let Some((offset, content, before)) = self.part(&came, run)? else {
            return Ok(Taken::Nothing);
        };
        self.made += 1;
        Ok(Taken::Part { offset, content, came: before + count, is_last: self.made == self.turns.parts })
    }

    /// The outline of a part, or of the literals of one.
    fn take_outline(&mut self, outline: Vec<u8>, run: &Delta) -> Result<Taken, CopyError> {
        if self.is_patch {
            return Err(violation("an outline of a patch"));
        }
        let (index, mut outlines) = self.turns.take(run.is_rest)?;
        outlines.push(outline);
        self.turns.put_off(index, outlines)?;
        let (base, waiting) = (self.base_of(index), self.turns.outlined.back());
        let signature =
            base.zip(waiting).and_then(|(base, (_, all))| refine::sign(all, &base, run.further as usize));
        Ok(signature.map_or(Taken::Nothing, Taken::Outline))
    }

    /// The part that a delta makes: where it begins, its bytes, and how many of them came before.
    fn part(&mut self, came: &[u8], run: &Delta) -> Result<Option<(u64, Vec<u8>, u64)>, CopyError> {
        let size = self.file.size();
        if self.is_patch && self.turns.parts == 1 {
            return Ok(apply_patch(&self.base, self.old, size, came).map(|content| (0, content, 0)));
        }
        let (index, outlines) = self.turns.take(run.is_rest)?;
        let Some(range) = deltas::part(size, self.turns.parts, index) else { return Ok(None) };
        let content = self.apply(came, run.is_packed, index, &outlines, range.end - range.start);
        let before = outlines.iter().map(Vec::len).sum::<usize>() as u64;
        Ok(content.map(|content| (range.start, content, before)))
    }

    fn apply(
        &self,
        came: &[u8],
        is_packed: bool,
        index: u64,
        outlines: &[Vec<u8>],
        len: u64,
    ) -> Option<Vec<u8>> {
        if self.is_patch {
            let around = PatchParts::new(self.old, self.file.size())?.base(index)?;
            return patches::apply(came, &read(&self.base, &around)?, len);
        }
        let unpacked = if is_packed { Some(towpath_reuse::delta::unpack(came)?) } else { None };
        let delta = unpacked.as_deref().unwrap_or(came);
        let base = self.base_of(index)?;
        refine::apply(outlines, delta, &base, len)
    }

    fn base_of(&self, index: u64) -> Option<Vec<u8>> {
        read(&self.base, &deltas::part(self.old, self.turns.parts, index)?)
    }
}

/// The content that a patch of one part makes of a base of `old` bytes.
pub fn apply_patch(base: &File, old: u64, new: u64, patch: &[u8]) -> Option<Vec<u8>> {
    if !patches::may_be_whole(old, new) {
        return None;
    }
    patches::apply(patch, &read(base, &(0..old))?, new)
}

/// These bytes of a file.
pub fn read(file: &File, range: &Range<u64>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    file.read_exact_at(&mut bytes, range.start).ok().map(|()| bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use towpath_protocol::ControlReceiver;

    use super::super::file::tests::file_of;
    use super::super::message::{Answer, Asks, Base, Bases, Finer, Message};
    use super::super::sending::tests::telling;
    use super::super::side::joined;
    use super::*;
    use towpath_store::doubles::noise;

    const LIMIT: Duration = Duration::from_secs(60);
    const SIZE: usize = 20 << 20;

    async fn next(inbox: &mut ControlReceiver) -> Message {
        Message::from_bytes(tokio::time::timeout(LIMIT, inbox.next()).await.unwrap().unwrap()).unwrap()
    }

    /// Asks a sender for a file of three parts, of which one is signed ahead; gives up with the signature of part
    /// `give_up_at`. What was made, and how many bytes came.
    async fn ask(old: &[u8], new: &[u8], give_up_at: u64) -> Option<(Vec<u8>, usize)> {
        let home = tempfile::tempdir().unwrap();
        let (from, base) = (home.path().join("from"), home.path().join("base"));
        std::fs::create_dir(&from).unwrap();
        std::fs::write(from.join("file"), new).unwrap();
        std::fs::write(&base, old).unwrap();
        let (sender, mut inbox, _connection) = telling(home.path(), from).await;
        let (asks, asked) = tokio::sync::mpsc::unbounded_channel();
        let answering = Arc::clone(&sender);
        let answering = tokio::task::spawn_blocking(move || answering.answer_all(asked));
        let hear = |message| sender.hear(message, &asks).unwrap();
        let finer = |signature: Vec<u8>| {
            hear(Message::Finer(Finer { entry: 2, signature: Bytes::from(signature) }));
        };
        let told = Base { entry: 2, parts: 3, ahead: 1, ..Base::default() };
        hear(Message::Bases(Bases { bases: vec![told] }));
        hear(Message::Asks(Asks { entries: vec![2], takes_outlines: 2, ..Asks::default() }));

        let file = file_of(&home.path().join("receiver"), 2, new.len() as u64);
        let base = (File::open(base).unwrap(), old.len() as u64);
        let mut incoming = Incoming::new(file, Oid::of(new), base, (3, 0), false);
        let sign = |incoming: &mut Incoming| match incoming.turns.signed == give_up_at {
            true => finer(Vec::new()),
            false => finer(incoming.sign_next(true).unwrap().unwrap()),
        };
        sign(&mut incoming);
        let (mut made, mut came) = (vec![0; new.len()], 0);
        let is_made = loop {
            let run = match next(&mut inbox).await {
                Message::Delta(run) => run,
                Message::Answers(told) => {
                    let Answer { entry, parts, .. } = told.answers[0];
                    assert_eq!((entry, parts), (2, 3));
                    continue;
                }
                _ => continue,
            };
            came += run.bytes.len();
            let taken = incoming.take(&run).unwrap();
            if let Taken::Outline(signature) = &taken {
                finer(signature.clone());
            }
            if run.is_last && run.wants_next {
                sign(&mut incoming);
            }
            match taken {
                Taken::Part { offset, content, is_last, .. } => {
                    made[offset as usize..][..content.len()].copy_from_slice(&content);
                    if is_last {
                        break true;
                    }
                }
                Taken::Nothing => break false,
                _ => {}
            }
        };
        drop(asks);
        joined(answering).await.unwrap();
        is_made.then_some((made, came))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_file_comes_in_parts_while_they_are_signed() {
        let old = noise(1, SIZE);
        let mut few = old.clone();
        few.splice(SIZE / 2..SIZE / 2, *b"something new");
        let mut scattered = old.clone();
        (0..SIZE - 4096).step_by(60_000).for_each(|at| scattered[at + 9..at + 200].fill(7));
        for (what, new, most) in [("few", few, 60_000), ("scattered", scattered, 300_000)] {
            let (made, came) = ask(&old, &new, u64::MAX).await.unwrap();
            assert!(made == new, "{what}");
            assert!(came < most, "{what}: {came}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn without_a_signature_no_more_of_a_file_comes_so() {
        let (old, new) = (noise(1, SIZE), [&b"new"[..], &noise(1, SIZE)].concat());
        for part in 0..3 {
            assert!(ask(&old, &new, part).await.is_none(), "{part}");
        }
    }

    fn turns(parts: u64, signed: u64) -> Turns {
        Turns { parts, next: 0, signed, outlined: VecDeque::new() }
    }

    #[test]
    fn literals_come_between_parts_in_the_order_of_their_outlines() {
        let mut turns = turns(3, 1);
        for (index, outlines) in [(0, 1), (1, 1)] {
            assert_eq!(turns.take(false).unwrap().0, index);
            turns.put_off(index, vec![vec![0]; outlines]).unwrap();
        }
        assert_eq!(turns.take(true).unwrap(), (0, vec![vec![0]]));
        turns.put_off(0, vec![vec![0]; 2]).unwrap();
        assert_eq!(turns.take(false).unwrap(), (2, vec![]));
        assert_eq!([true, true].map(|is_rest| turns.take(is_rest).unwrap().0), [1, 0]);
        assert_eq!([turns.sign().unwrap(), turns.sign().unwrap()], [1, 2]);
    }

    #[test]
    fn more_than_there_can_be_is_refused() {
        let mut turns = turns(1, 0);
        assert!(turns.take(true).is_err(), "nothing was outlined");
        turns.take(false).unwrap();
        assert!(turns.take(false).is_err());
        turns.sign().unwrap();
        assert!(turns.sign().is_err());
        assert!(
            turns.put_off(0, vec![Vec::new(); towpath_content::delta::exchange::MAX_OUTLINES + 1]).is_err()
        );
        turns.outlined.clear();
        turns.put_off(0, vec![vec![0; MOST_OUTLINED]]).unwrap();
        assert!(turns.put_off(0, vec![vec![0]]).is_err());
    }
}
