//! Some wants of a request are cancelled: they end as cancelled, or by what was on its way, and all others as if nothing had
//! been.

use std::sync::LazyLock;

use towpath_link::PathInfo;

use super::*;
use crate::wire::WireCancel;

static EIGHT_PIECES: LazyLock<(Arc<MemoryStore>, Oid, Vec<u8>)> = LazyLock::new(|| store(8));

/// One that asked another for an object of eight pieces. On a slow path a piece goes in four frames.
struct Asking {
    a: End,
    b: End,
    now: Instant,
}

impl Asking {
    fn start(is_slow: bool) -> Self {
        let ((store, oid, data), now) = (&*EIGHT_PIECES, Instant::now());
        let (mut a, mut b) = pair(store, now);
        if is_slow {
            let path =
                PathInfo { delivery_rate_bytes_per_s: Some(193_000), unsent_bytes: 1, ..PathInfo::default() };
            b.serving.look(Some(path), None);
        }
        a.get(now, oid, wants(*oid, data));
        Self { a, b, now }
    }

    fn drive(&mut self, most: usize) -> Vec<Frame> {
        drive(self.now, &mut self.a, &mut self.b, most)
    }

    /// Cancels wants; what this side says about it.
    fn cancel(&mut self, tags: &[Tag]) -> Vec<Vec<u32>> {
        let before = self.a.out.len();
        self.a.session.cancel(0, tags);
        self.a.settle();
        let said = self.a.out.iter().skip(before).map(|frame| Body::from_frame(frame.body.clone()).unwrap());
        let pieces = |body| match body {
            Body::Cancel(WireCancel { request: 1, pieces }) => pieces,
            other => panic!("{other:?}"),
        };
        said.map(pieces).collect()
    }

    /// How each want ended, in order.
    fn ends(&self) -> Vec<(Tag, Option<Outcome>)> {
        let mut ends = self.a.ends();
        ends.sort_by_key(|(tag, _)| *tag);
        ends
    }

    fn is_well(&self) -> bool {
        self.a.ended() == [(1, Ok(()))]
            && self.a.session.ended().is_none()
            && self.b.session.ended().is_none()
    }
}

/// Of the want with each tag the data frames among some frames.
fn data_of(frames: &[Frame]) -> [usize; 8] {
    let mut counts = [0; 8];
    for frame in frames.iter().filter(|frame| frame.kind == wire::DATA) {
        counts[DataHeader::decode(frame.body.clone()).unwrap().0.piece as usize] += 1;
    }
    counts
}

fn cancelled(tags: &[Tag]) -> Vec<(Tag, Option<Outcome>)> {
    (0..8).map(|tag| (tag, tags.contains(&tag).then_some(Outcome::Cancelled))).collect()
}

#[test]
fn the_wants_that_were_cancelled_end_so_and_none_of_their_data_goes_out() {
    let mut asking = Asking::start(false);
    // Both hellos, the proof, the request, what proves the pieces and some data.
    asking.drive(8);
    assert_eq!(asking.cancel(&[7]), [[0, 7]]);
    assert_eq!(asking.cancel(&[7, 6, 99]), [[0, 6]], "the peer is told once");
    let rest = asking.drive(usize::MAX);
    assert_eq!(asking.ends(), cancelled(&[6, 7]));
    assert!(asking.is_well() && matches!(data_of(&rest), [.., 1, 0, 0]));
}

#[test]
fn the_rest_is_proved_if_the_first_piece_of_a_run_was_cancelled() {
    let mut asking = Asking::start(false);
    assert_eq!(asking.cancel(&[0, 3]), [[0, 0, 0, 3]]);
    // The cancellation comes before the first piece is read.
    while let Some(frame) = asking.a.out.pop_front() {
        asking.b.receive(asking.now, frame);
    }
    let frames = asking.drive(usize::MAX);
    assert_eq!(asking.ends(), cancelled(&[0, 3]));
    assert!(asking.is_well());
    assert_eq!(data_of(&frames), [0, 1, 1, 0, 1, 1, 1, 1]);
    let is_proved = |effect: &Effect| match effect {
        Effect::Delivery { delivery, .. } => delivery.proof.is_some(),
        _ => true,
    };
    assert!(asking.a.effects.iter().all(is_proved));
}

