//! Time at which a chunk can be expected from the disk (§5.3), by which the network is asked for the others.
//!
//! The paper writes `ETA = T0 + (1 − p0) T1 + (1 − p0)(1 − p1) T2 + …` with Ti the total cost of
//! operation i. The figure of its example, 418.4, comes out if only the operation at the head counts
//! whole and each later one by its cost per useful chunk (with total costs it would be 33, so a
//! `core` dump that holds nothing would count as a place where the chunk is found soon). This is what
//! is done here. What is found by none of the operations is charged at the end.

/// Effect of one of the ordered operations on a group of chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArrivalStep {
    /// Total cost of the operation, seconds.
    pub total: f64,
    /// Its cost per useful chunk, seconds.
    pub cpc: f64,
    /// Probability that it finds the chunk.
    pub probability: f64,
}

/// Seconds until the chunk is there, for operations in the order they will be run; `otherwise` is
/// charged for the likelihood that none of them finds it.
pub fn expected(steps: impl IntoIterator<Item = ArrivalStep>, otherwise: f64) -> f64 {
    /// Below this likelihood what is left to add is noise.
    const SURE: f64 = 1e-9;
    let (mut eta, mut missing) = (0.0, 1.0);
    for (at, step) in steps.into_iter().enumerate() {
        eta += missing * if at == 0 { step.total } else { step.cpc };
        missing *= 1.0 - step.probability.clamp(0.0, 1.0);
        if missing < SURE {
            return eta;
        }
    }
    eta + missing * otherwise
}

/// True if the network would bring a chunk before the disk does: seconds that what is asked already
/// will take, and the chunk itself, against the expected arrival.
///
/// It limits what is asked of a slow network while the disk is about to find the same, and asks as
/// soon as the disk turns out to take longer.
pub fn is_sooner_from_network(eta: f64, round_trip: f64, outstanding: u64, bytes: u64, rate: f64) -> bool {
    rate <= 0.0 || round_trip + (outstanding + bytes) as f64 / rate < eta
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_run_is_what_the_end_costs() {
        assert_eq!(expected([], 7.0), 7.0);
    }

    #[test]
    fn a_sure_find_ends_the_sum() {
        let sure = ArrivalStep { total: 4.0, cpc: 0.7, probability: 1.0 };
        let useless = ArrivalStep { total: 1e9, cpc: 1e9, probability: 0.0 };
        assert_eq!(expected([sure, useless], 1e9), 4.0);
    }

    #[test]
    fn the_network_is_asked_for_what_it_brings_first() {
        assert!(is_sooner_from_network(1.0, 0.04, 0, 16_384, 190_000.0));
        assert!(!is_sooner_from_network(1.0, 0.04, 190_000, 16_384, 190_000.0));
        assert!(!is_sooner_from_network(0.01, 0.04, 0, 16_384, 1e9));
        assert!(is_sooner_from_network(0.01, 0.04, 0, 16_384, 0.0), "a rate is learned by asking");
    }
}
