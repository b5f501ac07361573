//! Memory that each flood takes of the real side, measured (the command stands in docs/results/security.md).
//! The liar lies in the same process, so its window of 4 MiB and its buffers are counted as well.

use std::fs;
use std::process::Command;

use towpath_api::copy::{CopyEvent, FailureKind};
use towpath_content::tree::{Event, Xattr};
use towpath_transfer::offer::EntryQuery;

use super::super::message::{EndReport, Message, Settled, TreeBytes};
use super::floods::{bloated, in_parts};
use super::{Carrier, Scene, Step, dir, end, leaf, one};

/// Variable with the flood that a process of its own measures.
const NAME: &str = "TOW_TEST_FLOOD";
const THIS: &str = "liar::measured::a_flood_in_a_process_of_its_own";

/// A flood, and whether it is a sender's, against the real receiver.
type Flood = (&'static str, bool, fn() -> Vec<Step>);

const FLOODS: [Flood; 11] = [
    ("nothing", true, || vec![one(&[]), end()]),
    ("a deep tree of long names", true, || [deep(|_| {}), vec![end()]].concat()),
    ("a deep tree of attributes", true, || [deep(full), vec![end()]].concat()),
    ("files without their contents", true, many),
    ("directories told as closed", true, || vec![Step::Flood(2_000_000, Message::Closed)]),
    ("entries that unpack to much", true, || vec![files(100), Step::Flood(100, bloated)]),
    ("complaints", true, || vec![Step::Flood(20_000, complaint), Step::HangUp]),
    ("nothing", false, || vec![receives_the_tree(), finished()]),
    ("asks", false, || {
        let asks = (0..2000).map(|at| Step::Ask(asks(2 + at % 5000)));
        [receives_the_tree()].into_iter().chain(asks).chain([finished()]).collect()
    }),
    ("files settled again and again", false, || {
        vec![receives_the_tree(), Step::Flood(20_000, settled), finished()]
    }),
    ("complaints", false, || vec![Step::Flood(20_000, complaint), Step::HangUp]),
];

fn finished() -> Step {
    Step::Send(Message::Finished(EndReport::default()))
}

fn receives_the_tree() -> Step {
    Step::Recv(|received| matches!(received, Message::Entries(end) if *end == TreeBytes::default()))
}

fn full(event: &mut Event) {
    let Event::Enter(entry) = event else { return };
    let value = vec![7; 65_000];
    entry.metadata.xattrs =
        ["user.a", "user.b", "user.c"].map(|name| Xattr { name: name.into(), value: value.clone() }).to_vec();
}

fn deep(change: fn(&mut Event)) -> Vec<Step> {
    let mut events: Vec<Event> = (0..400).map(|_| dir(&"d".repeat(255))).collect();
    events.iter_mut().for_each(change);
    events.extend((0..700).flat_map(|number| [dir(&format!("{number:03}")), Event::Leave]));
    events.extend((0..400).map(|_| Event::Leave));
    in_parts(one(&events))
}

fn files(count: usize) -> Step {
    one(&(0..count).map(|number| leaf(&format!("{number:06}"), 9000)).collect::<Vec<_>>())
}

fn many() -> Vec<Step> {
    let name = "n".repeat(200);
    in_parts(one(&(0..200_000).map(|number| leaf(&format!("{number:06}{name}"), 1)).collect::<Vec<_>>()))
}

fn asks(entry: u64) -> EntryQuery {
    EntryQuery { entry, compare: false, inline: 64 << 10, pack: 0, base: None }
}

fn settled(_: u64) -> Message {
    Message::Settled(Settled { placed: vec![1; 1024], ..Settled::default() })
}

fn complaint(_: u64) -> Message {
    let event = CopyEvent::Failed {
        path: vec![b'p'; 1000],
        error: "e".repeat(10_000),
        hint: None,
        kind: FailureKind::Vanished,
    };
    Message::Event(event.into())
}

/// A line of `/proc/self/status`, in KiB.
fn memory(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, in a process of its own"]
async fn a_flood_in_a_process_of_its_own() {
    let Ok(number) = std::env::var(NAME) else { return };
    let (_, is_senders, steps) = FLOODS[number.parse::<usize>().unwrap()];
    let (scene, steps) = (Scene::new(), steps());
    for number in 0..if is_senders { 0 } else { 5000 } {
        scene.file(&format!("from/{number}"), &[7; 9000]);
    }
    let before = memory("VmRSS:");
    // The peak begins anew.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let copying = async {
        match is_senders {
            true => scene.receive(Carrier::Pipe, true, scene.contents(), &steps).await,
            false => scene.send(Carrier::Pipe, true, &steps).await,
        }
    };
    let ended = tokio::time::timeout(std::time::Duration::from_secs(30), copying).await;
    let how = ended.map(|ended| ended.result.map_or_else(|error| error.to_string(), |_| "went well".into()));
    let how: String = how.unwrap_or_else(|_| "none within 30 s".into()).chars().take(90).collect();
    println!("figure {:.1} | {how} |", (memory("VmHWM:") - before) as f64 / 1024.0);
}

#[test]
#[ignore = "measures"]
fn what_each_flood_takes() {
    println!("| of | flood | MiB | end |\n|---|---|---|---|");
    for (number, (name, is_senders, _)) in FLOODS.iter().enumerate() {
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--ignored", "--exact", THIS, "--nocapture"]).env(NAME, number.to_string());
        let output = String::from_utf8(process.output().unwrap().stdout).unwrap();
        let figure = output.lines().find_map(|line| line.split_once("figure ")).expect(&output).1;
        println!("| a {} | {name} | {figure}", if *is_senders { "sender" } else { "receiver" });
    }
}
