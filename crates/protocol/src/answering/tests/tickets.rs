//! Who is served by which ticket: each way to get it wrong, at the issuer and at a holder.

use std::sync::Mutex;

use towpath_content::ticket::Terms;
use towpath_store::{About, MemoryStore, Store};

use super::super::super::service::{Service, Serving};
use super::super::access::{EXPIRED, GivenSecret, NOT_PROVED, WITHDRAWN};
use super::*;

const OTHER_ROOT: Oid = Oid::Blake3([9; 32]);
const NO_SWARM: Terms = Terms { expires: None, no_swarm: true };
const ENDS: Terms = Terms { expires: Some(1000), no_swarm: false };

const fn bound(secret: Secret, terms: Terms) -> BoundSecret {
    BoundSecret { secret, terms }
}

const fn plain(number: u8) -> BoundSecret {
    bound(Secret([number; 16]), Terms { expires: None, no_swarm: false })
}

/// What a service issued, was given and knows to be withdrawn, at a time that tests set.
#[derive(Default)]
struct Tickets {
    issued: Vec<(Oid, BoundSecret)>,
    given: Mutex<Vec<(Oid, GivenSecret)>>,
    withdrawn: Mutex<Vec<(Oid, BoundSecret)>>,
    now: Mutex<u64>,
}

impl Tickets {
    fn issued(root: Oid, secret: BoundSecret) -> Self {
        Self { issued: vec![(root, secret)], ..Self::default() }
    }

    fn given(root: Oid, secret: BoundSecret, settings_allow: bool) -> Self {
        let given = Mutex::new(vec![(root, GivenSecret { secret, settings_allow })]);
        Self { given, ..Self::default() }
    }
}

impl Issuer for Tickets {
    fn secret(&self, root: &Oid) -> Option<BoundSecret> {
        self.issued.iter().find(|(oid, _)| oid == root).map(|(_, secret)| *secret)
    }

    fn given(&self, root: &Oid) -> Vec<GivenSecret> {
        self.given.lock().unwrap().iter().filter(|(oid, _)| oid == root).map(|(_, given)| *given).collect()
    }

    fn over(&self, _node: &NodeId, root: &Oid, secret: &BoundSecret) -> Option<TicketEnd> {
        if self.withdrawn.lock().unwrap().contains(&(*root, *secret)) {
            return Some(TicketEnd::Withdrawn);
        }
        secret.terms.is_expired(*self.now.lock().unwrap()).then_some(TicketEnd::Expired)
    }

    fn withdrawn(&self, root: &Oid) -> Vec<KnownWithdrawal> {
        let withdrawn = self.withdrawn.lock().unwrap();
        let known = withdrawn.iter().filter(|(oid, _)| oid == root).map(|(_, secret)| KnownWithdrawal {
            secret: *secret,
            withdrawal: Bytes::from_static(b"withdrawal"),
            signature: Bytes::from_static(b"signature"),
        });
        known.collect()
    }

    fn is_allowed(&self, _node: &NodeId, _oid: &Oid) -> bool {
        false
    }

    fn sign(&self, _message: &[u8]) -> [u8; 64] {
        unreachable!("nothing is live here")
    }
}

/// Somebody who proves a secret of `root`.
fn prover(tickets: &Tickets, root: &Oid, secret: &BoundSecret) -> Answering {
    let mut answering = stranger();
    let proof = Bytes::copy_from_slice(&secret.prove(&[5; 32], &NODE, root));
    answering.take(Body::Prove(Prove { root: oid_field(root), proof }), tickets).unwrap();
    answering
}

/// How a request is refused, and whether the issuer's word goes before; `None` if it is answered.
fn refusal(taken: Result<Taken, String>) -> Option<(String, bool)> {
    match taken.unwrap() {
        Taken::Answer(_) => None,
        Taken::Refused(messages) => match &messages[..] {
            [Body::Outcome(outcome), Body::Done(_)] => Some((outcome.reason.clone(), false)),
            [Body::Withdrawn(_), Body::Outcome(outcome), Body::Done(_)] => {
                Some((outcome.reason.clone(), true))
            }
            _ => panic!("another refusal"),
        },
        _ => panic!("neither an answer nor a refusal"),
    }
}

