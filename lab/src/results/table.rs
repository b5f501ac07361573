//! The results as a page: seconds at a glance, then everything else.

use std::fmt::Write;

use super::summary::{ResultGroup, ResultSummary};
use super::{Measured, ReportAbout, Row};

/// Head above the tables.
pub struct TableHead<'a> {
    /// The scenario.
    pub name: &'a str,
    /// Subject of it.
    pub about: &'a ReportAbout<'a>,
    /// True if there is a plot.
    pub has_plot: bool,
}

/// The whole page.
pub fn markdown(head: &TableHead, rows: &[Row], summary: &ResultSummary) -> String {
    let mut page = format!("# {}\n\n{}\n\n", head.name, head.about.text);
    if let Some(row) = rows.first() {
        let about = &row.provenance;
        page += &format!(
            "`{}`, {} build, commit {}, {}. {}.\n\n",
            head.about.command, about.build, about.commit, about.date, about.machine
        );
    }
    if head.has_plot {
        page += &format!("![A plot of this]({}.svg)\n\n", head.name);
    }
    page += "Seconds, the median of the runs; in brackets the fastest and the slowest.\n\n";
    page += &glance(summary);
    page += "\nMedians. CPU seconds of both sides together for each GiB of the data, the larger side's peak memory, and \
             how many times the seconds of the program named.\n\n";
    page += &costs(summary, head.about);
    page += "\nMedians. CPU seconds and peak memory (of the largest process) of each side; bytes that the sender \
             put on the wire and that came back to it, headers and losses counted; bytes by source as the program \
             tells them; CPU of the emulator while it ran, 100 % being one core.\n\n";
    page += &details(summary);
    page += &failures(summary);
    page
}

/// A line for each case and data, a column for each program.
fn glance(summary: &ResultSummary) -> String {
    let programs = summary.programs();
    let mut table = header(["case", "data"].into_iter().chain(programs.iter().copied()));
    for case in summary.cases() {
        for data in summary.data() {
            let here: Vec<_> =
                summary.groups.iter().filter(|group| group.case == case && group.data == data).collect();
            if here.is_empty() {
                continue;
            }
            let cells = programs.iter().map(|program| {
                here.iter()
                    .find(|group| group.program == *program)
                    .map_or_else(|| "–".into(), |group| seconds(group))
            });
            table += &line([case.to_owned(), data.to_owned()].into_iter().chain(cells));
        }
    }
    table
}

fn seconds(group: &ResultGroup) -> String {
    match group.point() {
        None => "failed".into(),
        Some(point) if group.rows.len() == 1 => short(point.median),
        Some(point) => format!("{} ({}–{})", short(point.median), short(point.low), short(point.high)),
    }
}

/// Costs of a transfer, and how it compares.
fn costs(summary: &ResultSummary, about: &ReportAbout) -> String {
    let names =
        ["case", "data", "program", "seconds", "Mbit/s", "CPU s/GiB", "memory", "on the wire", "compared"];
    let mut table = header(names.into_iter());
    for group in &summary.groups {
        let number = |value: Option<f64>| value.map_or_else(|| "–".into(), short);
        let size = |value: Option<f64>| value.map_or_else(|| "–".into(), bytes);
        let compared = about
            .against
            .get(group.program)
            .and_then(|peer| summary.ratio(group, peer).map(|ratio| format!("{} x {peer}", short(ratio))));
        table += &line([
            group.case.to_owned(),
            group.data.to_owned(),
            group.program.to_owned(),
            number(group.median(|run| run.seconds)),
            number(group.median(|run| group.bytes as f64 * 8.0 / 1e6 / run.seconds)),
            number(group.median(|run| run.cpu_per_gib(group.bytes))),
            size(group.median(|run| run.peak_memory() as f64)),
            size(group.median(|run| (run.sent + run.received) as f64)),
            compared.unwrap_or_default(),
        ]);
    }
    table
}

const DETAILS: [&str; 12] = [
    "case",
    "data",
    "program",
    "runs",
    "CPU sender",
    "CPU receiver",
    "memory sender",
    "memory receiver",
    "sent",
    "received",
    "sources",
    "emulator",
];

fn details(summary: &ResultSummary) -> String {
    let mut table = header(DETAILS.into_iter());
    for group in &summary.groups {
        let number = |of: fn(&Measured) -> f64| group.median(of).map_or_else(|| "–".into(), short);
        let size = |of: fn(&Measured) -> f64| group.median(of).map_or_else(|| "–".into(), bytes);
        let share = group.median(|run| run.emulator_share * 100.0).map(|share| format!("{share:.0} %"));
        table += &line([
            group.case.to_owned(),
            group.data.to_owned(),
            group.program.to_owned(),
            format!("{} of {}", group.measured().count(), group.rows.len()),
            number(|run| run.sender.cpu_seconds),
            number(|run| run.receiver.cpu_seconds),
            size(|run| run.sender.peak_memory as f64),
            size(|run| run.receiver.peak_memory as f64),
            size(|run| run.sent as f64),
            size(|run| run.received as f64),
            sources(group),
            share.unwrap_or_else(|| "–".into()),
        ]);
    }
    table
}

/// Of the last run.
fn sources(group: &ResultGroup) -> String {
    let Some(run) = group.measured().last() else { return String::new() };
    let parts: Vec<_> =
        run.sources.iter().map(|(source, len)| format!("{source} {}", bytes(*len as f64))).collect();
    parts.join(", ")
}

fn failures(summary: &ResultSummary) -> String {
    let mut list = String::new();
    for group in &summary.groups {
        if let Some(error) = group.error() {
            let _ = writeln!(list, "- {} {}, {}: {error}", group.case, group.data, group.program);
        }
    }
    if list.is_empty() { list } else { format!("\nWhat failed:\n\n{list}") }
}

fn header<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<_> = cells.map(str::to_owned).collect();
    let rule = vec!["---".to_owned(); cells.len()];
    line(cells) + &format!("|{}|\n", rule.join("|"))
}

fn line(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<_> = cells.into_iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Three digits that count.
pub fn short(value: f64) -> String {
    match value {
        value if value >= 99.5 => format!("{value:.0}"),
        value if value >= 9.95 => format!("{value:.1}"),
        value if value >= 0.995 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// A number with a comma after each three digits; one below 1 as it is.
pub fn decimal(value: f64) -> String {
    if value < 1.0 {
        return value.to_string();
    }
    let digits = format!("{value:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|it| std::str::from_utf8(it).ok()).collect();
    groups.join(",")
}

/// Bytes in the units that their size deserves.
pub fn bytes(value: f64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| value >= *unit as f64) {
        None => format!("{value:.0} B"),
        Some((unit, name)) => {
            let value = value / unit as f64;
            if value >= 9.95 || value.fract() < 0.05 {
                format!("{value:.0} {name}")
            } else {
                format!("{value:.1} {name}")
            }
        }
    }
}
