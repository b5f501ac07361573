//! TLS 1.3 with raw public keys (RFC 7250): both ends prove their node id, nobody certifies.
//!
//! The initiator knows which node to expect and talks to no other; the responder learns who
//! came. There are no sessions to resume and no early data, so nothing here can be replayed.
//!
//! The handshake is the TLS library's; the records behind it are encrypted and decrypted here.
//!
//! | module | story |
//! |---|---|
//! | `verify` | what counts as proof of a node id |
//! | `handshake` | up to the record that ends it, by the library |
//! | `keys` | from the secrets it leads to, record keys and nonces: pure |
//! | `record` | one record, opened or sealed: pure |
//! | `socket` | the seam below the records: any stream of bytes both ways |
//! | `stream` | records on such a stream |
//! | `over` | a connection on such a stream |
//! | `fuzzing` | doors for the fuzz targets in `fuzz/`, in no other build |

#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handshake;
mod keys;
mod over;
mod record;
mod socket;
mod stream;
mod verify;
mod waking;

use std::sync::Arc;

use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, CommonState, ConnectionCommon, ServerConfig, SupportedCipherSuite};
use thiserror::Error;
use towpath_content::NodeId;

use crate::identity::Identity;
use crate::protocol::Protocol;

pub(crate) use handshake::{Shaken, accept, connect};
pub(crate) use over::connection;
pub use over::{accept_over, open_over};
pub use socket::RecordSocket;
pub use verify::WrongNode;

/// RFC 9266.
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// Reason why a handshake failed.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// The responder is another node than the one asked for. `found` is the key it showed; it
    /// was not asked to prove it.
    #[error("found node {found}, wanted {expected}")]
    WrongNode {
        /// The node asked for.
        expected: NodeId,
        /// The node that answered.
        found: NodeId,
    },
    /// The peer speaks TLS but not this protocol.
    #[error("the other end does not speak Towpath's protocol")]
    NoProtocol,
    /// The peer's bytes are not TLS as agreed here, or it refused us with an alert.
    #[error("TLS: {source}")]
    Tls {
        /// The TLS library's error.
        source: rustls::Error,
    },
    /// The peer closed the connection in the middle of the handshake.
    #[error("the other end hung up during the handshake")]
    Closed,
    /// The connection broke.
    #[error("the connection broke during the handshake")]
    Io {
        /// The system's error.
        source: std::io::Error,
    },
    /// It was not done in time.
    #[error("handshake not done within {limit:?}")]
    TimedOut {
        /// The time there was.
        limit: std::time::Duration,
    },
}

/// TLS as an initiator who wants to speak `protocol` with `expected`, or with whoever answers.
pub(crate) fn client_config(
    identity: &Identity,
    expected: Option<NodeId>,
    protocol: Protocol,
) -> Result<ClientConfig, rustls::Error> {
    let verifier = Arc::new(verify::ExpectNode { expected });
    let mut config = ClientConfig::builder_with_provider(Arc::new(crypto(has_fast_aes())))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous() // The library's word for anything but the web's certificates.
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(identity)?)));
    config.alpn_protocols = vec![protocol.0.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// TLS as a responder who lets anyone with a key speak one of these protocols.
pub(crate) fn server_config(
    identity: &Identity,
    protocols: &[Protocol],
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(crypto(has_fast_aes())))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(verify::AnyNode))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(identity)?)));
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.0.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn certified(identity: &Identity) -> Result<Arc<CertifiedKey>, rustls::Error> {
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.pkcs8().to_vec()));
    let key = provider::sign::any_supported_type(&der)?;
    let public = CertificateDer::from(verify::encode(&identity.node_id()));
    Ok(Arc::new(CertifiedKey::new(vec![public], key)))
}

fn crypto(fast_aes: bool) -> CryptoProvider {
    CryptoProvider {
        cipher_suites: suites(fast_aes),
        kx_groups: vec![provider::kx_group::X25519],
        ..provider::default_provider()
    }
}

/// Best first. AES-128 is half as fast again as AES-256 and strong enough to outlive any of this.
fn suites(fast_aes: bool) -> Vec<SupportedCipherSuite> {
    use provider::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    let mut suites = vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
    if !fast_aes {
        suites.rotate_right(1);
    }
    suites
}

/// True if the CPU has instructions for AES-GCM; without them ChaCha20 is several times faster.
pub fn has_fast_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// Result of a finished handshake: the peer, what is spoken, and bytes only this connection has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreed {
    pub(crate) peer: NodeId,
    pub(crate) protocol: Protocol,
    pub(crate) binding: [u8; 32],
}

/// Result of a handshake in which `offered` were the protocols of this end.
fn agreed<Side>(session: &ConnectionCommon<Side>, offered: &[Protocol]) -> Result<Agreed, HandshakeError> {
    let common: &CommonState = session;
    let protocol = offered.iter().find(|offered| common.alpn_protocol() == Some(offered.0));
    let protocol = *protocol.ok_or(HandshakeError::NoProtocol)?;
    let shown = common.peer_certificates().and_then(|shown| shown.first());
    let peer = shown
        .and_then(|key| verify::decode(key))
        .ok_or(HandshakeError::Tls { source: rustls::Error::NoCertificatesPresented })?;
    let binding = session
        .export_keying_material([0; 32], BINDING_LABEL, Some(b""))
        .map_err(|source| HandshakeError::Tls { source })?;
    Ok(Agreed { peer, protocol, binding })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::CipherSuite::{TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256};

    #[test]
    fn the_first_suite_suits_the_cpu() {
        assert_eq!(suites(true)[0].suite(), TLS13_AES_128_GCM_SHA256);
        assert_eq!(suites(false)[0].suite(), TLS13_CHACHA20_POLY1305_SHA256);
        assert_eq!(suites(false)[1].suite(), TLS13_AES_128_GCM_SHA256);
    }

    #[test]
    fn nothing_is_kept_for_a_later_connection() {
        let identity = Identity::generate().unwrap();
        let server = server_config(&identity, &[Protocol::PEER]).unwrap();
        assert!(!server.session_storage.can_cache());
        assert!(!server.ticketer.enabled());
        assert_eq!((server.send_tls13_tickets, server.max_early_data_size), (0, 0));
        let client = client_config(&identity, Some(identity.node_id()), Protocol::PEER).unwrap();
        assert!(!client.enable_early_data);
    }
}
