//! A configuration as text, the reference for people, and the example file: all of them from the
//! lists in `settings` and in the plugins' registry.

use std::fmt::{self, Write};

use towpath_plugins::registry::{FieldKind, Node, Registry, SettingValue};

use super::Config;
use super::plugins::right;
use super::settings::{Section, Shown};
use super::value::quoted;

/// The width of comments in the example file.
const WIDTH: usize = 100;

impl Config {
    /// The tables but for the plugins, each with its fields.
    pub(super) fn sections(&self) -> [(&'static str, Vec<Shown>); 8] {
        [
            ("", self.general.shown()),
            ("store", self.store.shown()),
            ("limits", self.limits.shown()),
            ("processors", self.processors.shown()),
            ("sharing", self.sharing.shown()),
            ("site_cache", self.site_cache.shown()),
            ("rendezvous", self.rendezvous.shown()),
            ("metrics", self.metrics.shown()),
        ]
    }
}

/// As a file that says the same.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (section, fields) in self.sections() {
            if !section.is_empty() {
                writeln!(f, "\n[{section}]")?;
            }
            for field in fields {
                match field.value {
                    Some(value) => writeln!(f, "{} = {value}", field.name)?,
                    None => writeln!(f, "# {} is not set", field.name)?,
                }
            }
        }
        writeln!(f, "\n[plugins]")?;
        plugin_fields(&self.plugins).iter().try_for_each(|field| writeln!(f, "{field}"))
    }
}

/// `plugin = "local"` and the settings, each as a line.
fn plugin_fields(node: &Node) -> Vec<String> {
    let setting = |(name, value): (&&str, &SettingValue)| match value {
        SettingValue::Number(number) | SettingValue::Seconds(number) => format!("{name} = {number}"),
        SettingValue::Text(text) => format!("{name} = {}", quoted(text)),
        SettingValue::Path(path) => format!("{name} = {}", quoted(&path.to_string_lossy())),
        SettingValue::Texts(texts) => {
            let texts: Vec<_> = texts.iter().map(|text| quoted(text)).collect();
            format!("{name} = [{}]", texts.join(", "))
        }
        SettingValue::Plugin(node) => format!("{name} = {}", inline(node)),
        SettingValue::Plugins(nodes) => {
            let nodes: Vec<_> = nodes.iter().map(inline).collect();
            format!("{name} = [{}]", nodes.join(", "))
        }
    };
    let name = format!("plugin = {}", quoted(node.plugin()));
    std::iter::once(name).chain(node.settings().iter().map(setting)).collect()
}

fn inline(node: &Node) -> String {
    format!("{{ {} }}", plugin_fields(node).join(", "))
}

/// The tables of docs/guide/configuration.md.
pub fn reference() -> String {
    let mut text = String::new();
    for (section, fields) in Config::default().sections() {
        let title = if section.is_empty() { "At the top".into() } else { format!("`[{section}]`") };
        heading(&mut text, &title);
        text += "| field | takes | default | holds from | what it does |\n|---|---|---|---|---|\n";
        for field in fields {
            let default = field.value.map_or("absent".into(), |value| format!("`{value}`"));
            let from = if field.is_live { "reload" } else { "restart" };
            let (name, kind, about) = (field.name, &field.kind, field.about.concat());
            let _ = writeln!(text, "| `{name}` | {kind} | {default} | {from} | {} |", about.trim());
        }
    }
    heading(&mut text, "Plugins of this version");
    text += "| plugin | field | takes | default | what it does |\n|---|---|---|---|---|\n";
    for plugin in Registry::default().iter() {
        let _ = writeln!(text, "| `{}` | | | | {} |", plugin.name, plugin.about);
        for field in plugin.fields {
            let default = match field.kind {
                FieldKind::Number { default, .. } | FieldKind::Seconds { default, .. } => {
                    format!("`{default}`")
                }
                FieldKind::Text { default: Some(default) } => format!("`{}`", quoted(default)),
                FieldKind::Texts => "`[]`".into(),
                FieldKind::Finders => "`[{ plugin = \"hints\" }]`".into(),
                FieldKind::Text { default: None }
                | FieldKind::Path
                | FieldKind::Plugin
                | FieldKind::Plugins => "must be given".into(),
            };
            let _ = writeln!(
                text,
                "| | `{}` | {} | {default} | {} |",
                field.name,
                right(field.kind),
                field.about
            );
        }
    }
    text
}

