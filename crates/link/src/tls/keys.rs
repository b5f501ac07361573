//! The keys of one direction: from the traffic secret to the record keys, and to the next secret
//! (RFC 8446 §7.1 to §7.3).
//!
//! The TLS library's handshake ends with two such secrets. It tells them to a "key log", here to
//! [`Secrets`], which keeps them for this connection alone and writes them nowhere.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use ring::aead::{self, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{self, Prk};
use rustls::{CipherSuite, Error, KeyLog};

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";
/// The longest hash of a cipher suite: SHA-384.
const LONGEST_HASH: usize = 48;

/// Parts of a cipher suite, for records.
#[derive(Clone, Copy)]
pub(super) struct Suite {
    pub(super) cipher: &'static aead::Algorithm,
    pub(super) hash: hkdf::Algorithm,
    /// Records that one key may encrypt (RFC 8446 §5.5: 2^24.5 full ones for AES-GCM).
    pub(super) records: u64,
}

impl Suite {
    /// The suite that was agreed on.
    pub(super) fn new(agreed: CipherSuite) -> Result<Self, Error> {
        let (cipher, hash, records) = match agreed {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => (&aead::AES_128_GCM, hkdf::HKDF_SHA256, 1 << 24),
            CipherSuite::TLS13_AES_256_GCM_SHA384 => (&aead::AES_256_GCM, hkdf::HKDF_SHA384, 1 << 24),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => {
                (&aead::CHACHA20_POLY1305, hkdf::HKDF_SHA256, u64::MAX)
            }
            _ => return Err(Error::General("a cipher suite was agreed on that was not offered".into())),
        };
        Ok(Self { cipher, hash, records })
    }
}

/// The keys of one direction, and the number of the next record.
pub(super) struct Keys {
    suite: Suite,
    secret: Prk,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
}

impl Keys {
    /// The keys that follow from a traffic secret.
    pub(super) fn new(suite: Suite, secret: &[u8]) -> Result<Self, Error> {
        let secret = Prk::new_less_safe(suite.hash, secret);
        let (mut key, mut iv) = ([0; 32], [0; NONCE_LEN]);
        let key = &mut key[..suite.cipher.key_len()];
        expand(&secret, b"key", key)?;
        expand(&secret, b"iv", &mut iv)?;
        let key = LessSafeKey::new(UnboundKey::new(suite.cipher, key).map_err(|_| impossible())?);
        Ok(Self { suite, secret, key, iv, sequence: 0 })
    }

    /// The keys after a key update.
    pub(super) fn next(&self) -> Result<Self, Error> {
        let mut secret = [0; LONGEST_HASH];
        let secret = &mut secret[..self.suite.hash.hmac_algorithm().digest_algorithm().output_len()];
        expand(&self.secret, b"traffic upd", secret)?;
        Self::new(self.suite, secret)
    }

    /// The key, and the nonce of the next record, which no other record under this key has.
    pub(super) fn for_next_record(&mut self) -> Result<(&LessSafeKey, Nonce), Error> {
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence = self.sequence.checked_add(1).ok_or(Error::EncryptError)?;
        Ok((&self.key, Nonce::assume_unique_for_key(nonce)))
    }

    /// Number of records that these keys may still encrypt.
    pub(super) const fn records_left(&self) -> u64 {
        self.suite.records.saturating_sub(self.sequence)
    }
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label with an empty context.
fn expand(secret: &Prk, label: &[u8], out: &mut [u8]) -> Result<(), Error> {
    const PREFIX: &[u8] = b"tls13 ";
    let len = (out.len() as u16).to_be_bytes();
    let info = [&len[..], &[(PREFIX.len() + label.len()) as u8], PREFIX, label, &[0]];
    let made = secret.expand(&info, Length(out.len())).and_then(|made| made.fill(out));
    made.map_err(|_| impossible())
}

/// The lengths of all keys and hashes in use are right.
fn impossible() -> Error {
    Error::General("record keys can't be made".into())
}

/// The traffic secrets of one connection, once it has shaken hands.
#[derive(Default)]
pub(super) struct Secrets(Mutex<KnownKey>);

#[derive(Default)]
struct KnownKey {
    client: Vec<u8>,
    server: Vec<u8>,
}

impl Secrets {
    /// The keys that the client and the server send with.
    pub(super) fn keys(&self, suite: Suite) -> Result<(Keys, Keys), Error> {
        let known = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if known.client.is_empty() || known.server.is_empty() {
            return Err(Error::HandshakeNotComplete);
        }
        Ok((Keys::new(suite, &known.client)?, Keys::new(suite, &known.server)?))
    }
}

impl KeyLog for Secrets {
    fn will_log(&self, label: &str) -> bool {
        [CLIENT, SERVER].contains(&label)
    }

    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match label {
            CLIENT => known.client = secret.to_vec(),
            SERVER => known.server = secret.to_vec(),
            _ => {}
        }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    /// RFC 8448 §3, the server's application traffic secret.
    #[test]
    fn keys_are_those_of_the_published_trace() {
        let secret = bytes("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
        let secret = Prk::new_less_safe(hkdf::HKDF_SHA256, &secret);
        let (mut key, mut iv) = ([0; 16], [0; NONCE_LEN]);
        expand(&secret, b"key", &mut key).unwrap();
        expand(&secret, b"iv", &mut iv).unwrap();
        assert_eq!(key[..], bytes("9f02283b6c9c07efc26bb9f2ac92e356"));
        assert_eq!(iv[..], bytes("cf782b88dd83549aadf1e984"));
    }

    #[test]
    fn each_record_has_its_own_nonce_and_the_last_number_is_not_used() {
        let suite = Suite::new(CipherSuite::TLS13_AES_128_GCM_SHA256).unwrap();
        let mut keys = Keys::new(suite, &[7; 32]).unwrap();
        let nonces: Vec<[u8; NONCE_LEN]> =
            (0..300).map(|_| *keys.for_next_record().unwrap().1.as_ref()).collect();
        assert_eq!(nonces[0], keys.iv, "the first number is 0");
        for (n, nonce) in nonces.iter().enumerate() {
            assert!(!nonces[..n].contains(nonce));
        }
        assert_eq!(keys.records_left(), (1 << 24) - 300);
        keys.sequence = u64::MAX;
        assert!(keys.for_next_record().is_err());
        assert_eq!(keys.records_left(), 0);
    }

    #[test]
    fn nothing_is_made_of_a_handshake_that_did_not_end() {
        let suite = Suite::new(CipherSuite::TLS13_AES_256_GCM_SHA384).unwrap();
        let secrets = Secrets::default();
        assert!(secrets.keys(suite).is_err());
        secrets.log(CLIENT, &[], &[1; 48]);
        secrets.log("EXPORTER_SECRET", &[], &[2; 48]);
        assert!(secrets.keys(suite).is_err());
        assert!(!format!("{secrets:?}").contains('1'));
        assert!(Suite::new(CipherSuite::TLS13_AES_128_CCM_SHA256).is_err());
    }
}
