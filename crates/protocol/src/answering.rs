//! The answering half of one connection: what a peer may ask, how much of it, and which requests
//! are under way, cancelled or over. Pure: no thread, no channel, no clock.
//!
//! [`Answering::take`] turns a peer's request into an [`Answer`], which is worked off step by step:
//! each [`Answer::step`] looks into the store and puts out a few frames. Between steps the caller
//! looks whether the request [is over](Answering::is_over); after the last it [ends](Answering::end)
//! it. [`super::conversation`] does so.
//!
//! Questions for entries are not worked off in steps: [`super::offer::Offer`] answers them, and says when each has ended.
//!
//! Requests that a peer has no right to are refused at once and nothing of them is kept; of the others no more
//! than [`MOST_KEPT`].

mod entries;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use towpath_content::delta::exchange::NextSignature;
use towpath_content::ticket::BoundSecret;
use towpath_content::{NodeId, Oid, pieces};
use towpath_transfer::Outcome;

use self::entries::OpenAsks;
use super::access::{self, GivenSecret, Holding, TicketEnd};
use super::answers::{QuestionAnswer, QuestionSubject};
use super::asks::{AskStates, EntryAsk, EntryTag};
use super::gets::{Encoder, GetAnswer, GetWants};
use super::outgoing::Outgoing;
use super::requests::oid_of;
use super::service::{BringReply, Issuer, KnownWithdrawal, Serving};
use super::session::Encoded;
use super::step::Step;
use super::unwanted::UnwantedPieces;
use super::wire::{
    self, Body, Get, MAX_PIECES, MAX_REQUESTS, MAX_ROOTS, MAX_WANTS, RequestOnly, WireCancel, WireOutcome,
    WireWant,
};
use crate::processors::Processors;

/// Bytes of requests under way that are kept: one of a legal length may be more, if it is the only one. What
/// comes beyond is to be asked for later.
pub const MOST_KEPT: usize = 1 << 20;
/// The same of questions for entries, with their bases: apart from these, as signatures are long.
pub const MOST_ASKED: usize = 16 << 20;
/// Bytes that a request counts for, beside the bytes that are kept of it.
const OVERHEAD: usize = 512;
/// Refusals that are worth it, of a peer that has no right to anything yet.
pub const MOST_REFUSALS: usize = 16;
/// Delay before a request that was one too many, or had no offer, may come again.
pub(super) const KEPT_WAIT: Duration = Duration::from_millis(200);
/// Recipes asked for on one connection.
const MAX_RECIPES: usize = 4;
/// Objects followed or watched on one connection: each keeps what was told of it.
const MAX_FOLLOWED: usize = 32;

/// Proofs and requests of one peer.
pub struct Answering {
    node: NodeId,
    /// The connection's binding, which its proofs are bound to.
    binding: [u8; 32],
    proofs: usize,
    roots: BTreeMap<Oid, ProvedRoot>,
    /// It had a right to something.
    is_known: bool,
    refusals: usize,
    under_way: BTreeMap<u32, RequestUnderWay>,
    /// There is somebody who answers questions for entries.
    has_offer: bool,
    asks: OpenAsks,
    processors: Processors,
    /// Encoding of data that the peer takes, if any.
    encoding: Option<Encoded>,
    closed: bool,
}

/// A root whose secret the peer proved.
struct ProvedRoot {
    secret: BoundSecret,
    holding: Holding,
}

struct RequestUnderWay {
    cancelled: Arc<AtomicBool>,
    /// Of a `Get` for data: its pieces that were cancelled.
    unwanted: Option<UnwantedPieces>,
    kind: RequestKind,
    /// Bytes that it keeps.
    kept: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    /// Answered in turn.
    Quick,
    /// A question for a recipe or for samples.
    Recipe,
    /// Waits for its object, again and again.
    Follows,
    /// Questions for entries.
    Entries,
}

