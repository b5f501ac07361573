//! A file that comes as what it has over an older version ([`towpath_content::delta::exchange`]): its requester, with the older
//! version and where parts go.
//!
//! Nothing here proves anything: the caller hashes the whole.

use towpath_content::Oid;
use towpath_content::delta::exchange::{MAX_UNPACKED_LEN, Requester};
use towpath_protocol::steps::{RequesterStep, next_step};
use towpath_reuse::delta::patches;

use super::file::DeltaBase;

/// See the head of this module.
pub struct DeltaReceiver {
    /// What the file is called.
    pub oid: Oid,
    /// Its older version.
    pub base: DeltaBase,
    /// Decides on all work.
    pub requester: Requester,
    /// There is room for parts.
    pub is_open: bool,
    /// The file could not be written, and has ended.
    pub is_failed: bool,
}

impl DeltaReceiver {
    /// Does the work of the requester, up to what others have to do.
    pub fn next(&mut self) -> RequesterStep {
        next_step(&mut self.requester, MAX_UNPACKED_LEN, |range| self.base.read(range), patches::apply)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;
    use std::time::Duration;

    use towpath_content::delta::exchange::{
        Base, DeltaRun, NextSignature, Request, RequesterEnd, SignedParts,
    };
    use towpath_store::doubles::noise;
    use towpath_transfer::Tag;
    use towpath_transfer::offer::{EntryBody, EntryQuery, EntryWant};

    use super::super::entry_sink::{Came, TestSink};
    use super::super::sender_role::tests::sender_of;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);
    const SIZE: usize = 20 << 20;
    const ENTRY: u64 = 2;
    const TAG: Tag = 1;

    /// Asks a sender for a file of three parts, of which one is signed ahead; gives up with signature number `give_up_at`.
    /// What was made, and how many bytes came.
    async fn ask(old: &[u8], new: &[u8], give_up_at: usize) -> Option<(Vec<u8>, usize)> {
        let home = tempfile::tempdir().unwrap();
        let (from, base) = (home.path().join("from"), home.path().join("base"));
        std::fs::create_dir(&from).unwrap();
        std::fs::write(from.join("file"), new).unwrap();
        std::fs::write(&base, old).unwrap();
        let sending = sender_of(home.path(), from).await;
        let (sink, mut inbox) = TestSink::new();
        let request = Request { base: Base::Parts { count: 3, ahead: 1 }, is_guess: false, outlines: 2 };
        let query =
            EntryQuery { entry: ENTRY, compare: false, inline: 0, pack: 0, base: Some(request.clone()) };
        let want = EntryWant { tag: TAG, query: Arc::new(query) };
        let (far, asking) = (Arc::clone(&sending.far), Arc::clone(&sink));
        tokio::spawn(async move { far.get_entries(vec![want], asking).await });
        let way = sink.way(TAG).await;
        let mut signed = 0;
        let mut sign = |signature: NextSignature| {
            let signature = if signed == give_up_at { NextSignature::GivenUp } else { signature };
            signed += 1;
            way.send(TAG, &signature);
        };
        let parts = SignedParts::new(old.len() as u64, new.len() as u64, 3).unwrap();
        let first = &old[..parts.base(0).unwrap().end as usize];
        sign(NextSignature::Signed(parts.sign(0, first, true).unwrap()));

        let requester = Requester::new(&request, old.len() as u64);
        let base = DeltaBase::new(File::open(base).unwrap(), old.len() as u64, None);
        let mut receiver =
            DeltaReceiver { oid: Oid::of(new), base, requester, is_open: false, is_failed: false };
        let (mut made, mut came) = (vec![0; new.len()], 0);
        let end = loop {
            match tokio::time::timeout(LIMIT, inbox.recv()).await.unwrap().unwrap() {
                Came::Outcome(outcome) => panic!("{outcome:?}"),
                Came::Run(run) => {
                    came += run.len();
                    receiver.requester.recv_run(DeltaRun::from_bytes(&run).unwrap(), true).unwrap();
                }
                Came::Content(content) => {
                    let EntryBody::Delta(reply) = content.body else { panic!("no reply") };
                    receiver.requester.recv_reply(reply, content.size).unwrap();
                }
            }
            let end = loop {
                match receiver.next() {
                    RequesterStep::Wait => break None,
                    RequesterStep::Send(signature) => sign(signature),
                    RequesterStep::Write { offset, bytes, .. } => {
                        made[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                    }
                    RequesterStep::End(end) => break Some(end),
                }
            };
            if let Some(end) = end {
                break end;
            }
        };
        (end == RequesterEnd::Written).then_some((made, came))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_file_comes_in_parts_while_they_are_signed() {
        let old = noise(1, SIZE);
        let mut few = old.clone();
        few.splice(SIZE / 2..SIZE / 2, *b"something new");
        let mut scattered = old.clone();
        (0..SIZE - 4096).step_by(60_000).for_each(|at| scattered[at + 9..at + 200].fill(7));
        for (what, new, most) in [("few", few, 60_000), ("scattered", scattered, 300_000)] {
            let (made, came) = ask(&old, &new, usize::MAX).await.unwrap();
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
}
