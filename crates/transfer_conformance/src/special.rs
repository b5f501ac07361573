//! Rules of wants that say more than their content: a part of a piece, a base, the same piece under two tags.

use towpath_content::delta::Signature;
use towpath_content::delta::exchange::{Base, Request};

use super::*;
use towpath_transfer::want::{Payload, SignedBase};

/// Bytes of a block of a base's signature.
const BLOCK: u32 = 512;

pub(super) fn rules() -> Vec<SeamRule> {
    vec![
        SeamRule {
            words: "of a piece of which a part is missing comes that part or all of it",
            sizes: &[3 * PIECE + 7],
            needs: None,
            check: |bench| Box::pin(parts(bench)),
        },
        SeamRule {
            words: "a base is made use of or left out: what comes is right, and each want ends",
            sizes: &[4 * PIECE],
            needs: None,
            check: |bench| Box::pin(bases(bench)),
        },
        SeamRule {
            words: "what is wanted undivided comes as one source brought it",
            sizes: &[3 * PIECE + 7],
            needs: None,
            check: |bench| Box::pin(undivided(bench)),
        },
        SeamRule {
            words: "one piece that is wanted under two tags is delivered under both",
            sizes: &[2 * PIECE + 1],
            needs: None,
            check: |bench| Box::pin(two_tags(bench)),
        },
    ]
}

async fn parts(bench: Bench) {
    let data = &bench.objects[0];
    let layout = layout_of(data);
    let spans =
        [(0, 10..1000), (1, PIECE as u64 - 1..PIECE as u64), (2, 0..1), (3, 0..7), (0, 0..PIECE as u64)];
    let of =
        |(tag, (index, part)): (Tag, (u64, Range<u64>))| Want { part: Some(part), ..want(tag, data, index) };
    let wants: Vec<Want> = (1..).zip(spans).map(of).collect();
    let record = bench.get(wants.clone()).await;
    for want in wants {
        let (deliveries, outcomes) = (record.deliveries_of(want.tag), record.outcomes_of(want.tag));
        assert!(!deliveries.is_empty() && outcomes.is_empty(), "{:?} ended so: {outcomes:?}", want.part);
        let (WantId::Piece { index, .. }, Some(part)) = (want.id, want.part.clone()) else { continue };
        let expected = &piece(data, &layout, index)[part.start as usize..part.end as usize];
        for delivery in deliveries {
            let is_part = *delivery.payload.to_bytes(expected.len() as u64) == *expected;
            assert!(
                is_part || bench.passes(&want, &delivery),
                "{part:?} of piece {index}: neither it nor all"
            );
        }
    }
}

/// A base of these bytes, with its signature.
fn base(bytes: Vec<u8>, target: usize) -> Option<Arc<SignedBase>> {
    let signature = Signature::of(&bytes, BLOCK, target).ok()?.to_bytes();
    let request = Request { base: Base::Signature(signature), is_guess: false, outlines: 2 };
    Some(Arc::new(SignedBase { bytes: bytes.into(), request }))
}

async fn bases(bench: Bench) {
    let data = &bench.objects[0];
    let mut similar = data[..PIECE / 4].to_vec();
    similar.splice(5000..5100, *b"something else");
    let spans = [0..PIECE / 8, PIECE / 8..PIECE / 4, PIECE..PIECE + 9000, 2 * PIECE..2 * PIECE + 9000];
    let mut wants: Vec<Want> = (1..).zip(spans).map(|(tag, span)| chunk(tag, data, span)).collect();
    // One that they share, one that is of no use, and none.
    let shared = base(similar, PIECE / 4);
    wants[..2].iter_mut().for_each(|want| want.base = shared.clone());
    wants[2].base = base(pattern(9000, 77), 9000);
    assert!(wants[..3].iter().all(|want| want.base.is_some()), "bases have shapes that may be");
    let record = bench.get(wants.clone()).await;
    for want in wants {
        assert_eq!(record.ends(want.tag), 1, "{:?} ended so: {:?}", want.id, record.outcomes_of(want.tag));
        for delivery in record.deliveries_of(want.tag) {
            assert!(bench.passes(&want, &delivery), "{:?} does not pass the check", want.id);
            assert!(delivery.saved <= want.id.len(), "more was saved than it has");
            assert!(delivery.saved == 0 || want.base.is_some(), "saved without a base");
        }
    }
}

async fn undivided(bench: Bench) {
    let mut all = wants(&bench.objects, 1);
    all.iter_mut().for_each(|want| want.undivided = true);
    let record = bench.get(all.clone()).await;
    bench.expect_all(&record, &all);
    let deliveries = all.iter().flat_map(|want| record.deliveries_of(want.tag));
    let divided = deliveries.filter(|delivery| matches!(delivery.payload, Payload::Gathered(_))).count();
    assert_eq!(divided, 0, "pieces were put together of parts");
}

async fn two_tags(bench: Bench) {
    let mut all = wants(&bench.objects, 1);
    all.extend(wants(&bench.objects, 100));
    let record = bench.get(all.clone()).await;
    bench.expect_all(&record, &all);
}