/// Outcome of taking a request.
pub enum Taken {
    /// There is no answer to it.
    Nothing,
    /// It is to be answered.
    Answer(Box<Answer>),
    /// These are to be answered by an offer.
    Entries(Vec<EntryAsk>),
    /// It is answered already: these are to be sent.
    Refused(Vec<Body>),
    /// It cancelled pieces, some of which had not been read: this is to be sent.
    Cancelled(Body),
}

/// An answer that is being given.
pub enum Answer {
    /// To a `Get`.
    Get(GetAnswer),
    /// To a `Describe` or `Watch`.
    Question(QuestionAnswer),
}

impl Answering {
    /// Nothing was asked yet by `node`, whose proofs are bound to `binding`; data can be sent in the
    /// encodings of `processors`.
    pub fn new(node: NodeId, binding: [u8; 32], processors: Processors) -> Self {
        Self {
            node,
            binding,
            proofs: 0,
            roots: BTreeMap::new(),
            is_known: false,
            refusals: 0,
            under_way: BTreeMap::new(),
            has_offer: false,
            asks: OpenAsks::default(),
            processors,
            encoding: None,
            closed: false,
        }
    }

    /// Sets the encoding of data: the peer takes it.
    pub const fn encode(&mut self, encoding: Encoded) {
        self.encoding = Some(encoding);
    }

    /// Tells whether there is somebody who answers questions for entries. Without one they are to be asked later.
    pub const fn set_offer(&mut self, has_offer: bool) {
        self.has_offer = has_offer;
    }

    /// Takes a request. An error is a reason to close the connection.
    pub fn take(&mut self, body: Body, issuer: &dyn Issuer) -> Result<Taken, String> {
        match body {
            Body::Prove(prove) => self.prove(&prove, issuer).map(|()| Taken::Nothing),
            Body::Get(get) if entries::has_entries(&get) => self.entries(&get),
            Body::Get(get) => self.get(&get, issuer),
            Body::Signature(signature) => self.asks.recv(&signature).map(|()| Taken::Nothing),
            Body::Describe(question) => self.question(question, false, issuer),
            Body::Watch(question) => self.question(question, true, issuer),
            Body::Bring(bring) => self.bring(&bring, issuer),
            Body::Cancel(cancel) => self.cancel(&cancel),
            _ => Err("sent a message that does not belong here".into()),
        }
    }

    /// True if the peer had a right to anything: it proved a root, or is allowed something that it asked for.
    pub const fn is_known(&self) -> bool {
        self.is_known
    }

    /// Bytes that are kept of requests under way, other than questions for entries.
    pub fn kept(&self) -> usize {
        self.kept_of(|kind| kind != RequestKind::Entries)
    }

    /// The same of questions for entries.
    pub fn asked(&self) -> usize {
        self.kept_of(|kind| kind == RequestKind::Entries)
    }

    fn kept_of(&self, counts: impl Fn(RequestKind) -> bool) -> usize {
        self.under_way.values().filter(|state| counts(state.kind)).map(|state| state.kept).sum()
    }

    /// True if nobody waits for more of a request.
    pub fn is_over(&self, request: u32) -> bool {
        let is_cancelled = |state: &RequestUnderWay| state.cancelled.load(Ordering::Relaxed);
        self.closed || self.under_way.get(&request).is_some_and(is_cancelled)
    }

    /// The flag of a request under way, set if it was cancelled, also after its end: its data may still wait
    /// to be sent.
    pub fn given_up(&self, request: u32) -> Option<Arc<AtomicBool>> {
        self.under_way.get(&request).map(|state| Arc::clone(&state.cancelled))
    }

    /// A request has been answered; returns the message that says so.
    pub fn end(&mut self, request: u32) -> Body {
        self.under_way.remove(&request);
        self.asks.end_request(request);
        Body::Done(RequestOnly { request })
    }

