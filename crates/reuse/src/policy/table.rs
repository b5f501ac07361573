//! All values by which it is decided what bytes are worth: one row each, with its unit, what it decides and where it was
//! measured. [The page](../../../../docs/design/policy.md) has the same rows; a test compares the two.
//!
//! Beside these, `protocol` has what it needs itself: whether data are compressed unasked, and when that is given up. Not in
//! here are caps on memory, which stand where it is taken, queue limits ([`crate::adaptive::backpressure`]), the paper's
//! likelihoods ([`crate::adaptive::heuristics`]) and the lengths of blocks and parts of deltas.

use std::time::Duration;

macro_rules! table {
    ($($heading:literal { $($name:ident: $kind:ty = $value:expr, $unit:literal, $decides:literal, $measured:literal;)* })*) => {
        $($(
            #[doc = concat!($decides, "; measured: ", $measured)]
            pub const $name: $kind = $value;
        )*)*

        #[cfg(test)]
        const HEADINGS: &[(&str, &[tests::Row])] = &[$(($heading, &[$(tests::Row {
            name: stringify!($name),
            value: || tests::Shown::shown(&$name, $unit),
            decides: $decides,
            measured: $measured,
        }),*])),*];
    };
}

table! {
    "Is the network slow?" {
        FAR: Duration = Duration::from_millis(4), "",
            "a sender from this round trip on is far: slow until its rate is known, and asked for a likely object's recipe with the first pieces",
            "[delta](../results/delta.md#tried): a slow network taken for fast costs 100 s, a fast one taken for slow 0.15 s";
        SLOW_BELOW: f64 = 30e6, "MB/s",
            "a far network is slow below: deltas, names of older versions and packing are worth both ends' processors; from it on an older version is followed by samples, not cut by a recipe",
            "[delta](../results/delta.md#time-against-bandwidth), [fast networks](../results/delta.md#fast-networks)";
        NEAR_SLOW_BELOW: f64 = 10e6, "MB/s",
            "the same of a nearer network, as what is measured of little comes out too low",
            "[fast networks](../results/delta.md#fast-networks)";
        FIRST_WAIT: Duration = Duration::from_millis(60), "",
            "the first request waits so long for the network to be known",
            "ssh's pipe shows its round trip after one to three of them";
        MOST_FIRST_WAIT: Duration = Duration::from_millis(600), "",
            "the same for files that have an older version: as long as a network just too fast for deltas takes for them, at most so long",
            "[dsync](../results/dsync.md#tried): the connection beside ssh stands after 120 ms at 40 ms";
        WARM_UP: Duration = Duration::from_millis(250), "",
            "before so long TCP has not shown its rate: no recipe",
            "the replay";
        WARM_UP_ROUND_TRIPS: u32 = 8, "",
            "nor before so many round trips",
            "[delta](../results/delta.md#tried): TCP's slow start is no slow network";
        NEAR_WARM_UP: Duration = Duration::from_millis(100), "",
            "of a near sender (`transfer::is_near`) nothing came for so long: it is slow",
            "a piece takes 0.1 s at 2.6 MB/s";
        FIRST_FILES: u64 = 128 << 10, "bytes",
            "a copy asks a near sender for files of so many bytes first; if they take longer than `NEAR_WARM_UP` the network is slow",
            "[delta](../results/delta.md#near-and-slow): 2.9 MiB instead of 0.25 came of a tree at 1.5 Mbit/s";
        PROBE_LATE: Duration = Duration::from_millis(30), "",
            "of a near sender 32 KiB that mean nothing took so long, which a copy asks for before a large file that has an older version: it is slow",
            "[delta](../results/delta.md#near-and-slow): 1.4 MiB instead of 0.62 came of a file at 1.5 Mbit/s over ssh alone";
        TELLING_BYTES: u64 = 1 << 20, "bytes",
            "so many bytes show the rate of a network that is not fast, and how its objects are best followed",
            "the replay";
        TELLING_TIME: Duration = Duration::from_millis(20), "",
            "if they took so long",
            "the replay";
    }
    "Is a recipe or the search worth it?" {
        RECIPE_ABOVE: f64 = 1.2, "",
            "a recipe is requested if the network takes so many times as long as recipe and disk",
            "the replay";
        RECIPE_KEPT_ABOVE: f64 = 1.1, "",
            "and given up below",
            "apart from the one before, so that a rate near the limit does not flutter";
        LEAST_GAIN: f64 = 0.05, "s",
            "recipe and samples must save so much",
            "less is not worth a question";
        PROMISING_PART: u64 = 4, "",
            "of how many parts of the object's size a file in its place must have one to be likely an older version",
            "a guess";
        SPECULATIVE_BELOW: f64 = 20e6, "MB/s",
            "a recipe is requested though nothing alike is known to be here",
            "[attempts](../results/attempts.md#the-recipe-of-1-gib): cutting and hashing at both ends cost a faster network more than a search finds by chance";
        BUSY_BELOW: f64 = 250e6, "MB/s",
            "a recipe is requested though processors are short",
            "[attempts](../results/attempts.md#both-ways-against-the-better-one): two of 3,000 machines took up to 1.49 times as long as the disk alone";
        RECIPE_SHARE: f64 = 0.0025, "",
            "a recipe's bytes for each byte of the object",
            "[attempts](../results/attempts.md#the-recipe-of-1-gib)";
        SENDER_RATE: f64 = 1e9, "MB/s",
            "a sender cuts and hashes so fast",
            "[attempts](../results/attempts.md#the-recipe-of-1-gib)";
        HELD_SHARE: f64 = 0.05, "",
            "share of the transfer's time that pieces wait for a recipe",
            "[dsync](../results/dsync.md#tried): no piece before the recipe of what likely lies here";
        MOST_HELD: f64 = 5.0, "s",
            "and the longest such wait",
            "[dsync](../results/dsync.md#tried): no piece before the recipe of what likely lies here";
        SLOWEST_DISK: f64 = 100e6, "MB/s",
            "an older version is followed by samples only if the disk is so fast, and as fast as the network",
            "[dsync](../results/dsync.md#figure-7-a-disk-slower-than-the-network): a slower disk is better left alone";
        FAST_DISK: f64 = 250e6, "MB/s",
            "a disk so fast suffices for any network",
            "[attempts](../results/attempts.md#the-recipe-of-1-gib)";
        SEARCH_RESTS_ABOVE: f64 = 3.0, "",
            "the search rests while the network is so many times as fast as the disk",
            "the replay";
        SEARCH_RESUMES_BELOW: f64 = 2.0, "",
            "and goes on below",
            "apart from the one before, so that it does not flutter";
        MEETING: f64 = 8.0, "",
            "an operation of the disk may take so many times as long as the network: it has brought a ninth of its file when they meet",
            "the replay";
        IDLE_SHARE: f64 = 0.008, "",
            "share of the transfer's time that the network may wait for the disk in vain",
            "the replay";
        PROCESSORS_SHORT_FROM: u64 = 70, "%",
            "of the time something waits for a processor or a disk: they are short",
            "not by itself";
        PROCESSORS_FREE_BELOW: u64 = 40, "%",
            "and no longer are",
            "apart from the one before, so that it does not flutter";
        LEFT_PROCESSORS: f64 = 1.5, "",
            "times as much as the network must an older version bring to be left the processors while they are short",
            "the replay";
    }
    "How long is searched in vain?" {
        SEARCH_SHARE: f64 = 0.1, "",
            "share of one core's time, for as long as the transfer takes at the network's rate",
            "[dsync](../results/dsync.md#looking-in-vain)";
        LOOKED_AT: f64 = 8.0, "",
            "bytes that may be looked at for each byte that is wanted",
            "[dsync](../results/dsync.md#looking-in-vain)";
        EARNED: f64 = 0.25, "s",
            "a second that the network was spared earns so much",
            "not by itself";
        UNKNOWN_TIME: f64 = 60.0, "s",
            "the network is expected to need so long while nobody knows its rate",
            "a guess: it counts only until the network's rate is known";
        JUDGED: f64 = 2.4, "",
            "times its own time that an operation costs, as its results are judged, too",
            "`lab/scenarios/looking.toml`: the receiver's CPU seconds beyond those without search are 2.2 to 2.35 times";
        WOKEN: f64 = 0.0025, "s",
            "an operation costs so much besides, as threads wake for it",
            "[rough edges](../results/rough-edges.md#looking-in-vain-again)";
        REST: u32 = 9, "",
            "times as long as it worked the search rests while others wait",
            "[dsync](../results/dsync.md#figures-8-and-9-others-use-the-disk)";
        GLANCE: f64 = 0.1, "s",
            "a slow network waits so long for a first look around",
            "the replay";
        GLANCE_SHARE: f64 = 0.04, "",
            "but no more than this share of its time",
            "the replay";
        LONG_RUN: f64 = 0.4, "s",
            "if a run of 256 KiB takes it longer than this",
            "the replay";
    }
    "Is a delta worth it?" {
        LEAST_NAMED: u64 = 256, "bytes",
            "a file of fewer bytes comes as fast as its name, so none is asked",
            "a name is 33 bytes, and costs a question";
        LEAST_SIGNED: u64 = 2 << 10, "bytes",
            "a file of fewer bytes comes as fast as a signature",
            "[delta](../results/delta.md#tried)";
        MOST_GROWN: u64 = 8, "",
            "times as large, or as small, may be what lies in a file's place to be its base",
            "a guess";
        SIGNATURE_TIME: Duration = Duration::from_millis(50), "",
            "for each of these in a round trip one signature more goes ahead",
            "a part's signature, some 20 KB, takes so long at 3 Mbit/s";
        OUTLINES_BELOW: f64 = 4e6, "MB/s",
            "deltas come in steps, as a round trip costs less than literals that it saves",
            "[attempts](../results/attempts.md#copies-deltas-and-packing)";
        MOST_WHOLE: u64 = 4 << 20, "bytes",
            "a file of at most so many comes as one delta of its older version; of a larger one the recipe tells what is alike",
            "[delta](../results/delta.md#small-files-by-ticket)";
        LEAST_DELTA: u64 = 1 << 10, "bytes",
            "a chunk or region of fewer bytes is not worth a signature",
            "not by itself";
        DELTA_RATE: f64 = 150e6, "MB/s",
            "a chunk's region is read and signed, and looked through, so fast",
            "not by itself";
        LIKENESS: f64 = 0.5, "",
            "share of a region that a chunk's delta is expected to take over",
            "a guess";
        DELTA_MARGIN: f64 = 1.5, "",
            "times as long as the work must the network take for the bytes that a chunk's delta saves",
            "both are guesses, so more than once";
    }
    "How hard is packed?" {
        PACKED_LESS_FROM: f64 = 4e6, "MB/s",
            "a receiver asks for `MEDIUM_LEVEL`, and a sender packs at most with `EASY_LEVEL`",
            "[delta](../results/delta.md#tried): far, node took 3.33 s at level 9 throughout, 2.04 s so";
        PACKED_LITTLE_FROM: f64 = 12e6, "MB/s",
            "both use `QUICK_LEVEL`",
            "[delta](../results/delta.md#tried)";
        HARDEST_LEVEL: i32 = 9, "",
            "zstd's level that a receiver asks for at most",
            "[attempts](../results/attempts.md#copies-deltas-and-packing)";
        MEDIUM_LEVEL: i32 = 5, "",
            "zstd's level that a receiver asks for from `PACKED_LESS_FROM` on",
            "[delta](../results/delta.md#tried)";
        EASY_LEVEL: i32 = 3, "",
            "zstd's level of a sender from `PACKED_LESS_FROM` on, and before it knows the network",
            "[delta](../results/delta.md#tried)";
        QUICK_LEVEL: i32 = 1, "",
            "zstd's level from `PACKED_LITTLE_FROM` on",
            "[delta](../results/delta.md#tried)";
        LATE: Duration = Duration::from_millis(50), "",
            "bytes that are so late wait for the network or the receiver: packed as hard as the receiver asks",
            "less comes of busy machines";
    }
    "Which file may be an older version?" {
        SAME_MOST: u64 = 4 << 20, "bytes",
            "a larger file is not taken for the same by size, time and name: the search finds it, whole or in part",
            "not by itself";
        LARGE: u64 = 512 << 10, "bytes",
            "a file from this size on is sought under other names and elsewhere, too",
            "of smaller ones all that could be saved is little more than a question costs";
        MOST_RESIZED: u64 = 10, "",
            "of how many parts the size of a renamed file may have changed by one",
            "most files of a directory differ by more";
        VERSION_GROWN: u64 = 2, "",
            "times as large, or as small, may be an older version that is guessed",
            "a guess";
        MISSES: u64 = 16, "",
            "so many more guesses, or names of bases, may fail than prove right before no more are made",
            "[attempts](../results/attempts.md#copies-deltas-and-packing): a wrong base costs 1.1 s, where the file takes 272 s";
        WEAK_SAME: u64 = 128, "",
            "guesses at first that a file is the same by name and size, or by size alone",
            "not by itself";
        WEAK_BASES: u64 = 32, "",
            "guesses at first that a file is an older version by what many files have in common",
            "not by itself";
        WEAK_PER_HIT: u64 = 2, "",
            "further such guesses for each one that proved right",
            "not by itself";
        LOOK_SHARE: f64 = 0.1, "",
            "share of the time that requested files take, for which they wait for the look at the destination",
            "not by itself";
        LOOK_WAIT: Duration = Duration::from_secs(1), "",
            "and the longest such wait; half of it for the walk around the destination",
            "not by itself";
        BLIND_LOOK_WAIT: Duration = Duration::from_millis(100), "",
            "the same before the rate is known",
            "not by itself";
        BLIND_WALK_SHARE: f64 = 0.03, "",
            "share of the time at `SLOW_BELOW` for the walk before the rate is known, as all of it is lost where nothing is found",
            "[dsync](../results/dsync.md#tried): nothing to find, 100,000 files in the home, no loss";
        BLIND_WALK: Duration = Duration::from_millis(200), "",
            "and the longest such walk",
            "[dsync](../results/dsync.md#tried): nothing to find, 100,000 files in the home, no loss";
        WORTH_WAITING: u64 = 64 << 10, "bytes",
            "with `--delete` a new file from this size on waits for the end of the walk: it may have been renamed",
            "not by itself";
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use towpath_protocol::pack_backoff;

    /// One row of the page.
    pub struct Row {
        pub name: &'static str,
        pub value: fn() -> String,
        pub decides: &'static str,
        pub measured: &'static str,
    }

    /// A value as the page shows it.
    pub trait Shown {
        fn shown(&self, unit: &str) -> String;
    }

    impl Shown for Duration {
        fn shown(&self, _: &str) -> String {
            match self.as_millis() {
                ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
                ms => format!("{ms} ms"),
            }
        }
    }

    impl Shown for f64 {
        fn shown(&self, unit: &str) -> String {
            let value = if unit == "MB/s" { self / 1e6 } else { *self };
            format!("{value} {unit}").trim().into()
        }
    }

    impl Shown for u64 {
        fn shown(&self, unit: &str) -> String {
            match unit {
                "bytes" if *self >= 1 << 20 => format!("{} MiB", self >> 20),
                "bytes" if *self >= 1 << 10 => format!("{} KiB", self >> 10),
                "MB/s" => (*self as f64).shown(unit),
                _ => format!("{self} {unit}").trim().into(),
            }
        }
    }

    impl Shown for u32 {
        fn shown(&self, unit: &str) -> String {
            u64::from(*self).shown(unit)
        }
    }

    impl Shown for i32 {
        fn shown(&self, unit: &str) -> String {
            self.unsigned_abs().shown(unit)
        }
    }

    /// Values that `protocol` has.
    const COMPRESSION: &[Row] = &[
        Row {
            name: "UNASKED_BELOW",
            value: || pack_backoff::UNASKED_BELOW.shown("MB/s"),
            decides: "data that wait are compressed unasked: the network takes less than one processor compresses",
            measured: "[performance](../results/performance.md#compression)",
        },
        Row {
            name: "LEAST_SAVED",
            value: || (pack_backoff::LEAST_SAVED as u64).shown(""),
            decides: "of how many parts one must be saved for packing to be worth it",
            measured: "[performance](../results/performance.md#compression)",
        },
        Row {
            name: "MOST_PASSED_OVER",
            value: || pack_backoff::MOST_PASSED_OVER.shown(""),
            decides: "messages in a row that go unpacked at most after some that hardly became less: 1, 2, 4 and so on",
            measured: "its test: of frames that shrink in every second run of four, three quarters are packed",
        },
    ];

    fn page() -> String {
        let mut page = String::new();
        let all = HEADINGS.iter().copied().chain([("Is packing given up? (`protocol`)", COMPRESSION)]);
        for (heading, rows) in all {
            write!(page, "## {heading}\n\n| name | value | decides | measured |\n|---|---|---|---|\n")
                .unwrap();
            for Row { name, value, decides, measured } in rows {
                writeln!(page, "| `{name}` | {} | {decides} | {measured} |", value()).unwrap();
            }
            page.push('\n');
        }
        page
    }

    /// Where it fails, what it prints belongs between the page's first heading and its last.
    #[test]
    fn the_page_has_the_rows_of_the_table() {
        let page = page();
        let written = include_str!("../../../../docs/design/policy.md");
        assert!(written.contains(&page), "docs/design/policy.md differs from:\n{page}");
    }
}
