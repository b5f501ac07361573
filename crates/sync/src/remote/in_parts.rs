//! Files that come as deltas or patches of what lies here: whole with their answer, or in parts behind it.

use towpath_content::Oid;
use towpath_content::delta::exchange::{
    DeltaRun, MAX_UNPACKED_LEN, NextSignature, NotDue, Reply, Requester, RequesterEnd,
};
use towpath_protocol::steps::{RequesterStep, next_step};
use towpath_reuse::delta::patches;
use towpath_transfer::FetchError;
use towpath_transfer::session::EntryNext;

use super::answered::RemoteFile;
use crate::delta_requests::DescribedBase;
use crate::error::CopyError;
use crate::file::DeltaBase;
use crate::message::violation;

/// A file that comes so.
pub(super) struct ComingDelta {
    /// What it is called.
    oid: Oid,
    /// Its older version.
    base: DeltaBase,
    /// Decides on all work.
    requester: Requester,
    /// There is room for parts.
    is_open: bool,
}

impl ComingDelta {
    /// Does the work of the requester, up to what others have to do.
    fn next(&mut self) -> RequesterStep {
        next_step(&mut self.requester, MAX_UNPACKED_LEN, |range| self.base.read(range), patches::apply)
    }
}

impl RemoteFile {
    /// The file begins to come as what it has over its base, or has come so.
    pub(super) fn begin_delta(
        &mut self,
        oid: Oid,
        reply: Reply,
        described: DescribedBase,
    ) -> Result<EntryNext, CopyError> {
        let mut requester = described.requester;
        if described.oid.is_some() {
            self.supplier.delta_requests.named(true);
        }
        requester.recv_reply(reply, self.file.size()).map_err(not_due)?;
        let Some(base) = self.file.base().open() else {
            // The sender goes on: what it sends of this file is passed over.
            return Ok(self.fetch_instead(oid));
        };
        self.receiver = Some(ComingDelta { oid, base, requester, is_open: false });
        // It has nothing to answer before it has a run.
        Ok(self.go_on(&mut |_| {}))
    }

    /// The next run.
    pub(super) fn take_run(
        &mut self,
        run: &[u8],
        send: &mut dyn FnMut(&NextSignature),
    ) -> Result<EntryNext, CopyError> {
        let run = DeltaRun::from_bytes(run).map_err(|error| violation(&error.to_string()))?;
        let Some(receiver) = &mut self.receiver else { return Err(violation("a part of nothing")) };
        let in_steps = run.wanted() > 0 && self.supplier.delta_requests.likes_steps();
        receiver.requester.recv_run(run, in_steps).map_err(not_due)?;
        Ok(self.go_on(send))
    }

    /// Does what can be done.
    fn go_on(&mut self, send: &mut dyn FnMut(&NextSignature)) -> EntryNext {
        let Some(mut receiver) = self.receiver.take() else { return EntryNext::Over };
        loop {
            match receiver.next() {
                RequesterStep::Wait => {
                    self.receiver = Some(receiver);
                    return EntryNext::More;
                }
                RequesterStep::Send(signature) => send(&signature),
                RequesterStep::Write { offset, bytes, came } => {
                    if !self.take_part(&mut receiver, offset, &bytes, came) {
                        // The sender may wait for signatures all the same.
                        receiver.requester.give_up();
                        while let RequesterStep::Send(signature) = receiver.next() {
                            send(&signature);
                        }
                        return EntryNext::Over;
                    }
                }
                RequesterStep::End(RequesterEnd::Same) => return self.take_base(receiver.oid),
                RequesterStep::End(RequesterEnd::Written) => return self.finish_delta(receiver.oid),
                RequesterStep::End(RequesterEnd::GivenUp | RequesterEnd::UnknownBase) => {
                    return self.give_up(&receiver);
                }
            }
        }
    }

    /// Nothing comes of a delta.
    pub(super) fn give_up(&mut self, receiver: &ComingDelta) -> EntryNext {
        tracing::debug!(oid = %receiver.oid, "nothing came of a delta: the file is fetched");
        if receiver.is_open {
            self.file.parts().drop_all();
        }
        self.fetch_instead(receiver.oid)
    }

    /// The connection of a delta was lost. It goes on over another one, with what came as the front of its base, unless it was
    /// lost at the same place before, or what came lies farther behind.
    pub(super) fn go_on_elsewhere(&mut self, receiver: &ComingDelta) -> EntryNext {
        let at = self.file.base().front_len();
        if self.lost_at.is_some_and(|before| at <= before) {
            tracing::debug!(oid = %receiver.oid, "a delta was interrupted: the rest of the file is fetched");
            return self.fetch(receiver.oid);
        }
        tracing::debug!(oid = %receiver.oid, at, "a delta was interrupted, and goes on");
        self.lost_at = Some(at);
        self.ask_for_delta(false)
    }

    /// The file is its older version, but for its metadata.
    fn take_base(&mut self, oid: Oid) -> EntryNext {
        if !self.takes_base(&oid) {
            return self.bring(oid, None);
        }
        self.supplier.delta_requests.made(&self.file, 0);
        EntryNext::Over
    }

    fn finish_delta(&mut self, oid: Oid) -> EntryNext {
        match self.file.parts().finish(&oid) {
            Ok(true) => {
                self.supplier.delta_requests.made(&self.file, self.told.came());
                self.supplier.progress.with(|progress| progress.objects += 1);
            }
            Ok(false) => return self.fetch_instead(oid),
            Err(error) => self.file.fail(&error),
        }
        EntryNext::Over
    }

    /// The older version was of no use.
    fn fetch_instead(&mut self, oid: Oid) -> EntryNext {
        self.proved(false);
        self.bring(oid, None)
    }

    /// A part, for which `came` bytes came; false: the file has ended.
    fn take_part(&mut self, receiver: &mut ComingDelta, offset: u64, content: &[u8], came: u64) -> bool {
        let (file, supplier) = (&self.file, &self.supplier);
        if let Err(outcome) = file.passes(&supplier.processors, &receiver.oid, offset, content) {
            file.parts().drop_all();
            file.ended(&FetchError::Ended(outcome));
            return false;
        }
        let was_open = std::mem::replace(&mut receiver.is_open, true);
        let begun = if was_open { Ok(0) } else { file.parts().begin() };
        let written = begun.and_then(|here| Ok((here, file.parts().take(offset, content)?)));
        let (here, new) = match written {
            Ok(written) => written,
            Err(error) => {
                file.parts().drop_all();
                file.fail(&error);
                return false;
            }
        };
        if !was_open {
            self.told.begin(file.size(), here, &supplier.progress);
        }
        // Of several parts the first one tells, once.
        if offset == 0 && new > 0 {
            self.proved(came <= content.len() as u64 / 2);
        }
        self.told.count(new, came, (&self.source, &supplier.progress));
        true
    }
}

fn not_due(error: NotDue) -> CopyError {
    violation(&error.to_string())
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

    use super::*;
    use crate::entry_sink::{Came, TestSink};
    use crate::sender_role::tests::sender_of;

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
        let mut receiver = ComingDelta { oid: Oid::of(new), base, requester, is_open: false };
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
