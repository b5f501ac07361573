//! Parsers of `towpath-content`: tickets, names, trees, recipes, deltas.

use towpath_content::chunking::Parameters;
use towpath_content::codec::Reader;
use towpath_content::delta::exchange::{
    Base, DeltaRun, MAX_OUTLINED_LEN, NextSignature, REQUESTER_HOLDS, RESPONDER_HOLDS, Reply, Request,
    Requester, RequesterAction, Responder, ResponderAction, refine,
};
use towpath_content::delta::{self, CopyOps, Delta, Signature, Unmatched, refined_block_len};
use towpath_content::live::Statement;
use towpath_content::pieces::{self, Layout};
use towpath_content::ticket::BoundSecret;
use towpath_content::withdrawal::Withdrawal;
use towpath_content::{Hint, Oid, Ticket, tree};

use crate::input::{Source, noise};
use crate::seeds;

/// A ticket's line of text.
pub fn ticket(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(ticket) = text.parse::<Ticket>() {
        assert_eq!(ticket.to_string().parse(), Ok(ticket));
    }
}

/// An OID as people write it.
pub fn oid_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(oid) = text.parse::<Oid>() {
        assert_eq!(oid.to_string().parse(), Ok(oid));
    }
}

/// An OID in messages and files.
pub fn oid_binary(data: &[u8]) {
    if let Ok(oid) = Oid::from_bytes(data) {
        assert_eq!(oid.to_bytes(), data);
    }
}

/// A hint of a ticket of before.
pub fn hint(data: &[u8]) {
    let mut reader = Reader::new(data);
    if let Ok(hint) = Hint::decode(&mut reader) {
        // Neither part may panic, whatever the method is.
        let _ = (hint.scheme(), hint.rest());
    }
}

/// A statement about a live object.
pub fn live_statement(data: &[u8]) {
    if let Ok(statement) = Statement::from_bytes(data) {
        assert_eq!(statement.to_bytes(), data);
    }
}

/// The word that a ticket is over.
pub fn withdrawal(data: &[u8]) {
    if let Ok(withdrawal) = Withdrawal::from_bytes(data) {
        assert_eq!(withdrawal.to_bytes(), data);
    }
}

/// A secret and the terms that it is bound to, as the store keeps them.
pub fn bound_secret(data: &[u8]) {
    if let Ok(secret) = BoundSecret::from_bytes(data) {
        assert_eq!(secret.to_bytes(), data);
    }
}

/// A tree descriptor as it streams in.
pub fn tree_decoder(data: &[u8]) {
    let mut decoder = tree::Decoder::new();
    let mut rest = data;
    loop {
        let taken = decoder.feed(rest);
        rest = &rest[taken..];
        let mut events = 0;
        while let Ok(Some(_)) = decoder.next_event() {
            events += 1;
        }
        if rest.is_empty() || taken == 0 && events == 0 {
            break;
        }
    }
    let _ = decoder.finish();
}

/// One block of a tree descriptor, which a service consults for rights.
pub fn tree_block(data: &[u8]) {
    let _ = tree::oids_in_block(data);
}

/// Parameters by which an object is cut.
pub fn chunking_parameters(data: &[u8]) {
    if let Ok(parameters) = Parameters::from_bytes(data) {
        assert_eq!(parameters.to_bytes(), data);
        let is_cut = parameters != Parameters::Given;
        assert_eq!(parameters.chunker().is_ok(), is_cut, "parameters that were taken can be used");
    }
}

/// A delta, applied to bases and for lengths that it may or may not go with.
pub fn delta(data: &[u8]) {
    let Ok(delta) = Delta::from_bytes(data) else { return };
    assert_eq!(delta.to_bytes(), data);
    for (base, expected) in
        [(&[][..], 0), (data, data.len()), (&seeds::content::base(), seeds::content::target().len())]
    {
        if let Ok(target) = delta.apply(base, expected) {
            assert_eq!(target.len(), expected);
        }
    }
}

/// A signature, and the delta that is made with it although its sums may lie.
pub fn delta_signature(data: &[u8]) {
    let Ok(signature) = Signature::from_bytes(data) else { return };
    assert_eq!(signature.to_bytes(), data);
    for target in [data, &seeds::content::target()] {
        let delta = delta::diff(&signature, target).expect("a target in the limits");
        assert_eq!(Delta::from_bytes(&delta.to_bytes()), Ok(delta.clone()));
        let made = delta.apply(&vec![0; signature.region_len()], target.len());
        assert_eq!(made.map(|made| made.len()), Ok(target.len()));
    }
}

