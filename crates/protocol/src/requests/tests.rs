mod giving_up;

use towpath_content::delta::exchange::{Base, Request};
use towpath_content::pieces::Layout;
use towpath_transfer::{ObjectOffset, SignedBase};

use super::*;
use crate::steps;

const PIECE: u64 = 1 << 18;

fn piece(tag: Tag, name: u8, size: u64, index: u64) -> Want {
    let id = WantId::Piece { oid: Oid::Blake3([name; 32]), layout: Layout::of(size).unwrap(), index };
    Want { positions: vec![ObjectOffset { object: 1, offset: 0 }], ..Want::new(tag, id) }
}

fn under_way(wants: Vec<Want>) -> GetUnderWay {
    GetUnderWay::new(runs(wants, true), true, SourceId::other("peer", None), Instant::now())
}

fn header(want: u32, piece: u32, offset: u32) -> DataHeader {
    DataHeader { request: 1, want, piece, offset, suggested: 0, zeros: false, encoding: 0 }
}

#[test]
fn consecutive_pieces_become_one_run() {
    let wants = vec![
        piece(1, 1, 9 * PIECE, 3),
        piece(2, 1, 9 * PIECE, 4),
        piece(3, 1, 9 * PIECE, 6),
        piece(4, 2, 5, 0),
    ];
    let joined = runs(wants, true);
    let shape: Vec<_> = joined.iter().map(|run| (run.wire.first, run.wire.count)).collect();
    assert_eq!(shape, [(3, 2), (6, 1), (0, 1)]);
}

#[test]
fn a_large_piece_is_put_together_from_its_frames() {
    // Pieces of an object over 256 GiB have 512 KiB.
    let mut get = under_way(vec![piece(7, 1, (1 << 38) + 1, 0)]);
    let half = Bytes::from(vec![1; PIECE as usize]);
    assert!(get.data(Instant::now(), header(0, 0, 0), half.clone()).unwrap().is_empty());
    let whole = get.data(Instant::now(), header(0, 0, PIECE as u32), half).unwrap().remove(0);
    let Payload::Bytes(bytes) = whole.payload else { panic!() };
    assert_eq!((whole.tag, bytes.len()), (7, 2 * PIECE as usize));
}

#[test]
fn of_a_piece_that_is_not_whole_the_front_is_given_out_once() {
    let (now, bytes) = (Instant::now(), Bytes::from(vec![3; 1000]));
    let mut get = under_way(vec![piece(7, 1, 9 * PIECE, 3), piece(8, 1, 9 * PIECE, 4)]);
    assert!(get.take_partial_piece().is_none());
    get.data(now, header(0, 1, 0), bytes.clone()).unwrap();
    let front = get.take_partial_piece().unwrap();
    assert!(front.tag == 8 && matches!(front.payload, Payload::Bytes(front) if front == bytes));
    assert!(get.take_partial_piece().is_none());
    get.data(now, header(0, 0, 0), Bytes::from(vec![3; PIECE as usize])).unwrap();
    assert!(get.take_partial_piece().is_none(), "that is all of a piece");
}

#[test]
fn of_a_piece_that_ended_otherwise_no_front_is_given_out() {
    let (now, bytes) = (Instant::now(), Bytes::from(vec![3; 1000]));
    for want in [None, Some(0)] {
        let mut get = under_way(vec![piece(7, 1, 9 * PIECE, 3)]);
        get.data(now, header(0, 0, 0), bytes.clone()).unwrap();
        let mut ended = Vec::new();
        get.outcome(&WireOutcome { request: 1, want, ..WireOutcome::default() }, |tag, _| ended.push(tag))
            .unwrap();
        assert!(ended == [7] && get.take_partial_piece().is_none());
    }
}

