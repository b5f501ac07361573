//! What may pass between the two ends of a circuit: the relay's check of numbers. Pure.

use crate::circuit::{CircuitViolation, MAX_WINDOW};
use crate::message::RelayMessage;

/// One of two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first.
    Near,
    /// The second.
    Far,
}

impl Side {
    /// The other one.
    pub const fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

/// Direction of a circuit.
#[derive(Debug, Clone, Copy, Default)]
struct CircuitDirection {
    /// The last number that passed.
    last: u64,
    /// The last one that the other end has acknowledged.
    acked: u64,
    /// Bytes since the last acknowledgement.
    unacked: u64,
    has_ended: bool,
}

/// Numbers of what passed so far on two connections that were joined.
#[derive(Debug, Clone)]
pub struct Pairing {
    /// Of what comes from the near end, and from the far one.
    directions: [CircuitDirection; 2],
    bytes: u64,
}

impl Pairing {
    /// Two ends that have taken in everything up to these numbers, near end first.
    pub fn new([near, far]: [u64; 2]) -> Self {
        let from = |last| CircuitDirection { last, ..CircuitDirection::default() };
        Self { directions: [from(far), from(near)], bytes: 0 }
    }

    /// A message came from this end: it may pass, or breaks a rule.
    pub fn check(&mut self, from: Side, message: &RelayMessage) -> Result<(), CircuitViolation> {
        match message {
            RelayMessage::Block { number, bytes } => self.count(from, *number, bytes.len() as u64, false),
            RelayMessage::Close { number } => self.count(from, *number, 0, true),
            RelayMessage::Ack { through } => self.acknowledge(from, *through),
            RelayMessage::Ping | RelayMessage::Abort => Ok(()),
            _ => Err(CircuitViolation::Message),
        }
    }

    fn count(&mut self, from: Side, number: u64, len: u64, is_end: bool) -> Result<(), CircuitViolation> {
        let direction = &mut self.directions[from as usize];
        let expected = direction.last.saturating_add(1);
        if direction.has_ended {
            return Err(CircuitViolation::AfterEnd);
        }
        if number != expected {
            return Err(CircuitViolation::Order { number, expected });
        }
        if direction.unacked + len > 2 * MAX_WINDOW as u64 {
            return Err(CircuitViolation::Flood { held: direction.unacked as usize });
        }
        direction.last = number;
        direction.unacked += len;
        direction.has_ended = is_end;
        self.bytes += len;
        Ok(())
    }

    fn acknowledge(&mut self, from: Side, through: u64) -> Result<(), CircuitViolation> {
        let direction = &mut self.directions[from.other() as usize];
        if through > direction.last || through < direction.acked {
            return Err(CircuitViolation::Ack { through, sent: direction.last });
        }
        if through > direction.acked {
            direction.unacked = 0;
        }
        direction.acked = through;
        Ok(())
    }

    /// Bytes of blocks that passed.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Side::{Far, Near};
    use super::*;
    use crate::message::{FailReason, MAX_BLOCK};

    fn block(number: u64) -> RelayMessage {
        RelayMessage::Block { number, bytes: vec![0; MAX_BLOCK].into() }
    }

    #[test]
    fn numbers_go_up_by_one_in_each_direction() {
        let mut pairing = Pairing::new([0, 7]);
        assert_eq!(pairing.check(Far, &block(1)), Ok(()));
        assert_eq!(pairing.check(Near, &block(8)), Ok(()));
        assert_eq!(
            pairing.check(Near, &block(8)),
            Err(CircuitViolation::Order { number: 8, expected: 9 }),
            "doubled"
        );
        assert_eq!(pairing.check(Near, &block(10)), Err(CircuitViolation::Order { number: 10, expected: 9 }));
        assert_eq!(pairing.check(Near, &RelayMessage::Close { number: 9 }), Ok(()));
        assert_eq!(pairing.check(Near, &block(10)), Err(CircuitViolation::AfterEnd));
        assert_eq!(pairing.check(Far, &block(2)), Ok(()));
        assert_eq!(pairing.bytes(), 3 * MAX_BLOCK as u64);
    }

    #[test]
    fn what_was_not_sent_is_not_acknowledged() {
        let mut pairing = Pairing::new([0, 0]);
        let ack = |through| RelayMessage::Ack { through };
        assert_eq!(pairing.check(Far, &ack(1)), Err(CircuitViolation::Ack { through: 1, sent: 0 }));
        pairing.check(Near, &block(1)).unwrap();
        pairing.check(Near, &block(2)).unwrap();
        assert_eq!(
            pairing.check(Near, &ack(1)),
            Err(CircuitViolation::Ack { through: 1, sent: 0 }),
            "its own"
        );
        assert_eq!(pairing.check(Far, &ack(2)), Ok(()));
        assert_eq!(
            pairing.check(Far, &ack(1)),
            Err(CircuitViolation::Ack { through: 1, sent: 2 }),
            "taken back"
        );
    }

    #[test]
    fn who_never_waits_for_acknowledgements_floods() {
        let mut pairing = Pairing::new([0, 0]);
        let refused = (1..).find_map(|number| pairing.check(Near, &block(number)).err()).unwrap();
        assert!(matches!(refused, CircuitViolation::Flood { held } if held > MAX_WINDOW), "{refused}");
    }

    #[test]
    fn other_messages_have_no_place_here() {
        let mut pairing = Pairing::new([0, 0]);
        for message in [
            RelayMessage::Wait { pass: None },
            RelayMessage::Ok { received: 0 },
            RelayMessage::Fail { why: FailReason::NoAnswer },
        ] {
            assert_eq!(pairing.check(Near, &message), Err(CircuitViolation::Message));
        }
        assert_eq!(pairing.check(Near, &RelayMessage::Ping), Ok(()));
    }
}
