//! Many who watch: a rendezvous server, a process of its own on one core, that real clients watch over real connections.
//!
//! `cargo run --release -p towpath-rendezvous --example watchers [watchers] [topics] [changes a second] [seconds]`, by default
//! 10,000, 1,000, 100 and 30. Prints the server's share of its core, its memory for each watcher, the time from a change to when
//! it is told, and how long it takes until all is back after the server was killed and started again. The clients are on the
//! other cores, in several processes: each holds three descriptors.
#![allow(clippy::print_stdout)]

mod clients;
mod processes;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clients::{Changers, be_watchers, micros};
use processes::{ServerProcess, WatcherProcess, be_server, pin};

/// Watchers of one process.
const OF_ONE_PROCESS: usize = 2500;
/// Longest time for all to be back: more is told and not waited for.
const BACK_LIMIT: Duration = Duration::from_secs(120);

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Load {
    watchers: usize,
    topics: usize,
    changes_a_second: usize,
    seconds: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--server", key, address] => be_server(key.as_ref(), address.parse().expect("an address")),
        ["--watchers", place, topics, first, count] => {
            let [topics, first, count] = [topics, first, count].map(|text| text.parse().expect("a number"));
            be_watchers(&place.parse().expect("a place"), topics, first..first + count);
        }
        _ => {
            let number =
                |at: usize, default| words.get(at).and_then(|text| text.parse().ok()).unwrap_or(default);
            let load = Load {
                watchers: number(0, 10_000),
                topics: number(1, 1000),
                changes_a_second: number(2, 100),
                seconds: number(3, 30),
            };
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.expect("a runtime").block_on(measure(load));
        }
    }
}

async fn measure(load: Load) {
    let Load { watchers, topics, changes_a_second, seconds } = load;
    pin("self", 1);
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    let server = ServerProcess::start(&key, SocketAddr::from(([127, 0, 0, 1], 0)));
    let changers = Changers::start(&server.place, topics);
    changers.until_connected(1).await;
    let before = server.resident_kib();
    let begun = Instant::now();
    let mut processes: Vec<WatcherProcess> = (0..watchers)
        .step_by(OF_ONE_PROCESS)
        .map(|first| {
            WatcherProcess::start(&server.place, topics, first, OF_ONE_PROCESS.min(watchers - first))
        })
        .collect();
    processes.iter_mut().for_each(|process| process.until_told(1));
    println!(
        "{watchers} watchers over {topics} topics, all told after {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    let kib = server.resident_kib();
    println!("server: {kib} KiB, {:.1} KiB for each watcher", (kib - before) as f64 / watchers as f64);

    let (from, cpu, clock) = (micros(), server.cpu_seconds(), Instant::now());
    changers.change(changes_a_second, seconds).await;
    let share = (server.cpu_seconds() - cpu) / clock.elapsed().as_secs_f64();
    println!("{changes_a_second} changes a second: {:.1} % of one core", 100.0 * share);
    let (server, clock) = (server.restart(&key), Instant::now());
    let back = async {
        changers.until_connected(2).await;
        changers.until_there(&server.place, topics).await;
    };
    let changers_back = tokio::time::timeout(BACK_LIMIT, back).await.map(|()| clock.elapsed());
    processes.iter_mut().for_each(|process| process.until_told(2));
    match changers_back {
        Ok(elapsed) => {
            println!("killed and started again: all entries there after {:.1} s", elapsed.as_secs_f64())
        }
        Err(_) => println!("killed and started again: not all entries there after {BACK_LIMIT:?}"),
    }
    println!("killed and started again: all watchers told after {:.1} s", clock.elapsed().as_secs_f64());
    report(processes.into_iter().flat_map(|process| process.delays(from)).collect(), load);
}

fn report(mut delays: Vec<u64>, load: Load) {
    delays.sort_unstable();
    let expected = load.changes_a_second * load.seconds * load.watchers / load.topics;
    let at =
        |part: f64| delays.get((delays.len() as f64 * part) as usize).copied().unwrap_or(0) as f64 / 1000.0;
    println!(
        "from a change to when it is told: median {:.2} ms, p99 {:.2} ms, longest {:.2} ms; {} of {expected} told",
        at(0.5),
        at(0.99),
        at(1.0 - f64::EPSILON),
        delays.len()
    );
}
