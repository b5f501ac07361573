//! Runs a scenario: every case, every program on the same data in turn, again and again.
//!
//! Each transfer has a lab of its own, made for it and taken down after it, so that nothing carries
//! over: no connection's memory, no cache, no changed link. Programs alternate within each repetition,
//! so that a change of the machine's mood falls on all of them. A transfer that fails becomes a row
//! that says why, and the next one runs.

mod plan;
mod transfer;

use std::path::Path;

use towpath_simnet::scenario::{Case, Scenario};

use crate::data::{Data, DataError, Store};
use crate::programs::Program;
use crate::results::{Outcome, Provenance, Row};

pub use plan::{Changes, Plan, PlanError};

use transfer::Transfer;

/// A scenario that is about to run.
pub struct Run<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its text.
    pub scenario: &'a Scenario,
    /// What of it.
    pub plan: &'a Plan,
    /// The program `tow`.
    pub tow: &'a Path,
    /// Where data lie.
    pub store: &'a Store,
    /// For every row.
    pub provenance: &'a Provenance,
}

impl Run<'_> {
    /// Runs it, and tells each row as it comes.
    pub fn rows<E: From<DataError>>(&self, mut tell: impl FnMut(Row) -> Result<(), E>) -> Result<(), E> {
        let all: Vec<Data> =
            self.plan.data.iter().map(|line| self.store.get(line)).collect::<Result<_, DataError>>()?;
        for case in &self.plan.cases {
            for data in &all {
                let programs: Vec<_> = self.programs_for(data).collect();
                for run in 1..=self.plan.runs {
                    for program in &programs {
                        tell(self.row(case, data, *program, run))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Not every program carries trees.
    fn programs_for(&self, data: &Data) -> impl Iterator<Item = &'static dyn Program> {
        let is_tree = data.is_tree;
        self.plan.programs.iter().copied().filter(move |program| !is_tree || program.carries_trees())
    }

    fn row(&self, case: &Case, data: &Data, program: &'static dyn Program, run: u32) -> Row {
        let mut transfer = Transfer { run: self, case, data, program, command: String::new() };
        let outcome = match transfer.measure() {
            Ok(measured) => Outcome::Measured(measured),
            Err(error) => Outcome::Error(error.to_string()),
        };
        Row {
            scenario: self.name.to_owned(),
            case: case.name.clone(),
            program: program.name(),
            data: data.name.clone(),
            bytes: data.bytes,
            run,
            command: transfer.command,
            outcome,
            provenance: self.provenance.clone(),
        }
    }
}
