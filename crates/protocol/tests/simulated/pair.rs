//! The pair of dsync's Figure 4 (`papers/dsync.txt` §7.2.3): a slow sender, and two receivers near each other. The first one has 99 % of
//! the object on its disk, with what it lacks scattered so that not a single piece is whole; it gets the rest from the sender, and
//! lets the second one have what is whole meanwhile. The second one has nothing and draws on both.
//!
//! All messages are real: the recipe, what the first one asks for by it, what it tells of as that comes, and what the second one asks of whom.

use std::collections::HashMap;
use std::time::Duration;

use towpath_content::Oid;
use towpath_content::pieces::{Layout, PieceTree};
use towpath_simnet::{ConnectionId, Net, Scenario, SimNode, World, for_seeds};

use crate::drawing::Drawing;
use crate::host::{Host, service_in_chunks};

const SIZE: usize = 16 << 20;
const CHUNK: usize = 2 << 10;
/// Of so many chunks that follow each other the first receiver lacks one: a piece has 128.
const APART: usize = 100;
const SENDER: usize = 0;
const FIRST: usize = 1;
const SECOND: usize = 2;

/// The sender's line is shared; the receivers are behind one box.
const SCENARIO: &str = "about = 'a slow sender, and two near each other'
hosts = ['sender', 'first', 'second', 'box']
[[link]]
name = 'far'
between = ['sender', 'box']
rate = '2mbit'
delay = '10ms'
[[link]]
name = 'near first'
between = ['first', 'box']
rate = '100mbit'
delay = '1ms'
[[link]]
name = 'near second'
between = ['second', 'box']
rate = '100mbit'
delay = '1ms'
";

/// A host of the pair.
enum PairHost {
    Simple(Box<Host>),
    Draws(Box<Drawing>),
}

impl PairHost {
    fn node(&mut self) -> &mut dyn SimNode {
        match self {
            Self::Simple(host) => &mut **host,
            Self::Draws(drawing) => &mut **drawing,
        }
    }

    fn fetches(&self) -> &Host {
        match self {
            Self::Simple(host) => host,
            Self::Draws(_) => unreachable!("it is another host"),
        }
    }

    fn draws(&self) -> &Drawing {
        match self {
            Self::Draws(drawing) => drawing,
            Self::Simple(_) => unreachable!("it is another host"),
        }
    }
}

impl SimNode for PairHost {
    fn start(&mut self, net: &mut Net) {
        self.node().start(net);
    }

    fn opened(&mut self, net: &mut Net, connection: ConnectionId, peer: usize) {
        self.node().opened(net, connection, peer);
    }

    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: Vec<u8>) {
        self.node().receive(net, connection, message);
    }

    fn closed(&mut self, net: &mut Net, connection: ConnectionId) {
        self.node().closed(net, connection);
    }

    fn wake(&mut self, net: &mut Net) {
        self.node().wake(net);
    }
}

fn tree_of(content: &[u8]) -> PieceTree {
    let layout = Layout::of(content.len() as u64).unwrap();
    let piece = |index| {
        let range = layout.range(index);
        &content[range.start as usize..range.end as usize]
    };
    let values = (0..layout.count()).map(|index| layout.value(index, piece(index))).collect();
    PieceTree::new(layout, values).unwrap()
}

/// The chunks that the first receiver has, by hash: all but those that are changed.
fn older_version(content: &[u8]) -> HashMap<[u8; 32], Vec<u8>> {
    let is_there = |(at, _): &(usize, &[u8])| at % APART != APART / 2;
    let chunks = content.chunks(CHUNK).enumerate().filter(is_there);
    chunks.map(|(_, chunk)| (*Oid::of(chunk).digest(), chunk.to_vec())).collect()
}

/// Plays the pair from one seed; the share of its bytes that the second receiver got from the first, and when it had all.
fn play(content: &[u8], seed: u64) -> (f64, Duration) {
    let (sender, oid) = service_in_chunks(content, CHUNK);
    let (tree, older) = (tree_of(content), older_version(content));
    let (layout, mut first) = (tree.layout(), Some((tree, older)));
    let mut world = World::new(&Scenario::parse(SCENARIO).unwrap(), seed, |host| match host {
        FIRST => {
            let (tree, older) = first.take().unwrap();
            PairHost::Simple(Box::new(Host::sharing(SENDER, tree, older)))
        }
        SECOND => {
            let sources = vec![(SENDER, true), (FIRST, false)];
            PairHost::Draws(Box::new(Drawing::new(oid, layout, sources, seed)))
        }
        // The box has nobody to serve.
        _ => PairHost::Simple(Box::new(Host::serving(&sender))),
    });
    let is_over = world.run(Duration::from_secs(600), |world| world.nodes()[SECOND].draws().is_complete());
    assert!(is_over, "after {:?} the second one has not all", world.now());
    let took = world.now();
    assert!(world.run(Duration::from_secs(600), |world| world.nodes()[FIRST].fetches().is_over()));
    let (first, second) = (world.nodes()[FIRST].fetches(), world.nodes()[SECOND].draws());
    let fetch = first.fetch.as_ref().unwrap();
    assert!(fetch.is_complete() && fetch.bytes() == content, "{:?} {:?}", fetch.failed(), first.log);
    assert!(fetch.found * 1000 >= SIZE as u64 * 989, "it has 99 % on its disk: {}", fetch.found);
    assert!(second.bytes() == content, "the right bytes");
    let by = |host| *second.by.get(&host).unwrap_or(&0) as f64;
    (by(FIRST) / (by(FIRST) + by(SENDER)), took)
}

#[test]
fn nearly_all_comes_from_who_has_it_on_disk_though_what_that_lacks_is_scattered() {
    let mut content = vec![0; SIZE];
    fastrand::Rng::with_seed(7).fill(&mut content);
    let older = older_version(&content);
    let is_there = |chunk: &[u8]| older.contains_key(Oid::of(chunk).digest());
    let is_whole = |piece: &[u8]| piece.chunks(CHUNK).all(is_there);
    assert!(!content.chunks(256 << 10).any(is_whole), "not a single piece is whole at first");
    for_seeds(3, |seed| {
        let (share, took) = play(&content, seed);
        println!("seed {seed}: {:.1} % from the first receiver, after {took:?}", share * 100.0);
        assert!(share >= 0.8, "{share}");
    });
}
