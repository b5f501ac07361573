//! Withdrawn tickets: those that this node issued and took back, and those of others of which it was told.
//!
//! Who holds a ticket, to fetch by it or to pass on what came by it, says so here, and is told when it ends. What anybody says
//! counts only if it is the signed word of that ticket's node, about that very ticket. It is kept, so that it can be given to
//! others who hold the ticket.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use towpath_content::lock::lock;
use towpath_content::node_id::hex;
use towpath_content::ticket::BoundSecret;
use towpath_content::withdrawal::Withdrawal;
use towpath_content::{NodeId, Oid, Ticket};
use towpath_link::Identity;
use towpath_protocol::WithdrawalSink;
use towpath_protocol::service::KnownWithdrawal;
use towpath_protocol::wire::Withdrawn;

use crate::fresh::now;
use towpath_config::shares::{Shares, TicketKind, unhex};

/// Withdrawals that are kept, some 500 bytes each. The oldest are forgotten first.
const MOST: usize = 1024;
/// Seconds for which one is kept, if its ticket does not expire sooner.
const KEPT: u64 = 30 * 24 * 60 * 60;

/// Interval at which it is looked what other processes recorded.
const LOOK_BESIDE: Duration = Duration::from_secs(1);

/// See the head of this module.
pub struct Withdrawals {
    shares: Arc<Shares>,
    /// Oldest first.
    known: RwLock<Vec<WithdrawnTicket>>,
    held: Mutex<HeldTickets>,
}

/// A ticket that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WithdrawnTicket {
    root: Oid,
    known: KnownWithdrawal,
    /// Seconds since 1970 from which on it need not be known any more.
    until: u64,
}

/// Tickets whose holders want to know that they end.
#[derive(Default)]
struct HeldTickets {
    last: u64,
    by_number: HashMap<u64, (TicketName, CancellationToken)>,
}

/// What a withdrawal is about, and whose word counts.
struct TicketName {
    root: Oid,
    node: NodeId,
    secret: BoundSecret,
}

impl Withdrawals {
    /// Those that are recorded beside `shares`.
    pub fn open(shares: Arc<Shares>) -> Self {
        let time = now();
        let mut known: Vec<_> =
            shares.tickets(TicketKind::Withdrawn).iter().filter_map(WithdrawnTicket::of).collect();
        known.retain(|ticket| ticket.until > time);
        known.sort_by_key(|ticket| ticket.until);
        Self { shares, known: RwLock::new(known), held: Mutex::default() }
    }

    /// Takes back the ticket for `root` with this secret, which `identity` issued.
    pub fn withdraw(&self, root: Oid, secret: BoundSecret, identity: &Identity) {
        let withdrawal = Withdrawal::new(root, &secret, now());
        let signature = identity.sign(&withdrawal.message()).to_vec().into();
        self.keep(root, KnownWithdrawal { secret, withdrawal: withdrawal.to_bytes().into(), signature });
    }

    /// The withdrawn tickets for `root`.
    pub fn of(&self, root: &Oid) -> Vec<KnownWithdrawal> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter(|ticket| ticket.root == *root).map(|ticket| ticket.known.clone()).collect()
    }

    /// True if the ticket for `root` with this secret is known to be withdrawn.
    pub fn is_withdrawn(&self, root: &Oid, secret: &BoundSecret) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|ticket| ticket.root == *root && ticket.known.secret == *secret)
    }

    /// From now on withdrawals of this ticket are listened for, until what is returned is dropped.
    pub fn hold(self: &Arc<Self>, ticket: &Ticket) -> HeldTicket {
        let name = TicketName { root: ticket.oid, node: ticket.node, secret: ticket.bound_secret() };
        let ended = CancellationToken::new();
        let mut held = lock(&self.held);
        // Under the lock, so that none comes in between.
        if self.is_withdrawn(&name.root, &name.secret) {
            ended.cancel();
        }
        held.last += 1;
        let number = held.last;
        held.by_number.insert(number, (name, ended.clone()));
        HeldTicket { withdrawals: Arc::clone(self), number, ended }
    }

    /// Completes when another process of this home has recorded that it took this ticket back.
    pub async fn taken_back_beside(&self, root: Oid, secret: BoundSecret) {
        let name = ticket_name(&root, &secret);
        loop {
            let recorded =
                self.shares.ticket_as(TicketKind::Withdrawn, &name).as_ref().and_then(WithdrawnTicket::of);
            if let Some(ticket) =
                recorded.filter(|ticket| ticket.root == root && ticket.known.secret == secret)
            {
                return self.keep(root, ticket.known);
            }
            tokio::time::sleep(LOOK_BESIDE).await;
        }
    }

    fn keep(&self, root: Oid, known: KnownWithdrawal) {
        let until = known.secret.terms.expires.unwrap_or(u64::MAX).min(now().saturating_add(KEPT));
        let ticket = WithdrawnTicket { root, known, until };
        let mut all = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let secret = ticket.known.secret;
        if all.iter().any(|other| other.root == root && other.known.secret == secret) {
            return;
        }
        if let Err(error) = self.shares.keep_ticket(TicketKind::Withdrawn, &ticket.name(), &ticket.record()) {
            tracing::warn!(%error, "that a ticket was withdrawn can't be kept for the next start");
        }
        all.push(ticket);
        let time = now();
        let many = all.len().saturating_sub(MOST);
        let forgotten: Vec<_> = all.drain(..many).map(|ticket| ticket.name()).collect();
        all.retain(|ticket| ticket.until > time);
        drop(all);
        forgotten.iter().for_each(|name| self.shares.forget_ticket(TicketKind::Withdrawn, name));
        let held = lock(&self.held);
        let of_it = held.by_number.values().filter(|(name, _)| name.root == root && name.secret == secret);
        of_it.for_each(|(_, ended)| ended.cancel());
    }
}

