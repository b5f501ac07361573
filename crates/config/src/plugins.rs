//! The tree of plugins in the file: tables in tables, each with the name of its plugin and the
//! settings that the registry knows of it.

use std::collections::BTreeMap;

use towpath_plugins::registry::{Field, FieldKind, Node, Plugin, Registry, SettingValue};

use super::source::{ConfigError, ConfigTable, GivenValue};
use super::value::{number_within, shown};

/// The field that names the plugin.
const PLUGIN: &str = "plugin";

/// Understands a table that names a source, and those in it.
pub(super) fn read(table: ConfigTable<'_>, plugins: &Registry) -> Result<Node, ConfigError> {
    node(table, false, plugins)
}

fn node(mut table: ConfigTable<'_>, is_finder: bool, plugins: &Registry) -> Result<Node, ConfigError> {
    let plugin = named(&mut table, plugins)?;
    match (plugin.is_finder(), is_finder) {
        (true, false) => return Err(table.error(&format!("'{}' finds sources and is none", plugin.name))),
        (false, true) => return Err(table.error(&format!("'{}' is a source and finds none", plugin.name))),
        _ => {}
    }
    let mut settings = BTreeMap::new();
    for field in plugin.fields {
        if let Some(given) = table.take(field.name) {
            settings.insert(field.name, setting(field, given, plugins)?);
        }
    }
    let node = plugin.node(settings).map_err(|field| {
        let right = plugin.field(field).map(|field| right(field.kind)).unwrap_or_default();
        table.error(&format!("'{field}' is missing, {right}"))
    })?;
    table.finish_or(&known(plugin))?;
    Ok(node)
}

fn named(table: &mut ConfigTable<'_>, plugins: &Registry) -> Result<&'static Plugin, ConfigError> {
    let there_are = plugins.iter().map(|plugin| plugin.name).collect::<Vec<_>>().join(", ");
    let Some(given) = table.take(PLUGIN) else {
        return Err(table.error(&format!("says no '{PLUGIN}'; this build has: {there_are}")));
    };
    let Some(name) = given.value.as_str() else {
        let problem =
            format!("{} is not the name of a plugin; this build has: {there_are}", shown(&given.value));
        return Err(given.error(&problem));
    };
    plugins
        .by_name(name)
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
        FieldKind::Seconds { least, most, .. } => format!("seconds, a whole number from {least} to {most}"),
        FieldKind::Text { .. } => "a text, as in \"words\"".into(),
        FieldKind::Texts => "a list of texts, as in [\"words\"]".into(),
        FieldKind::Path => "a path, as in \"/media/stick\"".into(),
        FieldKind::Plugin => "a plugin, as in { plugin = \"local\" }".into(),
        FieldKind::Plugins => "a list of plugins, as in [{ plugin = \"local\" }]".into(),
        FieldKind::Finders => "a list of finders, as in [{ plugin = \"hints\" }]".into(),
    }
}

fn setting(field: &Field, given: GivenValue<'_>, plugins: &Registry) -> Result<SettingValue, ConfigError> {
    match field.kind {
        FieldKind::Number { least, most, .. } => {
            let number = number_within(&given.value, least, most);
            number.map(SettingValue::Number).map_err(|problem| given.error(&problem))
        }
        FieldKind::Seconds { least, most, .. } => {
            let seconds = number_within(&given.value, least, most);
            seconds.map(SettingValue::Seconds).map_err(|problem| given.error(&problem))
        }
        FieldKind::Text { .. } => text(&given).map(SettingValue::Text).ok_or_else(|| wrong(field, &given)),
        FieldKind::Path => {
            text(&given).map(|path| SettingValue::Path(path.into())).ok_or_else(|| wrong(field, &given))
        }
        FieldKind::Texts => {
            let list = given.value.as_array().ok_or_else(|| wrong(field, &given))?;
            let texts = list.iter().map(|one| one.get_ref().as_str().map(str::to_owned));
            texts.collect::<Option<_>>().map(SettingValue::Texts).ok_or_else(|| wrong(field, &given))
        }
        FieldKind::Plugin => child(field, given, plugins).map(SettingValue::Plugin),
        FieldKind::Plugins if given.value.as_array().is_some_and(|list| list.is_empty()) => {
            Err(wrong(field, &given))
        }
        FieldKind::Plugins | FieldKind::Finders => {
            let members = given.into_list().map_err(|given| wrong(field, &given))?;
            let nodes = members.into_iter().map(|member| child(field, member, plugins));
            Ok(SettingValue::Plugins(nodes.collect::<Result<_, _>>()?))
        }
    }
}

fn text(given: &GivenValue<'_>) -> Option<String> {
    given.value.as_str().map(str::to_owned)
}

fn child(field: &Field, given: GivenValue<'_>, plugins: &Registry) -> Result<Node, ConfigError> {
    let table = given.into_table().map_err(|given| wrong(field, &given))?;
    node(table, field.kind == FieldKind::Finders, plugins)
}

fn wrong(field: &Field, given: &GivenValue<'_>) -> ConfigError {
    given.error(&format!("{} is not {}", shown(&given.value), right(field.kind)))
}