    /// The connection has ended: every request is over.
    pub const fn close(&mut self) {
        self.closed = true;
    }

    fn prove(&mut self, prove: &wire::Prove, issuer: &dyn Issuer) -> Result<(), String> {
        self.proofs += 1;
        if self.proofs > MAX_ROOTS {
            return Err("proved too many roots".into());
        }
        let root = Oid::from_bytes(&prove.root).map_err(|error| error.to_string())?;
        let proof: [u8; 32] =
            prove.proof[..].try_into().map_err(|_| "sent a proof of the wrong length".to_owned())?;
        if let Some(proved) = self.proved(&root, &proof, issuer) {
            self.roots.insert(root, proved);
            // Who has a ticket is no stranger where that ticket is used, also if nothing is passed on there: it may have been called.
            self.is_known |= self.held(&root, issuer).is_some_and(|held| !matches!(held, Holding::Over(_)));
        }
        Ok(())
    }

    /// Takes a ticket over. Whoever has it needs no other proof of its secret.
    fn bring(&mut self, bring: &wire::WireBring, issuer: &dyn Issuer) -> Result<Taken, String> {
        self.check_number(bring.request)?;
        let BringReply { proved, outcome } = issuer.bring(&self.node, &bring.ticket);
        if let Some((root, secret)) = proved
            && (self.roots.len() < MAX_ROOTS || self.roots.contains_key(&root))
        {
            let holding = GivenSecret { secret, settings_allow: true }.holding();
            self.roots.entry(root).or_insert(ProvedRoot { secret, holding });
            self.is_known = true;
        }
        match outcome {
            Ok(()) => Ok(Taken::Refused(vec![Body::Done(RequestOnly { request: bring.request })])),
            Err(outcome) => self.refuse(bring.request, &outcome),
        }
    }

    /// The ticket for `root` whose secret `proof` proves, and how this node came to it.
    fn proved(&self, root: &Oid, proof: &[u8; 32], issuer: &dyn Issuer) -> Option<ProvedRoot> {
        let is_proved = |secret: &BoundSecret| secret.check(proof, &self.binding, &self.node, root);
        if let Some(secret) = issuer.secret(root).filter(is_proved) {
            return Some(ProvedRoot { secret, holding: Holding::Issued });
        }
        if let Some(given) = issuer.given(root).into_iter().find(|given| is_proved(&given.secret)) {
            return Some(ProvedRoot { secret: given.secret, holding: given.holding() });
        }
        let known = issuer.withdrawn(root).into_iter().find(|known| is_proved(&known.secret))?;
        Some(ProvedRoot { secret: known.secret, holding: Holding::Over(TicketEnd::Withdrawn) })
    }

    /// How this node comes to `root` now, if the peer proved a secret of it: tickets end, and settings change.
    fn held(&self, root: &Oid, issuer: &dyn Issuer) -> Option<Holding> {
        let ProvedRoot { secret, holding } = self.roots.get(root)?;
        if let Some(over) = issuer.over(&self.node, root, secret) {
            return Some(Holding::Over(over));
        }
        match holding {
            Holding::Given { .. } => {
                let given = issuer.given(root).into_iter().find(|given| given.secret == *secret);
                given.map(|given| given.holding())
            }
            holding => Some(*holding),
        }
    }

    /// The mark of the ticket for `root` whose secret the peer proved.
    pub(super) fn ticket_mark(&self, root: &Oid) -> Option<u64> {
        self.roots.get(root).map(|proved| proved.secret.mark())
    }

    /// The secret that the peer proved of a ticket for `root`, if this service issued it and those who fetch by it may serve.
    pub(super) fn shared_secret(&self, root: &Oid, issuer: &dyn Issuer) -> Option<BoundSecret> {
        let ProvedRoot { secret, .. } = self.roots.get(root)?;
        let is_issued = self.held(root, issuer) == Some(Holding::Issued);
        Some(*secret).filter(|secret| is_issued && !secret.terms.no_swarm)
    }

