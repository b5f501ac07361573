//! Rules of descriptors: what an object is, and proofs of its pieces.

use std::ops::Range;

use tokio::sync::mpsc;

use super::*;
use towpath_transfer::claim::RecipeReader;
use towpath_transfer::source::{Description, Query};
use towpath_transfer::want::Outcome;

pub(super) fn rules() -> Vec<SeamRule> {
    vec![
        SeamRule {
            words: "a question about an object is answered by what it is, first and once",
            sizes: &[5 * PIECE + 1, 0, 1, PIECE],
            needs: None,
            check: |bench| Box::pin(described(bench)),
        },
        SeamRule {
            words: "proofs that are asked for come, lie within the object and lead to its OID",
            sizes: &[9 * PIECE + 1],
            needs: Some(Ability::Prove),
            check: |bench| Box::pin(proved(bench)),
        },
        SeamRule {
            words: "a source that proves nothing, asked for values, says what the object is, and tells no wrong ones",
            sizes: &[9 * PIECE + 1],
            needs: Some(Ability::ProveNothing),
            check: |bench| Box::pin(without_values(bench)),
        },
        SeamRule {
            words: "objects that end at a border of pieces are described, proved and delivered, the empty one too",
            sizes: &[0, 2 * PIECE - 1, 2 * PIECE, 2 * PIECE + 1, 4 * PIECE, 4 * PIECE + 1, 8 * PIECE - 1],
            needs: None,
            check: |bench| Box::pin(borders(bench)),
        },
        SeamRule {
            words: "questions about what is not known end with an outcome, unanswered",
            sizes: &[1],
            needs: None,
            check: |bench| Box::pin(unknown(bench)),
        },
        SeamRule {
            words: "a recipe that is asked for comes whole and in order, or not at all",
            sizes: &[9 * PIECE + 1],
            needs: None,
            check: |bench| Box::pin(recipe(bench)),
        },
        SeamRule {
            words: "nobody need listen to the answers",
            sizes: &[9 * PIECE],
            needs: None,
            check: |bench| Box::pin(unheard(bench)),
        },
    ]
}

impl Bench {
    pub(super) async fn ask(
        &self,
        oid: Oid,
        proofs: Option<Range<u64>>,
    ) -> (Vec<Description>, Result<(), Outcome>) {
        self.put(Query { proofs, ..Query::about(oid) }).await
    }

    pub(super) async fn put(&self, query: Query) -> (Vec<Description>, Result<(), Outcome>) {
        let (answers, mut inbox) = mpsc::channel(1);
        let listen = async {
            let mut all = Vec::new();
            while let Some(answer) = inbox.recv().await {
                all.push(answer);
            }
            all
        };
        let asking = self.subject.source.describe(query, &self.subject.context, answers);
        let (result, all) = tokio::join!(asking, listen);
        (all, result)
    }
}

/// Checks that `answer` describes an object of these bytes.
fn expect_object(answer: Option<&Description>, data: &[u8]) {
    match answer {
        Some(Description::Object { layout, .. }) => assert_eq!(*layout, Some(layout_of(data))),
        other => panic!("the first answer is {other:?}"),
    }
}

async fn described(bench: Bench) {
    // The first object is the one that every right covers.
    let data = &bench.objects[0];
    let (answers, result) = bench.ask(Oid::of(data), None).await;
    assert_eq!(result, Ok(()));
    assert_eq!(answers.len(), 1, "{answers:?}");
    expect_object(answers.first(), data);
    for data in &bench.objects[1..] {
        let (answers, result) = bench.ask(Oid::of(data), None).await;
        assert_eq!(result, Ok(()));
        expect_object(answers.first(), data);
    }
}

async fn proved(bench: Bench) {
    for requested in [0..10, 0..1, 9..10, 3..7, 0..u64::MAX] {
        prove(&bench, &bench.objects[0], requested).await;
    }
}

async fn without_values(bench: Bench) {
    let data = &bench.objects[0];
    for requested in [0..10, 3..7] {
        let (answers, result) = bench.ask(Oid::of(data), Some(requested)).await;
        match result {
            Ok(()) => expect_object(answers.first(), data),
            Err(outcome) => assert!(matches!(outcome, Outcome::NotHere | Outcome::Refused(_)), "{outcome:?}"),
        }
        for answer in answers.iter().skip(1) {
            let Description::Proof(proof) = answer else { panic!("{answer:?} is no proof") };
            let values =
                pieces::verify(Oid::of(data).digest(), &layout_of(data), proof.run.clone(), &proof.nodes);
            assert!(values.is_ok(), "{:?}: {values:?}", proof.run);
        }
    }
}

