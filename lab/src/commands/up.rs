//! `towpath-lab up`: makes a lab and keeps it until ^C.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;

use towpath_simnet::scenario::{Case, Scenario};

use crate::error::LabError;
use crate::net::Lab;

/// Make the hosts and links of a scenario, and keep them until ^C.
#[derive(Debug, clap::Args)]
pub struct UpArgs {
    /// A scenario file
    scenario: PathBuf,
    /// One of its cases, by its name; by default the first
    #[arg(long, value_name = "NAME")]
    case: Option<String>,
    /// Apply the scenario's changes at their times, from the start
    #[arg(long)]
    changes: bool,
}

/// Runs the command; returns only with an error, as ^C ends the process.
pub fn run(args: &UpArgs) -> Result<(), LabError> {
    let scenario = read(&args.scenario)?;
    let lab = Lab::up(&scenario, choose(&scenario, args.case.as_deref())?)?;
    print(&lab, &scenario).map_err(LabError::tried("writing"))?;
    let _changes = args.changes.then(|| lab.start_changes());
    loop {
        thread::park();
    }
}

/// Reads a scenario file; a mistake in it is told with the file's name.
pub fn read(path: &Path) -> Result<Scenario, LabError> {
    let text = std::fs::read_to_string(path).map_err(LabError::io("reading", path))?;
    Scenario::parse(&text).map_err(|error| LabError::Scenario(format!("{}: {error}", path.display())))
}

fn choose<'a>(scenario: &'a Scenario, name: Option<&str>) -> Result<&'a Case, LabError> {
    let names: Vec<&str> = scenario.cases.iter().map(|case| &case.name[..]).collect();
    let at = name.map_or(Some(0), |name| names.iter().position(|it| *it == name));
    at.and_then(|at| scenario.cases.get(at)).ok_or_else(|| {
        let name = name.unwrap_or_default();
        LabError::Scenario(format!("there is no case `{name}`, but {}", names.join(", ")))
    })
}

fn print(lab: &Lab, scenario: &Scenario) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let name = lab.name();
    writeln!(out, "lab {name} is up; ^C takes it down")?;
    for host in &scenario.hosts {
        let links: Vec<String> = lab.addresses(host).iter().map(ToString::to_string).collect();
        let (address, links) = (lab.address(host), links.join(" "));
        writeln!(
            out,
            "  {host:<16} {address:<14} links {links}; files in {}",
            lab.directory(host).display()
        )?;
    }
    let [host, other] = [scenario.hosts.first(), scenario.hosts.last()].map(|it| it.map_or("HOST", |it| it));
    writeln!(out, "run:    towpath-lab exec {name} {host} ping -c 3 {}", lab.address(other))?;
    if let Some(link) = scenario.links.first() {
        writeln!(out, "change: towpath-lab set {name} {} forth cut=true", link.name)?;
    }
    out.flush()
}
