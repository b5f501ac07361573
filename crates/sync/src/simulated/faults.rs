//! What befalls the messages of a copy, and how it ends: with the source at the destination, or with an error and nothing
//! lost or spoilt there, so that the next copy goes on.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use towpath_api::copy::{CopyOptions, Mode, Preserve};
use towpath_content::lock::lock;
use towpath_simnet::{NetFault, Passing, Scenario, World, for_seeds};
use towpath_store::DiskStore;

use super::hosts::{Host, Node, RECEIVER, ReceivingHost, SENDER, SendingHost};
use super::sample::{Sample, Thing, Things, things};
use crate::error::CopyError;
use crate::events::events;
use crate::given::Given;
use crate::merge::{Destined, Merge};
use crate::message::Message;
use crate::receiving::Receiving;
use crate::tree_receiving::TreeReceiving;

/// For what waits at the end of a merge, which needs a clock that goes on.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());

/// One index for all copies: nothing of it is looked for.
static STORE: LazyLock<(tempfile::TempDir, Arc<DiskStore>)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let store = DiskStore::open(folder.path(), folder.path()).unwrap();
    (folder, Arc::new(store))
});

/// Longer than any copy of a test takes, in simulated time.
const LIMIT: Duration = Duration::from_secs(600);

const QUIET: &str = "rate = '100mbit'\ndelay = '10ms'";

/// A destination with what it had before, and something beside it.
struct Place {
    folder: tempfile::TempDir,
    before: Things,
}

