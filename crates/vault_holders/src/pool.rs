//! Holders, and objects that are drawn from them. Its calls must be made on a thread that may block.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use towpath_dealer::SourceNumber;
use towpath_link::Identity;
use towpath_vault_format::VaultId;

use crate::drawing::{DrawStep, Drawing, HolderReport, HolderStanding};
use crate::holder::{AskedObjects, DrawError, HolderEvent, HolderFault, HolderPlace, WantedObject};
use crate::link::HolderLink;

/// Questions that wait for one holder. Its window is full long before.
const QUESTIONS: usize = 4096;
/// Answers that wait: holders wait if there are more.
const ANSWERS: usize = 64;
/// What is to be done is looked at after so long, though nothing happened: at the least, and at the most.
const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(50);
/// A holder that was not connected for so long does not answer; before, it may only be far away.
const PATIENCE: Duration = Duration::from_secs(5);

/// Holders of one vault. Connections are made when the first objects are drawn.
pub struct HolderPool {
    runtime: Handle,
    member: Identity,
    vault: VaultId,
    places: Vec<HolderPlace>,
    open: Option<OpenPool>,
}

/// Connections, and what is known of them.
struct OpenPool {
    began: Instant,
    drawing: Drawing,
    asks: Vec<Sender<AskedObjects>>,
    events: Receiver<(SourceNumber, HolderEvent)>,
}

impl HolderPool {
    /// Holders of `vault` at these places, of which the `member` may read.
    pub const fn new(runtime: Handle, member: Identity, vault: VaultId, places: Vec<HolderPlace>) -> Self {
        Self { runtime, member, vault, places, open: None }
    }

    /// Objects by their hashes, each with the bytes that its hash names; `None` for each that no holder has.
    pub fn draw(&mut self, wanted: &[WantedObject]) -> Result<Vec<Option<Bytes>>, DrawError> {
        let runtime = self.runtime.clone();
        if self.open.is_none() {
            let _inside = runtime.enter();
            self.open = Some(OpenPool::begin(&self.places, &self.member, self.vault));
        }
        match &mut self.open {
            Some(open) => runtime.block_on(open.draw(wanted)),
            None => Err(DrawError::None),
        }
    }

    /// What became of each holder so far; nothing before the first objects were drawn.
    pub fn reports(&self) -> Vec<HolderReport> {
        let Some(open) = &self.open else { return Vec::new() };
        let mut reports = open.drawing.reports();
        if open.began.elapsed() >= PATIENCE {
            for report in reports.iter_mut().filter(|report| report.standing == HolderStanding::Connecting) {
                report.standing = HolderStanding::Gone(HolderFault::Unreachable("it does not answer".into()));
            }
        }
        reports
    }
}

impl OpenPool {
    /// Begins to connect to all of them.
    fn begin(places: &[HolderPlace], member: &Identity, vault: VaultId) -> Self {
        let (told, events) = channel(ANSWERS);
        let mut asks = Vec::with_capacity(places.len());
        for (source, place) in (0..).zip(places) {
            let (ask, asked) = channel(QUESTIONS);
            asks.push(ask);
            let link = HolderLink { source, asked, events: told.clone() };
            tokio::spawn(link.run(place.clone(), member.clone(), vault));
        }
        let names = places.iter().map(|place| format!("{}@{}", place.node, place.address));
        Self { began: Instant::now(), drawing: Drawing::new(names.collect()), asks, events }
    }

    async fn draw(&mut self, wanted: &[WantedObject]) -> Result<Vec<Option<Bytes>>, DrawError> {
        let now = self.began.elapsed();
        let mut steps = self.drawing.want(now, wanted);
        loop {
            self.ask(steps);
            if let Some(drawn) = self.drawing.drawn()? {
                return Ok(drawn);
            }
            let wait = self.drawing.wake(self.began.elapsed()).unwrap_or(LONGEST).clamp(SHORTEST, LONGEST);
            let event = timeout(wait, self.events.recv()).await.ok().flatten();
            let now = self.began.elapsed();
            steps = match event {
                Some((source, event)) => self.drawing.take(now, source, event),
                None => self.drawing.tick(now),
            };
        }
    }

    fn ask(&mut self, steps: Vec<DrawStep>) {
        let mut steps = VecDeque::from(steps);
        while let Some(DrawStep { source, objects }) = steps.pop_front() {
            let sent = self.asks.get(source as usize).map(|ask| ask.try_send(objects));
            // One that is gone says so by an event of its own.
            if let Some(Err(TrySendError::Full(_))) = sent {
                let fault = HolderFault::Nonsense("it takes no questions".into());
                let now = self.began.elapsed();
                steps.extend(self.drawing.take(now, source, HolderEvent::Ended(fault)));
            }
        }
    }
}
