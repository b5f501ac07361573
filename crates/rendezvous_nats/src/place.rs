//! Where NATS is: one or several addresses of one cluster. And who one is there: a login, from a file.

use std::str::FromStr;

use async_nats::ServerAddr;

/// Addresses of one cluster of NATS: `nats://HOST:PORT`, or `tls://HOST:PORT`, with commas between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsPlace {
    addresses: Vec<ServerAddr>,
    text: String,
}

/// Why a text is no place of NATS.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NatsPlaceError {
    /// It begins otherwise.
    #[error("'{0}' is no address of NATS: write nats://HOST:PORT, or tls://HOST:PORT")]
    Scheme(String),
    /// It can't be read.
    #[error("'{address}' is no address of NATS: {why}")]
    Address {
        /// What stands there.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// Everybody on the machine sees what a command is called with.
    #[error("a login stands in the address, where everybody on this machine sees it")]
    Login,
}

/// Who a server is to NATS.
#[derive(Clone, PartialEq, Eq)]
pub enum NatsLogin {
    /// User and password.
    User(String, String),
    /// A token.
    Token(String),
}

impl std::fmt::Debug for NatsLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NatsLogin")
    }
}

impl NatsPlace {
    /// Addresses that were named.
    pub fn addresses(&self) -> &[ServerAddr] {
        &self.addresses
    }
}

impl FromStr for NatsPlace {
    type Err = NatsPlaceError;

    fn from_str(text: &str) -> Result<Self, NatsPlaceError> {
        let addresses = text.split(',').map(address).collect::<Result<_, _>>()?;
        Ok(Self { addresses, text: text.to_owned() })
    }
}

impl std::fmt::Display for NatsPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

fn address(text: &str) -> Result<ServerAddr, NatsPlaceError> {
    if !text.starts_with("nats://") && !text.starts_with("tls://") {
        return Err(NatsPlaceError::Scheme(text.to_owned()));
    }
    let wrong = |why: String| NatsPlaceError::Address { address: text.to_owned(), why };
    // Before anything else: what is wrong with the rest is shown.
    if text.contains('@') {
        return Err(NatsPlaceError::Login);
    }
    let address: ServerAddr = text.parse().map_err(|error: std::io::Error| wrong(error.to_string()))?;
    match address.host().is_empty() {
        true => Err(wrong("a host is missing".into())),
        false => Ok(address),
    }
}

impl NatsLogin {
    /// Reads the only line of a file: `USER:PASSWORD`, or a token; `None` if it is empty.
    pub fn from_line(line: &str) -> Option<Self> {
        let line = line.trim();
        match line.split_once(':') {
            _ if line.is_empty() => None,
            Some((user, password)) => Some(Self::User(user.to_owned(), password.to_owned())),
            None => Some(Self::Token(line.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_what_is_none_is_told_so() {
        let place: NatsPlace = "nats://a.example.org:4222,tls://[2001:db8::1]".parse().unwrap();
        let shown: Vec<_> =
            place.addresses().iter().map(|address| (address.host(), address.port())).collect();
        assert_eq!(shown, [("a.example.org", 4222), ("2001:db8::1", 4222)]);
        for (text, expected) in [
            ("http://a", "write nats://HOST:PORT"),
            ("", "write nats://HOST:PORT"),
            ("nats://a,", "write nats://HOST:PORT"),
            ("nats://", "is no address"),
            ("nats://a:99999", "is no address"),
            ("nats://user:secret@a", "sees it"),
        ] {
            let error = text.parse::<NatsPlace>().unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn a_login_is_a_user_or_a_token_and_not_shown() {
        let user = NatsLogin::from_line(" me:a:b\n").unwrap();
        assert_eq!(user, NatsLogin::User("me".into(), "a:b".into()));
        assert_eq!(NatsLogin::from_line("token"), Some(NatsLogin::Token("token".into())));
        assert_eq!(NatsLogin::from_line("\n"), None);
        assert_eq!(format!("{user:?}"), "NatsLogin");
    }
}
