//! Answers to questions about objects: what it is, which values prove it, and, while it is live,
//! what its node states of it.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::live::{MAX_VALUES, Statement};
use towpath_store::{Availability, Descriptors, State, StoreError};
use towpath_transfer::Outcome;

use super::service::{Talk, outcome_of, outcome_of_put};
use super::wire::{self, Body, Description, ProofOf, Stated, WireOutcome};

/// Values in one `Proof` message that answers a `Describe`.
const PROOF_RUN: u64 = 4096;
/// How often a follower looks whether its connection is still there.
const FOLLOW_TICK: Duration = Duration::from_millis(500);

/// Answers what an object is, once or for as long as it is live.
pub(super) fn answer_describe(talk: &Talk, question: &wire::Describe) {
    let result = talk.judge_question(question).and_then(|oid| describe(talk, question, &oid));
    if let Err(outcome) = result {
        talk.send(Body::Outcome(WireOutcome::new(question.request, None, &outcome)));
    }
}

fn describe(talk: &Talk, question: &wire::Describe, oid: &Oid) -> Result<(), Outcome> {
    let have = talk.store().have(oid).map_err(|error| outcome_of_put(talk, oid, &error))?;
    let size = (!oid.is_live()).then(|| have.layout.size());
    talk.send(Body::Description(Description::new(question.request, &have.about, size)));
    match (oid.is_live(), question.values_from) {
        (true, Some(from)) => follow(talk, question, oid, from),
        (false, Some(from)) => prove_values(talk, question, oid, &have, from),
        (_, None) => Ok(()),
    }
}

fn prove_values(
    talk: &Talk,
    question: &wire::Describe,
    oid: &Oid,
    have: &Availability,
    from: u64,
) -> Result<(), Outcome> {
    let end = question.values_to.min(have.layout.count());
    let mut first = from;
    while first < end && !talk.is_over(question.request) {
        let run = first..end.min(first + PROOF_RUN);
        let nodes =
            match talk.store().get_descriptors(oid, run.clone()).map_err(|error| outcome_of(&error))? {
                Descriptors::Proof(nodes) => nodes.into(),
                Descriptors::Values(_) => return Err(Outcome::NotHere),
            };
        let (request, count) = (question.request, run.end - run.start);
        talk.send(Body::Proof(ProofOf { request, want: None, first, count, nodes }));
        first = run.end;
    }
    Ok(())
}

/// Sends signed values of a live object as they come, and its binding at the end.
fn follow(talk: &Talk, question: &wire::Describe, object: &Oid, from: u64) -> Result<(), Outcome> {
    let mut first = from;
    loop {
        let version = talk.store().version(object);
        let have = talk.store().have(object).map_err(|error| outcome_of(&error))?;
        match have.state {
            State::Live { generation } => {
                let end = have.pieces.first().filter(|run| run.start == 0).map_or(0, |run| run.end);
                while first < end && !talk.is_over(question.request) {
                    first = send_values(talk, question, object, generation, first..end)?;
                }
            }
            State::Bound(content) => {
                let bound = talk.store().have(&content).map_err(|error| outcome_of(&error))?;
                let size = bound.layout.size();
                sign_and_send(talk, question.request, &Statement::Bound { object: *object, content, size });
                return Ok(());
            }
            _ => return Ok(()),
        }
        if !question.follow || talk.is_over(question.request) {
            return Ok(());
        }
        wait(talk, question.request, object, version);
    }
}

/// Blocks until the object changes or the peer no longer asks.
fn wait(talk: &Talk, request: u32, object: &Oid, seen: u64) {
    while !talk.is_over(request) && talk.store().wait_change(object, seen, FOLLOW_TICK) == seen {}
}

fn send_values(
    talk: &Talk,
    question: &wire::Describe,
    object: &Oid,
    generation: u64,
    run: Range<u64>,
) -> Result<u64, Outcome> {
    let run = run.start..run.end.min(run.start + MAX_VALUES as u64);
    let values = match talk.store().get_descriptors(object, run.clone()) {
        Ok(Descriptors::Values(values)) => values,
        // Bound in this very moment: the next round sees it.
        Ok(Descriptors::Proof(_)) | Err(StoreError::NotYet) => return Ok(run.end),
        Err(error) => return Err(outcome_of(&error)),
    };
    let statement = Statement::Values { object: *object, generation, first: run.start, values };
    sign_and_send(talk, question.request, &statement);
    Ok(run.end)
}

fn sign_and_send(talk: &Talk, request: u32, statement: &Statement) {
    let signature = talk.sign(&statement.message());
    let signature = Bytes::copy_from_slice(&signature);
    talk.send(Body::Stated(Stated { request, statement: statement.to_bytes().into(), signature }));
}

/// Tells which pieces can be had, now and whenever that changes.
pub(super) fn answer_watch(talk: &Talk, question: &wire::Describe) {
    let oid = match talk.judge_question(question) {
        Ok(oid) => oid,
        Err(outcome) => {
            talk.send(Body::Outcome(WireOutcome::new(question.request, None, &outcome)));
            return;
        }
    };
    let mut told = None;
    while !talk.is_over(question.request) {
        let version = talk.store().version(&oid);
        let Ok(have) = talk.store().have(&oid) else { return };
        if told.as_ref() != Some(&have.pieces) {
            let bounds = have.pieces.iter().flat_map(|run| [run.start, run.end]).collect();
            talk.send(Body::Have(wire::Have { request: question.request, bounds }));
        }
        told = Some(have.pieces);
        if !question.follow {
            return;
        }
        wait(talk, question.request, &oid, version);
    }
}
