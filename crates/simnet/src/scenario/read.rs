//! From TOML to a [`Scenario`]: names become indexes, and every mistake is told with its place.

use std::collections::HashMap;
use std::fmt::Display;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::{Case, LinkChange, LinkSpec, LinkWay, MAX_HOSTS, Params, Scenario, ScenarioError};
use crate::link::{LinkConfig, LinkQueue};
use crate::units;

/// The file as it is written. Tables that hold a link's parameters beside fields of their own are
/// taken apart by [`split`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScenarioFile {
    about: String,
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(default)]
    link: Vec<Table>,
    #[serde(default)]
    star: Vec<Table>,
    #[serde(default)]
    overlay: Vec<Table>,
    #[serde(default)]
    change: Vec<Table>,
    #[serde(default)]
    case: Vec<CaseFields>,
    #[serde(default)]
    run: Table,
    #[serde(default)]
    disk: Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFields {
    name: Option<String>,
    between: [String; 2],
    back: Option<ParamFields>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StarFields {
    centre: String,
    leaf: String,
    count: usize,
    back: Option<ParamFields>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OverlayFields {
    hosts: Vec<String>,
    rates: Vec<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeFields {
    at: String,
    link: String,
    #[serde(default)]
    way: LinkWay,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFields {
    name: String,
    #[serde(default)]
    link: HashMap<String, ParamFields>,
    #[serde(default)]
    host: Table,
    #[serde(default)]
    disk: Table,
}

/// A number, or text with a unit.
#[derive(Deserialize)]
#[serde(untagged)]
enum Quantity {
    Number(f64),
    Text(String),
}

impl Quantity {
    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

const PARAMS: [&str; 7] = ["rate", "delay", "loss", "burst", "queue", "overhead", "cut"];

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParamFields {
    rate: Option<String>,
    delay: Option<String>,
    loss: Option<Quantity>,
    burst: Option<f64>,
    queue: Option<Quantity>,
    overhead: Option<u64>,
    cut: Option<bool>,
}

impl ParamFields {
    fn read(self, place: &str) -> Result<Params, ScenarioError> {
        let at = |what: String| value(place, what);
        if self.burst.is_some_and(|burst| !(1.0..=1e6).contains(&burst)) {
            return Err(value(place, "burst is packets in a row, 1 or more"));
        }
        Ok(Params {
            rate: self.rate.map(|text| units::rate(&text)).transpose().map_err(at)?,
            delay: self.delay.map(|text| units::duration(&text)).transpose().map_err(at)?,
            loss: self.loss.map(|loss| units::share(&loss.text())).transpose().map_err(at)?,
            burst: self.burst,
            queue: self.queue.map(|queue| read_queue(&queue.text())).transpose().map_err(at)?,
            overhead: self.overhead,
            cut: self.cut,
        })
    }
}

fn read_queue(text: &str) -> Result<LinkQueue, String> {
    match text.ends_with('s') {
        true => units::duration(text).map(LinkQueue::Time),
        false => units::bytes(text).map(LinkQueue::Bytes),
    }
}

fn value(place: &str, what: impl Display) -> ScenarioError {
    ScenarioError::Value { place: place.into(), what: what.to_string() }
}

/// A table's own fields, and the parameters of a link among them.
fn split<T: DeserializeOwned>(mut table: Table, place: &str) -> Result<(T, Params), ScenarioError> {
    let mut params = Table::new();
    for name in PARAMS {
        params.extend(table.remove_entry(name));
    }
    let wrong = |error: toml::de::Error| value(place, error.message());
    let fields = Value::Table(table).try_into().map_err(wrong)?;
    let params: ParamFields = Value::Table(params).try_into().map_err(wrong)?;
    Ok((fields, params.read(place)?))
}

pub(super) fn scenario(text: &str) -> Result<Scenario, ScenarioError> {
    let file: ScenarioFile =
        toml::from_str(text).map_err(|error| ScenarioError::Form(error.to_string().trim_end().to_owned()))?;
    let mut net = NetFile::default();
    file.hosts.into_iter().try_for_each(|host| net.add_host(host))?;
    file.star.into_iter().enumerate().try_for_each(|(at, table)| net.add_star(at, table))?;
    file.link.into_iter().enumerate().try_for_each(|(at, table)| net.add_link(at, table))?;
    file.overlay.into_iter().enumerate().try_for_each(|(at, table)| net.add_overlay(at, table))?;
    let mut changes = (file.change.into_iter().enumerate())
        .map(|(at, table)| net.change(at, table))
        .collect::<Result<Vec<_>, _>>()?;
    changes.sort_by_key(|change| change.at);
    let mut cases = file.case.into_iter().map(|case| net.case(case)).collect::<Result<Vec<_>, _>>()?;
    if cases.is_empty() {
        let (host, disk) = (Table::new(), Table::new());
        cases.push(Case { name: String::new(), links: net.links.clone(), host, disk });
    }
    for host in file.disk.keys() {
        net.host(host, &format!("disk.{host}"))?;
    }
    let NetFile { hosts, links, .. } = net;
    Ok(Scenario { about: file.about, hosts, links, changes, cases, run: file.run, disk: file.disk })
}

/// Hosts and links so far.
#[derive(Default)]
struct NetFile {
    hosts: Vec<String>,
    index: HashMap<String, usize>,
    links: Vec<LinkSpec>,
    link_index: HashMap<String, usize>,
}

impl NetFile {
    fn add_host(&mut self, name: String) -> Result<(), ScenarioError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.is_empty() || name.len() > 32 || !name.chars().all(is_plain) {
            return Err(value("hosts", format!("`{name}` is no name of letters, digits and hyphens")));
        }
        if self.hosts.len() == MAX_HOSTS {
            return Err(value("hosts", format!("more than {MAX_HOSTS}")));
        }
        if self.index.insert(name.clone(), self.hosts.len()).is_some() {
            return Err(value("hosts", format!("`{name}` stands there twice")));
        }
        self.hosts.push(name);
        Ok(())
    }

    fn host(&self, name: &str, place: &str) -> Result<usize, ScenarioError> {
        let index = self.index.get(name).copied();
        index.ok_or_else(|| value(place, format!("there is no host `{name}`")))
    }

    fn link(&self, name: &str, place: &str) -> Result<usize, ScenarioError> {
        let index = self.link_index.get(name).copied();
        index.ok_or_else(|| value(place, format!("there is no link `{name}`")))
    }

    fn push(
        &mut self,
        place: &str,
        name: Option<String>,
        between: [usize; 2],
        params: &Params,
        back: Option<Params>,
    ) -> Result<(), ScenarioError> {
        let name = name.unwrap_or_else(|| format!("link{}", self.links.len()));
        if between[0] == between[1] {
            return Err(value(place, "a link needs two hosts"));
        }
        let is_taken = self.link_index.insert(name.clone(), self.links.len()).is_some();
        if name == "all" || is_taken {
            return Err(value(place, format!("the name `{name}` is taken")));
        }
        let (forth, config) = (LinkConfig::default(), LinkConfig::default());
        let mut link = LinkSpec { name, between, forth, back: config };
        link.apply(LinkWay::Both, params);
        link.apply(LinkWay::Back, &back.unwrap_or_default());
        self.links.push(link);
        Ok(())
    }

    fn add_link(&mut self, at: usize, table: Table) -> Result<(), ScenarioError> {
        let place = format!("link {at}");
        let (fields, params): (LinkFields, _) = split(table, &place)?;
        let [first, second] = &fields.between;
        let between = [self.host(first, &place)?, self.host(second, &place)?];
        let back = fields.back.map(|back| back.read(&place)).transpose()?;
        self.push(&place, fields.name, between, &params, back)
    }

    fn add_star(&mut self, at: usize, table: Table) -> Result<(), ScenarioError> {
        let place = format!("star {at}");
        let (fields, params): (StarFields, _) = split(table, &place)?;
        let centre = self.host(&fields.centre, &place)?;
        let back = fields.back.map(|back| back.read(&place)).transpose()?;
        for number in 1..=fields.count {
            let leaf = self.hosts.len();
            let name = format!("{}{number}", fields.leaf);
            self.add_host(name.clone())?;
            self.push(&place, Some(name), [centre, leaf], &params, back.clone())?;
        }
        Ok(())
    }

    fn add_overlay(&mut self, at: usize, table: Table) -> Result<(), ScenarioError> {
        let place = format!("overlay {at}");
        let (fields, params): (OverlayFields, _) = split(table, &place)?;
        let hosts: Vec<usize> =
            fields.hosts.iter().map(|host| self.host(host, &place)).collect::<Result<_, _>>()?;
        let is_square =
            fields.rates.len() == hosts.len() && fields.rates.iter().all(|row| row.len() == hosts.len());
        if !is_square {
            return Err(value(&place, "rates needs a row and a column for each host"));
        }
        for first in 0..hosts.len() {
            for second in first + 1..hosts.len() {
                let rate = |from: usize, to: usize| match fields.rates[from][to].as_str() {
                    "" => Ok(None),
                    text => units::rate(text).map(Some).map_err(|what| value(&place, what)),
                };
                let (Some(forth), Some(back)) = (rate(first, second)?, rate(second, first)?) else {
                    continue;
                };
                let name = format!("{}-{}", fields.hosts[first], fields.hosts[second]);
                let params = Params { rate: Some(forth), ..params.clone() };
                let back = Params { rate: Some(back), ..Params::default() };
                self.push(&place, Some(name), [hosts[first], hosts[second]], &params, Some(back))?;
            }
        }
        Ok(())
    }

    fn change(&self, at: usize, table: Table) -> Result<LinkChange, ScenarioError> {
        let place = format!("change {at}");
        let (fields, params): (ChangeFields, _) = split(table, &place)?;
        let time = units::duration(&fields.at).map_err(|what| value(&place, what))?;
        Ok(LinkChange { at: time, link: self.link(&fields.link, &place)?, way: fields.way, params })
    }

    fn case(&self, fields: CaseFields) -> Result<Case, ScenarioError> {
        let place = format!("case `{}`", fields.name);
        let mut links = self.links.clone();
        let mut changes: Vec<_> = fields.link.into_iter().collect();
        // `all` comes first, so that what is said of one link holds.
        changes.sort_by_key(|(name, _)| name != "all");
        for (name, params) in changes {
            let params = params.read(&place)?;
            match name.as_str() {
                "all" => links.iter_mut().for_each(|link| link.apply(LinkWay::Both, &params)),
                name => links[self.link(name, &place)?].apply(LinkWay::Both, &params),
            }
        }
        fields.disk.keys().try_for_each(|host| self.host(host, &place).map(drop))?;
        Ok(Case { name: fields.name, links, host: fields.host, disk: fields.disk })
    }
}