/// An outline, what it leaves of regions that it may or may not be of, and the delta it becomes.
pub fn delta_outline(data: &[u8]) {
    let Ok(outline) = CopyOps::from_bytes(data) else { return };
    assert_eq!(outline.to_bytes(), data);
    let (literals, runs) = (outline.literals(), outline.runs());
    for (len, count) in [(literals, runs), (runs, literals), (1 << 24, 0)] {
        let block = refined_block_len(len, count, outline.block_len(), 16 << 10);
        assert!(block.is_power_of_two() && block >= delta::MIN_BLOCK_LEN);
    }
    let base = seeds::content::base();
    for region in
        [0, 1, 63, data.len(), base.len(), 1 << 16, delta::MAX_REGION_LEN, delta::MAX_REGION_LEN + 1]
    {
        rests_of(&outline, region);
    }
    makes_what_it_came_from(outline, &base);
}

/// Nothing is left twice, nor anything that is not there.
fn rests_of(outline: &CopyOps, region: usize) {
    let Ok(rest) = Unmatched::whole(region).without(outline) else { return };
    assert!(rest.len() <= region);
    if region <= 1 << 16 {
        assert_eq!(rest.bytes(&vec![7; region]).len(), rest.len());
    }
    for reach in [0, 1, outline.block_len() as usize, usize::MAX / 2] {
        let edges = rest.edges(reach);
        assert!(edges.len() <= rest.len());
        assert_eq!(edges.edges(usize::MAX / 2), edges);
        if let Ok(left) = edges.without(outline) {
            assert!(left.len() <= edges.len());
        }
    }
}

/// With literals it is a delta, of whose target it tells the literals again.
fn makes_what_it_came_from(outline: CopyOps, base: &[u8]) {
    let literals = outline.literals();
    if literals > 1 << 16 {
        return;
    }
    let literals: Vec<u8> = (0..literals).map(|at| at as u8).collect();
    assert!(outline.clone().with(vec![0; literals.len() + 1]).is_err());
    let delta = outline.clone().with(literals.clone()).expect("as many as it takes");
    assert_eq!(Delta::from_bytes(&delta.to_bytes()), Ok(delta.clone()));
    let copied = delta.ops().iter().map(|op| op.count as usize * outline.block_len() as usize).sum::<usize>();
    let longest = literals.len() + copied;
    for len in longest.saturating_sub(outline.block_len() as usize)..=longest.min(1 << 17) {
        if let Ok(target) = delta.apply(base, len) {
            assert_eq!(outline.literals_of(&target, base.len()), Ok(literals));
            return;
        }
    }
}

/// Outlines of a part, the literals of the last one as a delta, and the part that they are of: with its length and
/// that of what they make.
pub fn delta_refine(data: &[u8]) {
    let mut source = Source::new(data);
    let outlines: Vec<Vec<u8>> = (0..source.below(4)).map(|_| source.run().to_vec()).collect();
    let further = source.number() as usize;
    let (len, delta) = (source.number(), source.run());
    let base = [&seeds::content::base(), noise(source.below(1 << 16) as usize)].concat();
    for base in [&base[..], &seeds::content::base(), source.rest()] {
        for further in [0, 1, further] {
            if let Some(signature) = refine::sign(&outlines, base, further) {
                let signed = Signature::from_bytes(&signature).expect("a signature");
                assert!(signed.region_len() <= base.len());
            }
        }
        if let Some(made) = refine::apply(&outlines, delta, base, len) {
            assert_eq!(made.len() as u64, len);
        }
    }
}

/// A message of the exchange of a delta, of each type that it may be.
pub fn delta_exchange(data: &[u8]) {
    if let Ok(message) = Request::from_bytes(data) {
        assert_eq!(message.to_bytes(), data);
        assert!(message.base.ahead() <= 16);
        let file = seeds::content::target();
        let by_steps = Responder::of_step(message.clone(), file.len() as u64);
        let responder = Responder::new(message, &Oid::of(&file), file.len() as u64);
        by_steps.into_iter().chain([responder]).for_each(|responder| respond(responder, &file, data));
    }
    if let Ok(message) = NextSignature::from_bytes(data) {
        assert_eq!(message.to_bytes(), data);
    }
    if let Ok(message) = Reply::from_bytes(data) {
        assert_eq!(message.to_bytes(), data);
    }
    if let Ok(message) = DeltaRun::from_bytes(data) {
        assert_eq!(message.to_bytes(), data);
        assert!(message.wanted() <= 2);
    }
}

