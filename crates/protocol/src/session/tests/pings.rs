//! The round trip that a session measures, and pings of its peer.

use super::*;

/// Reactions to a ping of the peer: the pings that it sends, and whether it reports a measurement.
fn receive(session: &mut Session, now: Instant, ping: Ping) -> (Vec<Ping>, bool) {
    session.receive(now, Incoming::Message(Body::Ping(ping)));
    effects(session)
}

fn effects(session: &mut Session) -> (Vec<Ping>, bool) {
    let (mut pings, mut has_measured) = (Vec::new(), false);
    while let Some(effect) = session.poll() {
        match effect {
            Effect::Send(Body::Ping(ping)) => pings.push(ping),
            Effect::Measured => has_measured = true,
            _ => {}
        }
    }
    (pings, has_measured)
}

const fn asks(asks: u32) -> Ping {
    Ping { asks, answers: 0 }
}

const fn answers(answers: u32) -> Ping {
    Ping { asks: 0, answers }
}

/// A session that measures and has been greeted.
fn measuring(now: Instant) -> Session {
    let mut session = Session::new(SessionConfig { measures: true, ..config() }, now);
    assert_eq!(effects(&mut session).0, [], "nobody is there yet");
    session.receive(now, Incoming::Message(hello(&config())));
    assert_eq!(effects(&mut session), (vec![asks(1)], false));
    session
}

#[test]
fn the_shortest_of_three_pings_is_the_round_trip() {
    let (now, ms) = (Instant::now(), Duration::from_millis);
    let mut session = measuring(now);
    assert_eq!(receive(&mut session, now, answers(2)), (vec![], false), "it did not ask that");
    assert_eq!(receive(&mut session, now + ms(5), answers(1)), (vec![asks(2)], false));
    assert_eq!(receive(&mut session, now + ms(8), answers(2)), (vec![asks(3)], false));
    assert_eq!(session.round_trip(), None);
    assert_eq!(receive(&mut session, now + ms(17), answers(3)), (vec![], true));
    assert_eq!(session.round_trip(), Some(ms(3)));
    assert_eq!(receive(&mut session, now + ms(18), answers(3)), (vec![], false), "it has enough");
}

#[test]
fn a_peer_that_answers_late_is_far_until_it_answers_sooner() {
    let (now, ms) = (Instant::now(), Duration::from_millis);
    let mut session = measuring(now);
    assert_eq!(receive(&mut session, now + ms(30), answers(1)), (vec![asks(2)], true));
    assert_eq!(session.round_trip(), Some(ms(30)));
    receive(&mut session, now + ms(31), answers(2));
    assert_eq!(receive(&mut session, now + ms(33), answers(3)), (vec![], true));
    assert_eq!(session.round_trip(), Some(ms(1)));
}

#[test]
fn a_peer_that_asks_is_answered_a_few_times_by_who_measures_nothing_itself() {
    let now = Instant::now();
    let mut session = Session::new(config(), now);
    session.receive(now, Incoming::Message(hello(&config())));
    assert_eq!(effects(&mut session), (vec![], false));
    let answered =
        (1..100).filter(|number| receive(&mut session, now, asks(*number)).0 == [answers(*number)]);
    assert_eq!(answered.count(), MOST_ANSWERS as usize);
    assert_eq!(session.ended(), None);
}
