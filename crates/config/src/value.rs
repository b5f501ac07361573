//! Kinds of values: how each is written in the file.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use glob::Pattern;
use toml::de::DeValue;
use towpath_content::hint::PeerAddress;
use towpath_content::{Hint, NodeId};
use towpath_plugins::direct::LocalEnd;

/// A kind of value.
pub(super) trait ConfigSetting: Sized {
    /// A value of this kind, in TOML.
    const EXAMPLE: &'static str;

    /// Kind of right value, as in "a whole number".
    fn kind() -> String;

    /// Understands a value; the error is what it is not, and what would be right.
    fn read(value: &DeValue<'_>) -> Result<Self, String>;

    /// The value in TOML; `None` if it is absent.
    fn show(&self) -> Option<String>;
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

/// Bytes per second, 0 for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigRate(pub u64);

/// Number of something, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub u64);

/// A time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigSeconds(pub u64);

/// Detail of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Errors for good.
    Error,
    /// Warnings that someone should look at.
    Warn,
    /// Events.
    Info,
    /// Events on each connection.
    Debug,
    /// Everything.
    Trace,
}

/// Compression of what crosses networks: when it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Not even if the other side asks.
    Never,
    /// Used when either side asks.
    Asked,
    /// This side asks.
    Always,
}

/// Switch of something that is done or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// It is.
    On,
    /// It is not.
    Off,
}

/// Label of an object by its sender, for the rules of other hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(String);

/// The absolute path of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory(pub PathBuf);

/// As long as a value of metadata.
const MAX_LABEL: usize = 1024;
/// A site's cache: its node, and where it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheAddress {
    /// Its public key.
    pub node: NodeId,
    /// Where it listens, with that key, as a ticket names it.
    pub hint: Hint,
}

const SWITCHES: [(Switch, &str); 2] = [(Switch::On, "on"), (Switch::Off, "off")];
const COMPRESSIONS: [(Compression, &str); 3] =
    [(Compression::Never, "never"), (Compression::Asked, "asked"), (Compression::Always, "always")];
/// The largest [`Count`]; referred files may be more.
const MAX_COUNT: u64 = 1_000_000_000;
/// A day.
const MAX_SECONDS: u64 = 86_400;
const LEVELS: [(LogLevel, &str); 5] = [
    (LogLevel::Error, "error"),
    (LogLevel::Warn, "warn"),
    (LogLevel::Info, "info"),
    (LogLevel::Debug, "debug"),
    (LogLevel::Trace, "trace"),
];

/// A value as an error shows it.
pub(super) fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Array(list) if list.is_empty() => "an empty list".into(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a table".into(),
        DeValue::Datetime(time) => time.to_string(),
    }
}