/// At whichever message it is: in the middle of a piece, too, and when there is nothing left to cancel.
#[test]
fn wants_are_cancelled_at_every_message() {
    for is_slow in [false, true] {
        let count = Asking::start(is_slow).drive(usize::MAX).len();
        assert!(count > if is_slow { 8 * 4 } else { 12 }, "{count}");
        let mut outcomes = [0, 0];
        for cut in 0..=count {
            let mut asking = Asking::start(is_slow);
            asking.drive(cut);
            asking.cancel(&[1, 6]);
            asking.drive(usize::MAX);
            let ends = asking.ends();
            assert_eq!(ends.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
            for (tag, outcome) in ends {
                match outcome {
                    None => outcomes[0] += usize::from([1, 6].contains(&tag)),
                    Some(outcome) => {
                        assert_eq!(
                            (outcome, [1, 6].contains(&tag)),
                            (Outcome::Cancelled, true),
                            "cut at {cut}"
                        );
                        outcomes[1] += 1;
                    }
                }
            }
            assert!(asking.is_well(), "cut at {cut}: {:?}", asking.a.session.ended());
        }
        assert!(outcomes.iter().all(|count| *count > 4), "{outcomes:?}");
    }
}

#[test]
fn a_connection_that_is_lost_after_a_cancellation_ends_each_want_once() {
    let count = Asking::start(false).drive(usize::MAX).len();
    for cut in 0..=count {
        let mut asking = Asking::start(false);
        asking.cancel(&[1, 6]);
        asking.drive(cut);
        asking.a.close("lost");
        assert_eq!(asking.ends().len(), 8, "cut at {cut}");
    }
}

#[test]
fn no_more_of_a_piece_is_sent_whose_middle_was_reached_and_its_front_is_told() {
    let mut asking = Asking::start(true);
    while data_of(&asking.drive(1))[0] == 0 {}
    assert_eq!(asking.cancel(&[0]), [[0, 0]]);
    let rest = asking.drive(usize::MAX);
    assert!(data_of(&rest)[0] < 3, "no more than were on their way: {:?}", data_of(&rest));
    let position = |is_it: &dyn Fn(&Effect) -> bool| asking.a.effects.iter().position(is_it).unwrap();
    let is_front =
        |effect: &Effect| matches!(effect, Effect::PartialPiece { delivery, .. } if delivery.tag == 0);
    let outcome = position(&|effect| matches!(effect, Effect::Outcome { tag: 0, .. }));
    assert!(position(&is_front) < outcome && asking.is_well());
}

#[test]
fn a_request_of_which_nothing_is_needed_any_more_is_cancelled_as_a_whole() {
    let mut asking = Asking::start(false);
    asking.drive(8);
    assert_eq!(asking.cancel(&[7]), [[0, 7]]);
    assert_eq!(asking.cancel(&[0, 1, 2, 3, 4, 5]), [[0, 3, 0, 4, 0, 5]], "the first three have come");
    assert_eq!(asking.cancel(&[6]), [Vec::<u32>::new()]);
    assert!(asking.cancel(&[0, 1, 2, 3, 4, 5, 6, 7]).is_empty());
    let rest = asking.drive(usize::MAX);
    assert!(asking.is_well() && data_of(&rest)[7] == 0);
}

/// Tags are unique within a use of the connection only.
#[test]
fn what_one_user_of_a_connection_cancels_another_one_gets() {
    let (mut asking, (_, oid, data)) = (Asking::start(false), &*EIGHT_PIECES);
    let request = GetRequest { user: 1, ..GetRequest::new(oid, wants(*oid, data), false) };
    let second = asking.a.session.get(asking.now, request);
    asking.a.session.cancel(1, &[0, 1, 2, 3, 4, 5, 6, 7]);
    asking.a.settle();
    asking.drive(usize::MAX);
    let ends = |wanted| {
        let end = move |effect: &Effect| match effect {
            Effect::Delivery { request, .. } if *request == wanted => Some(None),
            Effect::Outcome { request, outcome, .. } if *request == wanted => Some(Some(outcome.clone())),
            _ => None,
        };
        asking.a.effects.iter().filter_map(end).collect::<Vec<_>>()
    };
    assert_eq!(ends(1), vec![None; 8]);
    assert_eq!(ends(second), vec![Some(Outcome::Cancelled); 8]);
}

#[test]
fn a_request_that_waits_for_room_is_asked_without_what_was_cancelled() {
    let ((store, oid, data), now) = (store(5), Instant::now());
    let (mut a, mut b) = pair(&store, now);
    for _ in 0..MAX_REQUESTS {
        a.session.ask(Question::Watch(Describe::default()));
    }
    let request = a.get(now, &oid, wants(oid, &data));
    let sent = a.out.len();
    a.session.cancel(0, &[1, 3]);
    a.settle();
    assert_eq!(a.out.len(), sent, "not a word");
    assert_eq!(a.ends(), [(1, Some(Outcome::Cancelled)), (3, Some(Outcome::Cancelled))]);
    a.out.retain(|frame| matches!(Body::from_frame(frame.body.clone()), Ok(Body::Hello(_) | Body::Prove(_))));
    let done = |request| Outgoing::control(Body::Done(RequestOnly { request })).to_frame();
    b.out.extend((1..=MAX_REQUESTS as u32).map(done));
    let frames = drive(now, &mut a, &mut b, usize::MAX);
    let asked = frames.iter().find_map(|frame| match Body::from_frame(frame.body.clone()) {
        Ok(Body::Get(get)) => Some(get.wants.iter().map(|want| (want.first, want.count)).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(asked.unwrap(), [(0, 1), (2, 1), (4, 1)]);
    assert_eq!(a.ends()[2..], [(0, None), (2, None), (4, None)]);
    assert!(a.ended().contains(&(request, Ok(()))) && b.session.ended().is_none());
}
