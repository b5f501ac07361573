//! The tree of plugins in the file: tables in tables, each with the name of its plugin and the
//! settings that the registry knows of it.

use std::collections::BTreeMap;

use towpath_plugins::registry::{Field, FieldKind, Node, PLUGINS, Plugin, SettingValue, by_name};

use super::source::{ConfigError, ConfigTable, GivenValue};
use super::value::{number_within, shown};

/// The field that names the plugin.
const PLUGIN: &str = "plugin";

/// Understands a table and those in it.
pub(super) fn read(mut table: ConfigTable<'_>) -> Result<Node, ConfigError> {
    let plugin = named(&mut table)?;
    let mut settings = BTreeMap::new();
    for field in plugin.fields {
        if let Some(given) = table.take(field.name) {
            settings.insert(field.name, setting(field, given)?);
        }
    }
    let node = plugin.node(settings).map_err(|field| {
        let right = plugin.field(field).map(|field| right(field.kind)).unwrap_or_default();
        table.error(&format!("'{field}' is missing, {right}"))
    })?;
    table.finish_or(&known(plugin))?;
    Ok(node)
}

fn named(table: &mut ConfigTable<'_>) -> Result<&'static Plugin, ConfigError> {
    let there_are = PLUGINS.iter().map(|plugin| plugin.name).collect::<Vec<_>>().join(", ");
    let Some(given) = table.take(PLUGIN) else {
        return Err(table.error(&format!("says no '{PLUGIN}'; this build has: {there_are}")));
    };
    let Some(name) = given.value.as_str() else {
        let problem =
            format!("{} is not the name of a plugin; this build has: {there_are}", shown(&given.value));
        return Err(given.error(&problem));
    };
    by_name(name)
        .ok_or_else(|| given.error(&format!("this build has no plugin '{name}'; it has: {there_are}")))
}

fn known(plugin: &Plugin) -> String {
    let fields: Vec<_> = plugin.fields.iter().map(|field| field.name).collect();
    match fields.is_empty() {
        true => format!("the plugin '{}' has none", plugin.name),
        false => format!("the plugin '{}' has: {}", plugin.name, fields.join(", ")),
    }
}

/// Value that a setting takes.
pub(super) fn right(kind: FieldKind) -> String {
    match kind {
        FieldKind::Number { least, most, .. } => format!("a whole number from {least} to {most}"),
        FieldKind::Plugin => "a plugin, as in { plugin = \"local\" }".into(),
        FieldKind::Plugins => "a list of plugins, as in [{ plugin = \"local\" }]".into(),
    }
}

fn setting(field: &Field, given: GivenValue<'_>) -> Result<SettingValue, ConfigError> {
    match field.kind {
        FieldKind::Number { least, most, .. } => {
            let number = number_within(&given.value, least, most);
            number.map(SettingValue::Number).map_err(|problem| given.error(&problem))
        }
        FieldKind::Plugin => child(field, given).map(SettingValue::Plugin),
        FieldKind::Plugins => match given.value.as_array() {
            Some(list) if !list.is_empty() => {
                let members = given.into_list().map_err(|given| wrong(field, &given))?;
                let nodes = members.into_iter().map(|member| child(field, member));
                Ok(SettingValue::Plugins(nodes.collect::<Result<_, _>>()?))
            }
            _ => Err(wrong(field, &given)),
        },
    }
}

fn child(field: &Field, given: GivenValue<'_>) -> Result<Node, ConfigError> {
    read(given.into_table().map_err(|given| wrong(field, &given))?)
}

fn wrong(field: &Field, given: &GivenValue<'_>) -> ConfigError {
    given.error(&format!("{} is not {}", shown(&given.value), right(field.kind)))
}
