//! A scenario's `[run]` table: who transfers what, and how often.
//!
//! ```toml
//! [run]
//! from = "sender"
//! to = "receiver"                 # or several: ["leaf1", "leaf2"], or "leaf*"
//! programs = ["tow-get", "wget"]
//! data = ["random 4k", "typescript 6.0.2 6.0.3"]
//! runs = 5                        # 3 by default
//! limit = "120s"                  # for one transfer; 300 s by default
//! cases = ["fast"]                # all by default
//! against = "wget"                # the tables compare with it; or { tow-get = "rsync", tow-cp = "scp" }
//! tmpfs = true                    # the data and every host's files are kept in memory
//! plot = "rtt"                    # throughput over round-trip time; "files": seconds over their number; "rate": over
//!                                 # the rate that cases have in their names
//!
//! [run.short]                     # what --short does instead: any of programs, data, runs, limit, cases
//! data = ["random 4k"]
//! ```
//!
//! A program may stand there with more words, under a name of its own: `{ name = "tow-cp -z", of = "tow-cp",
//! args = ["-z"] }`. With `interrupt = "90%"` it is killed when so much has been sent, then started again, and
//! what it then takes is measured. `config` is the text of both sides' `tow` configuration, and `at = "renamed"` says
//! where this program finds the older version, whatever the data say.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use toml::{Table, Value};
use towpath_simnet::scenario::{Case, Scenario};
use towpath_simnet::units;

use crate::data::{DataError, Line, LinePlace};
use crate::disk::TMPFS;
use crate::programs::{self, Program};
use crate::results::Axis;

const DEFAULT_RUNS: u32 = 3;
const DEFAULT_LIMIT: Duration = Duration::from_secs(300);

/// Fault of a `[run]` table or the words that change it.
#[derive(Debug, Error)]
pub enum PlanError {
    /// There is none.
    #[error("the scenario has no [run] table; docs/lab.md tells what goes into it")]
    NoRun,
    /// A field is not known or has the wrong form.
    #[error("[run]: {0}")]
    Form(String),
    /// A name.
    #[error("there is no {kind} `{name}`; there is: {known}")]
    Unknown {
        /// Of what.
        kind: &'static str,
        /// Name with the fault.
        name: String,
        /// Names that could have been meant.
        known: String,
    },
    /// Data.
    #[error(transparent)]
    Data(#[from] DataError),
}

/// One name or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum PlanNames {
    One(String),
    Several(Vec<String>),
}

/// A program's name, or a variation of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum ProgramFields {
    Name(String),
    Variation(Variation),
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variation {
    name: String,
    of: String,
    #[serde(default)]
    args: Vec<String>,
    interrupt: Option<String>,
    config: Option<String>,
    at: Option<String>,
}

/// Program that the tables compare with.
#[derive(Deserialize)]
#[serde(untagged)]
enum Against {
    All(String),
    Each(BTreeMap<String, String>),
}

/// A program as a scenario has it run.
#[derive(Clone)]
pub struct Chosen {
    /// Name in tables.
    pub name: String,
    /// Program.
    pub program: &'static dyn Program,
    /// More words for the receiver's command.
    pub args: Vec<String>,
    /// It is killed when this part of the data has been sent, and started again.
    pub interrupt: Option<f64>,
    /// Configuration of `tow`, at both sides.
    pub config: Option<String>,
    /// Place of the older version for it, if not where the data say.
    pub at: Option<LinePlace>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunFields {
    from: String,
    to: PlanNames,
    programs: Vec<ProgramFields>,
    data: Vec<String>,
    runs: Option<u32>,
    limit: Option<String>,
    cases: Option<Vec<String>>,
    against: Option<Against>,
    #[serde(default)]
    tmpfs: bool,
    plot: Option<Axis>,
    #[serde(default)]
    short: PlannedChanges,
}

/// Changes that take the place of the scenario's own.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedChanges {
    /// Names of programs.
    pub programs: Option<Vec<String>>,
    /// Lines that name data.
    pub data: Option<Vec<String>>,
    /// Number of runs.
    pub runs: Option<u32>,
    /// For one transfer.
    pub limit: Option<String>,
    /// Names of cases.
    pub cases: Option<Vec<String>>,
}

/// Plan of what will be done.
pub struct Plan {
    /// Host that has the data.
    pub from: String,
    /// Hosts that want them.
    pub to: Vec<String>,
    /// In turn.
    pub programs: Vec<Chosen>,
    /// Program that the tables compare each with, by name.
    pub against: BTreeMap<String, String>,
    /// All is kept in memory.
    pub is_in_memory: bool,
    /// Axes of the plot, if they do not follow from what was run.
    pub plot: Option<Axis>,
    /// Lines that name data.
    pub data: Vec<String>,
    /// Number of runs.
    pub runs: u32,
    /// For one transfer.
    pub limit: Duration,
    /// Cases to run.
    pub cases: Vec<Case>,
}