#[test]
fn frames_out_of_order_or_unasked_are_violations() {
    let fresh = || under_way(vec![piece(7, 1, (1 << 38) + 1, 0)]);
    let bytes = Bytes::from(vec![1; 1000]);
    assert_eq!(
        fresh().data(Instant::now(), header(0, 0, 5), bytes.clone()).unwrap_err(),
        Violation::OutOfOrder
    );
    assert_eq!(fresh().data(Instant::now(), header(1, 0, 0), bytes.clone()).unwrap_err(), Violation::Unasked);
    assert_eq!(fresh().data(Instant::now(), header(0, 1, 0), bytes.clone()).unwrap_err(), Violation::Unasked);
    let mut get = fresh();
    get.data(Instant::now(), header(0, 0, 0), bytes.clone()).unwrap();
    assert_eq!(
        get.data(Instant::now(), header(0, 0, 0), bytes.clone()).map(|d| d.is_empty()),
        Ok(true),
        "began again"
    );
    assert_eq!(get.data(Instant::now(), header(0, 0, 5000), bytes).unwrap_err(), Violation::OutOfOrder);
}

#[test]
fn more_bytes_than_wanted_reach_the_check_that_refuses_them() {
    let mut get = under_way(vec![piece(7, 1, 10, 0)]);
    assert!(
        get.data(Instant::now(), header(0, 0, 0), Bytes::from_static(b"twelve bytes")).unwrap().len() == 1
    );
}

#[test]
fn a_second_delivery_is_a_violation() {
    let mut get = under_way(vec![piece(7, 1, 3, 0)]);
    assert_eq!(get.data(Instant::now(), header(0, 0, 0), Bytes::from_static(b"abc")).unwrap().len(), 1);
    assert_eq!(
        get.data(Instant::now(), header(0, 0, 0), Bytes::from_static(b"abc")).unwrap_err(),
        Violation::Unasked
    );
}

#[test]
fn each_want_ends_once_also_when_the_connection_is_lost() {
    let mut ends = Vec::new();
    let mut get = under_way(vec![piece(1, 1, 3, 0), piece(2, 2, 3, 0), piece(3, 3, 3, 0)]);
    get.data(Instant::now(), header(0, 0, 0), Bytes::from_static(b"abc")).unwrap();
    let gone = WireOutcome::new(1, Some(1), &Outcome::Gone);
    get.outcome(&gone, |tag, outcome| ends.push((tag, outcome))).unwrap();
    get.end_all(&Outcome::RetryLater(Duration::ZERO), |tag, outcome| ends.push((tag, outcome)));
    assert_eq!(ends, [(2, Outcome::Gone), (3, Outcome::RetryLater(Duration::ZERO))]);
}

#[test]
fn a_proof_must_be_for_the_run_that_was_asked() {
    let mut get = under_way(vec![piece(1, 1, 9 * PIECE, 3), piece(2, 1, 9 * PIECE, 4)]);
    let proof = |want, first, count| ProofOf { request: 1, want, first, count, nodes: Bytes::new() };
    assert!(get.proof(proof(Some(0), 3, 2)).is_ok());
    for wrong in [proof(None, 3, 2), proof(Some(1), 3, 2), proof(Some(0), 3, 3), proof(Some(0), u64::MAX, 2)]
    {
        assert_eq!(get.proof(wrong), Err(Violation::Unasked));
    }
}

fn chunk(tag: Tag, name: u8, len: u32, origin: Option<Origin>) -> Want {
    let id = WantId::Chunk { hash: [name; 32], len };
    Want { positions: vec![ObjectOffset { object: 1, offset: 0 }], origin, ..Want::new(tag, id) }
}

fn origin(name: u8, offset: u64) -> Option<Origin> {
    Some(Origin { oid: Oid::Blake3([name; 32]), offset })
}

#[test]
fn chunks_are_asked_for_where_they_lie_if_the_peer_takes_that() {
    let wants = || {
        vec![
            piece(1, 1, 9 * PIECE, 0),
            chunk(2, 8, 100, origin(1, 0)),
            piece(3, 1, 9 * PIECE, 0),
            chunk(4, 9, 7, origin(1, 5 * PIECE)),
            chunk(5, 10, 7, None),
        ]
    };
    let shape = |by_bytes| {
        let runs = runs(wants(), by_bytes).into_iter();
        runs.map(|run| (run.wire.offset, run.wire.len, run.wire.chunk.len(), run.wire.count))
            .collect::<Vec<_>>()
    };
    let (piece, named) = ((None, 0, 0, 1), (None, 0, 32, 1));
    let spans = [(Some(0), 100, 0, 0), (Some(5 * PIECE), 7, 0, 0)];
    assert_eq!(shape(true), [piece, spans[0], piece, spans[1], named]);
    assert_eq!(shape(false), [piece, named, piece, named, named]);
}

