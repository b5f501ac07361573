//! Near the end: a source is asked for what it finishes together with the others, and no more.

use super::sources::DealtSource;

/// Bytes of the smallest part that is worth a question.
const LEAST: u64 = 16 << 10;

/// How much of a run a source may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndShare {
    /// All of it.
    Whole,
    /// So many of its first bytes.
    First(u64),
    /// Nothing: others bring it sooner.
    Nothing,
}

/// How much of a run of so many bytes, which others will have brought in `elsewhere` seconds.
pub fn share(source: &DealtSource, now: f64, bytes: u64, elsewhere: f64) -> EndShare {
    if source.time_for(now, bytes) <= elsewhere {
        return EndShare::Whole;
    }
    let time = elsewhere - source.facts.round_trip.as_secs_f64();
    let fits = (source.rate(now) * time.max(0.0)) as u64;
    let first = fits.saturating_sub(source.outstanding) / LEAST * LEAST;
    // No want is cut for a source that proves nothing: of a wrong piece it would not show whose fault it is.
    if first < LEAST || first >= bytes || !source.facts.proves {
        EndShare::Nothing
    } else {
        EndShare::First(first)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::SourceFacts;

    #[test]
    fn a_source_gets_what_it_finishes_with_the_others() {
        let facts = |proves| SourceFacts {
            window: 1 << 20,
            round_trip: Duration::from_millis(500),
            priority: 0,
            price: 0,
            proves,
        };
        // 100 kB a second.
        for (what, owes, bytes, elsewhere, proves, share_expected) in [
            ("there is time", 0, 100_000, 2.0, true, EndShare::Whole),
            ("just", 0, 100_000, 1.5, true, EndShare::Whole),
            ("for half of it", 0, 200_000, 1.5, true, EndShare::First(98_304)),
            ("but it proves nothing", 0, 200_000, 1.5, false, EndShare::Nothing),
            ("it owes as much", 100_000, 200_000, 1.5, true, EndShare::Nothing),
            ("it owes some", 50_000, 200_000, 1.5, true, EndShare::First(49_152)),
            ("the round trip takes longer", 0, 200_000, 0.4, true, EndShare::Nothing),
            ("nobody else has it", 0, 1 << 40, f64::INFINITY, true, EndShare::Whole),
        ] {
            let mut source = DealtSource::new(facts(proves), None, 0);
            source.pace.brought(1.0, 100_000);
            source.outstanding = owes;
            assert_eq!(share(&source, 1.0, bytes, elsewhere), share_expected, "{what}");
        }
    }
}
