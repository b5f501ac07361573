//! Services over memory, and what is fetched from them.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_content::pieces::Value;
use towpath_content::ticket::BoundSecret;
use towpath_content::{NodeId, Oid};
use towpath_link::Identity;
use towpath_protocol::{Issuer, Service};
use towpath_store::{About, MemoryStore, Store};
use towpath_transfer::progress::Snapshot;
use towpath_transfer::{Context, ObjectRequest, Session, SessionConfig, Single, Source, Target};

pub const LIMIT: Duration = Duration::from_secs(30);

/// Bytes that differ from place to place.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 249 + i) as u8).collect()
}

/// Allows everybody one object.
struct Offer {
    identity: Identity,
    offered: Oid,
}

impl Issuer for Offer {
    fn secret(&self, _root: &Oid) -> Option<BoundSecret> {
        None
    }

    fn is_allowed(&self, _node: &NodeId, oid: &Oid) -> bool {
        *oid == self.offered
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.identity.sign(message)
    }
}

/// A service that has `data` and `secret`, and offers the first.
pub fn service(identity: &Identity, data: &[u8], secret: &[u8]) -> Arc<Service> {
    let store = MemoryStore::new();
    let mut oids = Vec::new();
    for (number, bytes) in [data, secret].into_iter().enumerate() {
        let live = Oid::Live([number as u8; 32]);
        store.put_init(&live, &About::default()).unwrap();
        store.put_data(&live, bytes).unwrap();
        oids.push(store.put_commit(&live).unwrap());
    }
    let offer = Offer { identity: identity.clone(), offered: oids[0] };
    Arc::new(Service::new(Arc::new(store), Arc::new(offer)))
}

#[derive(Default)]
struct Memory(Mutex<Vec<u8>>);

impl Target for Memory {
    fn begin(&self, _size: Option<u64>, _about: &About) -> io::Result<()> {
        Ok(())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.copy_from_slice(&self.0.lock().unwrap()[offset as usize..][..buf.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, new: &[u8]) -> io::Result<()> {
        let (mut bytes, end) = (self.0.lock().unwrap(), offset as usize + new.len());
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[offset as usize..end].copy_from_slice(new);
        Ok(())
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.write(range.start, &vec![0; (range.end - range.start) as usize])
    }

    fn complete(&self, _oid: &Oid, _size: u64, _values: Vec<Value>) -> io::Result<()> {
        Ok(())
    }
}

/// Fetches an object of these bytes; why not, if it can't be had.
pub async fn fetch(plugin: Arc<dyn Source>, data: &[u8]) -> Result<(), String> {
    fetch_under(Oid::of(data), plugin, data).await.map(drop)
}

/// The same under another root: a copy has no object for its own. Returns what came from where.
pub async fn fetch_under(root: Oid, plugin: Arc<dyn Source>, data: &[u8]) -> Result<Snapshot, String> {
    let oid = Oid::of(data);
    let (_keep, hints) = tokio::sync::watch::channel(Vec::new());
    let context = Context { root, node: None, secret: None, hints };
    let session = Session::start(Single::root(plugin), context, SessionConfig::default());
    let target = Arc::new(Memory::default());
    let request =
        ObjectRequest { oid, size: None, group: Arc::default(), target: target.clone(), recipe: None };
    session.fetch(request).await.map_err(|error| error.to_string())?;
    assert!(*target.0.lock().unwrap() == data, "other bytes");
    Ok(session.progress().snapshot())
}
