//! Requests: what is kept of them, and which are refused.

mod cancelling;
mod entries;
mod tickets;

use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use towpath_content::delta::exchange::{Base, Request};
use towpath_content::ticket::{BoundSecret, Secret};

use super::super::wire::{Describe, Prove, oid_field};
use super::*;

const ROOT: Oid = Oid::Blake3([3; 32]);
const OFFERED: Oid = Oid::Blake3([4; 32]);
const NODE: NodeId = NodeId([1; 32]);
const SECRET: Secret = Secret([7; 16]);

/// Has a ticket for one object, and offers another one.
struct Keys;

impl Issuer for Keys {
    fn secret(&self, root: &Oid) -> Option<BoundSecret> {
        (*root == ROOT).then_some(SECRET.into())
    }

    fn is_allowed(&self, _node: &NodeId, oid: &Oid) -> bool {
        *oid == OFFERED
    }

    fn sign(&self, _message: &[u8]) -> [u8; 64] {
        [0; 64]
    }
}

/// Memory that tells when it is no longer held.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Messages as they are received: each shares memory with much else.
#[derive(Default)]
struct Received(Arc<AtomicUsize>);

impl Received {
    fn read(&self, body: Body) -> Body {
        self.0.fetch_add(1, Ordering::Relaxed);
        let frame = body.to_frame();
        let buffer = [&frame[..], &[0; 100_000]].concat();
        let buffer = Bytes::from_owner(Counted(buffer, Arc::clone(&self.0)));
        Body::from_frame(buffer.slice(..frame.len())).unwrap()
    }