impl Place {
    fn new(sample: &Sample) -> Self {
        // The disk would be synced for longer than all the rest takes.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap());
        let place = Self { before: Things::new(), folder };
        ["to", "state"].iter().for_each(|name| fs::create_dir(place.path(name)).unwrap());
        fs::write(place.path("beside"), "beside").unwrap();
        sample.make_destination(&place.path("to"));
        Self { before: things(&place.path("to")), ..place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The receiver of a new copy.
    fn receiver(&self, contents: HashMap<u64, Vec<u8>>) -> ReceivingHost {
        let store = Arc::clone(&STORE.1);
        // The attributes are there to make the tree long.
        let preserve = Preserve { xattrs: false, ..Preserve::default() };
        let options =
            CopyOptions { recursive: true, delete: true, force: true, preserve, ..CopyOptions::default() };
        let (events, _shown) = events(crate::host::plain);
        let receiving = Receiving::new(options, store, self.path("state"), events, false, None);
        let tree = Arc::new(Mutex::new(TreeReceiving::default()));
        let given = Given { contents, tree: Some(Arc::clone(&tree)) };
        let destined =
            Destined { path: self.path("to"), mode: Mode::Sync, sources: 1, contents: true, names: None };
        let merge = Merge::new(&receiving, Some(Arc::new(given)), destined).unwrap();
        ReceivingHost::new(tree, receiving, merge)
    }

    /// The destination is what the source is, but for what it keeps.
    fn assert_complete(&self, sample: &Sample, what: &str) {
        let expected: Things = sample.source.clone().into_iter().chain(self.kept(sample)).collect();
        let found = things(&self.path("to"));
        let differs = |path: &&PathBuf| expected.get(*path) != found.get(*path);
        let differing: Vec<_> = expected.keys().chain(found.keys()).filter(differs).collect();
        assert!(differing.is_empty(), "{what}: {differing:?}");
    }

    fn kept(&self, sample: &Sample) -> Things {
        self.before.clone().into_iter().filter(|(path, _)| sample.kept.contains_key(path)).collect()
    }

    /// Every file is whole, the old one or the new one, and nothing that was there is gone.
    fn assert_unspoilt(&self, sample: &Sample, what: &str) {
        let found = things(&self.path("to"));
        for (path, before) in &self.before {
            let now = found.get(path).and_then(Thing::content);
            let new = sample.source.get(path).and_then(Thing::content);
            assert!(now == before.content() || now == new, "{what}: {}", path.display());
        }
        self.assert_whole(sample, what);
    }

    /// Every file is whole, whatever it is called.
    fn assert_whole(&self, sample: &Sample, what: &str) {
        let all: HashSet<_> =
            self.before.values().chain(sample.source.values()).map(Thing::content).collect();
        for (path, thing) in things(&self.path("to")) {
            assert!(all.contains(&thing.content()), "{what}: {}", path.display());
        }
        self.assert_neighbour(what);
    }

    fn assert_neighbour(&self, what: &str) {
        assert_eq!(fs::read(self.path("beside")).unwrap(), b"beside", "{what}");
        let mut names: Vec<_> =
            fs::read_dir(self.folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["beside", "state", "to"], "{what}");
    }
}

/// A copy, as it ended.
struct Run {
    world: World<Node>,
}

impl Run {
    /// Copies the sample of `seed` to a place over a link.
    fn new(
        (seed, entries): (u64, u64),
        place: &Place,
        link: &str,
        faults: impl FnMut(&Passing<'_>) -> NetFault + 'static,
    ) -> Self {
        let _in_runtime = RUNTIME.enter();
        let scenario = format!(
            "about = ''\nhosts = ['sender', 'receiver']\n[[link]]\nbetween = ['sender', 'receiver']\n{link}"
        );
        let sample = Sample::new(seed, entries);
        let (mut walk, mut contents) = (Some(sample.walk), Some(sample.contents));
        let mut world = World::new(&Scenario::parse(&scenario).unwrap(), seed, |host| {
            Node::new(match host {
                SENDER => Host::Sender(Box::new(SendingHost::new(walk.take().unwrap()))),
                _ => Host::Receiver(Box::new(place.receiver(contents.take().unwrap()))),
            })
        });
        world.set_faults(Box::new(faults));
        world.run(LIMIT, |world| world.nodes().iter().all(|node| node.host.end().is_some()));
        Self { world }
    }

    fn end(&self, host: usize) -> Option<&Result<(), CopyError>> {
        self.world.nodes()[host].host.end()
    }

    fn assert_complete(&self, sample: &Sample, place: &Place, what: &str) {
        for host in [SENDER, RECEIVER] {
            assert!(matches!(self.end(host), Some(Ok(()))), "{what}: {:?}", self.end(host));
        }
        let left: Vec<_> = self.world.nodes().iter().map(|node| node.host.left()).collect();
        assert_eq!(left, [0, 0], "{what}: all files are settled, and none failed");
        place.assert_complete(sample, what);
        place.assert_neighbour(what);
    }
}

#[test]
fn the_destination_equals_the_source_over_links_that_lose_reorder_and_fail() {
    let cut = "name = 'wire'\nrate = '10mbit'\ndelay = '20ms'\nloss = '2%'\n[[change]]\nat = '60ms'\n\
               link = 'wire'\ncut = true\n[[change]]\nat = '3s'\nlink = 'wire'\ncut = false";
    let lossy = "rate = '20mbit'\ndelay = '30ms'\nloss = '20%'\nburst = 2";
    for link in [QUIET, lossy, cut] {
        for_seeds(4, |seed| {
            let sample = Sample::new(seed, 400);
            let place = Place::new(&sample);
            let run = Run::new((seed, 400), &place, link, |_| NetFault::None);
            run.assert_complete(&sample, &place, link);
            let again = Run::new((seed, 400), &place, link, |_| NetFault::None);
            again.assert_complete(&sample, &place, link);
        });
    }
}

/// They get their names together, and are settled in one moment.
#[test]
fn thousands_of_files_that_are_settled_at_once_are_told_in_messages_that_a_sender_takes() {
    let sample = Sample::new(0, 3000);
    let place = Place::new(&sample);
    Run::new((0, 3000), &place, QUIET, |_| NetFault::None).assert_complete(&sample, &place, "thousands");
}

/// Of the copies at each of whose messages something happens.
const SOME: (u64, u64) = (1, 150);

/// Runs a fault at each message in turn.
fn at_every_message(
    fault: impl Fn(&Passing<'_>) -> NetFault + Clone + 'static,
    check: impl Fn(Run, &Sample, &Place, &str),
) {
    let sample = Sample::new(SOME.0, SOME.1);
    let messages = Run::new(SOME, &Place::new(&sample), QUIET, |_| NetFault::None).world.messages();
    assert!(messages > 12, "{messages} messages are too few to tell anything");
    for number in 0..messages {
        let (fault, place) = (fault.clone(), Place::new(&sample));
        let run = Run::new(SOME, &place, QUIET, move |passing| match passing.number == number {
            true => fault(passing),
            false => NetFault::None,
        });
        check(run, &sample, &place, &format!("message {number} of {messages}"));
    }
}

/// The next copy completes what one that failed has left.
fn assert_goes_on(run: Run, sample: &Sample, place: &Place, what: &str) {
    match run.end(RECEIVER) {
        Some(Ok(())) => place.assert_complete(sample, what),
        _ => place.assert_unspoilt(sample, what),
    }
    // It holds its temporaries.
    drop(run);
    let next = Run::new(SOME, place, QUIET, |_| NetFault::None);
    next.assert_complete(sample, place, what);
}

#[test]
fn a_connection_cut_at_any_message_loses_and_spoils_nothing_and_the_next_copy_completes() {
    at_every_message(
        |_| NetFault::Break,
        |run, sample, place, what| {
            assert!(matches!(run.end(SENDER), Some(Err(CopyError::HungUp))), "{what}: {:?}", run.end(SENDER));
            assert_goes_on(run, sample, place, what);
        },
    );
}

#[test]
fn a_connection_that_stalls_at_any_message_loses_and_spoils_nothing_and_the_next_copy_completes() {
    at_every_message(|_| NetFault::Stall, assert_goes_on);
}

/// A message that comes twice, late or never, cut, or with another number: the copy ends with an error, waits for what does
/// not come, or is what the other side said.
fn lie_at_every_message(lie: impl Fn(&Passing<'_>) -> NetFault + Clone + 'static) {
    let is_senders = Arc::new(Mutex::new(false));
    let noted = Arc::clone(&is_senders);
    let lie = move |passing: &Passing<'_>| {
        *lock(&noted) = passing.from == SENDER;
        lie(passing)
    };
    at_every_message(lie, |run, sample, place, what| match run.end(RECEIVER) {
        // Another tree than the source's may be one all the same: nobody but the sender knows what it has.
        Some(Ok(())) if *lock(&is_senders) => place.assert_whole(sample, what),
        Some(Ok(())) => place.assert_complete(sample, what),
        _ => place.assert_unspoilt(sample, what),
    });
}

#[test]
fn messages_that_never_come_spoil_nothing() {
    lie_at_every_message(|_| NetFault::Hold(2 * LIMIT));
}

#[test]
fn messages_that_come_twice_spoil_nothing() {
    lie_at_every_message(|_| NetFault::Twice);
}

#[test]
fn messages_that_the_next_one_overtakes_spoil_nothing() {
    lie_at_every_message(|_| NetFault::Hold(Duration::from_millis(12)));
}

#[test]
fn messages_that_are_cut_spoil_nothing() {
    lie_at_every_message(|passing| NetFault::Replace(passing.bytes[..passing.bytes.len() / 2].to_vec()));
}

#[test]
fn messages_of_another_number_spoil_nothing() {
    lie_at_every_message(|passing| NetFault::Replace(other_number(passing.bytes)));
}

/// The message with other numbers of entries; of bytes, another message.
fn other_number(bytes: &[u8]) -> Vec<u8> {
    let Ok(message) = Message::from_bytes(Bytes::copy_from_slice(bytes)) else { return Vec::new() };
    let changed = match message {
        Message::Closed(entry) => Message::Closed(entry + 1),
        Message::Considered(mut considered) => {
            considered.entry += 1;
            considered.wanted.iter_mut().for_each(|bound| *bound += 1);
            Message::Considered(considered)
        }
        Message::Settled(mut settled) => {
            let lists = [&mut settled.placed, &mut settled.dropped, &mut settled.lost];
            lists.into_iter().flatten().for_each(|entry| *entry += 1);
            Message::Settled(settled)
        }
        // The number of the message itself stands in its first byte.
        _ => return [&[bytes[0] + 8], &bytes[1..]].concat(),
    };
    changed.into_bytes().into()
}
