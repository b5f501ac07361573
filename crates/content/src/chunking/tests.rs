//! Duties of every chunker, whatever the input and however it is sliced.

use std::collections::HashSet;

use fastcdc::v2020::FastCDC;
use proptest::prelude::*;

use super::*;

const SMALL_GEAR: Parameters = Parameters::Gear { min: 64, avg: 256, max: 1024 };
const SMALL_RABIN: Parameters = Parameters::Rabin { min: 65, avg: 256, max: 1025 };
const SMALL_FIXED: Parameters = Parameters::Fixed { len: 100 };

/// The first `len` bytes that belong to `seed`: no structure, the same in every run.
pub(super) fn noise(seed: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    blake3::Hasher::new().update(seed).finalize_xof().fill(&mut out);
    out
}

/// All chunks of `slices`, copied.
fn chunks<'a>(parameters: Parameters, slices: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let mut chunker = parameters.chunker().unwrap();
    let mut chunks = Vec::new();
    for mut slice in slices {
        while let Some(chunk) = chunker.cut(&mut slice) {
            chunks.push(chunk.to_vec());
        }
        assert!(slice.is_empty(), "all input is taken");
    }
    while let Some(chunk) = chunker.finish() {
        chunks.push(chunk.to_vec());
    }
    chunks
}

/// The lengths of all chunks of `data`.
pub(super) fn lengths(parameters: Parameters, data: &[u8]) -> Vec<usize> {
    chunks(parameters, [data]).iter().map(Vec::len).collect()
}

/// Noise with stretches of one byte in it, where no boundary is found by content.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let stretch = prop_oneof![
        (any::<u64>(), 0usize..6000).prop_map(|(seed, len)| noise(&seed.to_le_bytes(), len)),
        (any::<u8>(), 0usize..4000).prop_map(|(byte, len)| vec![byte; len]),
    ];
    prop::collection::vec(stretch, 0..4).prop_map(|stretches| stretches.concat())
}

fn parameters() -> impl Strategy<Value = Parameters> {
    prop::sample::select(vec![SMALL_GEAR, SMALL_RABIN, SMALL_FIXED])
}

/// Cuts `data` into slices whose lengths go round in `steps`.
fn sliced<'a>(data: &'a [u8], steps: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = data;
    let mut slices = Vec::new();
    for step in steps.iter().cycle() {
        let (head, tail) = rest.split_at((*step).min(rest.len()));
        slices.push(head);
        rest = tail;
        if rest.is_empty() {
            break;
        }
    }
    slices
}

proptest! {
    #[test]
    fn slicing_changes_nothing(
        data in data(),
        parameters in parameters(),
        steps in prop::collection::vec(1usize..3000, 1..5),
    ) {
        let whole = chunks(parameters, [&data[..]]);
        prop_assert_eq!(&whole.concat(), &data);
        prop_assert_eq!(&chunks(parameters, sliced(&data, &steps)), &whole);
        prop_assert_eq!(&chunks(parameters, data.chunks(1)), &whole);
    }

    #[test]
    fn lengths_stay_within_their_bounds(data in data(), parameters in parameters()) {
        let lengths = lengths(parameters, &data);
        for (i, len) in lengths.iter().enumerate() {
            prop_assert!(parameters.allows(*len as u32, i + 1 == lengths.len()), "{} of {:?}", i, lengths);
        }
    }

    #[test]
    fn chains_from_the_begin_are_the_chunks_and_others_join_them_in_order(
        data in data(), parameters in parameters(), from in 0usize..10_000, until in 0usize..10_000,
    ) {
        let (cutter, expected) = (parameters.cutter().unwrap(), lengths(parameters, &data));
        let mut found = Vec::new();
        cutter.chain(&data, 0, data.len(), true, |start, end| found.push(end - start));
        prop_assert_eq!(&found, &expected);
        // A front's chunks hold for the whole.
        let mut early = Vec::new();
        let front = &data[..until.min(data.len())];
        cutter.chain(front, 0, front.len(), false, |start, end| early.push(end - start));
        prop_assert_eq!(&early[..], &expected[..early.len()]);
        // From anywhere: once a boundary is met, all that follow are met.
        let ends: Vec<_> = expected.iter().scan(0, |at, len| { *at += len; Some(*at) }).collect();
        let mut is_met = false;
        cutter.chain(&data, from.min(data.len()), data.len(), true, |_, end| {
            assert!(!is_met || ends.contains(&end));
            is_met |= ends.contains(&end);
        });
    }

    #[test]
    fn gear_cuts_as_the_reference_does(data in data()) {
        let reference: Vec<_> = FastCDC::new(&data, 64, 256, 1024).map(|chunk| chunk.length).collect();
        prop_assert_eq!(lengths(SMALL_GEAR, &data), reference);
    }
}

#[test]
fn an_insertion_near_the_front_leaves_later_chunks_alone() {
    for seed in 0u8..40 {
        let parameters = if seed % 2 == 0 { SMALL_GEAR } else { SMALL_RABIN };
        let old = noise(&[seed], 200_000);
        let new = [&old[..1000], b"inserted", &old[1000..]].concat();
        let before: HashSet<_> = chunks(parameters, [&old[..]]).into_iter().collect();
        let after = chunks(parameters, [&new[..]]);
        let changed = after.iter().filter(|chunk| !before.contains(*chunk)).count();
        assert!(changed <= 10, "{changed} of {} chunks, seed {seed}", after.len());
    }
}

#[test]
fn a_large_slice_is_not_copied() {
    let data = noise(b"large", 10_000);
    let mut chunker = SMALL_GEAR.chunker().unwrap();
    let mut rest = &data[..];
    let mut at = 0;
    while let Some(chunk) = chunker.cut(&mut rest) {
        assert_eq!(chunk.as_ptr(), data[at..].as_ptr(), "chunk at {at}");
        at += chunk.len();
    }
    assert!(data.len() - at < SMALL_GEAR.max_len() as usize);
}

#[test]
fn a_finished_chunker_serves_the_next_object() {
    let (first, second) = (noise(b"first", 5000), noise(b"second", 5000));
    let mut chunker = SMALL_GEAR.chunker().unwrap();
    let mut cut_all = |data: &[u8]| {
        let (mut rest, mut lengths) = (data, Vec::new());
        while let Some(chunk) = chunker.cut(&mut rest) {
            lengths.push(chunk.len());
        }
        while let Some(chunk) = chunker.finish() {
            lengths.push(chunk.len());
        }
        lengths
    };
    assert_eq!(cut_all(&first), lengths(SMALL_GEAR, &first));
    assert_eq!(cut_all(&second), lengths(SMALL_GEAR, &second));
    assert_eq!(cut_all(&[]), [0usize; 0]);
}
