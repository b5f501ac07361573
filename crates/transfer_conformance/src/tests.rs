//! Each rule fails for a source that breaks it, and one that keeps the contract passes them all.

mod faulty;

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use faulty::{Fault, Faulty, Forgetful, GrowingBytes, Transparent};

/// A source with every ability, and what is wrong with it.
fn subject(fixture: &Fixture, fault: Option<Fault>) -> Subject {
    let growing = Arc::new(GrowingBytes::default());
    let source = Faulty::new(fixture.objects.clone(), Arc::clone(&growing), fault);
    let subject = Subject::new(Arc::new(source), fixture.context()).telling().growing(growing);
    match fault {
        Some(Fault::NoTimeToWait) => subject.postponing(),
        Some(Fault::LeavesOut) => subject.wrapping(|_| Arc::new(Forgetful)),
        Some(Fault::EndsTwice) => subject.wrapping(|inner| Arc::new(Transparent { inner, ends_twice: true })),
        _ => subject.wrapping(|inner| Arc::new(Transparent { inner, ends_twice: false })),
    }
}

/// Whether a rule holds, in simulated time.
fn holds(rule: &SeamRule, make: impl AsyncFn(Fixture) -> Subject) -> bool {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    catch_unwind(AssertUnwindSafe(|| runtime.block_on(check(rule, &make)))).is_ok()
}

/// What the source of these tests does not do unless it is made to.
fn needs_more(rule: &SeamRule) -> bool {
    matches!(rule.needs, Some(Ability::Postpone | Ability::ProveNothing))
}

#[test]
fn a_source_that_keeps_the_contract_passes() {
    for rule in rules().iter().filter(|rule| !needs_more(rule)) {
        assert!(holds(rule, async |fixture| subject(&fixture, None)), "{}", rule.words);
    }
}

#[test]
fn each_rule_fails_for_whoever_breaks_it() {
    for (fault, words) in [
        (Fault::OtherPart, "of a piece of which a part is missing"),
        (Fault::WrongChunks, "a base is made use of"),
        (Fault::Divides, "what is wanted undivided"),
        (Fault::OneTag, "one piece that is wanted under two tags"),
        (Fault::NoEmptyObject, "objects that end at a border"),
        (Fault::TagsOnce, "tags that have ended can be used again"),
        (Fault::KeepsCancelled, "cancelling what has ended"),
        (Fault::NoTimeToWait, "what is postponed"),
        (Fault::OneCall, "a call whose sink blocks"),
        (Fault::OneCall, "a call that is given up leaves"),
        (Fault::OneRoot, "transfers with roots of their own"),
        (Fault::MindsHints, "hints that change"),
        (Fault::ReportEndsAll, "a report about a source that the source never had"),
        (Fault::ReportForgetsAll, "after a report about its own source"),
        (Fault::WindowShuts, "the window opens again"),
        (Fault::Boasts, "the path claims nothing"),
        (Fault::TellsForEver, "telling what can be had ends"),
        (Fault::TellsLess, "of a whole object"),
        (Fault::EndsUnbound, "a question that follows"),
        (Fault::OldBytes, "pieces of a live object come"),
        (Fault::TellsMore, "what can be had of a live object"),
        (Fault::LeavesOut, "a wrapper says of itself"),
        (Fault::LeavesOut, "a wrapper hands on"),
        (Fault::EndsTwice, "what the wrapped source delivers twice"),
    ] {
        let all = rules();
        let rule = all.iter().find(|rule| rule.words.starts_with(words)).expect(words);
        assert!(!holds(rule, async |fixture| subject(&fixture, Some(fault))), "{fault:?} passes: {words}");
    }
}

/// Without proofs of its own a source passes only if it says so.
#[test]
fn unproved_bytes_pass_if_the_source_says_that_it_proves_nothing() {
    let unproved = |fixture: &Fixture| subject(fixture, Some(Fault::NoProofs));
    let needs = [None, Some(Ability::ProveNothing)];
    for rule in rules().iter().filter(|rule| needs.contains(&rule.needs)) {
        assert!(holds(rule, async |fixture| unproved(&fixture).proving_nothing()), "{}", rule.words);
    }
    let all = rules();
    let broken = |words: &str| all.iter().find(|rule| rule.words.starts_with(words)).expect("a rule");
    for words in ["objects of every shape", "its state says whether it proves"] {
        assert!(!holds(broken(words), async |fixture| unproved(&fixture)), "{words}");
    }
    let words = "a source that proves nothing, asked for values";
    let wrong = async |fixture: Fixture| subject(&fixture, Some(Fault::WrongValues)).proving_nothing();
    assert!(!holds(broken(words), wrong), "{words}");
}

#[test]
fn what_a_source_does_not_say_it_can_is_passed_over() {
    for rule in rules().iter().filter(|rule| rule.needs.is_some_and(|ability| ability != Ability::Prove)) {
        let bare = async |fixture: Fixture| {
            let source = Faulty::new(fixture.objects.clone(), Arc::default(), Some(Fault::OneCall));
            Subject::new(Arc::new(source), fixture.context()).sharing_a_stream()
        };
        assert!(holds(rule, bare), "{}", rule.words);
    }
}
