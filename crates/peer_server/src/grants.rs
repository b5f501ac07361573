//! Ticket secrets that this service honours: those of its leases, and those of what it shares at
//! the moment.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use towpath_content::ticket::BoundSecret;
use towpath_content::{NodeId, Oid, Ticket};
use towpath_link::Identity;
use towpath_protocol::Issuer;
use towpath_protocol::access::{GivenSecret, TicketEnd};
use towpath_protocol::service::{BringReply, KnownWithdrawal, NO_CACHE, RelayedBinding};
use towpath_store::Leases;
use towpath_transfer::Outcome;

use towpath_config::{Live, Switch};
use towpath_content::lock::lock;

use crate::brought::{TicketCache, may_be_kept};
use crate::fetch_limit::FetchLimit;
use crate::fresh::now;
use crate::withdrawals::Withdrawals;
use towpath_limits::lending::Lending;
use towpath_limits::upload_budget::UploadBudget;

/// Longest time until whoever may not have more now is to ask again.
const LATER: Duration = Duration::from_secs(1);

/// A root that is passed on.
#[derive(Default)]
struct GivenRoot {
    passed_on: Vec<PassedOn>,
    binding: Option<RelayedBinding>,
    /// What has come of it so far, by the number of what passes it on, if it is a tree that still comes.
    coming: Vec<(u64, HasCome)>,
}

/// Tells of a tree that comes whether this file of it has come, or a part of it.
pub type HasCome = Arc<dyn Fn(&Oid) -> bool + Send + Sync>;

/// Answers the direct plugin's questions about rights.
pub struct Grants {
    identity: Identity,
    shared: RwLock<HashMap<Oid, BoundSecret>>,
    /// Those of them by which only so many nodes fetch.
    limits: RwLock<HashMap<Oid, Arc<FetchLimit>>>,
    /// Roots that were got, or are on their way, by tickets of others, and that are passed on.
    given: RwLock<HashMap<Oid, GivenRoot>>,
    config: Live,
    /// Leases, if they are honoured: a daemon's are, a mere `tow share` gives
    /// out only what it shares.
    leases: Option<Arc<dyn Leases>>,
    withdrawals: Arc<Withdrawals>,
    /// Of all that is passed on.
    upload: Mutex<UploadBudget>,
    /// Number of what was passed on last.
    last: AtomicU64,
    cache: OnceLock<Arc<dyn TicketCache>>,
}

/// A secret by which a root is passed on, and why.
struct PassedOn {
    number: u64,
    secret: BoundSecret,
    why: PassOn,
}

/// Why something is passed on.
#[derive(Debug, Clone)]
pub enum PassOn {
    /// A person asks for it.
    Asked,
    /// As long as the configuration says so.
    Configured,
    /// As long as this service is a site's cache.
    Cached,
    /// While it comes, within this.
    WhileGetting(Arc<Mutex<Lending>>),
    /// It is not: who has the ticket may come in all the same, as one who was asked to call.
    Called,
}

/// What is here of a root is passed on, until this is dropped.
pub struct PassingOn {
    grants: Arc<Grants>,
    root: Oid,
    number: u64,
    keeps_limit: bool,
}

impl PassingOn {
    /// From now on what is here of `root` is passed on to whoever proves `secret`, until what is returned is dropped.
    pub fn begin(grants: &Arc<Grants>, root: Oid, secret: BoundSecret, why: PassOn) -> Self {
        let number = grants.pass_on(root, secret, why);
        Self { grants: Arc::clone(grants), root, number, keeps_limit: false }
    }

    /// The same of a tree that comes: of its files those that `has_come` names, whoever else passes it on.
    pub fn coming(
        grants: &Arc<Grants>,
        (root, secret): (Oid, BoundSecret),
        why: PassOn,
        has_come: HasCome,
    ) -> Self {
        let number = grants.last.fetch_add(1, Ordering::Relaxed);
        let mut roots = grants.given.write().unwrap_or_else(PoisonError::into_inner);
        let given = roots.entry(root).or_default();
        given.coming.push((number, has_come));
        given.passed_on.push(PassedOn { number, secret, why });
        drop(roots);
        Self { grants: Arc::clone(grants), root, number, keeps_limit: false }
    }

    /// It is over, and no more comes: of the tree's files still only those are served that have come, as long as anybody passes it on.
    pub fn keep_limit(mut self) {
        self.keeps_limit = true;
    }
}

impl Drop for PassingOn {
    fn drop(&mut self) {
        self.grants.end(&self.root, self.number, self.keeps_limit);
    }
}