    /// The holding under which the peer gets what is under `root`, if it proved a secret of it.
    fn served(&self, root: &Oid, issuer: &dyn Issuer) -> Option<Holding> {
        self.held(root, issuer).filter(|holding| holding.serves())
    }

    /// The issuer's word, if the ticket for `root` whose secret the peer proved was withdrawn.
    fn withdrawal(&self, root: &Oid, issuer: &dyn Issuer) -> Option<Body> {
        let ProvedRoot { secret, .. } = self.roots.get(root)?;
        let known = issuer.withdrawn(root).into_iter().find(|known| known.secret == *secret)?;
        let KnownWithdrawal { withdrawal, signature, .. } = known;
        Some(Body::Withdrawn(wire::Withdrawn { withdrawal, signature }))
    }

    fn cancel(&self, cancel: &WireCancel) -> Result<Taken, String> {
        // One that has ended meanwhile needs no cancellation.
        let Some(state) = self.under_way.get(&cancel.request) else { return Ok(Taken::Nothing) };
        if cancel.pieces.is_empty() {
            state.cancelled.store(true, Ordering::Relaxed);
            return Ok(Taken::Nothing);
        }
        let unwanted = state.unwanted.as_ref().and_then(|unwanted| unwanted.name(&cancel.pieces));
        let unread = unwanted.ok_or("cancelled what it had not asked for, or twice")?;
        Ok(match unread.is_empty() {
            true => Taken::Nothing,
            false => Taken::Cancelled(Body::Outcome(WireOutcome::cancelled(cancel.request, unread))),
        })
    }

    fn get(&mut self, get: &Get, issuer: &dyn Issuer) -> Result<Taken, String> {
        check_get(get)?;
        let Ok(root) = Oid::from_bytes(&get.root) else { return self.no_oid(get.request) };
        let holding = self.served(&root, issuer);
        // Each want is judged when it is answered; here one is enough.
        let is_allowed =
            |want: &WireWant| name_of(want).is_some_and(|oid| issuer.is_allowed(&self.node, &oid));
        if holding.is_none() && !get.wants.iter().any(is_allowed) {
            return self.not_proved(get.request, &root, issuer);
        }
        self.is_known = true;
        let is_given = matches!(holding, Some(Holding::Given { .. }));
        let given_by = self.roots.get(&root).filter(|_| is_given).map(|proved| proved.secret);
        let wanted = GetWants::new(root, get);
        if !self.begin(get.request, RequestKind::Quick, wanted.len())? {
            return self.refuse(get.request, &Outcome::RetryLater(KEPT_WAIT));
        }
        if let Some(state) = self.under_way.get_mut(&get.request) {
            state.unwanted = Some(wanted.unwanted());
        }
        let mut encodings = self.processors.encodings();
        let encoder = self.encoding.and_then(|agreed| {
            let (_, encoding) = encodings.find(|(number, _)| *number == agreed.number)?;
            Some(Encoder::new(agreed, encoding.encoder()))
        });
        Ok(Taken::Answer(Box::new(Answer::Get(GetAnswer::new(wanted, (holding, given_by), encoder)))))
    }

    fn entries(&mut self, get: &Get) -> Result<Taken, String> {
        let (asks, request) = (entries::asks(get)?, get.request);
        self.asks.note(request);
        if !self.has_offer {
            return self.refuse(request, &Outcome::RetryLater(KEPT_WAIT));
        }
        self.is_known = true;
        if !self.begin(request, RequestKind::Entries, entries::kept(get))? {
            return self.refuse(request, &Outcome::RetryLater(KEPT_WAIT));
        }
        self.asks.begin(request, &asks);
        Ok(Taken::Entries(asks))
    }