fn heading(text: &mut String, title: &str) {
    let gap = if text.is_empty() { "" } else { "\n" };
    let _ = writeln!(text, "{gap}### {title}\n");
}

/// The example file: every field with its default, as a comment.
pub fn example() -> String {
    let mut text = String::new();
    comment(
        &mut text,
        "Configuration of 'tow daemon'. All fields are comments that show their defaults; take the '#' away \
         from what you change. Look at the result with: tow daemon --check-config",
    );
    for (section, fields) in Config::default().sections() {
        if !section.is_empty() {
            let _ = writeln!(text, "\n[{section}]");
        }
        for field in fields {
            text.push('\n');
            comment(&mut text, field.about.concat().trim());
            let value = field.value.as_deref().unwrap_or(field.example);
            let _ = writeln!(text, "#{} = {value}", field.name);
        }
    }
    text.push('\n');
    comment(
        &mut text,
        "What objects are fetched through: a plugin, and in its fields the plugins that it wraps.",
    );
    text += "#[plugins]\n";
    for field in plugin_fields(&Config::default().plugins) {
        let _ = writeln!(text, "#{field}");
    }
    text
}

fn comment(text: &mut String, words: &str) {
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(text, "{line}");
            line = "#".into();
        }
        line.push(' ');
        line += word;
    }
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn parse(text: &str) -> Config {
        Config::parse(Path::new("shown.toml"), text, &Registry::default())
            .unwrap_or_else(|error| panic!("{error}:\n{text}"))
    }

    fn repository(file: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
    }

    /// Compares with a file in the repository; `UPDATE_SNAPSHOTS=1` writes it anew.
    fn assert_agreed(file: &str, before: &str, now: &str, after: &str) {
        let path = repository(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|_| format!("{before}{after}"));
        let start = text.find(before).unwrap() + before.len();
        let end = start + text[start..].find(after).unwrap();
        let end = if after.is_empty() { text.len() } else { end };
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(&path, format!("{}{now}{}", &text[..start], &text[end..])).unwrap();
        } else {
            assert_eq!(&text[start..end], now, "{file}; UPDATE_SNAPSHOTS=1 if meant");
        }
    }

    #[test]
    fn what_is_shown_is_the_same_configuration() {
        let other = "listen = [\"127.0.0.1:7\"]\nlimit_rate = \"3K\"\nlog_level = \"trace\"\nallowed_nodes = \
            [\"0707070707070707070707070707070707070707070707070707070707070707\"]\n\
            [store]\nbytes = \"s3://one/two\"\nbytes_endpoint = \"http://[::1]:1\"\nbytes_credentials = \"/k\"\n\
            [limits]\nmemory = 12345\n[processors]\nrefuse_names = [\"a\"]\nlabel = \"l\"\n[metrics]\nlisten = \"[::1]:9\"\n[plugins]\nplugin = \"takeover\"\n\
            first = { plugin = \"local\" }\nbetter = { plugin = \"cascade\", of = [{ plugin = \"direct\" }] }\n";
        for config in [Config::default(), parse(other)] {
            assert_eq!(parse(&config.to_string()), config);
        }
    }

    #[test]
    fn the_guide_names_the_fields_that_there_are() {
        let (before, after) = ("<!-- fields -->\n\n", "\n<!-- end of fields -->");
        assert_agreed("docs/guide/configuration.md", before, &reference(), after);
    }

    #[test]
    fn the_example_file_is_the_default_with_and_without_its_comments() {
        assert_agreed("dist/config.toml", "", &example(), "");
        assert_eq!(parse(&example()), Config::default());
        let is_field = |line: &str| line.starts_with('#') && !line.starts_with("# ");
        let uncommented = |line: &str| if is_field(line) { line[1..].to_owned() } else { line.to_owned() };
        let all: Vec<_> = example().lines().map(uncommented).collect();
        let mut config = parse(&all.join("\n"));
        assert!(config.metrics.listen.take().is_some(), "an example stands for what is absent");
        assert!(config.processors.label.take().is_some(), "here too");
        assert!(config.site_cache.address.take().is_some(), "and here");
        assert!(config.rendezvous.relay_pass.take().is_some(), "and here");
        let store = &mut config.store;
        let named = [store.bytes_region.take().is_some(), store.bytes_credentials.take().is_some()];
        let place = [store.bytes.take().is_some(), store.bytes_endpoint.take().is_some()];
        assert_eq!([named, place], [[true; 2]; 2], "and here");
        assert_eq!(config, Config::default());
    }
}