impl Plan {
    /// Plan of a scenario, in its short form if asked for, with further changes.
    pub fn of(scenario: &Scenario, is_short: bool, changes: &PlannedChanges) -> Result<Self, PlanError> {
        if scenario.run.is_empty() {
            return Err(PlanError::NoRun);
        }
        let run: RunFields = Value::Table(scenario.run.clone())
            .try_into()
            .map_err(|error: toml::de::Error| PlanError::Form(error.message().to_owned()))?;
        let short = if is_short { run.short } else { PlannedChanges::default() };
        let changes = [changes, &short];
        let known = run.programs.into_iter().map(Chosen::read).collect::<Result<Vec<_>, _>>()?;
        let programs = match first(&changes, |it| it.programs.clone()) {
            Some(names) => names.iter().map(|name| choose_program(name, &known)).collect::<Result<_, _>>()?,
            None => known,
        };
        let data = first(&changes, |it| it.data.clone()).unwrap_or(run.data);
        data.iter().try_for_each(|line| Line::parse(line).map(drop))?;
        let limit = first(&changes, |it| it.limit.clone()).or(run.limit);
        let limit = limit.map(|text| units::duration(&text)).transpose().map_err(PlanError::Form)?;
        let cases = first(&changes, |it| it.cases.clone()).or(run.cases);
        let runs = first(&changes, |it| it.runs).or(run.runs).unwrap_or(DEFAULT_RUNS);
        if runs == 0 || programs.is_empty() || data.is_empty() {
            return Err(PlanError::Form("there is nothing to run: no runs, no programs or no data".into()));
        }
        Ok(Self {
            from: hosts(scenario, &run.from)?.remove(0),
            to: receivers(scenario, run.to)?,
            against: compare(run.against, &programs),
            programs,
            is_in_memory: run.tmpfs,
            plot: run.plot,
            data,
            runs,
            limit: limit.unwrap_or(DEFAULT_LIMIT),
            cases: choose(scenario, cases)?,
        })
    }

    /// The scenario as it is made for this: hosts without a disk have one in memory if all is.
    pub fn prepare(&self, mut scenario: Scenario) -> Scenario {
        for host in scenario.hosts.iter().filter(|_| self.is_in_memory) {
            let memory = Table::from_iter([("file_system".to_owned(), TMPFS.into())]);
            scenario.disk.entry(host.clone()).or_insert_with(|| memory.into());
        }
        scenario
    }
}

impl Chosen {
    fn read(fields: ProgramFields) -> Result<Self, PlanError> {
        let Variation { name, of, args, interrupt, config, at } = match fields {
            ProgramFields::Name(name) => Variation { of: name.clone(), name, ..Variation::default() },
            ProgramFields::Variation(variation) => variation,
        };
        let interrupt = interrupt.map(|text| units::share(&text)).transpose().map_err(PlanError::Form)?;
        let place = |word: String| {
            LinePlace::read(&word).ok_or_else(|| PlanError::Form(format!("at: `{word}` is no place")))
        };
        Ok(Self { name, program: program(&of)?, args, interrupt, config, at: at.map(place).transpose()? })
    }
}

/// One of the scenario's, or else any.
fn choose_program(name: &str, known: &[Chosen]) -> Result<Chosen, PlanError> {
    match known.iter().find(|chosen| chosen.name == name) {
        Some(chosen) => Ok(chosen.clone()),
        None => Chosen::read(ProgramFields::Name(name.into())),
    }
}

/// Program that each is compared with; none with itself.
fn compare(against: Option<Against>, programs: &[Chosen]) -> BTreeMap<String, String> {
    match against {
        None => BTreeMap::new(),
        Some(Against::Each(each)) => each,
        Some(Against::All(peer)) => {
            let others = programs.iter().filter(|chosen| chosen.name != peer);
            others.map(|chosen| (chosen.name.clone(), peer.clone())).collect()
        }
    }
}

/// Value of the first that has one.
fn first<T>(changes: &[&PlannedChanges], of: impl Fn(&PlannedChanges) -> Option<T>) -> Option<T> {
    changes.iter().find_map(|it| of(it))
}

fn unknown<'a>(kind: &'static str, name: &str, known: impl Iterator<Item = &'a str>) -> PlanError {
    let known = known.collect::<Vec<_>>().join(", ");
    PlanError::Unknown { kind, name: name.into(), known }
}

fn program(name: &str) -> Result<&'static dyn Program, PlanError> {
    let known = programs::ALL.iter().map(|program| program.name());
    programs::find(name).ok_or_else(|| unknown("program", name, known))
}