impl Grants {
    /// Rights of a service.
    pub fn new(
        identity: Identity,
        leases: Option<Arc<dyn Leases>>,
        config: Live,
        withdrawals: Arc<Withdrawals>,
    ) -> Self {
        let (shared, limits, given) = (RwLock::default(), RwLock::default(), RwLock::default());
        let (upload, last) = (Mutex::default(), AtomicU64::new(0));
        let cache = OnceLock::new();
        Self { identity, shared, limits, given, config, leases, withdrawals, upload, last, cache }
    }

    /// Honours tickets for `oid` with `secret` until the service ends.
    pub fn share(&self, oid: Oid, secret: BoundSecret) {
        self.shared.write().unwrap_or_else(PoisonError::into_inner).insert(oid, secret);
    }

    /// By the ticket of `limit` only so many nodes fetch from now on.
    pub fn limit(&self, limit: Arc<FetchLimit>) {
        self.limits.write().unwrap_or_else(PoisonError::into_inner).insert(limit.root(), limit);
    }

    /// Honours them no longer, unless there is a lease.
    pub fn unshare(&self, oid: &Oid) {
        self.shared.write().unwrap_or_else(PoisonError::into_inner).remove(oid);
    }

    /// From now on what is here of `root` is passed on to whoever proves `secret`, by which it was got; until the number that this
    /// returns is kept back.
    pub fn pass_on(&self, root: Oid, secret: BoundSecret, why: PassOn) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let mut roots = self.given.write().unwrap_or_else(PoisonError::into_inner);
        roots.entry(root).or_default().passed_on.push(PassedOn { number, secret, why });
        number
    }

    /// No longer for this once: whoever else said so still passes it on.
    pub fn keep_back(&self, root: &Oid, number: u64) {
        self.end(root, number, false);
    }

    fn end(&self, root: &Oid, number: u64, keeps_limit: bool) {
        let mut roots = self.given.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(given) = roots.get_mut(root) {
            given.passed_on.retain(|passed_on| passed_on.number != number);
            given.coming.retain(|(coming, _)| *coming != number || keeps_limit);
            if given.passed_on.is_empty() {
                roots.remove(root);
            }
        }
    }

    /// True if what is here of `root` is passed on.
    pub fn passes_on(&self, root: &Oid) -> bool {
        let is_passed_on = |passed_on: &PassedOn| !matches!(passed_on.why, PassOn::Called);
        self.of_given(root, |given| given.passed_on.iter().any(is_passed_on)).unwrap_or_default()
    }

    /// Content that a live root is bound to, as its issuer signed.
    pub fn bind(&self, root: &Oid, binding: RelayedBinding) {
        if let Some(given) = self.given.write().unwrap_or_else(PoisonError::into_inner).get_mut(root) {
            given.binding = Some(binding);
        }
    }

    /// The content of a root that was given: what a live one is bound to.
    pub fn content_of(&self, root: &Oid) -> Oid {
        self.of_given(root, |given| given.binding.as_ref().map(|binding| binding.content))
            .flatten()
            .unwrap_or(*root)
    }

    fn of_given<T>(&self, root: &Oid, read: impl FnOnce(&GivenRoot) -> T) -> Option<T> {
        self.given.read().unwrap_or_else(PoisonError::into_inner).get(root).map(read)
    }

    /// Gets under way that lend what this secret opens; `None` if it is passed on without that limit.
    fn lendings(&self, root: &Oid, secret: &BoundSecret) -> Option<Vec<Arc<Mutex<Lending>>>> {
        let lending = |passed_on: &PassedOn| match &passed_on.why {
            PassOn::WhileGetting(lending) => Some(Some(Arc::clone(lending))),
            other => self.allows(other).then_some(None),
        };
        let of_secret = |given: &GivenRoot| {
            let passed_on = given.passed_on.iter().filter(|passed_on| passed_on.secret == *secret);
            passed_on.filter_map(lending).collect()
        };
        self.of_given(root, of_secret).unwrap_or_else(|| Some(Vec::new()))
    }

    /// True if the configuration lets something be passed on for this reason.
    fn allows(&self, why: &PassOn) -> bool {
        match why {
            PassOn::Configured => self.config.get().sharing.pass_on == Switch::On,
            PassOn::Cached => self.config.get().site_cache.serve == Switch::On,
            PassOn::Asked | PassOn::WhileGetting(_) => true,
            PassOn::Called => false,
        }
    }

    /// From now on `cache` fetches what machines of its site hand tickets over for. Said once.
    pub fn bring_by(&self, cache: Arc<dyn TicketCache>) {
        let _ = self.cache.set(cache);
    }

    /// Tickets by which others are served, by root and secret; true for those of which all is here. Not those that a get lends
    /// by while it runs.
    pub fn served(&self) -> HashMap<(Oid, BoundSecret), bool> {
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner);
        let leases = self.leases.iter().filter_map(|leases| leases.leases().ok()).flatten();
        let own = shared.iter().map(|(root, secret)| (*root, *secret));
        let own = own.chain(leases.map(|lease| (lease.oid, lease.secret)));
        let mut served: HashMap<_, _> = own.map(|ticket| (ticket, true)).collect();
        for (root, given) in self.given.read().unwrap_or_else(PoisonError::into_inner).iter() {
            let lasts = |passed_on: &&PassedOn| !matches!(passed_on.why, PassOn::WhileGetting(_));
            for passed_on in given.passed_on.iter().filter(lasts).filter(|it| self.allows(&it.why)) {
                served.entry((*root, passed_on.secret)).or_insert(false);
            }
        }
        served.retain(|(root, secret), _| self.ended(root, secret).is_none());
        served
    }

    /// How a ticket ended, for whoever has it.
    fn ended(&self, root: &Oid, secret: &BoundSecret) -> Option<TicketEnd> {
        match self.withdrawals.is_withdrawn(root, secret) {
            true => Some(TicketEnd::Withdrawn),
            false => secret.terms.is_expired(now()).then_some(TicketEnd::Expired),
        }
    }

    /// True if tickets of leases are honoured.
    pub fn honours_leases(&self) -> bool {
        self.leases.is_some()
    }
}

