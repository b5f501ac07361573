//! Runs a scenario: every case, every program on the same data in turn, again and again.
//!
//! Each transfer has a lab of its own, made for it and taken down after it, so that nothing carries
//! over: no connection's memory, no cache, no changed link. Programs alternate within each repetition,
//! so that a change of the machine's mood falls on all of them. A transfer that fails becomes a row
//! that says why, and the next one runs.

mod memory;
mod plan;
mod transfer;

use std::path::Path;
use std::time::Duration;

use towpath_simnet::scenario::{Case, Scenario};

use crate::data::{Data, DataError, DataStore};
use crate::error::LabError;
use crate::results::{Provenance, Row, RunOutcome};

pub use plan::{Chosen, Plan, PlanError, PlannedChanges};

use memory::MemorySampler;
use transfer::LabTransfer;

/// A scenario that is about to run.
pub struct LabRun<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its text.
    pub scenario: &'a Scenario,
    /// Plan of it.
    pub plan: &'a Plan,
    /// The program `tow`.
    pub tow: &'a Path,
    /// Store of the data.
    pub store: &'a DataStore,
    /// For every row.
    pub provenance: &'a Provenance,
}

impl LabRun<'_> {
    /// Runs it, and tells each row as it comes.
    pub fn rows<E: From<DataError> + From<LabError>>(
        &self,
        mut tell: impl FnMut(Row) -> Result<(), E>,
    ) -> Result<(), E> {
        for case in &self.plan.cases {
            for name in &self.plan.data {
                // Gone with the last of its rows: there may be room for one at a time.
                let memory = self.plan.is_in_memory.then(MemorySampler::new).transpose()?;
                let data = match &memory {
                    Some(memory) => self.store.within(memory.dir()).get(name)?,
                    None => self.store.get(name)?,
                };
                let programs: Vec<_> = self.programs_for(&data).collect();
                for run in 1..=self.plan.runs {
                    for chosen in &programs {
                        tell(self.row(case, &data, chosen, run))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Not every program carries trees.
    fn programs_for(&self, data: &Data) -> impl Iterator<Item = &Chosen> {
        let is_tree = data.is_tree;
        self.plan.programs.iter().filter(move |chosen| !is_tree || chosen.program.carries_trees())
    }

    fn row(&self, case: &Case, data: &Data, chosen: &Chosen, run: u32) -> Row {
        let mut transfer = LabTransfer { run: self, case, data, chosen, command: String::new() };
        let outcome = match transfer.measure() {
            Ok(measured) => RunOutcome::Measured(measured),
            Err(error) => RunOutcome::Error(error.to_string()),
        };
        Row {
            scenario: self.name.to_owned(),
            case: case.name.clone(),
            round_trip: self.round_trip(case).as_secs_f64(),
            program: chosen.name.clone(),
            data: data.name.clone(),
            bytes: data.content.bytes,
            files: data.content.files,
            run,
            command: transfer.command,
            outcome,
            provenance: self.provenance.clone(),
        }
    }

    /// The delays of the sender's first link, there and back.
    fn round_trip(&self, case: &Case) -> Duration {
        let sender = self.scenario.host(&self.plan.from);
        let link = case.links.iter().find(|link| link.between.iter().any(|&host| Some(host) == sender));
        link.map_or(Duration::ZERO, |link| link.forth.delay + link.back.delay)
    }
}
