//! Limits: a number for each figure in `gate/limits.toml`. They fall with the figures; who raises one says why beside it.

use std::collections::BTreeMap;
use std::path::Path;

/// A figure as it is now, with what it counts.
pub struct Figure {
    /// Name of it in `limits.toml`.
    pub name: &'static str,
    /// Count of them.
    pub value: usize,
    /// Things counted, one line each, or the worst of it.
    pub places: Vec<String>,
}

/// The limits, by the names of their figures.
pub struct Limits(BTreeMap<String, usize>);

impl Limits {
    /// Reads a TOML file of numbers.
    pub fn read(path: &Path) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
        Self::parse(&text).map_err(|error| failed(&error))
    }

    fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text).map(Self)
    }

    /// A table of all figures, and what is wrong: one above its limit, one below it, so that the limit has to
    /// follow, and one that has no limit or is none.
    pub fn compare(&self, figures: &[Figure]) -> (String, Vec<String>) {
        let (mut table, mut complaints) = (String::new(), Vec::new());
        for Figure { name, value, .. } in figures {
            let Some(limit) = self.0.get(*name) else {
                complaints.push(format!("{name} is {value} and has no limit in gate/limits.toml"));
                continue;
            };
            table += &format!("{name:28} {value:5}  limit {limit}\n");
            if value > limit {
                complaints.push(format!(
                    "{name} rose from {limit} to {value}; 'towpath-gate --where {name}' shows where"
                ));
            } else if value < limit {
                complaints.push(format!(
                    "{name} fell to {value}: lower its limit in gate/limits.toml from {limit}"
                ));
            }
        }
        let is_figure = |name: &&String| figures.iter().any(|figure| figure.name == **name);
        let unknown = self.0.keys().filter(|name| !is_figure(name));
        complaints.extend(unknown.map(|name| format!("gate/limits.toml: no figure is called '{name}'")));
        (table, complaints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(value: usize, limits: &str) -> Vec<String> {
        let figure = Figure { name: "circles", value, places: Vec::new() };
        Limits::parse(limits).unwrap().compare(&[figure]).1
    }

    #[test]
    fn a_figure_is_at_its_limit() {
        assert!(complaints(3, "circles = 3").is_empty());
        assert!(complaints(4, "circles = 3")[0].contains("rose from 3 to 4"));
        assert!(complaints(2, "circles = 3")[0].contains("fell to 2"));
        assert!(complaints(2, "")[0].contains("no limit"));
        assert!(complaints(3, "circles = 3\nsquares = 1")[0].contains("squares"));
        assert!(Limits::parse("circles = \"many\"").is_err());
    }
}
