//! Rules of wrappers: what they leave out is what the wrapped source says and does.

use super::inmost::Inmost;
use super::*;
use towpath_transfer::source::{Query, SourceState};
use towpath_transfer::source_id::SourceId;

pub(super) fn rules() -> Vec<SeamRule> {
    vec![
        SeamRule {
            words: "a wrapper says of itself what the wrapped source says",
            sizes: &[1],
            needs: Some(Ability::Wrap),
            check: |bench| Box::pin(says(bench)),
        },
        SeamRule {
            words: "a wrapper hands on questions, cancellations, reports and the end",
            sizes: &[2 * PIECE],
            needs: Some(Ability::Wrap),
            check: |bench| Box::pin(hands_on(bench)),
        },
        SeamRule {
            words: "what the wrapped source delivers twice does no harm",
            sizes: &[3 * PIECE],
            needs: Some(Ability::Wrap),
            check: |bench| Box::pin(twice(bench)),
        },
    ]
}

impl Bench {
    /// The wrapper around `inmost`, with the rights of the subject.
    fn around(&self, inmost: &Arc<Inmost>) -> Self {
        let wrap = self.subject.wrapping.as_ref().expect("rules of wrappers are for those who wrap");
        let source = wrap(Arc::clone(inmost) as Arc<dyn Source>);
        let subject = Subject::new(source, self.subject.context.clone());
        Self {
            subject: Subject { postpones: self.subject.postpones, ..subject },
            objects: self.objects.clone(),
        }
    }
}

async fn says(bench: Bench) {
    for (is_encrypted, proves) in [(false, true), (true, true), (true, false)] {
        let inmost = Inmost::new(bench.objects.clone()).encrypted(is_encrypted).proving(proves);
        let inmost = Arc::new(inmost);
        let wrapper = bench.around(&inmost).subject.source;
        assert!(!wrapper.name().is_empty());
        let state = wrapper.state();
        assert!(state.window > 0, "the window of the wrapped one is {}", Inmost::WINDOW);
        assert_eq!(SourceState { window: Inmost::WINDOW, ..state }, inmost.state());
    }
}

async fn hands_on(bench: Bench) {
    let inmost = Arc::new(Inmost::new(bench.objects.clone()));
    let bench = bench.around(&inmost);
    let wrapper = &bench.subject.source;
    let (oid, root) = (Oid::of(&bench.objects[0]), bench.subject.context.root);
    wrapper.finish("all is there").await;
    assert_eq!(inmost.take_noted(), ["finish all is there"]);
    wrapper.report_corrupt(&SourceId::other("somebody", None));
    assert_eq!(inmost.take_noted(), ["corrupt somebody"]);
    wrapper.cancel(&[5, 6]);
    assert_eq!(inmost.take_noted(), ["cancel [5, 6]"]);
    assert_eq!(bench.first_told(oid).await, Some(vec![3..5, 7..9]));
    assert_eq!(inmost.take_noted(), [format!("have {oid}")]);
    let query = Query { proofs: Some(1..2), follow: true, ..Query::about(oid) };
    let (answers, result) = bench.put(query.clone()).await;
    assert_eq!((answers.len(), result), (2, Ok(())));
    assert_eq!(inmost.take_noted(), [format!("describe {query:?} of {root}")]);
}

async fn twice(bench: Bench) {
    let inmost = Arc::new(Inmost::new(bench.objects.clone()).delivering(2));
    let bench = bench.around(&inmost);
    let all = wants(&bench.objects, 1);
    let record = bench.get(all.clone()).await;
    bench.expect_all(&record, &all);
    assert_eq!(record.tags(), all.iter().map(|want| want.tag).collect());
}