impl Issuer for Grants {
    fn secret(&self, root: &Oid) -> Option<BoundSecret> {
        let shared = self.shared.read().unwrap_or_else(PoisonError::into_inner).get(root).copied();
        shared.or_else(|| {
            let leases = self.leases.as_ref()?.leases().ok()?;
            leases.iter().find(|lease| lease.oid == *root).map(|lease| lease.secret)
        })
    }

    fn given(&self, root: &Oid) -> Vec<GivenSecret> {
        let given = |passed_on: &PassedOn| GivenSecret {
            secret: passed_on.secret,
            settings_allow: self.allows(&passed_on.why),
        };
        let all = self.of_given(root, |root| root.passed_on.iter().map(given).collect::<Vec<_>>());
        let mut all = all.unwrap_or_default();
        // The first one counts.
        all.sort_by_key(|given| !given.settings_allow);
        all
    }

    fn pass_on(&self, root: &Oid, secret: &BoundSecret, bytes: u64) -> Result<(), Duration> {
        let (rate, now) = (self.config.get().sharing.upload_rate.0, Instant::now());
        let mut upload = lock(&self.upload);
        let Some(lendings) = self.lendings(root, secret) else { return upload.take(bytes, rate, now) };
        let mut wait = LATER;
        for lending in lendings {
            let mut lending = lock(&lending);
            match lending.take(bytes, now) {
                Ok(()) => return upload.take(bytes, rate, now).inspect_err(|_| lending.give_back(bytes)),
                Err(longer) => wait = wait.min(longer),
            }
        }
        Err(wait)
    }

    fn has_come(&self, root: &Oid, oid: &Oid) -> bool {
        let has = |given: &GivenRoot| {
            given.coming.is_empty() || given.coming.iter().any(|(_, has_come)| has_come(oid))
        };
        self.of_given(root, has).unwrap_or(true)
    }

    fn bring(&self, node: &NodeId, text: &[u8]) -> BringReply {
        let refused = |why: &str| BringReply { proved: None, outcome: Err(Outcome::Refused(why.into())) };
        let config = self.config.get();
        let settings = &config.site_cache;
        let cache = self.cache.get().filter(|_| settings.serve == Switch::On);
        let Some(cache) = cache else { return refused(NO_CACHE) };
        let ticket = std::str::from_utf8(text).ok().and_then(|text| text.parse::<Ticket>().ok());
        let Some(ticket) = ticket else { return refused("this is no ticket") };
        let secret = ticket.bound_secret();
        if let Err(why) = may_be_kept(&ticket, &self.identity.node_id(), self.ended(&ticket.oid, &secret)) {
            return refused(why);
        }
        let is_machine = settings.anyone == Switch::On || settings.machines.contains(node);
        let outcome = cache.bring(&ticket, is_machine || self.is_known(node));
        let counts = !matches!(outcome, Err(Outcome::Refused(_)));
        BringReply { proved: counts.then_some((ticket.oid, secret)), outcome }
    }

    fn over(&self, node: &NodeId, root: &Oid, secret: &BoundSecret) -> Option<TicketEnd> {
        self.ended(root, secret).or_else(|| {
            let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
            limits.get(root).filter(|limit| limit.is_of(secret))?.refusal(node)
        })
    }

    fn withdrawn(&self, root: &Oid) -> Vec<KnownWithdrawal> {
        self.withdrawals.of(root)
    }

    fn relayed(&self, root: &Oid) -> Option<RelayedBinding> {
        self.of_given(root, |given| given.binding.clone())?
    }

    fn is_allowed(&self, node: &NodeId, _oid: &Oid) -> bool {
        self.is_known(node)
    }