    fn question(
        &mut self,
        question: wire::Describe,
        watch: bool,
        issuer: &dyn Issuer,
    ) -> Result<Taken, String> {
        let kind = match (watch || question.follow, question.recipe || question.samples) {
            (true, _) => RequestKind::Follows,
            (false, true) => RequestKind::Recipe,
            (false, false) => RequestKind::Quick,
        };
        let names =
            Oid::from_bytes(&question.root).and_then(|root| Ok((root, Oid::from_bytes(&question.oid)?)));
        let Ok((root, oid)) = names else { return self.no_oid(question.request) };
        let holding = self.served(&root, issuer);
        if holding.is_none() && !issuer.is_allowed(&self.node, &oid) {
            return self.not_proved(question.request, &root, issuer);
        }
        self.is_known = true;
        if !self.begin(question.request, kind, 0)? {
            return self.refuse(question.request, &Outcome::RetryLater(KEPT_WAIT));
        }
        let is_busy = kind == RequestKind::Recipe && self.count(kind) > MAX_RECIPES;
        let subject = QuestionSubject { root, oid, holding, is_busy };
        Ok(Taken::Answer(Box::new(Answer::Question(QuestionAnswer::new(question, watch, subject)))))
    }

    /// Refuses a request for what no ticket opens, or none any more; of one that was withdrawn its issuer's word goes before.
    fn not_proved(&mut self, request: u32, root: &Oid, issuer: &dyn Issuer) -> Result<Taken, String> {
        let why = access::refusal(self.held(root, issuer));
        let withdrawal = self.withdrawal(root, issuer);
        let taken = self.refuse(request, &Outcome::Refused(why.into()))?;
        Ok(match taken {
            Taken::Refused(messages) => Taken::Refused(withdrawal.into_iter().chain(messages).collect()),
            taken => taken,
        })
    }

    fn no_oid(&mut self, request: u32) -> Result<Taken, String> {
        self.refuse(request, &Outcome::Refused("asked for something that is not an OID".into()))
    }

    /// Ends a request at once. Whoever goes on to ask and has no right to anything leaves.
    fn refuse(&mut self, request: u32, outcome: &Outcome) -> Result<Taken, String> {
        self.check_number(request)?;
        self.refusals += usize::from(!self.is_known);
        if self.refusals > MOST_REFUSALS {
            return Err("asked again and again for what it has no right to".into());
        }
        let outcome = Body::Outcome(WireOutcome::new(request, None, outcome));
        Ok(Taken::Refused(vec![outcome, Body::Done(RequestOnly { request })]))
    }

    fn count(&self, kind: RequestKind) -> usize {
        self.under_way.values().filter(|state| state.kind == kind).count()
    }

    /// Counts a request of which `len` bytes are kept; false if that is too much now.
    fn begin(&mut self, request: u32, kind: RequestKind, len: usize) -> Result<bool, String> {
        if self.under_way.len() >= MAX_REQUESTS {
            return Err("has too many requests under way".into());
        }
        self.check_number(request)?;
        let kept = len + OVERHEAD;
        let (before, most) = match kind {
            RequestKind::Entries => (self.asked(), MOST_ASKED),
            _ => (self.kept(), MOST_KEPT),
        };
        if before > 0 && before + kept > most {
            return Ok(false);
        }
        self.under_way
            .insert(request, RequestUnderWay { cancelled: Arc::default(), unwanted: None, kind, kept });
        if self.count(RequestKind::Follows) > MAX_FOLLOWED {
            return Err("follows too many objects".into());
        }
        Ok(true)
    }

    fn check_number(&self, request: u32) -> Result<(), String> {
        match self.under_way.contains_key(&request) {
            true => Err("used the number of a request that is under way".into()),
            false => Ok(()),
        }
    }
}

impl AskStates for Answering {
    fn awaits(&self, tag: EntryTag) -> bool {
        !self.is_over(tag.request) && self.asks.contains(tag)
    }

