//! Many runs become one point: the median of what succeeded, and its spread.

use super::{Measured, Row};

/// All runs of one program with the same data in one case.
#[derive(Debug, Clone)]
pub struct ResultGroup<'a> {
    /// The case.
    pub case: &'a str,
    /// Data that were transferred.
    pub data: &'a str,
    /// Its bytes.
    pub bytes: u64,
    /// Its files.
    pub files: u64,
    /// Seconds there and back.
    pub round_trip: f64,
    /// The program.
    pub program: &'a str,
    /// Its runs.
    pub rows: Vec<&'a Row>,
}

/// Seconds of a group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point<'a> {
    /// The case.
    pub case: &'a str,
    /// Data that were transferred.
    pub data: &'a str,
    /// Its bytes.
    pub bytes: u64,
    /// Its files.
    pub files: u64,
    /// Seconds there and back.
    pub round_trip: f64,
    /// The program.
    pub program: &'a str,
    /// Median.
    pub median: f64,
    /// Fastest.
    pub low: f64,
    /// Slowest.
    pub high: f64,
}

/// Groups in the order in which they first ran.
#[derive(Debug, Clone)]
pub struct ResultSummary<'a> {
    /// All.
    pub groups: Vec<ResultGroup<'a>>,
}

impl<'a> ResultSummary<'a> {
    /// Of all rows.
    pub fn of(rows: &'a [Row]) -> Self {
        let mut groups: Vec<ResultGroup> = Vec::new();
        for row in rows {
            let is_same = |group: &&mut ResultGroup| {
                (group.case, group.data, group.program) == (&row.case, &row.data, &row.program)
            };
            match groups.iter_mut().find(is_same) {
                Some(group) => group.rows.push(row),
                None => groups.push(ResultGroup {
                    case: &row.case,
                    data: &row.data,
                    bytes: row.bytes,
                    files: row.files,
                    round_trip: row.round_trip,
                    program: &row.program,
                    rows: vec![row],
                }),
            }
        }
        Self { groups }
    }

    /// Points that can be drawn.
    pub fn points(&self) -> impl Iterator<Item = Point<'a>> {
        self.groups.iter().filter_map(ResultGroup::point)
    }

    /// Cases in their order.
    pub fn cases(&self) -> Vec<&'a str> {
        distinct(self.groups.iter().map(|group| group.case))
    }

    /// Data in their order.
    pub fn data(&self) -> Vec<&'a str> {
        distinct(self.groups.iter().map(|group| group.data))
    }

    /// Times of the other's seconds that a program takes with the same data in the same case.
    pub fn ratio(&self, group: &ResultGroup, other: &str) -> Option<f64> {
        let is_peer = |it: &&ResultGroup| (it.case, it.data, it.program) == (group.case, group.data, other);
        let peer = self.groups.iter().find(is_peer)?;
        Some(group.median(|run| run.seconds)? / peer.median(|run| run.seconds)?)
    }

    /// Programs in their order.
    pub fn programs(&self) -> Vec<&'a str> {
        distinct(self.groups.iter().map(|group| group.program))
    }
}

impl<'a> ResultGroup<'a> {
    /// The runs that succeeded.
    pub fn measured(&self) -> impl Iterator<Item = &'a Measured> {
        self.rows.iter().filter_map(|row| row.measured())
    }

    /// The median of something measured.
    pub fn median(&self, of: impl Fn(&Measured) -> f64) -> Option<f64> {
        median(self.measured().map(of).collect())
    }

    /// Error of the first of those that failed.
    pub fn error(&self) -> Option<&'a str> {
        self.rows.iter().find_map(|row| row.error())
    }

    /// Median and spread of its seconds.
    pub fn point(&self) -> Option<Point<'a>> {
        let seconds = || self.measured().map(|measured| measured.seconds);
        Some(Point {
            case: self.case,
            data: self.data,
            bytes: self.bytes,
            files: self.files,
            round_trip: self.round_trip,
            program: self.program,
            median: median(seconds().collect())?,
            low: seconds().fold(f64::INFINITY, f64::min),
            high: seconds().fold(0.0, f64::max),
        })
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Each once, in the order in which they come first.
pub fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut found, value| {
        if !found.contains(&value) {
            found.push(value);
        }
        found
    })
}