/// A responder that has this file, and whose requester sends the same bytes as each of its signatures.
fn respond(mut responder: Responder, file: &[u8], signature: &[u8]) {
    loop {
        assert!(responder.held() <= RESPONDER_HOLDS);
        match responder.poll() {
            ResponderAction::End => break,
            ResponderAction::Reply(_) | ResponderAction::Send(_) => {}
            ResponderAction::Read(range) => {
                let bytes = file.get(range.start as usize..range.end as usize).map(<[u8]>::to_vec);
                responder.read(bytes);
            }
            ResponderAction::FindBase(_) => responder.found(Some(file.len() as u64)),
            ResponderAction::MakePatches(_) => drop(responder.patched(Some(vec![1; 9]))),
            ResponderAction::Pack(_) => responder.packed(None, true),
            ResponderAction::AwaitSignature => {
                responder.signature(NextSignature::Signed(signature.to_vec()));
            }
        }
    }
}

/// A requester whose responder sends these messages: its request, the file's bytes, a reply, and then runs.
pub fn delta_requester(data: &[u8]) {
    let mut source = Source::new(data);
    let base = seeds::content::base();
    let Ok(request) = Request::from_bytes(source.run()) else { return };
    let named = matches!(request.base, Base::Named(_));
    let mut requester = Requester::new(&request, base.len() as u64);
    let size = source.number() % (1 << 25);
    let Ok(reply) = Reply::from_bytes(source.run()) else { return };
    if requester.recv_reply(reply, size).is_err() {
        return;
    }
    let mut made = 0;
    while work(&mut requester, &base, &mut made) && !source.is_empty() {
        let Ok(run) = DeltaRun::from_bytes(source.run()) else { return };
        if requester.recv_run(run, named).is_err() {
            return;
        }
        assert!(requester.held() <= REQUESTER_HOLDS);
    }
    assert!(made <= size);
}

/// Does all that a requester says; false: it is over.
fn work(requester: &mut Requester, base: &[u8], made: &mut u64) -> bool {
    loop {
        assert!(requester.held() <= REQUESTER_HOLDS);
        match requester.poll() {
            RequesterAction::Wait => return true,
            RequesterAction::End(_) => return false,
            RequesterAction::Read(range) => {
                let bytes = base.get(range.start as usize..range.end as usize).map(<[u8]>::to_vec);
                requester.read(bytes);
            }
            RequesterAction::Unpack { packed, .. } => {
                let unpacked = packed.get(1..).map(<[u8]>::to_vec);
                requester.unpacked(unpacked);
            }
            RequesterAction::ApplyPatch { patch, base, len } => {
                let part = delta::patch::apply(patch, base, len as usize).ok();
                requester.patched(part);
            }
            RequesterAction::Send(NextSignature::Signed(signature)) => {
                if let Some(request) = requester.ask_anew(signature) {
                    assert_eq!(Request::from_bytes(&request.to_bytes()), Ok(request));
                }
            }
            RequesterAction::Send(NextSignature::GivenUp) => {}
            RequesterAction::Write { bytes, came, .. } => {
                assert!(came <= (MAX_OUTLINED_LEN + (18 << 20)) as u64);
                *made += bytes.len() as u64;
            }
        }
    }
}

/// Runs longer than this are proved by the same code, and only take longer.
const MOST_PROVED: u64 = 1 << 12;

/// A proof of a run of pieces: object, how it is cut, which run, and then the proof.
pub fn piece_proof(data: &[u8]) {
    let mut source = Source::new(data);
    let mut root = [0; 32];
    let told = source.run();
    root[..told.len().min(32)].copy_from_slice(&told[..told.len().min(32)]);
    let (is_live, size) = (source.byte() == 1, source.number());
    let Ok(layout) = (if is_live { Layout::live(size) } else { Layout::of(size) }) else { return };
    assert!(layout.count() <= pieces::MAX_COUNT);
    assert_eq!((layout.range(0).start, layout.range(layout.count() - 1).end), (0, size));
    let (first, last) = (source.number(), source.number());
    let (run, proof) = (first..first.saturating_add(last % MOST_PROVED), source.rest());
    let verified = pieces::verify(&root, &layout, run.clone(), proof);
    let is_inside = run.start < run.end && run.end <= layout.count();
    if !is_inside {
        return assert!(verified.is_err());
    }
    let expected = pieces::proof_len(&layout, &run);
    // Both ways down to the run, and the run itself.
    assert!(expected <= pieces::VALUE_LEN * ((run.end - run.start) as usize + 2 * 20));
    let Ok(values) = verified else { return };
    assert_eq!((values.len() as u64, proof.len()), (run.end - run.start, expected));
    let mut changed = proof.to_vec();
    changed[size as usize % proof.len()] ^= 1;
    assert!(pieces::verify(&root, &layout, run, &changed).is_err());
}