    fn is_under_way(&self, request: u32) -> bool {
        self.under_way.contains_key(&request) && !self.is_over(request)
    }

    fn end_ask(&mut self, tag: EntryTag) -> Option<Body> {
        self.asks.end(tag).then(|| self.end(tag.request))
    }

    fn expect_signatures(&mut self, tag: EntryTag, more: u64) {
        if self.asks.contains(tag) {
            self.asks.expect(tag, more);
        }
    }

    fn take_signature(&mut self, tag: EntryTag) -> Option<NextSignature> {
        self.asks.take(tag)
    }
}

/// The object of a want, by the name that a node may be allowed.
fn name_of(want: &WireWant) -> Option<Oid> {
    match oid_of(want) {
        Ok(Some(oid)) => Some(oid),
        Ok(None) => want.chunk[..].try_into().ok().map(Oid::Blake3),
        Err(_) => None,
    }
}

fn check_get(get: &Get) -> Result<(), String> {
    let pieces: u64 = get.wants.iter().map(|want| u64::from(want.count.max(1))).sum();
    if !get.wants.iter().all(is_possible) {
        return Err("asked for an impossible run of bytes".into());
    }
    let bases = get.wants.iter().filter(|want| !want.base.is_empty()).count();
    if bases > wire::MAX_BASES || get.base_bytes() > wire::MAX_BASES_LEN {
        return Err("asked for too many deltas at once".into());
    }
    if get.wants.len() > MAX_WANTS || pieces > MAX_PIECES as u64 {
        return Err(format!("asked for {} wants and {pieces} pieces at once", get.wants.len()));
    }
    Ok(())
}

/// True if a want may be of some object, if it is a run of bytes.
fn is_possible(want: &WireWant) -> bool {
    let Some(offset) = want.offset else { return want.len == 0 && want.base.is_empty() };
    let most = if want.base.is_empty() { wire::MAX_SPAN } else { wire::MAX_DELTA_SPAN };
    if want.delta_request().is_none() != want.base.is_empty() {
        return false;
    }
    let is_alone = want.count == 0 && want.first == 0 && want.chunk.is_empty() && !want.oid.is_empty();
    let end = offset.checked_add(want.len.into());
    is_alone && (1..=most).contains(&want.len) && end.is_some_and(|end| end <= pieces::MAX_SIZE)
}

impl Answer {
    /// The number of the request.
    pub const fn request(&self) -> u32 {
        match self {
            Self::Get(answer) => answer.request(),
            Self::Question(answer) => answer.request(),
        }
    }

    /// Urgency of its data as the requesting side states it; `None` for a question.
    pub const fn priority(&self) -> Option<i8> {
        match self {
            Self::Get(answer) => Some(answer.priority()),
            Self::Question(_) => None,
        }
    }

    /// The root by which data are asked for; `None` for a question.
    pub(super) const fn root(&self) -> Option<&Oid> {
        match self {
            Self::Get(answer) => Some(answer.root()),
            Self::Question(_) => None,
        }
    }

    /// True if it may take long, to wait for its object or to make a recipe: it should keep no other
    /// waiting.
    pub const fn takes_long(&self) -> bool {
        match self {
            Self::Get(_) => false,
            Self::Question(answer) => answer.takes_long(),
        }
    }

    /// True if it may read all of its object, to make a recipe or samples of it: it should keep those who ask for little no
    /// threads.
    pub const fn is_heavy(&self) -> bool {
        match self {
            Self::Get(_) => false,
            Self::Question(answer) => answer.is_heavy(),
        }
    }

    /// Goes on a little; frames go out in the order of the calls of `out`.
    pub fn step(&mut self, serving: &mut Serving, out: &mut dyn FnMut(Outgoing)) -> Step {
        match self {
            Self::Get(answer) => answer.step(serving, out),
            Self::Question(answer) => answer.step(serving, out),
        }
    }
}

#[cfg(test)]
mod tests;
