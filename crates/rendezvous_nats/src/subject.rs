//! Names of subjects in NATS, and of a server there. Layout: `docs/formats/rendezvous.md`.

use std::fmt;
use std::str::FromStr;

/// Each entry that a client says, at once.
pub const ENTRY: &str = "tow.rendezvous.1.entry";
/// A server is there (again): its name.
pub const HELLO: &str = "tow.rendezvous.1.hello";

/// A server, by a name that it draws when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerName(pub u128);

impl ServerName {
    /// Here it is said hello to this server alone.
    pub fn hello(self) -> String {
        format!("tow.rendezvous.1.server.{self}.hello")
    }

    /// Here it is asked for its entries.
    pub fn page(self) -> String {
        format!("tow.rendezvous.1.server.{self}.page")
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for ServerName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_one = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_one.then(|| u128::from_str_radix(text, 16).ok()).flatten().map(Self).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_and_leads_to_no_other_subject() {
        let name = ServerName(0xab);
        assert_eq!(name.to_string().parse(), Ok(name));
        assert_eq!(name.page(), format!("tow.rendezvous.1.server.{}ab.page", "0".repeat(30)));
        for text in ["", "*", ">", "+0000000000000000000000000000000", &"0".repeat(33), &"é".repeat(16)] {
            assert!(text.parse::<ServerName>().is_err(), "{text}");
        }
    }
}
