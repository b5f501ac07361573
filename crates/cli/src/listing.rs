//! Terms of tickets in words, and lines of `tow get --list`: kind and mode, size, time, path, as `ls -l` has them. Times are UTC.

use towpath_api::copy::FileTime;
use towpath_api::{EntryKind, ListedEntry, TicketTerms};
use towpath_service::display_name;
use towpath_words as words;

/// Seconds of a day.
const DAY: i64 = 24 * 60 * 60;

/// The line of an entry.
pub fn line(entry: &ListedEntry) -> String {
    let size = match (entry.kind, entry.size) {
        (_, Some(size)) => size.to_string(),
        (EntryKind::File, None) => "?".into(),
        (_, None) => "-".into(),
    };
    let time = entry.modified.map_or_else(|| "?".into(), date);
    let slash = if entry.kind == EntryKind::Directory { "/" } else { "" };
    let path = display_name(entry.path.as_os_str().as_encoded_bytes());
    let target = entry.target.as_ref().map(|target| display_name(target.as_os_str().as_encoded_bytes()));
    let target = target.map(|target| format!(" -> {target}")).unwrap_or_default();
    let why = if entry.left_out { " (left out by the sender)" } else { "" };
    format!("{}{} {size:>13} {time:>19} {path}{slash}{target}{why}", letter(entry.kind), mode(entry.mode))
}

/// Terms in words; `None` if there are none.
pub fn terms(terms: TicketTerms) -> Option<String> {
    let end = terms.expires.map(|end| match words::time(end) {
        Some(time) => format!("expires {time}"),
        None => "expires after the year 9999".into(),
    });
    let no_swarm = terms.no_swarm.then(|| "is not passed on by its receivers".to_owned());
    let parts: Vec<_> = end.into_iter().chain(no_swarm).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Terms in words, also of a ticket that has none.
pub fn life(told: TicketTerms) -> String {
    let parts = [
        terms(TicketTerms { no_swarm: false, ..told }).unwrap_or_else(|| "has no end".into()),
        terms(TicketTerms { expires: None, ..told })
            .unwrap_or_else(|| "may be passed on by its receivers".into()),
    ];
    parts.join(", ")
}

const fn letter(kind: EntryKind) -> char {
    match kind {
        EntryKind::File => '-',
        EntryKind::Directory => 'd',
        EntryKind::Symlink => 'l',
        EntryKind::Fifo => 'p',
        EntryKind::Socket => 's',
        EntryKind::CharDevice => 'c',
        EntryKind::BlockDevice => 'b',
    }
}

/// `rwxr-xr-x`, with the letters of setuid, setgid and sticky.
fn mode(mode: Option<u32>) -> String {
    let Some(mode) = mode else { return "?".repeat(9) };
    let mut text = String::with_capacity(9);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}

/// `2026-11-25 01:51:21`. Whatever a sender says is a date.
fn date(time: FileTime) -> String {
    let (days, second) = (time.seconds.div_euclid(DAY), time.seconds.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}", second % 60)
}

/// Year, month and day of so many days after 1970-01-01. A year begins with March here, so that the day that is not in
/// every year is its last one.
const fn civil(days: i64) -> (i64, i64, i64) {
    // Days of 400 years, of a century, of four years but one, and those from 0000-03-01 to 1970-01-01.
    let (era_days, century, four_years, epoch) = (146_097, 36_524, 1460, 719_468);
    let days = days + epoch;
    let (era, of_era) = (days.div_euclid(era_days), days.rem_euclid(era_days));
    let year = (of_era - of_era / four_years + of_era / century - of_era / (era_days - 1)) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let is_next = month >= 10;
    let (year, month) = (year + era * 400, if is_next { month - 9 } else { month + 3 });
    (if is_next { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_764_035_481, "2025-11-25 01:51:21"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (-2_208_988_800, "1900-01-01 00:00:00"),
        ] {
            assert_eq!(date(FileTime { seconds, nanos: 0 }), text);
        }
        assert!(date(FileTime { seconds: i64::MAX, nanos: 0 }).starts_with("292277026596-12-04"));
        assert!(date(FileTime { seconds: i64::MIN, nanos: 0 }).starts_with("-292277022657"));
    }

    #[test]
    fn modes_are_those_of_ls() {
        for (bits, text) in [
            (0o755, "rwxr-xr-x"),
            (0o6640, "rwSr-S---"),
            (0o4711, "rws--x--x"),
            (0o1777, "rwxrwxrwt"),
            (0, "---------"),
        ] {
            assert_eq!(mode(Some(bits)), text);
        }
        assert_eq!(mode(None), "?????????");
    }

    #[test]
    fn a_name_that_would_paint_the_terminal_is_escaped() {
        let entry = ListedEntry {
            path: "a\x1b[2J".into(),
            kind: EntryKind::Symlink,
            mode: Some(0o777),
            size: None,
            modified: None,
            target: Some("b\n".into()),
            left_out: false,
        };
        assert_eq!(line(&entry), r"lrwxrwxrwx             -                   ? a\u{1b}[2J -> b\n");
    }

    #[test]
    fn terms_are_told_in_words() {
        assert_eq!(terms(TicketTerms::default()), None);
        let both = TicketTerms { expires: Some(1_798_761_600), no_swarm: true };
        let told = "expires 2027-01-01 00:00:00 UTC, is not passed on by its receivers";
        assert_eq!(terms(both).as_deref(), Some(told));
        let far = TicketTerms { expires: Some(u64::MAX), no_swarm: false };
        assert_eq!(terms(far).as_deref(), Some("expires after the year 9999"));
        assert_eq!(life(TicketTerms::default()), "has no end, may be passed on by its receivers");
        assert_eq!(life(both), told);
        let ends = TicketTerms { no_swarm: false, ..both };
        assert_eq!(life(ends), "expires 2027-01-01 00:00:00 UTC, may be passed on by its receivers");
        let endless = TicketTerms { expires: None, ..both };
        assert_eq!(life(endless), "has no end, is not passed on by its receivers");
    }
}
