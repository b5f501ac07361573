//! Messages in the types of the other crates. Values of a peer are in range afterwards.

use std::time::Duration;

use towpath_content::delta::exchange::{Base, Request};
use towpath_content::tree::Time;
use towpath_store::{About, ObjectKind};
use towpath_transfer::metadata::MetadataError;
use towpath_transfer::{Metadata, Outcome};

use super::{Description, Get, KeyValue, WireOutcome, WireWant, printable};

impl Get {
    /// Its urgency; values out of range count as the nearest in range.
    pub const fn priority(&self) -> i8 {
        match self.urgency {
            ..-128 => i8::MIN,
            128.. => i8::MAX,
            urgency => urgency as i8,
        }
    }

    /// Bytes of the bases of its wants.
    pub fn base_bytes(&self) -> usize {
        self.wants.iter().map(|want| want.base.len()).sum()
    }
}

impl WireWant {
    /// Pieces in which its data come: those of its run, one for a run of bytes or a chunk.
    pub const fn parts(&self) -> u32 {
        let is_one = self.offset.is_some() || self.oid.is_empty();
        if is_one { 1 } else { self.count }
    }

    /// The step of a delta that is requested of a run of bytes; none if there is no base, or one that is no step's.
    pub fn delta_request(&self) -> Option<Request> {
        let request = Request::from_bytes(&self.base).ok()?;
        matches!(request.base, Base::Signature(_) | Base::Outlined { .. }).then_some(request)
    }
}

impl Description {
    /// From what the store says.
    pub fn new(request: u32, about: &About, size: Option<u64>, metadata: &Metadata) -> Self {
        let pair = |(key, value): (&str, &[u8])| KeyValue { key: key.into(), value: value.into() };
        Self {
            request,
            is_tree: about.kind == ObjectKind::Tree,
            name: about.name.clone(),
            mode: about.mode,
            seconds: about.modified.map(|time| time.seconds),
            nanos: about.modified.map_or(0, |time| time.nanos),
            size,
            metadata: metadata.iter().map(pair).collect(),
        }
    }

    /// Metadata of the object from the other side's processors.
    pub fn metadata(&self) -> Result<Metadata, MetadataError> {
        let mut metadata = Metadata::default();
        for KeyValue { key, value } in &self.metadata {
            metadata.insert(key.clone(), value.clone())?;
        }
        Ok(metadata)
    }

    /// The other side's description of the object; out-of-range values are dropped.
    pub fn about(&self) -> About {
        let kind = if self.is_tree { ObjectKind::Tree } else { ObjectKind::Blob };
        let nanos = self.nanos.min(999_999_999);
        About {
            kind,
            name: self.name.clone(),
            mode: self.mode.map(|mode| mode & 0o7777),
            modified: self.seconds.map(|seconds| Time { seconds, nanos }),
        }
    }
}

impl WireOutcome {
    /// As a message.
    pub fn new(request: u32, want: Option<u32>, outcome: &Outcome) -> Self {
        let (code, retry_ms, reason) = match outcome {
            Outcome::NotHere => (1, 0, String::new()),
            Outcome::RetryLater(delay) => {
                (2, u32::try_from(delay.as_millis()).unwrap_or(u32::MAX), String::new())
            }
            Outcome::Gone => (3, 0, String::new()),
            Outcome::SourceChanged => (4, 0, String::new()),
            Outcome::Refused(reason) => (5, 0, reason.clone()),
            Outcome::Cancelled => (6, 0, String::new()),
        };
        Self { request, want, code, retry_ms, reason, pieces: Vec::new() }
    }

    /// Tells that pieces that were cancelled do not come.
    pub fn cancelled(request: u32, pieces: Vec<u32>) -> Self {
        Self { pieces, ..Self::new(request, None, &Outcome::Cancelled) }
    }

    /// Its meaning; a delay is at most a minute, whatever the other side says.
    pub fn outcome(&self) -> Outcome {
        match self.code {
            1 => Outcome::NotHere,
            2 => Outcome::RetryLater(Duration::from_millis(self.retry_ms.min(60_000).into())),
            3 => Outcome::Gone,
            4 => Outcome::SourceChanged,
            6 => Outcome::Cancelled,
            _ => Outcome::Refused(printable(&self.reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_back() {
        let delay = Duration::from_millis(1500);
        let all = [
            Outcome::NotHere,
            Outcome::RetryLater(delay),
            Outcome::Gone,
            Outcome::SourceChanged,
            Outcome::Refused("no".into()),
            Outcome::Cancelled,
        ];
        for outcome in all {
            assert_eq!(WireOutcome::new(1, None, &outcome).outcome(), outcome);
        }
        let hostile = WireOutcome { code: 5, reason: "\u{1b}[2J".repeat(1000), ..WireOutcome::default() };
        let Outcome::Refused(reason) = hostile.outcome() else { panic!() };
        assert!(reason.len() <= 800 && !reason.contains('\u{1b}'));
    }
}