fn numbered(question: Body, request: u32) -> Body {
    match question {
        Body::Get(get) => Body::Get(Get { request, ..get }),
        Body::Describe(ask) => Body::Describe(Describe { request, ..ask }),
        Body::Watch(ask) => Body::Watch(Describe { request, ..ask }),
        other => other,
    }
}

#[test]
fn a_holder_serves_who_proves_the_secret_by_which_it_got_the_root() {
    let (plain, other) = (plain(7), plain(8));
    let table = [
        ("got by that secret", ROOT, plain, true, true),
        ("got by another ticket's secret", ROOT, other, true, false),
        ("another root by that secret", OTHER_ROOT, plain, true, false),
        ("the ticket forbids it", ROOT, bound(SECRET, NO_SWARM), true, false),
        ("the settings forbid it", ROOT, plain, false, false),
    ];
    for (case, root, secret, settings_allow, is_served) in table {
        let holder = Tickets::given(root, secret, settings_allow);
        // What the case is about shall be in the way, and nothing else.
        let proved = if secret.secret == SECRET { secret } else { plain };
        let mut answering = prover(&holder, &ROOT, &proved);
        for (request, question) in questions(0).into_iter().enumerate() {
            let refused = refusal(answering.take(numbered(question, request as u32), &holder));
            assert_eq!(refused, (!is_served).then(|| (NOT_PROVED.to_owned(), false)), "{case}");
        }
        // Who has the ticket by which this node got it is none, also where it gets nothing: it may have been called.
        let has_ticket = (root, secret.secret) == (ROOT, SECRET);
        assert_eq!(answering.is_known(), has_ticket, "{case}: it counts as a stranger else");
    }
}

#[test]
fn a_root_that_was_not_given_or_whose_secret_is_another_opens_nothing() {
    for tickets in [Tickets::issued(ROOT, plain(7)), Tickets::given(ROOT, plain(7), true)] {
        for (root, secret) in [(OTHER_ROOT, plain(7)), (ROOT, plain(8))] {
            let mut answering = prover(&tickets, &root, &secret);
            let get =
                Get { request: 1, root: oid_field(&root), wants: vec![piece(&root, 0)], ..Get::default() };
            let refused = refusal(answering.take(Body::Get(get), &tickets));
            assert_eq!(refused, Some((NOT_PROVED.to_owned(), false)));
        }
    }
}

#[test]
fn altered_terms_open_nothing_at_the_issuer_nor_at_a_holder() {
    let later = Terms { expires: Some(2000), no_swarm: false };
    for (kept, told) in [(ENDS, later), (ENDS, Terms::default()), (NO_SWARM, Terms::default())] {
        let kept = bound(SECRET, kept);
        for tickets in [Tickets::issued(ROOT, kept), Tickets::given(ROOT, kept, true)] {
            let mut answering = prover(&tickets, &ROOT, &bound(SECRET, told));
            let refused = refusal(answering.take(get(1, vec![piece(&ROOT, 0)]), &tickets));
            assert_eq!(refused, Some((NOT_PROVED.to_owned(), false)), "{told:?} for {kept:?}");
        }
    }
}

#[test]
fn a_ticket_ends_in_the_middle_of_a_transfer() {
    let ends = bound(SECRET, ENDS);
    for tickets in [Tickets::issued(ROOT, ends), Tickets::given(ROOT, ends, true)] {
        let mut answering = prover(&tickets, &ROOT, &ends);
        for (request, now, is_served) in [(1, 0, true), (2, 999, true), (3, 1000, false), (4, 2000, false)] {
            *tickets.now.lock().unwrap() = now;
            let refused = refusal(answering.take(get(request, vec![piece(&ROOT, 0)]), &tickets));
            assert_eq!(refused, (!is_served).then(|| (EXPIRED.to_owned(), false)), "at {now}");
        }
        assert!(!prover(&tickets, &ROOT, &ends).is_known(), "by a ticket that is over nobody is known");
    }
}