#[test]
fn a_run_of_bytes_has_the_length_that_was_asked_and_no_proof() {
    let fresh = || under_way(vec![chunk(7, 1, 1000, origin(1, 50))]);
    let mut get = fresh();
    let part = |from: usize, to: usize| Bytes::from(vec![1; to - from]);
    assert!(get.data(Instant::now(), header(0, 0, 0), part(0, 400)).unwrap().is_empty());
    let whole = get.data(Instant::now(), header(0, 0, 400), part(400, 1000)).unwrap().remove(0);
    let Payload::Bytes(bytes) = whole.payload else { panic!() };
    assert_eq!((whole.tag, bytes.len(), whole.proof.is_none()), (7, 1000, true));
    let again = get.data(Instant::now(), header(0, 0, 0), part(0, 1000));
    assert_eq!(again.unwrap_err(), Violation::Unasked, "twice");
    let mut long = fresh();
    long.data(Instant::now(), header(0, 0, 0), part(0, 400)).unwrap();
    assert_eq!(
        long.data(Instant::now(), header(0, 0, 400), part(400, 1001)).unwrap_err(),
        Violation::OutOfOrder
    );
    assert_eq!(fresh().data(Instant::now(), header(0, 1, 0), part(0, 1000)).unwrap_err(), Violation::Unasked);
    assert_eq!(fresh().expected(&header(0, 0, 1001)).unwrap_err(), Violation::OutOfOrder);
    for (first, count) in [(0, 0), (0, 1), (50, 1000)] {
        let proof = ProofOf { want: Some(0), first, count, ..ProofOf::default() };
        assert_eq!(fresh().proof(proof).unwrap_err(), Violation::Unasked);
    }
}

/// Chunks of `data`, 1000 bytes each, from `from` on, with one base.
fn with_base(data: &[u8], from: usize, base: &Arc<SignedBase>) -> Vec<Want> {
    let pieces = data.chunks(1000).zip(0..);
    let want = |(bytes, tag): (&[u8], u64)| {
        let id = WantId::Chunk { hash: *Oid::of(bytes).digest(), len: bytes.len() as u32 };
        Want { id, base: Some(Arc::clone(base)), ..chunk(tag, 0, 0, origin(1, from as u64 + 1000 * tag)) }
    };
    pieces.map(want).collect()
}

/// A base, what resembles it, and the wants of that.
fn similar() -> (Vec<u8>, Vec<Want>) {
    let noise = |seed: u8| (0..100u8).flat_map(move |at| *Oid::of(&[seed, at]).digest());
    let base: Vec<u8> = noise(1).collect();
    let data: Vec<u8> = [&base[..1500], b"new", &base[1500..]].concat();
    let signature = towpath_content::delta::Signature::of(&base, 64, data.len()).unwrap().to_bytes();
    let request = Request { base: Base::Signature(signature), is_guess: false, outlines: 0 };
    let signed = Arc::new(SignedBase { bytes: base.into(), request });
    let wants = with_base(&data, 50, &signed);
    (data, wants)
}

fn delta_of(data: &[u8], wants: &[Want]) -> wire::Delta {
    let base = wants[0].base.as_ref().unwrap();
    let bytes = steps::make(base.request.clone(), data).unwrap().remove(0).unwrap();
    wire::Delta { request: 1, want: 0, bytes }
}

