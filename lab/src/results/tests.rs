//! From rows to a table and a plot.

use super::*;

fn row(case: &str, program: &str, bytes: u64, seconds: Option<f64>) -> Row {
    let usage = Usage { cpu_seconds: 0.5, peak_memory: 20 << 20 };
    let outcome = match seconds {
        None => RunOutcome::Error("not done after 1 s".into()),
        Some(seconds) => RunOutcome::Measured(Measured {
            seconds,
            sender: usage,
            receiver: usage,
            receivers: vec![seconds],
            sent: bytes,
            received: 100,
            links: BTreeMap::from([("wire".into(), [bytes, 100])]),
            sources: BTreeMap::from([("peer".into(), bytes)]),
            told: Vec::new(),
            emulator_share: 0.25,
        }),
    };
    Row {
        scenario: "test".into(),
        case: case.into(),
        round_trip: 0.0,
        program: program.into(),
        data: format!("random {bytes}"),
        bytes,
        files: 1,
        run: 1,
        command: "program words".into(),
        outcome,
        provenance: Provenance {
            commit: "0123456789ab".into(),
            date: "2026-01-01T00:00:00Z".into(),
            machine: "2 cores".into(),
            build: "debug".into(),
        },
    }
}

fn finish(
    report: &Report,
    peer: Option<&str>,
    plot: Option<Axis>,
    rows: &[Row],
) -> Result<String, ResultsError> {
    let against = peer.map(|peer| ("tow-get".to_owned(), peer.to_owned())).into_iter().collect();
    let about =
        ReportAbout { text: "A test.", command: "towpath-lab run test.toml", against: &against, plot };
    report.finish(&about, rows)
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (factor, program) in [(1.0, "tow-get"), (2.0, "wget"), (3.0, "scp"), (4.0, "rsync")] {
        for bytes in [4 << 10, 1 << 20, 40 << 20] {
            for run in [0.9, 1.0, 1.2] {
                rows.push(row("fast", program, bytes, Some(factor * run * (0.01 + bytes as f64 / 1e8))));
            }
        }
    }
    rows.push(row("slow", "scp", 4 << 10, None));
    rows
}

#[test]
fn a_report_has_rows_a_table_and_a_plot() {
    let dir = tempfile::tempdir().unwrap();
    let mut report = Report::create(dir.path(), "test").unwrap();
    let rows = rows();
    rows.iter().for_each(|row| report.keep(row).unwrap());
    let table = finish(&report, Some("wget"), None, &rows).unwrap();
    assert!(table.contains("| fast | random 4096 | 0.010 (0.009–0.012) |"), "{table}");
    assert!(table.contains("commit 0123456789ab") && table.contains("2 cores"));
    assert!(table.contains("- slow random 4096, scp: not done after 1 s"), "{table}");
    assert!(table.contains("0.500 x wget |") && table.contains("| 1024 | 20 MiB |"), "{table}");
    assert!(table.contains("| 3 of 3 |") && table.contains("| 25 % |"));
    let lines = fs::read_to_string(report.path("jsonl")).unwrap();
    assert_eq!(lines.lines().count(), rows.len());
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["measured"]["sources"]["peer"], 4096);
    assert_eq!(first["commit"], "0123456789ab");
    let svg = fs::read_to_string(report.path("svg")).unwrap();
    for word in ["tow-get", "wget", "seconds", "size", "fast", "10 kB", "1 MB"] {
        assert!(svg.contains(word), "{word}");
    }
}

#[test]
fn one_size_is_drawn_as_bars() {
    let rows = [row("", "tow-get", 1 << 20, Some(1.0)), row("", "wget", 1 << 20, Some(2.0))];
    let dir = tempfile::tempdir().unwrap();
    let report = Report::create(dir.path(), "bars").unwrap();
    finish(&report, None, None, &rows).unwrap();
    let svg = fs::read_to_string(report.path("svg")).unwrap();
    assert!(svg.contains("wget") && svg.contains("2.00"), "{svg}");
}

#[test]
fn nothing_that_succeeded_is_no_plot() {
    let dir = tempfile::tempdir().unwrap();
    let report = Report::create(dir.path(), "none").unwrap();
    finish(&report, None, None, &[row("", "scp", 1, None)]).unwrap();
    assert!(!report.path("svg").exists());
}

#[test]
fn the_median_is_in_the_middle() {
    assert_eq!(summary::median(vec![3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(summary::median(vec![4.0, 1.0]), Some(2.5));
    assert_eq!(summary::median(Vec::new()), None);
}

#[test]
fn seconds_are_drawn_over_rates_that_cases_name() {
    let dir = tempfile::tempdir().unwrap();
    let report = Report::create(dir.path(), "rates").unwrap();
    let at = |case: &str, seconds| row(case, "wget", 1 << 20, Some(seconds));
    let rows = [at("1.5 Mbit/s", 6.0), at("1 Gbit/s, RTT 9 ms", 0.1), at("unshaped", 0.09)];
    finish(&report, None, Some(Axis::Rate), &rows).unwrap();
    let svg = fs::read_to_string(report.path("svg")).unwrap();
    assert!(
        svg.contains("network, Mbit/s") && svg.contains("1000") && svg.contains("random 1048576"),
        "{svg}"
    );
    // One of the legend, two of the points: nothing is known of the third one's rate.
    assert_eq!(svg.matches("<circle").count(), 3);
}

#[test]
fn numbers_are_read_at_a_glance() {
    let table = [(0.1, "0.1"), (1.0, "1"), (999.0, "999"), (1e3, "1,000"), (12_345_678.0, "12,345,678")];
    for (number, text) in table {
        assert_eq!(table::decimal(number), text);
    }
}

#[test]
fn any_number_of_bars_can_be_drawn() {
    let dir = tempfile::tempdir().unwrap();
    for count in 1..=10 {
        let rows: Vec<Row> = (crate::programs::ALL.iter().take(count))
            .map(|program| row("", program.name(), 1 << 20, Some(1.0)))
            .collect();
        let report = Report::create(dir.path(), "bars").unwrap();
        finish(&report, None, None, &rows).unwrap();
        let svg = fs::read_to_string(report.path("svg")).unwrap();
        assert_eq!(svg.matches("1.00").count(), count);
    }
}

#[test]
fn throughput_is_drawn_over_round_trip_times_and_seconds_over_files() {
    let dir = tempfile::tempdir().unwrap();
    let report = Report::create(dir.path(), "axes").unwrap();
    let at =
        |case: &str, round_trip, seconds| Row { round_trip, ..row(case, "wget", 40 << 20, Some(seconds)) };
    let rows = [at("fast", 0.0, 3.4), at("fast, RTT 33 ms", 0.033, 3.6), at("fast, RTT 66 ms", 0.066, 3.9)];
    finish(&report, None, Some(Axis::RoundTrip), &rows).unwrap();
    let svg = fs::read_to_string(report.path("svg")).unwrap();
    assert!(svg.contains("round-trip time") && svg.contains("Mbit/s") && !svg.contains("RTT 33 ms"), "{svg}");

    let of = |files: u64| Row {
        files,
        data: format!("tiny-files {files} again"),
        ..row("", "wget", files, Some(1.0))
    };
    finish(&report, None, Some(Axis::Files), &[of(1000), of(100_000)]).unwrap();
    let svg = fs::read_to_string(report.path("svg")).unwrap();
    assert!(svg.contains("tiny-files again") && svg.contains("10000"), "{svg}");
}