/// Asks for the proofs of these pieces, and checks them.
async fn prove(bench: &Bench, data: &[u8], requested: Range<u64>) {
    let (oid, layout) = (Oid::of(data), layout_of(data));
    let (answers, result) = bench.ask(oid, Some(requested.clone())).await;
    assert_eq!(result, Ok(()), "{requested:?}");
    expect_object(answers.first(), data);
    let mut proved = vec![false; layout.count() as usize];
    for answer in &answers[1..] {
        let Description::Proof(proof) = answer else { panic!("{answer:?} is no proof") };
        let values = pieces::verify(oid.digest(), &layout, proof.run.clone(), &proof.nodes);
        let found = proof.run.clone().map(|index| layout.value(index, piece(data, &layout, index)));
        assert_eq!(values, Ok(found.collect()), "{:?} of {requested:?}", proof.run);
        proof.run.clone().for_each(|index| proved[index as usize] = true);
    }
    let missing = (requested.start..requested.end.min(layout.count())).find(|&index| !proved[index as usize]);
    assert_eq!(missing, None, "of {requested:?}");
}

async fn borders(bench: Bench) {
    for (data, first) in bench.objects.iter().zip((1..).step_by(100)) {
        let last = layout_of(data).count() - 1;
        if bench.subject.can(Ability::Prove) {
            prove(&bench, data, last..last + 1).await;
        } else {
            let (answers, result) = bench.ask(Oid::of(data), None).await;
            assert_eq!(result, Ok(()));
            expect_object(answers.first(), data);
        }
        let wants = vec![want(first, data, last), want(first + 1, data, 0)];
        let record = bench.get(wants.clone()).await;
        bench.expect_all(&record, &wants);
    }
}

async fn recipe(bench: Bench) {
    let data = &bench.objects[0];
    let (oid, size) = (Oid::of(data), data.len() as u64);
    let query = Query { proofs: Some(0..10), recipe: true, ..Query::about(oid) };
    let (answers, result) = bench.put(query).await;
    let is_none = matches!(result, Err(Outcome::NotHere | Outcome::Refused(_)));
    assert!(result == Ok(()) || is_none, "{result:?}");
    if !answers.is_empty() {
        expect_object(answers.first(), data);
    }
    let mut reader = RecipeReader::new(oid, size);
    for answer in answers.into_iter().skip(1) {
        match answer {
            Description::Recipe(part) => {
                assert!(!part.maker.kind().is_empty(), "a recipe names its maker");
                reader.take(part).expect("a good part of the recipe");
            }
            Description::Proof(_) => {}
            other => panic!("{other:?} was not asked for"),
        }
    }
    let Some(claim) = reader.finish().expect("a whole recipe") else { return };
    assert!(claim.builds(size));
    for chunk in claim.chunks {
        let bytes = &data[chunk.offset as usize..][..chunk.len as usize];
        assert_eq!(*Oid::of(bytes).digest(), chunk.hash);
    }
}

async fn unknown(bench: Bench) {
    for oid in [Oid::of(b"nobody ever put this"), Oid::Live([9; 32])] {
        let (answers, result) = bench.ask(oid, Some(0..1)).await;
        assert_eq!(answers, []);
        // A source that guards objects by rights does not tell what is here.
        assert!(matches!(result, Err(Outcome::NotHere | Outcome::Refused(_))), "{result:?}");
    }
}

async fn unheard(bench: Bench) {
    let (answers, inbox) = mpsc::channel(1);
    drop(inbox);
    let oid = Oid::of(&bench.objects[0]);
    let query = Query { proofs: Some(0..9), follow: true, recipe: true, ..Query::about(oid) };
    // Any result is right.
    let _ = bench.subject.source.describe(query, &bench.subject.context, answers).await;
    let (answers, result) = bench.ask(Oid::of(&bench.objects[0]), None).await;
    assert_eq!((answers.len(), result), (1, Ok(())));
}