#[test]
fn chunks_with_one_base_are_asked_for_as_one_run_of_bytes() {
    let (data, wants) = similar();
    let (_, others) = similar();
    let shape = |wants: Vec<Want>, by_bytes| {
        let runs = runs(wants, by_bytes).into_iter();
        runs.map(|run| (run.wire.len, run.wants.len(), !run.wire.base.is_empty())).collect::<Vec<_>>()
    };
    let (all, len) = (wants.len(), data.len() as u32);
    assert_eq!(shape(wants.clone(), true), [(len, all, true)]);
    assert!(shape(wants.clone(), false).iter().all(|run| *run == (0, 1, false)));
    let apart = [wants[0].clone(), wants[2].clone(), others[1].clone()].to_vec();
    assert_eq!(shape(apart, true), [(1000, 1, true); 3]);
    let plain: Vec<_> = wants.iter().map(|want| Want { base: None, ..want.clone() }).collect();
    assert!(shape(plain, true).iter().all(|run| run.1 == 1 && !run.2));
    let base = Base::Signature(vec![0; MAX_BASES_LEN]);
    let long = SignedBase { bytes: Bytes::new(), request: Request { base, is_guess: false, outlines: 0 } };
    let unsigned = Want { base: Some(long.into()), ..wants[0].clone() };
    assert_eq!(shape(vec![unsigned], true), [(1000, 1, false)]);
    let many: Vec<_> = (0..100).flat_map(|_| [wants[0].clone(), wants[2].clone()]).collect();
    assert_eq!(runs(many, true).iter().filter(|run| !run.wire.base.is_empty()).count(), MAX_BASES);
}

#[test]
fn a_delta_brings_all_chunks_of_its_run_and_so_do_plain_bytes() {
    let (data, wants) = similar();
    let message = delta_of(&data, &wants);
    let check = |deliveries: Vec<Delivery>| {
        assert_eq!(deliveries.len(), wants.len());
        for (delivery, bytes) in deliveries.iter().zip(data.chunks(1000)) {
            let Payload::Bytes(found) = &delivery.payload else { panic!() };
            assert_eq!(found, bytes);
        }
        deliveries.iter().map(|delivery| delivery.saved).sum::<u64>()
    };
    let mut get = under_way(wants.clone());
    let saved = check(get.delta(Instant::now(), &message, |_, _| panic!()).unwrap());
    assert!(saved > 2500 && saved < data.len() as u64, "{saved}");
    let twice = get.delta(Instant::now(), &message, |_, _| panic!());
    assert_eq!(twice.unwrap_err(), Violation::Unasked);
    let mut get = under_way(wants.clone());
    let (front, back) = (Bytes::copy_from_slice(&data[..1700]), Bytes::copy_from_slice(&data[1700..]));
    assert!(get.data(Instant::now(), header(0, 0, 0), front).unwrap().is_empty());
    assert_eq!(check(get.data(Instant::now(), header(0, 0, 1700), back).unwrap()), 0);
    let mut get = under_way(wants.clone());
    let zeros =
        get.data(Instant::now(), DataHeader { zeros: true, ..header(0, 0, 0) }, Bytes::new()).unwrap();
    assert!(zeros.len() == wants.len() && zeros.iter().all(|it| matches!(it.payload, Payload::Zeros)));
    assert_eq!(under_way(wants.clone()).expected(&header(0, 0, 0)), Ok(data.len()));
    assert_eq!(under_way(wants.clone()).expected(&header(0, 1, 0)), Err(Violation::Unasked));
}

#[test]
fn a_delta_that_is_none_or_makes_other_bytes_is_asked_for_again() {
    let (data, wants) = similar();
    let good = delta_of(&data, &wants);
    let mut other = data.clone();
    other[3100] ^= 1;
    let lie = delta_of(&other, &wants);
    let short = delta_of(&data[..data.len() - 1], &wants);
    let with =
        |head: &[u8], bytes: &[u8]| wire::Delta { bytes: [head, bytes].concat().into(), ..good.clone() };
    let cut = with(&good.bytes[..3], &good.bytes[4..]);
    let (head, bytes) = good.bytes.split_at(3);
    let unpacked = with(&[1, 3 - head[1], 0], bytes);
    let given_up = with(&[2], b"");
    for bad in [lie, short, cut, unpacked, given_up] {
        let (mut get, mut ends) = (under_way(wants.clone()), Vec::new());
        let end = |tag, outcome| ends.push((tag, outcome));
        assert!(get.delta(Instant::now(), &bad, end).unwrap().is_empty());
        let expected = wants.iter().map(|want| (want.tag, Outcome::RetryLater(Duration::ZERO)));
        assert_eq!(ends, expected.collect::<Vec<_>>());
        let late = get.data(Instant::now(), header(0, 0, 0), Bytes::from(data.clone()));
        assert_eq!(late.unwrap_err(), Violation::Unasked, "it has ended");
    }
}