#[test]
fn what_is_withdrawn_is_refused_with_the_issuers_word_to_who_proves_the_secret() {
    let secret = plain(7);
    for tickets in [Tickets::issued(ROOT, secret), Tickets::given(ROOT, secret, true)] {
        let mut answering = prover(&tickets, &ROOT, &secret);
        assert_eq!(refusal(answering.take(get(1, vec![piece(&ROOT, 0)]), &tickets)), None);
        tickets.withdrawn.lock().unwrap().push((ROOT, secret));
        let over = Some((WITHDRAWN.to_owned(), true));
        assert_eq!(refusal(answering.take(get(2, vec![piece(&ROOT, 0)]), &tickets)), over);
        assert_eq!(refusal(prover(&tickets, &ROOT, &secret).take(questions(1)[1].clone(), &tickets)), over);
        let stranger = refusal(prover(&tickets, &ROOT, &plain(8)).take(questions(1)[1].clone(), &tickets));
        assert_eq!(stranger, Some((NOT_PROVED.to_owned(), false)), "others learn nothing");
    }
    // Its lease is gone, and nothing of it is left but its withdrawal.
    let gone = Tickets { withdrawn: Mutex::new(vec![(ROOT, secret)]), ..Tickets::default() };
    let refused = refusal(prover(&gone, &ROOT, &secret).take(get(1, vec![piece(&ROOT, 0)]), &gone));
    assert_eq!(refused, Some((WITHDRAWN.to_owned(), true)));
}

#[test]
fn settings_that_change_hold_from_the_next_request() {
    let holder = Tickets::given(ROOT, plain(7), true);
    let mut answering = prover(&holder, &ROOT, &plain(7));
    assert_eq!(refusal(answering.take(get(1, vec![piece(&ROOT, 0)]), &holder)), None);
    holder.given.lock().unwrap().clear();
    let refused = refusal(answering.take(get(2, vec![piece(&ROOT, 0)]), &holder));
    assert_eq!(refused, Some((NOT_PROVED.to_owned(), false)));
}

#[test]
fn one_of_several_tickets_for_a_root_is_enough() {
    let given = |number, terms| {
        (ROOT, GivenSecret { secret: bound(Secret([number; 16]), terms), settings_allow: true })
    };
    let plain = Terms::default();
    let holder = Tickets::default();
    holder.given.lock().unwrap().extend([given(1, plain), given(2, NO_SWARM), given(3, plain)]);
    for (number, terms, is_served) in
        [(1, plain, true), (2, NO_SWARM, false), (3, plain, true), (4, plain, false)]
    {
        let mut answering = prover(&holder, &ROOT, &bound(Secret([number; 16]), terms));
        let taken = answering.take(get(1, vec![piece(&ROOT, 0)]), &holder);
        assert_eq!(refusal(taken).is_none(), is_served);
    }
}

#[test]
fn a_service_without_a_clock_honours_no_ticket_that_ends() {
    assert_eq!(Keys.over(&NODE, &ROOT, &bound(SECRET, ENDS)), Some(TicketEnd::Expired));
    assert_eq!(Keys.over(&NODE, &ROOT, &SECRET.into()), None);
}

/// A cache that takes one ticket, says so much of it, and serves by it.
struct Cache(Tickets, Result<(), Outcome>);

impl Issuer for Cache {
    fn secret(&self, _root: &Oid) -> Option<BoundSecret> {
        None
    }

    fn given(&self, root: &Oid) -> Vec<GivenSecret> {
        self.0.given(root)
    }

    fn over(&self, _node: &NodeId, _root: &Oid, _secret: &BoundSecret) -> Option<TicketEnd> {
        None
    }

    fn bring(&self, _node: &NodeId, text: &[u8]) -> BringReply {
        BringReply { proved: (text == b"right").then_some((ROOT, plain(7))), outcome: self.1.clone() }
    }

    fn is_allowed(&self, _node: &NodeId, _oid: &Oid) -> bool {
        false
    }

    fn sign(&self, _message: &[u8]) -> [u8; 64] {
        [0; 64]
    }
}

