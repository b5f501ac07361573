//! The bound: no way of dealing brings a world's object sooner, whatever it knows.
//!
//! Bytes flow from stretches to the sources that have them, when they have them, and through the links that they share.
//! Within a time T each source carries its rate times the seconds in which it is there, does not stall and does not lie; each link its own.
//! A stretch may take any second from the one on in which the source has it, and no byte comes before a round trip. If
//! the largest flow is less than the object, T is too short. Round trips between, whole runs and what nobody can know are left out, so
//! the bound is one of the time from below.

use std::collections::BTreeMap;

use super::flow::{ANY, Flow};
use super::world::{Honesty, STRETCHES, World, WorldSource};

/// Precision of the bound.
const PRECISION: f64 = 0.002;

/// Seconds that the object takes at least; infinite if `most` do not suffice.
pub fn bound(world: &World, most: f64) -> f64 {
    let (mut low, mut high) = (0.0, most);
    if !suffices(world, high) {
        return f64::INFINITY;
    }
    while high - low > PRECISION * high {
        let middle = f64::midpoint(low, high);
        if suffices(world, middle) { high = middle } else { low = middle }
    }
    low
}

/// Seconds between two times in which a source brings right bytes.
fn carries(source: &WorldSource, from: f64, to: f64) -> f64 {
    let middle = f64::midpoint(from, to);
    let is_right = match source.honesty {
        Honesty::Honest => true,
        Honesty::Wrong(since) => middle < since,
        Honesty::Denies => false,
    };
    // The first byte comes a round trip after the source, so that much of what it says is later here.
    let is_there =
        source.present.iter().any(|times| (times.start + source.round_trip..times.end).contains(&middle));
    if is_right && is_there && !source.stalls.contains(&middle) { to - from } else { 0.0 }
}

/// Times at which something changes at a source, as the bytes show it here.
fn changes(source: &WorldSource) -> Vec<f64> {
    let mut times = source.changes();
    times.extend(source.present.iter().map(|times| times.start + source.round_trip));
    if let Honesty::Wrong(since) = source.honesty {
        times.push(since);
    }
    times
}

/// True if the largest flow within the time is the object.
fn suffices(world: &World, time: f64) -> bool {
    let mut flow = Flow::default();
    let (begin, end) = (flow.node(), flow.node());
    let stretches = kinds(world, &mut flow, begin);
    let mut links: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (number, source) in world.sources.iter().enumerate() {
        if matches!(source.honesty, Honesty::Denies | Honesty::Wrong(0.0)) {
            continue;
        }
        // Those on one link change together, so that each second of the link is one pipe.
        let together = world.sources.iter().enumerate();
        let together =
            together.filter(|(other, it)| *other == number || (it.link.is_some() && it.link == source.link));
        let mut times: Vec<f64> = together.flat_map(|(_, it)| changes(it)).filter(|&at| at < time).collect();
        times.extend([0.0, time]);
        times.sort_by(f64::total_cmp);
        times.dedup();
        let phases: Vec<usize> = times.windows(2).map(|_| flow.node()).collect();
        for (index, phase) in phases.iter().enumerate() {
            let (from, to) = (times[index], times[index + 1]);
            if let Some(next) = phases.get(index + 1) {
                flow.pipe(*phase, *next, ANY);
            }
            let way = match source.link {
                Some(link) => *links.entry((link, index)).or_insert_with(|| {
                    let node = flow.node();
                    flow.pipe(node, end, world.links[link] * (to - from));
                    node
                }),
                None => end,
            };
            flow.pipe(*phase, way, source.rate * carries(source, from, to));
        }
        for (stretch, node) in &stretches {
            let since = source.gains.as_ref().map_or(0.0, |gains| gains[*stretch]);
            if let Some(phase) = times[..times.len() - 1].iter().position(|&at| at >= since) {
                flow.pipe(*node, phases[phase], ANY);
            }
        }
    }
    flow.largest(begin, end) >= world.size as f64 * (1.0 - 1e-6)
}

/// A node for all stretches that the same sources have at the same times, with one of these.
fn kinds(world: &World, flow: &mut Flow, begin: usize) -> Vec<(usize, usize)> {
    let mut kinds: BTreeMap<Vec<u64>, (usize, f64)> = BTreeMap::new();
    for stretch in 0..STRETCHES {
        let gains = world.sources.iter().filter_map(|source| source.gains.as_ref());
        let key: Vec<u64> = gains.map(|gains| gains[stretch].to_bits()).collect();
        let range = world.stretch(stretch);
        kinds.entry(key).or_insert((stretch, 0.0)).1 += (range.end - range.start) as f64;
    }
    let node = |(stretch, bytes): (usize, f64)| {
        let node = flow.node();
        flow.pipe(begin, node, bytes);
        (stretch, node)
    };
    kinds.into_values().map(node).collect()
}

#[test]
fn what_two_links_carry_together_is_the_bound() {
    let source = |rate, link| WorldSource {
        rate,
        round_trip: 0.5,
        link,
        gains: None,
        present: vec![0.0..f64::INFINITY],
        stalls: f64::INFINITY..f64::INFINITY,
        honesty: Honesty::Honest,
        proves: true,
    };
    let world = |sources| World { size: 10_000_000, links: vec![1e6], sources, want: 1 };
    for (what, sources, seconds) in [
        ("one", vec![source(1e6, None)], 10.5),
        ("two", vec![source(1e6, None), source(1e6, None)], 5.5),
        ("two on a link", vec![source(1e6, Some(0)), source(1e6, Some(0))], 10.5),
        ("one stalls", vec![WorldSource { stalls: 2.0..4.0, ..source(1e6, None) }], 12.5),
        (
            "one lies later",
            vec![source(1e6, None), WorldSource { honesty: Honesty::Wrong(2.5), ..source(1e6, None) }],
            8.5,
        ),
        (
            "one has half",
            vec![
                source(1e6, None),
                WorldSource { gains: Some([[0.0; 24], [f64::INFINITY; 24]].concat()), ..source(9e6, None) },
            ],
            5.5,
        ),
    ] {
        let bound = bound(&world(sources), 100.0);
        assert!((bound / seconds - 1.0).abs() < 0.005, "{what}: {bound}");
    }
}
