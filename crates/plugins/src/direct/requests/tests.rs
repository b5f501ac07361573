use towpath_content::pieces::Layout;
use towpath_transfer::Place;

use super::*;

const PIECE: u64 = 1 << 18;

fn piece(tag: Tag, name: u8, size: u64, index: u64) -> Want {
    let id = WantId::Piece { oid: Oid::Blake3([name; 32]), layout: Layout::of(size).unwrap(), index };
    Want {
        tag,
        id,
        places: vec![Place { object: 1, offset: 0 }],
        group: Arc::default(),
        origin: None,
        basis: None,
    }
}

fn under_way(wants: Vec<Want>) -> GetUnderWay {
    GetUnderWay::new(runs(wants, true), "peer".into(), Instant::now())
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
    Want { tag, id, places: vec![Place { object: 1, offset: 0 }], group: Arc::default(), origin, basis: None }
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
