//! A holder that lies, for `lab/holders.sh`: it serves a file to whoever has its ticket, with the right proofs and with one wrong
//! byte in each piece. Prints the ticket with its own address in front.
//!
//!     lying_holder TICKET FILE ADDRESS

use std::error::Error;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use towpath_content::pieces::{Layout, PieceTree};
use towpath_content::ticket::{BoundSecret, Ticket};
use towpath_content::{Hint, NodeId, Oid};
use towpath_link::Identity;
use towpath_link::tcp::{Listener, Timeouts};
use towpath_protocol::{Issuer, Peer, PeerConfig, Service};
use towpath_store::{MemoryStore, Partial, Store, StoreError};

/// The file, and the lie in it.
struct FalseObject {
    data: Vec<u8>,
    tree: PieceTree,
}

impl FalseObject {
    fn new(data: Vec<u8>) -> Option<Self> {
        let layout = Layout::of(data.len() as u64).ok()?;
        let value = |index| Some(layout.value(index, piece(&data, &layout, index)?));
        let values = (0..layout.count()).map(value).collect::<Option<Vec<_>>>()?;
        Some(Self { tree: PieceTree::new(layout, values)?, data })
    }
}

impl Partial for FalseObject {
    fn available(&self) -> (Layout, Vec<Range<u64>>) {
        let layout = self.tree.layout();
        (layout, std::iter::once(0..layout.count()).collect())
    }

    fn proof(&self, run: Range<u64>) -> Result<Vec<u8>, StoreError> {
        self.tree.proof(run).map_err(|_| StoreError::NotHere)
    }

    fn read_piece(&self, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        let begin = buf.len();
        buf.extend_from_slice(piece(&self.data, &self.tree.layout(), index).ok_or(StoreError::NotHere)?);
        buf.get_mut(begin).into_iter().for_each(|byte| *byte ^= 1);
        Ok(())
    }
}

fn piece<'a>(data: &'a [u8], layout: &Layout, index: u64) -> Option<&'a [u8]> {
    let range = layout.range(index);
    data.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

/// Serves to whoever has the ticket.
struct TicketHolder {
    identity: Identity,
    root: Oid,
    secret: BoundSecret,
}

impl Issuer for TicketHolder {
    fn secret(&self, root: &Oid) -> Option<BoundSecret> {
        (*root == self.root).then_some(self.secret)
    }

    fn is_allowed(&self, _node: &NodeId, _oid: &Oid) -> bool {
        false
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.identity.sign(message)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [ticket, file, address] = &words[..] else {
        return Err("usage: lying_holder TICKET FILE ADDRESS".into());
    };
    let mut ticket: Ticket = ticket.parse()?;
    let object = FalseObject::new(std::fs::read(file)?).ok_or("the file is too large")?;
    let (identity, store) = (Identity::generate()?, Arc::new(MemoryStore::new()));
    store.announce(&ticket.oid, Some(Arc::new(object)));
    let holder = TicketHolder { identity: identity.clone(), root: ticket.oid, secret: ticket.bound_secret() };
    let service = Arc::new(Service::new(store, Arc::new(holder)));
    let listener = Listener::bind(address.parse()?, &identity).await?;
    ticket.hints.insert(0, Hint::new(format!("tow://{}@{address}", identity.node_id()), 0, 1)?);
    writeln!(std::io::stdout(), "{ticket}")?;
    loop {
        let pending = listener.accept().await?;
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            let Ok(connection) = pending.handshake(Timeouts::default().handshake).await else { return };
            let config = PeerConfig { from_anyone: true, ..PeerConfig::default() };
            Peer::start(connection, config, Some(service)).closed().await;
        });
    }
}