/// A text in TOML.
pub(super) fn quoted(text: &str) -> String {
    use std::fmt::Write;
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => drop(write!(quoted, "\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

pub(super) fn wrong<T>(value: &DeValue<'_>, right: &str) -> Result<T, String> {
    Err(format!("{} is not {right}", shown(value)))
}

fn number(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// A whole number from `least` to `most`.
pub(super) fn number_within(value: &DeValue<'_>, least: u64, most: u64) -> Result<u64, String> {
    match number(value).filter(|number| (least..=most).contains(number)) {
        Some(number) => Ok(number),
        None => wrong(value, &format!("a whole number from {least} to {most}")),
    }
}

/// Parses bytes such as `10M` and `1.5 GB`: `K` and `KiB` are 1024, `KB` is 1000, as with rsync.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = text[number.len()..].to_ascii_lowercase();
    let power = match suffix.chars().next() {
        None => 0,
        Some(letter) => "bkmgtp".find(letter)? as u32,
    };
    let base: u64 = match suffix.get(1..).unwrap_or_default() {
        "" | "ib" => 1024,
        "b" => 1000,
        _ => return None,
    };
    times(number.trim_end_matches(' '), base.pow(power))
}

/// A decimal number times `factor`, rounded down.
fn times(number: &str, factor: u64) -> Option<u64> {
    let Some((whole, fraction)) = number.split_once('.') else {
        return number
            .bytes()
            .all(|c| c.is_ascii_digit())
            .then(|| number.parse().ok())?
            .and_then(|number: u64| number.checked_mul(factor));
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let part =
        u128::from(fraction.parse::<u64>().ok()?) * u128::from(factor) / 10u128.pow(fraction.len() as u32);
    whole.parse::<u64>().ok()?.checked_mul(factor)?.checked_add(u64::try_from(part).ok()?)
}

fn bytes(value: &DeValue<'_>) -> Option<u64> {
    number(value).or_else(|| parse_bytes(value.as_str()?))
}

/// Bytes with the largest suffix that loses nothing.
fn show_bytes(bytes: u64) -> String {
    let suffixes = [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    let fits = suffixes.iter().find(|(bits, _)| bytes > 0 && bytes.trailing_zeros() >= *bits);
    match fits {
        Some((bits, suffix)) => format!("\"{}{suffix}\"", bytes >> bits),
        None => bytes.to_string(),
    }
}

impl ConfigSetting for Bytes {
    const EXAMPLE: &'static str = "\"500M\"";

    fn kind() -> String {
        "bytes, as in \"500M\" or \"10G\"".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        bytes(value).map_or_else(|| wrong(value, &Self::kind()), |bytes| Ok(Self(bytes)))
    }

    fn show(&self) -> Option<String> {
        Some(show_bytes(self.0))
    }
}

impl ConfigSetting for ConfigRate {
    const EXAMPLE: &'static str = "\"10M\"";

    fn kind() -> String {
        "bytes per second, as in \"500K\" or \"10M\"".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        bytes(value).map_or_else(|| wrong(value, &Self::kind()), |bytes| Ok(Self(bytes)))
    }

    fn show(&self) -> Option<String> {
        Some(show_bytes(self.0))
    }
}

impl ConfigSetting for Count {
    const EXAMPLE: &'static str = "1";

    fn kind() -> String {
        format!("a whole number from 1 to {MAX_COUNT}")
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        number_within(value, 1, MAX_COUNT).map(Self)
    }

    fn show(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}

impl ConfigSetting for ConfigSeconds {
    const EXAMPLE: &'static str = "10";

    fn kind() -> String {
        format!("seconds, a whole number from 0 to {MAX_SECONDS}")
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match number(value).filter(|number| *number <= MAX_SECONDS) {
            Some(number) => Ok(Self(number)),
            None => wrong(value, &Self::kind()),
        }
    }

    fn show(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}

impl LogLevel {
    /// Its name.
    pub fn name(self) -> &'static str {
        LEVELS.iter().find(|(level, _)| *level == self).map_or("warn", |(_, name)| name)
    }
}

impl ConfigSetting for Option<CacheAddress> {
    const EXAMPLE: &'static str =
        "\"00000000000000000000000000000000000000000000000000000000000000ff@192.0.2.1:7000\"";

    fn kind() -> String {
        "a node and its address, NODE@HOST:PORT".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let cache = value.as_str().and_then(node_at).and_then(|place| {
            Some(CacheAddress { node: place.node?, hint: Hint::new(format!("tow://{place}"), 0, 1).ok()? })
        });
        cache.map_or_else(|| wrong(value, &Self::kind()), |cache| Ok(Some(cache)))
    }

    fn show(&self) -> Option<String> {
        self.as_ref().map(|cache| quoted(cache.hint.rest()))
    }
}

impl ConfigSetting for LogLevel {
    const EXAMPLE: &'static str = "\"info\"";

    fn kind() -> String {
        format!("one of {}", LEVELS.map(|(_, name)| quoted(name)).join(", "))
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let found = LEVELS.iter().find(|(_, name)| value.as_str() == Some(name));
        found.map_or_else(|| wrong(value, &Self::kind()), |(level, _)| Ok(*level))
    }

    fn show(&self) -> Option<String> {
        Some(quoted(self.name()))
    }
}

impl ConfigSetting for Compression {
    const EXAMPLE: &'static str = "\"asked\"";

    fn kind() -> String {
        format!("one of {}", COMPRESSIONS.map(|(_, name)| quoted(name)).join(", "))
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let found = COMPRESSIONS.iter().find(|(_, name)| value.as_str() == Some(name));
        found.map_or_else(|| wrong(value, &Self::kind()), |(compression, _)| Ok(*compression))
    }

    fn show(&self) -> Option<String> {
        COMPRESSIONS.iter().find(|(compression, _)| compression == self).map(|(_, name)| quoted(name))
    }
}

impl ConfigSetting for Switch {
    const EXAMPLE: &'static str = "\"on\"";

    fn kind() -> String {
        format!("one of {}", SWITCHES.map(|(_, name)| quoted(name)).join(", "))
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let found = SWITCHES.iter().find(|(_, name)| value.as_str() == Some(name));
        found.map_or_else(|| wrong(value, &Self::kind()), |(sandbox, _)| Ok(*sandbox))
    }

    fn show(&self) -> Option<String> {
        SWITCHES.iter().find(|(sandbox, _)| sandbox == self).map(|(_, name)| quoted(name))
    }
}

impl Label {
    /// Reads one; `None`: it is empty or too long.
    pub fn parse(text: &str) -> Option<Self> {
        (1..=MAX_LABEL).contains(&text.len()).then(|| Self(text.into()))
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const A_LABEL: &str = "a text of 1 to 1024 bytes";

impl ConfigSetting for Option<Label> {
    const EXAMPLE: &'static str = "\"internal\"";

    fn kind() -> String {
        A_LABEL.into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        value.as_str().and_then(Label::parse).map_or_else(|| wrong(value, A_LABEL), |label| Ok(Some(label)))
    }

    fn show(&self) -> Option<String> {
        self.as_ref().map(|label| quoted(&label.0))
    }
}

impl ConfigSetting for Vec<Label> {
    const EXAMPLE: &'static str = "[\"internal\"]";

    fn kind() -> String {
        format!("a list of texts, as in {}", Self::EXAMPLE)
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        list(value, &Self::kind(), A_LABEL, Label::parse)
    }

    fn show(&self) -> Option<String> {
        Some(show_list(self))
    }
}

impl ConfigSetting for Vec<Pattern> {
    const EXAMPLE: &'static str = "[\"*.exe\", \"private/*\"]";

    fn kind() -> String {
        format!("a list of patterns, as in {}", Self::EXAMPLE)
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let member = "a pattern of names, as in \"*.exe\" or \"private/*\"";
        list(value, &Self::kind(), member, |text| Pattern::new(text).ok().filter(|_| !text.is_empty()))
    }

    fn show(&self) -> Option<String> {
        Some(show_list(self))
    }
}

impl ConfigSetting for Option<SocketAddr> {
    const EXAMPLE: &'static str = "\"127.0.0.1:9464\"";

    fn kind() -> String {
        "an address with a port, as in \"127.0.0.1:9464\"".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let address = value.as_str().and_then(|text| text.parse().ok());
        address.map_or_else(|| wrong(value, &Self::kind()), |address| Ok(Some(address)))
    }

    fn show(&self) -> Option<String> {
        self.map(|address| quoted(&address.to_string()))
    }
}

impl Directory {
    fn parse(text: &str) -> Option<Self> {
        Some(Self(PathBuf::from(text))).filter(|Self(path)| path.is_absolute())
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl ConfigSetting for Vec<Directory> {
    const EXAMPLE: &'static str = "[\"/home/ann/pictures\"]";

    fn kind() -> String {
        format!("a list of directories, as in {}", Self::EXAMPLE)
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let member = "the absolute path of a directory, as in \"/home/ann/pictures\"";
        list(value, &Self::kind(), member, Directory::parse)
    }

    fn show(&self) -> Option<String> {
        Some(show_list(self))
    }
}

/// A list whose members are texts.
fn list<T>(
    value: &DeValue<'_>,
    right: &str,
    right_member: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, String> {
    let Some(members) = value.as_array() else { return wrong(value, right) };
    let member = |member: &toml::Spanned<DeValue<'_>>| {
        let member = member.get_ref();
        member.as_str().and_then(&read).map_or_else(|| wrong(member, right_member), Ok)
    };
    members.iter().map(member).collect()
}

fn show_list<T: ToString>(list: &[T]) -> String {
    let members: Vec<_> = list.iter().map(|member| quoted(&member.to_string())).collect();
    format!("[{}]", members.join(", "))
}

impl ConfigSetting for Vec<SocketAddr> {
    const EXAMPLE: &'static str = "[\"192.0.2.1:7000\"]";

    fn kind() -> String {
        format!("a list of addresses, as in {}", Self::EXAMPLE)
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let member = "an address with a port, as in \"192.0.2.1:7000\"";
        list(value, &Self::kind(), member, |text| text.parse().ok())
    }

    fn show(&self) -> Option<String> {
        Some(show_list(self))
    }
}

impl ConfigSetting for Vec<NodeId> {
    const EXAMPLE: &'static str = "[]";

    fn kind() -> String {
        "a list of node ids, as 'tow status' shows them".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let member = "a node id, as 'tow status' shows it: 64 hexadecimal digits";
        list(value, &Self::kind(), member, |text| text.parse().ok())
    }

    fn show(&self) -> Option<String> {
        Some(show_list(self))
    }
}

impl ConfigSetting for Vec<LocalEnd> {
    const EXAMPLE: &'static str = "[\"eth0\", \"wlan0\"]";

    fn kind() -> String {
        format!("a list of interfaces or addresses of this machine, as in {}", Self::EXAMPLE)
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        list(value, &Self::kind(), "an interface or an address, as in \"eth0\"", |text| text.parse().ok())
    }

    fn show(&self) -> Option<String> {
        Some(show_list(self))
    }
}

impl ConfigSetting for Vec<PeerAddress> {
    const EXAMPLE: &'static str =
        "[\"00000000000000000000000000000000000000000000000000000000000000ff@192.0.2.1:7000\"]";

    fn kind() -> String {
        "a list of nodes and their addresses, each NODE@HOST:PORT".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        list(value, &Self::kind(), "a node and its address, NODE@HOST:PORT", node_at)
    }

    fn show(&self) -> Option<String> {
        Some(show_list(self))
    }
}

/// A node and its address.
pub fn node_at(text: &str) -> Option<PeerAddress> {
    let place = text.parse::<PeerAddress>().ok()?;
    let (_, port) = place.address.rsplit_once(':')?;
    let is_one = place.node.is_some() && port.parse::<u16>().is_ok_and(|port| port != 0);
    // What a hint can't hold no ticket could name.
    (is_one && Hint::new(format!("tow://{place}"), 0, 1).is_ok()).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: ConfigSetting>(text: &str) -> Result<T, String> {
        T::read(DeValue::parse(text).unwrap().get_ref())
    }

    #[test]
    fn bytes_are_written_as_they_are_read() {
        for (text, bytes) in
            [("0", 0), ("\"500M\"", 500 << 20), ("1_000", 1000), ("0x10", 16), ("\"1TiB\"", 1 << 40)]
        {
            let value = read::<Bytes>(text).unwrap();
            assert_eq!(value.0, bytes, "{text}");
            assert_eq!(read::<Bytes>(&value.show().unwrap()), Ok(value));
        }
        for bad in ["-1", "1.5", "\"M\"", "\"1X\"", "true", "\"99999999999G\"", "[1]"] {
            assert!(read::<Bytes>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_shown_is_read_again() {
        let node = NodeId([7; 32]);
        let nodes = read::<Vec<NodeId>>(&vec![node].show().unwrap()).unwrap();
        assert_eq!(nodes, [node]);
        let place = quoted(&format!("{node}@cache.example:7000"));
        let cache = read::<Option<CacheAddress>>(&place).unwrap();
        assert_eq!((cache.show(), cache.map(|cache| cache.node)), (Some(place), Some(node)));
        for wrong in
            ["cache.example:7000".to_owned(), format!("{node}@cache.example"), format!("{node}@a b:1")]
        {
            assert!(read::<Option<CacheAddress>>(&quoted(&wrong)).is_err(), "{wrong}");
        }
        for (level, name) in LEVELS {
            assert_eq!(read::<LogLevel>(&quoted(name)), Ok(level));
        }
        assert_eq!(quoted("a\"\\\n"), "\"a\\\"\\\\\\u000A\"");
    }

    #[test]
    fn examples_are_right() {
        read::<Bytes>(Bytes::EXAMPLE).unwrap();
        read::<ConfigRate>(ConfigRate::EXAMPLE).unwrap();
        read::<Count>(Count::EXAMPLE).unwrap();
        read::<ConfigSeconds>(ConfigSeconds::EXAMPLE).unwrap();
        read::<LogLevel>(LogLevel::EXAMPLE).unwrap();
        read::<Option<SocketAddr>>(Option::<SocketAddr>::EXAMPLE).unwrap();
        read::<Vec<SocketAddr>>(Vec::<SocketAddr>::EXAMPLE).unwrap();
        read::<Vec<NodeId>>(Vec::<NodeId>::EXAMPLE).unwrap();
        read::<Option<CacheAddress>>(Option::<CacheAddress>::EXAMPLE).unwrap();
        read::<Vec<LocalEnd>>(Vec::<LocalEnd>::EXAMPLE).unwrap();
        read::<Vec<PeerAddress>>(Vec::<PeerAddress>::EXAMPLE).unwrap();
        read::<Compression>(Compression::EXAMPLE).unwrap();
        read::<Vec<Directory>>(Vec::<Directory>::EXAMPLE).unwrap();
        read::<Vec<Pattern>>(Vec::<Pattern>::EXAMPLE).unwrap();
        read::<Vec<Label>>(Vec::<Label>::EXAMPLE).unwrap();
        read::<Option<Label>>(Option::<Label>::EXAMPLE).unwrap();
    }
}