    fn held(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn stranger() -> Answering {
    Answering::new(NODE, [5; 32], Processors::default())
}

/// Somebody who proved a root.
fn guest() -> Answering {
    let mut answering = stranger();
    let proof = Bytes::copy_from_slice(&SECRET.prove(&[5; 32], &NODE, &ROOT));
    let taken = answering.take(Body::Prove(Prove { root: oid_field(&ROOT), proof }), &Keys);
    assert!(matches!(taken, Ok(Taken::Nothing)) && answering.is_known());
    answering
}

fn get(request: u32, wants: Vec<WireWant>) -> Body {
    Body::Get(Get { request, root: oid_field(&ROOT), wants, ..Get::default() })
}

fn piece(oid: &Oid, first: u64) -> WireWant {
    WireWant { oid: oid_field(oid), block: Some(9000), first, count: 1, ..WireWant::default() }
}

/// As long as a `Get` may be.
fn long(request: u32) -> Body {
    let want = WireWant { count: 0, chunk: Bytes::from(vec![1; 1000]), ..piece(&ROOT, 0) };
    get(request, vec![want; MAX_WANTS])
}

fn questions(request: u32) -> [Body; 3] {
    let describe = Describe { request, root: oid_field(&ROOT), oid: oid_field(&ROOT), ..Describe::default() };
    [get(request, vec![piece(&ROOT, 0)]), Body::Describe(describe.clone()), Body::Watch(describe)]
}

fn code(taken: Result<Taken, String>) -> Option<u32> {
    match taken.unwrap() {
        Taken::Refused(messages) => match &messages[messages.len() - 2..] {
            [Body::Outcome(outcome), Body::Done(_)] => Some(outcome.code),
            _ => panic!("another refusal"),
        },
        Taken::Answer(_) => None,
        _ => panic!("neither an answer nor a refusal"),
    }
}

#[test]
fn nothing_is_kept_of_what_a_stranger_asks_for_and_soon_it_leaves() {
    for kind in 0..4 {
        let (mut answering, received) = (stranger(), Received::default());
        let ask = |request| match kind {
            3 => long(request),
            kind => questions(request)[kind].clone(),
        };
        for request in 0..MOST_REFUSALS as u32 {
            assert_eq!(code(answering.take(received.read(ask(request)), &Keys)), Some(5));
            assert_eq!((received.held(), answering.kept()), (0, 0));
        }
        assert!(answering.take(received.read(ask(99)), &Keys).is_err());
        assert!(!answering.is_known());
    }
}

#[test]
fn a_wrong_proof_and_nonsense_make_nobody_known() {
    let mut answering = stranger();
    let proof = Bytes::copy_from_slice(&Secret([8; 16]).prove(&[5; 32], &NODE, &ROOT));
    answering.take(Body::Prove(Prove { root: oid_field(&ROOT), proof }), &Keys).unwrap();
    assert_eq!(code(answering.take(get(1, vec![piece(&ROOT, 0)]), &Keys)), Some(5));
    assert_eq!(code(answering.take(get(2, Vec::new()), &Keys)), Some(5));
    let nonsense = Get { request: 3, root: Bytes::from_static(b"?"), ..Get::default() };
    assert_eq!(code(answering.take(Body::Get(nonsense), &Keys)), Some(5));
    assert!(!answering.is_known());
}

#[test]
fn what_is_kept_is_counted_and_lies_in_memory_of_its_own() {
    let (mut answering, received) = (guest(), Received::default());
    let mut answers = Vec::new();
    for (number, body) in questions(1).into_iter().enumerate() {
        let body = match received.read(body) {
            Body::Get(get) => Body::Get(Get { request: number as u32, ..get }),
            Body::Describe(question) => Body::Describe(Describe { request: number as u32, ..question }),
            Body::Watch(question) => Body::Watch(Describe { request: number as u32, ..question }),
            _ => panic!(),
        };
        answers.push(answering.take(body, &Keys).unwrap());
    }
    assert_eq!(received.held(), 0, "the answers are there still: {}", answers.len());
    assert!((3 * OVERHEAD..3 * OVERHEAD + 100).contains(&answering.kept()), "{}", answering.kept());
}

#[test]
fn what_is_more_than_a_connection_may_keep_is_to_be_asked_for_later() {
    let (mut answering, received) = (guest(), Received::default());
    assert_eq!(
        code(answering.take(received.read(long(1)), &Keys)),
        None,
        "the only one may be as long as any"
    );
    for request in 2..200 {
        assert_eq!(code(answering.take(received.read(long(request)), &Keys)), Some(2));
        assert!(answering.kept() <= MOST_KEPT + (64 << 10) && received.held() == 0, "{}", answering.kept());
    }
    answering.end(1);
    assert_eq!(answering.kept(), 0);
    assert_eq!(code(answering.take(received.read(long(2)), &Keys)), None);
}

/// A session has 16 calls of 256 wants under way, or 4 MiB of chunks in one with some signatures; and questions.
#[test]
fn what_an_honest_client_asks_for_at_once_is_kept() {
    let mut answering = guest();
    for request in 0..16 {
        let wants =
            (0..256).map(|at| WireWant { offset: Some(1 << 43), len: 1 << 20, count: 0, ..piece(&ROOT, at) });
        let mut wants: Vec<_> = wants.map(|want| WireWant { first: 0, ..want }).collect();
        for want in wants.iter_mut().take(4) {
            let base = Base::Signature(vec![1; 8 << 10]);
            want.base = Request { base, is_guess: false, outlines: 0 }.to_bytes().into();
        }
        assert_eq!(code(answering.take(get(request, wants), &Keys)), None, "{request}");
    }
    for request in 16..64 {
        assert_eq!(code(answering.take(questions(request)[1].clone(), &Keys)), None, "{request}");
    }
}

#[test]
fn a_node_that_is_allowed_something_is_no_stranger() {
    let mut answering = stranger();
    assert_eq!(code(answering.take(get(1, vec![piece(&ROOT, 0)]), &Keys)), Some(5));
    // One that it may have is enough; each is judged when it is answered.
    assert_eq!(code(answering.take(get(2, vec![piece(&ROOT, 0), piece(&OFFERED, 0)]), &Keys)), None);
    let chunk = WireWant { chunk: Bytes::copy_from_slice(OFFERED.digest()), count: 1, ..WireWant::default() };
    assert_eq!(code(answering.take(get(3, vec![chunk]), &Keys)), None);
    assert!(answering.is_known());
    for request in 4..100 {
        assert_eq!(code(answering.take(get(request, vec![piece(&ROOT, 0)]), &Keys)), Some(5));
    }
}

#[test]
fn a_number_under_way_is_not_used_again_by_what_is_refused() {
    let mut answering = stranger();
    assert_eq!(code(answering.take(get(1, vec![piece(&OFFERED, 0)]), &Keys)), None);
    let error = answering.take(get(1, vec![piece(&ROOT, 0)]), &Keys).err().unwrap();
    assert!(error.contains("number of a request that is under way"), "{error}");
}