impl WithdrawalSink for Withdrawals {
    fn withdrawn(&self, told: &Withdrawn) {
        let held = lock(&self.held);
        let is_of = |name: &TicketName| {
            let verified = Withdrawal::verified(&told.withdrawal, &told.signature, &name.node);
            verified.is_ok_and(|withdrawal| withdrawal.is_of(&name.root, &name.secret))
        };
        let found = held.by_number.values().find(|(name, _)| is_of(name));
        let Some((root, secret)) = found.map(|(name, _)| (name.root, name.secret)) else {
            tracing::debug!("a withdrawal was told that is of no ticket which is held here");
            return;
        };
        drop(held);
        // The message's bytes share memory with much else.
        let [withdrawal, signature] = [&told.withdrawal, &told.signature].map(|bytes| bytes.to_vec().into());
        self.keep(root, KnownWithdrawal { secret, withdrawal, signature });
    }
}

/// A ticket that somebody holds.
pub struct HeldTicket {
    withdrawals: Arc<Withdrawals>,
    number: u64,
    ended: CancellationToken,
}

impl HeldTicket {
    /// Completes when its issuer has taken it back.
    pub fn withdrawn(&self) -> impl Future<Output = ()> + Send + use<> {
        self.ended.clone().cancelled_owned()
    }
}

impl Drop for HeldTicket {
    fn drop(&mut self) {
        lock(&self.withdrawals.held).by_number.remove(&self.number);
    }
}

impl WithdrawnTicket {
    /// Name of its record.
    fn name(&self) -> Vec<u8> {
        ticket_name(&self.root, &self.known.secret)
    }

    fn record(&self) -> Value {
        json!({
            "root": self.root.to_string(),
            "secret": hex(&self.known.secret.to_bytes()),
            "withdrawal": hex(&self.known.withdrawal),
            "signature": hex(&self.known.signature),
            "until": self.until,
        })
    }

    fn of(record: &Value) -> Option<Self> {
        let bytes = |field: &str| unhex(record.get(field)?.as_str()?);
        let known = KnownWithdrawal {
            secret: BoundSecret::from_bytes(&bytes("secret")?).ok()?,
            withdrawal: bytes("withdrawal")?.into(),
            signature: bytes("signature")?.into(),
        };
        let until = record.get("until")?.as_u64()?;
        Some(Self { root: record.get("root")?.as_str()?.parse().ok()?, known, until })
    }
}