    fn is_known(&self, node: &NodeId) -> bool {
        // The node's own other processes may have everything.
        *node == self.identity.node_id() || self.config.get().general.allowed_nodes.contains(node)
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.identity.sign(message)
    }
}

#[cfg(test)]
mod tests {
    use towpath_config::Config;
    use towpath_content::ticket::Secret;
    use towpath_limits::lending::LendingLook;

    use super::*;
    use towpath_config::shares::Shares;

    fn grants(config: Live) -> (Grants, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let withdrawals = Arc::new(Withdrawals::open(Arc::new(Shares::new(dir.path().to_path_buf()))));
        (Grants::new(Identity::generate().unwrap(), None, config, withdrawals), dir)
    }

    #[test]
    fn a_root_is_passed_on_as_long_as_anybody_does() {
        let (grants, _dir) = grants(Live::new(Config::default()));
        let (root, secret) = (Oid::of(b"root"), Secret([1; 16]).into());
        assert!(grants.given(&root).is_empty());
        let [first, second] = [0; 2].map(|_| grants.pass_on(root, secret, PassOn::Asked));
        grants.keep_back(&root, first);
        grants.keep_back(&root, first);
        assert_eq!(grants.given(&root).len(), 1, "each takes away its own");
        grants.keep_back(&root, second);
        assert!(!grants.passes_on(&root) && grants.given(&root).is_empty());
    }

    #[test]
    fn of_a_tree_that_comes_only_what_has_come_is_served() {
        let (grants, _dir) = grants(Live::new(Config::default()));
        let grants = Arc::new(grants);
        let (root, secret) = (Oid::of(b"root"), BoundSecret::from(Secret([1; 16])));
        let [came, elsewhere] = [b"came", &b"from elsewhere"[..]].map(Oid::of);
        let stays = PassingOn::begin(&grants, root, secret, PassOn::Asked);
        let coming =
            PassingOn::coming(&grants, (root, secret), PassOn::Called, Arc::new(move |oid| *oid == came));
        assert!(grants.has_come(&root, &came) && !grants.has_come(&root, &elsewhere));
        assert!(Issuer::pass_on(&*grants, &root, &secret, 1 << 30).is_ok(), "by the right of who stays");
        drop(coming);
        assert!(grants.has_come(&root, &elsewhere), "all of it is here");
        let failed =
            PassingOn::coming(&grants, (root, secret), PassOn::Called, Arc::new(move |oid| *oid == came));
        failed.keep_limit();
        assert!(grants.has_come(&root, &came) && !grants.has_come(&root, &elsewhere), "some files failed");
        drop(stays);
        assert!(grants.has_come(&root, &elsewhere), "nobody passes it on any more");
    }

    #[test]
    fn a_get_lends_what_it_took_and_whoever_is_asked_to_passes_on_without_that_limit() {
        let mut config = Config::default();
        config.sharing.upload_rate = towpath_config::ConfigRate(1000);
        let (grants, _dir) = grants(Live::new(config));
        let (root, secret) = (Oid::of(b"root"), BoundSecret::from(Secret([1; 16])));
        let pass = |bytes| Issuer::pass_on(&grants, &root, &secret, bytes).is_ok();
        assert!(!pass(1), "nothing is passed on");
        let lending = Arc::new(Mutex::new(Lending::new(0)));
        let number = grants.pass_on(root, secret, PassOn::WhileGetting(Arc::clone(&lending)));
        assert!(grants.given(&root)[0].holding().serves() && !pass(1), "nothing came yet");
        lock(&lending).look(LendingLook { taken: 10_000, ..LendingLook::default() }, Instant::now());
        assert!(pass(9_000) && !pass(1), "the configured rate counts for all");
        assert_eq!(lock(&lending).lent(), 9_000, "what that refused was not sent");
        grants.pass_on(root, secret, PassOn::Configured);
        assert!(
            grants.lendings(&root, &secret).is_some(),
            "it is not passed on by a configuration that is off"
        );
        grants.pass_on(root, secret, PassOn::Asked);
        assert!(grants.lendings(&root, &secret).is_none());
        grants.keep_back(&root, number);
        assert!(grants.lendings(&root, &Secret([2; 16]).into()).unwrap().is_empty(), "another ticket");
    }

    #[test]
    fn the_configuration_decides_at_each_request_whether_a_daemon_passes_on() {
        let live = Live::new(Config::default());
        let (grants, _dir) = grants(live.clone());
        let (root, secret) = (Oid::of(b"root"), Secret([1; 16]).into());
        grants.pass_on(root, secret, PassOn::Configured);
        let is_served = || grants.given(&root)[0].holding().serves();
        assert!(!is_served(), "off by default");
        let mut on = Config::default();
        on.sharing.pass_on = Switch::On;
        live.set(on);
        assert!(is_served());
        live.set(Config::default());
        assert!(!is_served());
    }
}