#[test]
fn a_ticket_that_a_cache_takes_is_the_proof_of_its_secret() {
    let later = Err(Outcome::RetryLater(KEPT_WAIT));
    let bring = |text: &'static [u8]| Body::Bring(wire::WireBring { request: 1, ticket: text.into() });
    for (text, outcome, is_served) in
        [(&b"right"[..], Ok(()), true), (b"right", later, true), (b"wrong", Ok(()), false)]
    {
        let cache = Cache(Tickets::given(ROOT, plain(7), true), outcome.clone());
        let mut answering = Answering::new(NODE, [0; 32], Processors::default());
        let Ok(Taken::Refused(said)) = answering.take(bring(text), &cache) else { panic!("no answer") };
        assert_eq!(said.len(), if outcome.is_ok() { 1 } else { 2 }, "an outcome, and that it is over");
        assert_eq!(said.last(), Some(&Body::Done(RequestOnly { request: 1 })));
        assert_eq!(answering.is_known(), is_served);
        let refused = refusal(answering.take(get(2, vec![piece(&ROOT, 0)]), &cache));
        assert_eq!(refused.is_none(), is_served);
    }
    assert!(Keys.bring(&NODE, b"right").outcome.is_err(), "what is no cache says so");
}

/// A holder that lets so many bytes go.
struct Lends(Tickets, Mutex<u64>);

impl Issuer for Lends {
    fn secret(&self, _root: &Oid) -> Option<BoundSecret> {
        None
    }

    fn given(&self, root: &Oid) -> Vec<GivenSecret> {
        self.0.given(root)
    }

    fn pass_on(&self, _root: &Oid, _secret: &BoundSecret, bytes: u64) -> Result<(), Duration> {
        let mut left = self.1.lock().unwrap();
        *left = left.checked_sub(bytes).ok_or(KEPT_WAIT)?;
        Ok(())
    }

    fn is_allowed(&self, _node: &NodeId, _oid: &Oid) -> bool {
        false
    }

    fn sign(&self, _message: &[u8]) -> [u8; 64] {
        [0; 64]
    }
}

#[test]
fn what_is_passed_on_counts_when_its_turn_comes() {
    const PIECE: u64 = 256 << 10;
    let (store, live) = (Arc::new(MemoryStore::new()), Oid::Live([9; 32]));
    store.put_init(&live, &About::default()).unwrap();
    store.put_data(&live, &vec![7; 5 * PIECE as usize]).unwrap();
    let root = store.put_commit(&live).unwrap();
    let all = WireWant { count: 5, block: None, ..piece(&root, 0) };
    let run = WireWant { count: 0, offset: Some(5), len: 1000, ..all.clone() };
    let cases = [
        (vec![all.clone()], 9 * PIECE, 5, vec![]),
        (vec![all.clone()], 2 * PIECE, 2, vec![0]),
        (vec![run.clone(), all, run.clone()], PIECE + 1000, 2, vec![1, 2]),
        (vec![run], 0, 0, vec![0]),
    ];
    for (wants, lets, comes, ends) in cases {
        let lends = Arc::new(Lends(Tickets::given(root, plain(7), true), Mutex::new(lets)));
        let mut answering = stranger();
        let proof = Bytes::copy_from_slice(&plain(7).prove(&[5; 32], &NODE, &root));
        answering.take(Body::Prove(Prove { root: oid_field(&root), proof }), &*lends).unwrap();
        let asked = Body::Get(Get { request: 1, root: oid_field(&root), wants, ..Get::default() });
        let Ok(Taken::Answer(mut answer)) = answering.take(asked, &*lends) else { panic!("no answer") };
        assert_eq!(*lends.1.lock().unwrap(), lets, "nothing counts yet");
        let (shared, issuer) = (Arc::clone(&store) as Arc<dyn Store>, Arc::clone(&lends) as Arc<dyn Issuer>);
        let mut serving = Serving::new(Arc::new(Service::new(shared, issuer)), NODE);
        let (mut data, mut later) = (0, Vec::new());
        let mut look = |frame: Outgoing| match frame.header {
            Some(_) => data += 1,
            None => {
                if let Body::Outcome(outcome) = Body::from_frame(frame.body).unwrap() {
                    assert_eq!(outcome.outcome(), Outcome::RetryLater(KEPT_WAIT));
                    later.extend(outcome.want);
                }
            }
        };
        while answer.step(&mut serving, &mut look) != Step::Over {}
        assert_eq!((data, later), (comes, ends), "{lets} bytes");
    }
}