#[test]
fn a_delta_that_nobody_asked_for_is_a_violation() {
    let (data, wants) = similar();
    let good = delta_of(&data, &wants);
    let plain = vec![Want { base: None, ..wants[0].clone() }];
    let too_long = wire::Delta { bytes: vec![0; data.len() + 1].into(), ..good.clone() };
    let none = wire::Delta { bytes: Bytes::new(), ..good.clone() };
    for (wants, message, violation) in [
        (plain, good.clone(), Violation::Unasked),
        (vec![piece(1, 1, 9 * PIECE, 3)], good.clone(), Violation::Unasked),
        (wants.clone(), wire::Delta { want: 1, ..good.clone() }, Violation::Unasked),
        (wants.clone(), none, Violation::NoDelta),
        (wants, too_long, Violation::TooLong),
    ] {
        let taken = under_way(wants).delta(Instant::now(), &message, |_, _| panic!());
        assert_eq!(taken.unwrap_err(), violation);
    }
}

/// Of a piece most of which is here only a part is asked for: as a run of bytes, apart from other pieces.
#[test]
fn a_part_of_a_piece_is_a_run_of_bytes() {
    let part = |tag, index, part| Want { part, ..piece(tag, 1, 9 * PIECE, index) };
    let wants =
        vec![part(1, 3, None), part(2, 4, Some(1000..5000)), part(3, 5, Some(0..7)), part(4, 6, None)];
    let joined = runs(wants.clone(), true);
    let shape: Vec<_> = joined.iter().map(|run| (run.wire.count, run.wire.offset, run.wire.len)).collect();
    assert_eq!(
        shape,
        [(1, None, 0), (0, Some(4 * PIECE + 1000), 4000), (0, Some(5 * PIECE), 7), (1, None, 0)]
    );
    assert_eq!(runs(wants.clone(), false).len(), 1, "a peer that knows no runs sends the pieces");

    let mut get = under_way(wants);
    let came = get.data(Instant::now(), header(1, 0, 0), Bytes::from(vec![8; 4000])).unwrap();
    assert_eq!((came[0].tag, came[0].payload.bytes()), (2, &[8; 4000][..]));
    let zeros = DataHeader { zeros: true, ..header(2, 0, 0) };
    let came = get.data(Instant::now(), zeros, Bytes::new()).unwrap();
    assert_eq!((came[0].tag, came[0].payload.bytes()), (3, &[0; 7][..]), "not those of all the piece");
}

/// A source has a part of a chunk: that is asked for where the chunk lies. By its hash a chunk comes whole.
#[test]
fn a_part_of_a_chunk_is_a_run_of_bytes_where_its_place_is_known() {
    let oid = Oid::of(b"object");
    let id = WantId::Chunk { hash: [3; 32], len: 9000 };
    let origin = Some(Origin { oid, offset: 1 << 20 });
    for (origin, by_bytes, shape) in [
        (origin, true, (0, Some((1 << 20) + 500), 4000)),
        (origin, false, (1, None, 0)),
        (None, true, (1, None, 0)),
    ] {
        let want = Want { origin, part: Some(500..4500), ..Want::new(6, id) };
        let wire = runs(vec![want.clone()], by_bytes).remove(0).wire;
        assert_eq!((wire.count, wire.offset, wire.len), shape);
        let bytes = if shape.1.is_some() { 4000 } else { 9000 };
        let request = runs(vec![want], by_bytes);
        let mut get = GetUnderWay::new(request, by_bytes, SourceId::other("peer", None), Instant::now());
        let came = get.data(Instant::now(), header(0, 0, 0), Bytes::from(vec![8; bytes])).unwrap();
        assert_eq!((came[0].tag, came[0].payload.bytes().len()), (6, bytes));
    }
}