/// What tells a ticket from others: its root and its secret, bound to its terms. It is as secret as the ticket.
pub fn ticket_name(root: &Oid, secret: &BoundSecret) -> Vec<u8> {
    [&root.to_bytes()[..], &secret.to_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use towpath_content::ticket::{Secret, Terms};

    use super::*;

    struct Scene {
        dir: tempfile::TempDir,
        issuer: Identity,
        withdrawals: Arc<Withdrawals>,
    }

    fn open(dir: &tempfile::TempDir) -> Arc<Withdrawals> {
        Arc::new(Withdrawals::open(Arc::new(Shares::new(dir.path().to_path_buf()))))
    }

    impl Scene {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let withdrawals = open(&dir);
            Self { dir, issuer: Identity::generate().unwrap(), withdrawals }
        }

        fn ticket(&self, number: u8) -> Ticket {
            let (oid, node, secret) = (Oid::of(&[number]), self.issuer.node_id(), Secret([number; 16]));
            let terms = Terms::default();
            Ticket { oid, node, secret, hints: Vec::new(), terms, enclosed: None }
        }

        fn told(&self, ticket: &Ticket, signer: &Identity) -> Withdrawn {
            let withdrawal = Withdrawal::new(ticket.oid, &ticket.bound_secret(), 5);
            let signature = signer.sign(&withdrawal.message()).to_vec().into();
            Withdrawn { withdrawal: withdrawal.to_bytes().into(), signature }
        }

        fn is_over(&self, ticket: &Ticket) -> bool {
            self.withdrawals.is_withdrawn(&ticket.oid, &ticket.bound_secret())
        }
    }

    #[test]
    fn the_issuers_word_ends_a_ticket_and_is_kept_to_be_handed_on() {
        let scene = Scene::new();
        let (ticket, told) = (scene.ticket(1), scene.told(&scene.ticket(1), &scene.issuer));
        let held = scene.withdrawals.hold(&ticket);
        assert!(!held.ended.is_cancelled());
        scene.withdrawals.withdrawn(&told);
        assert!(held.ended.is_cancelled() && scene.is_over(&ticket));
        let kept = open(&scene.dir).of(&ticket.oid);
        assert_eq!((&kept[0].withdrawal, &kept[0].signature), (&told.withdrawal, &told.signature));
        assert_eq!(kept[0].secret, ticket.bound_secret());
        let late = open(&scene.dir).hold(&ticket);
        assert!(late.ended.is_cancelled(), "also after the next start");
    }

    #[test]
    fn what_is_not_the_issuers_word_about_this_ticket_changes_nothing() {
        let scene = Scene::new();
        let (ticket, other) = (scene.ticket(1), scene.ticket(2));
        let held = scene.withdrawals.hold(&ticket);
        let right = scene.told(&ticket, &scene.issuer);
        let stranger = Identity::generate().unwrap();
        let mut damaged = right.clone();
        damaged.signature = vec![0; 64].into();
        let same_root = Ticket { secret: Secret([9; 16]), ..ticket.clone() };
        let terms = Terms { expires: None, no_swarm: true };
        let other_terms = Ticket { terms, ..ticket.clone() };
        let table = [
            ("signed by another node", scene.told(&ticket, &stranger)),
            ("a damaged signature", damaged),
            ("no signature", Withdrawn { signature: Default::default(), ..right.clone() }),
            ("another ticket", scene.told(&other, &scene.issuer)),
            ("another secret", scene.told(&same_root, &scene.issuer)),
            ("other terms", scene.told(&other_terms, &scene.issuer)),
            ("nonsense", Withdrawn { withdrawal: vec![1; 500].into(), ..right.clone() }),
        ];
        for (case, told) in table {
            scene.withdrawals.withdrawn(&told);
            assert!(!held.ended.is_cancelled() && !scene.is_over(&ticket), "{case}");
        }
        assert!(scene.withdrawals.shares.tickets(TicketKind::Withdrawn).is_empty(), "nothing of it is kept");
        drop(held);
        scene.withdrawals.withdrawn(&right);
        assert!(!scene.is_over(&ticket), "a ticket that nobody holds is of no interest");
    }

    #[test]
    fn a_withdrawal_that_comes_again_is_kept_once_and_no_longer() {
        let scene = Scene::new();
        let (ticket, told) = (scene.ticket(1), scene.told(&scene.ticket(1), &scene.issuer));
        let _held = scene.withdrawals.hold(&ticket);
        scene.withdrawals.withdrawn(&told);
        let first = scene.withdrawals.shares.tickets(TicketKind::Withdrawn);
        (0..3).for_each(|_| scene.withdrawals.withdrawn(&told));
        assert_eq!(scene.withdrawals.of(&ticket.oid).len(), 1);
        assert_eq!(scene.withdrawals.shares.tickets(TicketKind::Withdrawn), first);
    }

    #[tokio::test]
    async fn what_another_process_took_back_is_noticed_and_nothing_else() {
        let scene = Scene::new();
        let (ticket, other) = (scene.ticket(1), scene.ticket(2));
        let held = scene.withdrawals.hold(&ticket);
        let beside = open(&scene.dir);
        beside.withdraw(other.oid, other.bound_secret(), &scene.issuer);
        let mut noticed =
            std::pin::pin!(scene.withdrawals.taken_back_beside(ticket.oid, ticket.bound_secret()));
        assert!(polled(noticed.as_mut()).is_pending());
        beside.withdraw(ticket.oid, ticket.bound_secret(), &scene.issuer);
        noticed.await;
        assert!(held.ended.is_cancelled() && scene.is_over(&ticket) && !scene.is_over(&other));
    }

    fn polled(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> std::task::Poll<()> {
        future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }

    #[test]
    fn the_oldest_of_many_are_forgotten_and_what_has_expired() {
        let scene = Scene::new();
        let secret = |number: usize| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            BoundSecret::from(Secret(bytes))
        };
        let (root, most) = (Oid::of(b"x"), MOST + 3);
        (0..most).for_each(|number| scene.withdrawals.withdraw(root, secret(number), &scene.issuer));
        assert_eq!(scene.withdrawals.of(&root).len(), MOST);
        assert!(!scene.withdrawals.is_withdrawn(&root, &secret(2)));
        assert!(scene.withdrawals.is_withdrawn(&root, &secret(3)));
        assert_eq!(scene.withdrawals.shares.tickets(TicketKind::Withdrawn).len(), MOST);
        let expired = BoundSecret { terms: Terms { expires: Some(1), no_swarm: false }, ..secret(0) };
        scene.withdrawals.withdraw(root, expired, &scene.issuer);
        assert!(!open(&scene.dir).is_withdrawn(&root, &expired), "nobody needs to know it any more");
    }
}
