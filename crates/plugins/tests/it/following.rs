//! An older version that is followed by samples, over a real connection: what crosses it is the samples, and what
//! was changed.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_link::Identity;
use towpath_plugins::Direct;
use towpath_plugins::direct::DirectConfig;
use towpath_store::{About, MemoryStore};
use towpath_transfer::following::BaseReader;
use towpath_transfer::{
    Advice, BoxFuture, Context, Description, ObjectFacts, ObjectRequest, Outcome, Query, RestWay, Root,
    Session, Sink, Source, SourceState, Target, Want,
};

use crate::support::*;

/// A network for which samples are always worth having.
struct Sampling {
    network: Direct,
    /// Bytes that were asked for.
    asked: Mutex<u64>,
}

impl Root for Sampling {
    fn advise(&self, facts: &ObjectFacts<'_>) -> Advice {
        let way = if facts.open.samples { RestWay::Samples } else { RestWay::Pieces };
        Advice { way, chunks_at_once: false }
    }
}

impl Source for Sampling {
    fn name(&self) -> &str {
        "sampling"
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&self.network)
    }

    fn state(&self) -> SourceState {
        self.network.state()
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        self.network.describe(query, context, answers)
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        *self.asked.lock().unwrap() += wants.iter().map(Want::missing_len).sum::<u64>();
        self.network.get(wants, context, sink)
    }
}

/// A target in memory with an older version beside it.
pub struct Updated {
    pub memory: Memory,
    pub older: Bytes,
}

pub struct Bytes(pub Vec<u8>);

impl BaseReader for Bytes {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let there = self.0.get(offset as usize..offset as usize + buf.len());
        buf.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Target for Updated {
    fn begin(&self, size: Option<u64>, about: &About) -> io::Result<()> {
        self.memory.begin(size, about)
    }

    fn existing(&self) -> Vec<Range<u64>> {
        std::iter::once(0..self.older.size()).collect()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, buf)
    }

    fn read_existing(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.older.read(offset, buf)
    }

    fn base(&self) -> Option<&dyn BaseReader> {
        Some(&self.older)
    }

    fn keep(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write(offset, bytes)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.memory.write_zeros(range)
    }

    fn complete(&self, oid: &Oid, size: u64, values: Vec<Value>) -> io::Result<()> {
        self.memory.complete(oid, size, values)
    }
}

#[tokio::test]
async fn what_was_shifted_does_not_cross_the_network() {
    let older: Vec<u8> =
        (0..(60 * PIECE as u64 / 32)).flat_map(|at| *Oid::of(&at.to_le_bytes()).digest()).collect();
    let mut data = Vec::new();
    for (number, run) in older.chunks(1_300_000).enumerate() {
        data.extend_from_slice(&vec![number as u8; 3000]);
        data.extend_from_slice(run);
    }
    let store = Arc::new(MemoryStore::new());
    let oid = put(&store, &data, &About::default());
    let listening = serve(store, &[oid]).await;
    let network = Direct::new(Identity::generate().unwrap(), DirectConfig::default(), None);
    let plugin = Arc::new(Sampling { network, asked: Mutex::default() });
    let session = Session::start(plugin.clone(), listening.context(oid), impatient(LIMIT));
    let target = Arc::new(Updated { memory: Memory::default(), older: Bytes(older) });
    let size = Some(data.len() as u64);
    let request = ObjectRequest { oid, size, group: Arc::default(), target: target.clone(), recipe: None };
    session.fetch(request).await.unwrap();
    target.memory.expect(&data);
    let asked = *plugin.asked.lock().unwrap();
    assert!(asked < data.len() as u64 / 3, "{asked} of {}", data.len());
}