/// An object of one piece, what resembles it, and the want for it.
fn whole() -> (Vec<u8>, Want) {
    let (data, wants) = similar();
    let (oid, layout) = (Oid::of(&data), Layout::of(data.len() as u64).unwrap());
    let id = WantId::Piece { oid, layout, index: 0 };
    (data, Want { tag: 5, id, base: wants[0].base.clone(), ..piece(5, 1, 9, 0) })
}

#[test]
fn a_piece_that_is_all_of_its_object_comes_as_a_delta_of_its_base() {
    let (data, want) = whole();
    let shape = |want: &Want, by_bytes| {
        let wire = runs(vec![want.clone()], by_bytes).remove(0).wire;
        (wire.count, wire.offset, wire.len, !wire.base.is_empty())
    };
    assert_eq!(shape(&want, true), (0, Some(0), data.len() as u32, true));
    assert_eq!(shape(&want, false), (1, None, 0, false), "a peer that knows no runs sends the piece");
    let part = Want { part: Some(5..9), ..want.clone() };
    assert_eq!(shape(&part, true), (0, Some(5), 4, false), "its base resembles all of it");
    let layout = Layout::of(PIECE + 1).unwrap();
    for id in [
        WantId::Piece { oid: Oid::of(&data), layout, index: 0 },
        WantId::Piece { oid: Oid::Live([1; 32]), layout: Layout::of(9).unwrap(), index: 0 },
    ] {
        assert_eq!(shape(&Want { id, ..want.clone() }, true), (1, None, 0, false), "nothing would prove it");
    }
    let message = delta_of(&data, std::slice::from_ref(&want));
    let mut get = under_way(vec![want.clone()]);
    let came = get.delta(Instant::now(), &message, |_, _| panic!()).unwrap().remove(0);
    assert_eq!((came.tag, came.payload.bytes()), (5, &data[..]));
    assert!(came.saved > 2500 && came.saved < data.len() as u64, "{}", came.saved);
    let mut get = under_way(vec![want]);
    let came = get.data(Instant::now(), header(0, 0, 0), Bytes::from(data.clone())).unwrap().remove(0);
    assert_eq!((came.payload.bytes(), came.saved), (&data[..], 0));
}

#[test]
fn a_delta_that_makes_another_object_is_asked_for_again() {
    let (data, want) = whole();
    let mut other = data.clone();
    other[3100] ^= 1;
    for lie in [&other[..], &data[..data.len() - 1]] {
        let message = delta_of(lie, std::slice::from_ref(&want));
        let mut ends = Vec::new();
        let end = |tag, outcome| ends.push((tag, outcome));
        assert!(under_way(vec![want.clone()]).delta(Instant::now(), &message, end).unwrap().is_empty());
        assert_eq!(ends, [(5, Outcome::RetryLater(Duration::ZERO))]);
    }
}

#[test]
fn requests_have_room_for_all_bases() {
    let (data, wants) = similar();
    let (_, others) = similar();
    let pairs = (0..MAX_BASES + 10).flat_map(|_| [wants[0].clone(), others[0].clone()]);
    let requests = GetRequest::all(&Oid::of(&data), pairs.collect(), true);
    let shape = |request: &GetRequest| {
        let runs = || request.message.wants.iter();
        (runs().count(), runs().filter(|want| want.base.is_empty()).count())
    };
    assert_eq!(requests.iter().map(shape).collect::<Vec<_>>(), [(64, 0), (64, 0), (20, 0)]);
    let long = Base::Signature(vec![0; MAX_BASES_LEN / 2]);
    let request = Request { base: long, is_guess: false, outlines: 0 };
    let long = |_| Some(Arc::new(SignedBase { bytes: Bytes::new(), request: request.clone() }));
    let long = (0..3).map(|at| Want { base: long(at), ..wants[0].clone() }).collect();
    let requests = GetRequest::all(&Oid::of(&data), long, true);
    assert_eq!(requests.iter().map(shape).collect::<Vec<_>>(), [(1, 0); 3]);
    assert_eq!(GetRequest::all(&Oid::of(&data), wants, true).len(), 1, "they have one together");
}
