//! The list of rules by which a file that is here is taken for the same as a new one, or for an older version of it: what the
//! two have in common, best first, for files of which size, how likely it is, what a try costs, and how many are made before
//! one proved right. `docs/design/copy.md` shows it, and a test compares the two. Pure.

use std::ops::RangeInclusive;

use super::index::Present;
use crate::policy::table::{LARGE, LEAST_NAMED, SAME_MOST, WEAK_BASES, WEAK_SAME, WORTH_WAITING};

/// Properties that a new file and its candidate have in common. The order is that of preference: the same time tells more
/// than a version's number, that and the same path beside the destination more than a name, and what is the older version of
/// a file is of use also if it is not the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resemblance {
    /// Size and time, both of the destination.
    SameTime,
    /// The path but for numbers of directories: `v1/file`, `v2/file`.
    Renumbered,
    /// The path, below a directory beside the destination.
    Beside,
    /// The name, elsewhere in the destination.
    Namesake,
    /// The name, near the destination.
    NamesakeNear,
    /// The path but for numbers, also those of the name: `file.1`, `file.2`. It may as well be one of many that have nothing
    /// to do with another.
    Numbered,
    /// The directory and the extension, and nearly the size.
    Neighbour,
    /// The size, and the name or that no other file has it.
    SameSize,
    /// Size and time, of a file that only the destination has: known at the end of the walk, where files are deleted.
    Renamed,
}

/// Likelihood that a candidate is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likelihood {
    /// It may be quite another file.
    Low,
    /// It rarely is, but searching may find a better one.
    Fair,
    /// As good as it gets without reading it.
    High,
}

/// Price of trying a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryPrice {
    /// A question for the name of the new file's content; the candidate is read once if its name is not known.
    Name,
    /// The candidate is named or signed, and read for that; if it is of no use, the file comes a round trip later.
    Delta,
    /// The candidate is read: the new file's name is known by then.
    Reading,
}

/// One row of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateRule {
    /// Properties in common.
    pub resemblance: Resemblance,
    /// Bytes of new files that it is for.
    pub sizes: RangeInclusive<u64>,
    /// Likelihood that the candidate is of use.
    pub likelihood: Likelihood,
    /// Price of a try.
    pub price: TryPrice,
    /// Tries before one proved right; `None` if they are not counted apart.
    pub first: Option<u64>,
}

/// All sizes.
const ANY: RangeInclusive<u64> = 0..=u64::MAX;
/// Sizes of files whose bytes come sooner from elsewhere, although that costs more questions.
const LARGE_ONES: RangeInclusive<u64> = LARGE..=u64::MAX;
/// Sizes of files that are the same from end to end, or fetched.
const SMALL_ONES: RangeInclusive<u64> = LEAST_NAMED..=SAME_MOST;

/// The list, best first.
pub static RULES: [CandidateRule; 9] = {
    use Likelihood::{Fair, High, Low};
    use TryPrice::{Delta, Name, Reading};
    [
        rule(Resemblance::SameTime, SMALL_ONES, High, Name, None),
        rule(Resemblance::Renumbered, ANY, High, Delta, None),
        rule(Resemblance::Beside, LARGE_ONES, Fair, Delta, None),
        rule(Resemblance::Namesake, LARGE_ONES, Low, Delta, Some(WEAK_BASES)),
        rule(Resemblance::NamesakeNear, LARGE_ONES, Low, Delta, Some(WEAK_BASES)),
        rule(Resemblance::Numbered, ANY, Low, Delta, Some(WEAK_BASES)),
        rule(Resemblance::Neighbour, LARGE_ONES, Low, Delta, Some(WEAK_BASES)),
        rule(Resemblance::SameSize, SMALL_ONES, Low, Name, Some(WEAK_SAME)),
        rule(Resemblance::Renamed, WORTH_WAITING..=u64::MAX, High, Reading, None),
    ]
};

const fn rule(
    resemblance: Resemblance,
    sizes: RangeInclusive<u64>,
    likelihood: Likelihood,
    price: TryPrice,
    first: Option<u64>,
) -> CandidateRule {
    CandidateRule { resemblance, sizes, likelihood, price, first }
}

impl Resemblance {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Renumbered => "numbers",
            Self::Beside => "path_beside",
            Self::Namesake => "name",
            Self::NamesakeNear => "name_near",
            Self::Numbered => "name_numbers",
            Self::Neighbour => "kind",
            Self::SameTime | Self::Renamed => "size_and_time",
            Self::SameSize => "size",
        }
    }

    /// The row that says what it is worth.
    pub fn rule(self) -> &'static CandidateRule {
        &RULES[self as usize]
    }

    /// True if a new file of so many bytes has candidates by it.
    pub fn is_for(self, size: u64) -> bool {
        self.rule().sizes.contains(&size)
    }
}

/// A file that is here, and may have the bytes of a new one, or most of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileCandidate {
    /// Below the destination's root; its whole path if it [lies outside](Self::is_outside).
    pub file: Present,
    /// Properties in common.
    pub resemblance: Resemblance,
}

impl FileCandidate {
    /// True if it lies outside the destination.
    pub const fn is_outside(&self) -> bool {
        matches!(self.resemblance, Resemblance::Beside | Resemblance::NamesakeNear)
    }

    /// True if it may have the same content, rather than being an older version.
    pub fn is_same(&self) -> bool {
        self.resemblance.rule().price == TryPrice::Name
    }

