//! Rules of asking: what is wanted comes, whole and provable, each want once.

use std::collections::HashSet;

use super::*;
use towpath_transfer::source_id::SourceId;
use towpath_transfer::want::{Origin, Outcome};

pub(super) fn rules() -> Vec<SeamRule> {
    vec![
        SeamRule {
            words: "objects of every shape are delivered with all that is needed to check them",
            sizes: &[0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 7],
            needs: None,
            check: |bench| Box::pin(shapes(bench)),
        },
        SeamRule {
            words: "wants of several objects in one call each end once",
            sizes: &[3 * PIECE, 0, 10, 2 * PIECE + 1, PIECE],
            needs: None,
            check: |bench| Box::pin(together(bench)),
        },
        SeamRule {
            words: "single pieces are delivered in any order, and again when asked again",
            sizes: &[4 * PIECE + 1],
            needs: None,
            check: |bench| Box::pin(any_order(bench)),
        },
        SeamRule {
            words: "what is not known here is not here, and does not keep from the rest",
            sizes: &[PIECE + 1],
            needs: None,
            check: |bench| Box::pin(unknown(bench)),
        },
        SeamRule {
            words: "a piece that the object does not have ends without a delivery that passes the check",
            sizes: &[2 * PIECE],
            needs: None,
            check: |bench| Box::pin(outside(bench)),
        },
        SeamRule {
            words: "of chunks that lie in an object what comes is right, and each ends",
            sizes: &[5 * PIECE + 7, 100],
            needs: None,
            check: |bench| Box::pin(chunks(bench)),
        },
        SeamRule {
            words: "a call for nothing returns",
            sizes: &[1],
            needs: None,
            check: |bench| Box::pin(nothing(bench)),
        },
        SeamRule {
            words: "the source has a name and takes at least something at a time",
            sizes: &[1],
            needs: None,
            check: |bench| Box::pin(manners(bench)),
        },
    ]
}

async fn shapes(bench: Bench) {
    for data in &bench.objects {
        let wants = wants(std::slice::from_ref(data), 1);
        let record = bench.get(wants.clone()).await;
        bench.expect_all(&record, &wants);
    }
}

async fn together(bench: Bench) {
    let mut wants = wants(&bench.objects, 1);
    wants.sort_by_key(|want| want.tag % 3);
    let record = bench.get(wants.clone()).await;
    bench.expect_all(&record, &wants);
}

async fn any_order(bench: Bench) {
    for (index, tag) in [4, 0, 2, 2, 1, 3, 4].into_iter().zip(1..) {
        let wants = vec![want(tag, &bench.objects[0], index)];
        let record = bench.get(wants.clone()).await;
        bench.expect_all(&record, &wants);
    }
}

async fn unknown(bench: Bench) {
    let mut wants = wants(&bench.objects, 1);
    let good = wants.clone();
    wants.insert(1, want(50, b"nobody ever put this", 0));
    wants.insert(0, want(51, &pattern(2 * PIECE, 99), 1));
    let record = bench.get(wants).await;
    bench.expect_all(&record, &good);
    for tag in [50, 51] {
        let end = record.outcomes_of(tag);
        // A source that guards objects by rights does not tell what is here.
        let is_right = matches!(end[..], [Outcome::NotHere | Outcome::Refused(_)]);
        assert!(is_right && record.deliveries_of(tag).is_empty(), "want {tag} ended so: {end:?}");
    }
}

async fn outside(bench: Bench) {
    // As an object of three pieces would be requested, if its size were taken from a stranger.
    let layout = Layout::of(3 * PIECE as u64).expect("small");
    let mut odd = want(1, &bench.objects[0], 0);
    odd.id = WantId::Piece { oid: Oid::of(&bench.objects[0]), layout, index: 2 };
    let record = bench.get(vec![odd.clone()]).await;
    let passing = record.deliveries_of(1).iter().filter(|delivery| bench.passes(&odd, delivery)).count();
    assert_eq!(passing, 0);
    assert!(record.ends(1) >= 1, "the want has not ended");
}

async fn chunks(bench: Bench) {
    let (data, small) = (&bench.objects[0], &bench.objects[1]);
    let spans =
        [0..1, 5..1000, PIECE - 10..PIECE + 10, PIECE..2 * PIECE, 100..3 * PIECE, 5 * PIECE..5 * PIECE + 7];
    let mut wants: Vec<Want> = (1..).zip(&spans).map(|(tag, span)| chunk(tag, data, span.clone())).collect();
    wants.push(chunk(20, data, 0..data.len()));
    wants.push(chunk(21, small, 10..90));
    // Between pieces, and where none is.
    wants.insert(2, want(30, data, 1));
    let good = wants.clone();
    let mut beyond = chunk(40, data, 0..PIECE);
    let mut elsewhere = chunk(41, data, 0..PIECE);
    beyond.origin = Some(Origin { oid: Oid::of(data), offset: 5 * PIECE as u64 });
    elsewhere.origin = Some(Origin { oid: Oid::of(b"nobody ever put this"), offset: 0 });
    let unlocated = Want { origin: None, ..chunk(42, data, 1..PIECE) };
    let bad = [beyond, elsewhere, unlocated];
    wants.extend(bad.clone());
    let record = bench.get(wants).await;
    for want in good {
        let (deliveries, outcomes) = (record.deliveries_of(want.tag), record.outcomes_of(want.tag));
        let is_left = matches!(outcomes[..], [Outcome::NotHere | Outcome::Refused(_)]);
        assert!(deliveries.is_empty() == is_left, "{:?} ended so: {outcomes:?}", want.id);
        assert!(deliveries.iter().all(|delivery| bench.passes(&want, delivery)), "{:?}", want.id);
    }
    for want in bad {
        assert!(record.ends(want.tag) >= 1, "{:?} has not ended", want.origin);
    }
}

async fn nothing(bench: Bench) {
    let record = bench.get(Vec::new()).await;
    assert_eq!(record.tags(), HashSet::new());
}

async fn manners(bench: Bench) {
    let source = &bench.subject.source;
    assert!(!source.name().is_empty());
    assert!(source.state().window > 0, "a window of nothing lets nothing be asked");
    // Neither may do harm.
    source.report_corrupt(&SourceId::other("somebody else", None));
    source.cancel(&[]);
    source.cancel(&[1, 2, 3]);
    assert_eq!(source.state().trouble, None, "nothing is in the way");
}