/// Hosts of this name, or all that begin as it does if it ends in `*`. At least one.
fn hosts(scenario: &Scenario, name: &str) -> Result<Vec<String>, PlanError> {
    let is_meant = |host: &&String| match name.strip_suffix('*') {
        Some(start) => host.starts_with(start),
        None => *host == name,
    };
    let found: Vec<String> = scenario.hosts.iter().filter(is_meant).cloned().collect();
    match found.is_empty() {
        true => Err(unknown("host", name, scenario.hosts.iter().map(String::as_str))),
        false => Ok(found),
    }
}

fn receivers(scenario: &Scenario, names: PlanNames) -> Result<Vec<String>, PlanError> {
    let names = match names {
        PlanNames::One(name) => vec![name],
        PlanNames::Several(names) => names,
    };
    let hosts = names.iter().map(|name| hosts(scenario, name)).collect::<Result<Vec<_>, _>>()?.concat();
    match hosts.is_empty() {
        true => Err(PlanError::Form("`to` names no host".into())),
        false => Ok(hosts),
    }
}

fn choose(scenario: &Scenario, names: Option<Vec<String>>) -> Result<Vec<Case>, PlanError> {
    let Some(names) = names else { return Ok(scenario.cases.clone()) };
    let find = |name: &String| {
        let known = scenario.cases.iter().map(|case| case.name.as_str());
        scenario
            .cases
            .iter()
            .find(|case| case.name == *name)
            .cloned()
            .ok_or_else(|| unknown("case", name, known))
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(run: &str) -> Scenario {
        let net = "about = ''\nhosts = ['a']\n[[star]]\ncentre = 'a'\nleaf = 'r'\ncount = 3\n\
                   [[case]]\nname = 'slow'\n[[case]]\nname = 'fast'\n";
        Scenario::parse(&format!("{net}{run}")).unwrap()
    }

    const RUN: &str = "[run]\nfrom = 'a'\nto = 'r*'\nprograms = ['wget', 'scp']\ndata = ['random 4k']\n";

    #[test]
    fn the_short_form_and_the_command_line_take_precedence() {
        let scenario = scenario(&format!("{RUN}runs = 5\n[run.short]\nruns = 1\ncases = ['fast']\n"));
        let plan = |is_short, changes| Plan::of(&scenario, is_short, &changes).unwrap();
        let full = plan(false, PlannedChanges::default());
        assert_eq!((full.runs, full.cases.len(), full.to.len()), (5, 2, 3));
        let short = plan(true, PlannedChanges::default());
        assert_eq!((short.runs, &short.cases[0].name[..]), (1, "fast"));
        assert_eq!(plan(true, PlannedChanges { runs: Some(2), ..PlannedChanges::default() }).runs, 2);
    }

    #[test]
    fn a_program_can_be_varied_and_compared() {
        let run = RUN.replace(
            "['wget', 'scp']",
            "['wget', { name = 'wget -4', of = 'wget', args = ['-4'], interrupt = '90%', at = 'renamed' }]\nagainst = 'wget'\n\
             tmpfs = true\nplot = 'rtt'",
        );
        let scenario = scenario(&run);
        let plan = Plan::of(&scenario, false, &PlannedChanges::default()).unwrap();
        let varied = &plan.programs[1];
        assert_eq!(
            (&varied.name[..], varied.program.name(), varied.interrupt, varied.at),
            ("wget -4", "wget", Some(0.9), Some(LinePlace::Renamed))
        );
        assert_eq!(varied.args, ["-4"]);
        assert_eq!(plan.against, BTreeMap::from([("wget -4".into(), "wget".into())]));
        assert_eq!(plan.plot, Some(Axis::RoundTrip));
        assert_eq!(plan.prepare(scenario.clone()).disk.len(), 4, "a disk for each host");
        let only = PlannedChanges {
            programs: Some(vec!["wget -4".into(), "scp".into()]),
            ..PlannedChanges::default()
        };
        let names: Vec<_> = Plan::of(&scenario, false, &only).unwrap().programs;
        assert_eq!(names.iter().map(|it| &it.name[..]).collect::<Vec<_>>(), ["wget -4", "scp"]);
    }

    #[test]
    fn what_is_not_there_is_named_with_what_there_is() {
        let told = |text: &str| {
            Plan::of(&scenario(text), false, &PlannedChanges::default()).err().unwrap().to_string()
        };
        assert!(told("").contains("no [run]"));
        assert!(told(&RUN.replace("scp", "spc")).starts_with("there is no program `spc`; there is: tow-cp"));
        assert!(told(&RUN.replace("'r*'", "'b'")).contains("there is no host `b`; there is: a, r1, r2, r3"));
        assert!(told(&RUN.replace("random 4k", "random")).contains("names no data"));
        assert!(told(&format!("{RUN}cases = ['x']")).contains("slow, fast"));
        assert!(told(&format!("{RUN}speed = 'x'")).contains("unknown field"));
        assert!(told(&format!("{RUN}runs = 0")).contains("nothing to run"));
    }
}