    /// True if it may be quite another file than the older version of one of `new` bytes, and searching would be worth more
    /// than a delta that saves little.
    pub fn is_guess(&self, new: u64) -> bool {
        LARGE_ONES.contains(&new) && !self.is_same() && self.resemblance.rule().likelihood < Likelihood::High
    }
}

/// The best of some candidates for one file that may be tried.
pub fn best(
    candidates: impl IntoIterator<Item = FileCandidate>,
    may_try: impl FnMut(&FileCandidate) -> bool,
) -> Option<FileCandidate> {
    let mut ranked: Vec<_> = candidates.into_iter().collect();
    ranked.sort_by_key(|candidate| candidate.resemblance);
    ranked.into_iter().find(may_try)
}

#[cfg(test)]
mod tests {
    use towpath_files::{RelPath, Stamp};

    use super::*;

    fn candidate(resemblance: Resemblance) -> FileCandidate {
        let file = Present { path: RelPath::new(["x"]).unwrap(), stamp: Stamp::default() };
        FileCandidate { file, resemblance }
    }

    fn described(resemblance: Resemblance) -> &'static str {
        match resemblance {
            Resemblance::SameTime => "size and time (`index`)",
            Resemblance::Renumbered => {
                "path but for numbers of directories: `node-26.9.0/x`, `node-26.10.0/x` (`by_version`)"
            }
            Resemblance::Beside => {
                "path, below a directory beside the destination: `old/disk.img` for `new/disk.img` (`sibling_dirs`)"
            }
            Resemblance::Namesake => "name, elsewhere in the destination (`index`)",
            Resemblance::NamesakeNear => {
                "name, near the destination, as far as a short walk outward finds it (`same_name`)"
            }
            Resemblance::Numbered => {
                "path but for numbers, also of the name: `libx.so.1.31.0`, `libx.so.1.31.1` (`by_version`)"
            }
            Resemblance::Neighbour => {
                "directory and extension, and a size within a tenth: a renamed file (`index`)"
            }
            Resemblance::SameSize => "size, and the name or that no other file has it (`index`)",
            Resemblance::Renamed => "size and time, of a file that `--delete` would delete (`renames`)",
        }
    }

    fn files(sizes: &RangeInclusive<u64>) -> String {
        let bytes = |bytes: u64| match bytes {
            bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
            bytes => format!("{bytes} bytes"),
        };
        match (*sizes.start(), *sizes.end()) {
            (0, u64::MAX) => "any size".into(),
            (least, u64::MAX) => format!("{} and more", bytes(least)),
            (least, most) => format!("{} to {}", bytes(least), bytes(most)),
        }
    }

    #[test]
    fn reasons_have_names_of_their_own() {
        let mut names: Vec<_> = RULES.iter().map(|rule| rule.resemblance.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len() - 1, "size and time are two rules");
    }

    #[test]
    fn the_page_has_the_list() {
        let mut page = String::from(
            "| | in common | for files of | likely | a try costs | tries at first |\n|---|---|---|---|---|---|\n",
        );
        for (rank, row) in RULES.iter().enumerate() {
            let price = match row.price {
                TryPrice::Name => "a question",
                TryPrice::Delta => "a delta",
                TryPrice::Reading => "reading it",
            };
            let likely = format!("{:?}", row.likelihood).to_lowercase();
            let first = row.first.map_or_else(|| "–".into(), |first| first.to_string());
            let (about, files) = (described(row.resemblance), files(&row.sizes));
            page += &format!("| {} | {about} | {files} | {likely} | {price} | {first} |\n", rank + 1);
        }
        let written = include_str!("../../../../docs/design/copy.md");
        assert!(written.contains(&page), "docs/design/copy.md differs from:\n{page}");
    }

    #[test]
    fn each_has_the_row_of_its_rank() {
        for (rank, row) in RULES.iter().enumerate() {
            assert_eq!(row.resemblance as usize, rank);
            assert_eq!(row.resemblance.rule(), row);
        }
        assert!(RULES.is_sorted_by_key(|row| row.resemblance));
    }

    #[test]
    fn the_best_is_taken_that_may_be_tried() {
        use Resemblance::{Beside, Namesake, Renumbered, SameSize, SameTime};
        for (given, forbidden, expected) in [
            (vec![], vec![], None),
            (vec![SameSize, Beside], vec![], Some(Beside)),
            (vec![Beside, Renumbered, SameTime], vec![], Some(SameTime)),
            (vec![Beside, Renumbered, SameTime], vec![SameTime], Some(Renumbered)),
            (vec![Namesake], vec![Namesake], None),
        ] {
            let all = given.iter().map(|by| candidate(*by));
            let found = best(all, |candidate| !forbidden.contains(&candidate.resemblance));
            assert_eq!(found.map(|found| found.resemblance), expected, "{given:?} {forbidden:?}");
        }
    }

    #[test]
    fn a_guess_is_a_large_file_that_only_looks_like_an_older_version() {
        for (by, size, is_guess) in [
            (Resemblance::Renumbered, LARGE, false),
            (Resemblance::Beside, LARGE, true),
            (Resemblance::Numbered, LARGE, true),
            (Resemblance::Numbered, LARGE - 1, false),
            (Resemblance::SameSize, LARGE, false),
        ] {
            assert_eq!(candidate(by).is_guess(size), is_guess, "{by:?} {size}");
        }
    }
}
