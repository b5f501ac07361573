//! Proof of a node id: an Ed25519 key in the one encoding, and its signature.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use thiserror::Error as ThisError;
use towpath_content::NodeId;

/// SubjectPublicKeyInfo of an Ed25519 key, up to the key (RFC 8410).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The responder is another node than the one asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ThisError)]
#[error("found node {found}, wanted {expected}")]
pub struct WrongNode {
    /// The node asked for.
    pub expected: NodeId,
    /// The key that was shown, not yet proved.
    pub found: NodeId,
}

/// The raw public key of `node` as TLS sends it.
pub(super) fn encode(node: &NodeId) -> Vec<u8> {
    [&SPKI_PREFIX[..], &node.0].concat()
}

/// The node whose raw public key this is.
pub(super) fn decode(spki: &[u8]) -> Option<NodeId> {
    let key = spki.strip_prefix(&SPKI_PREFIX)?;
    key.try_into().ok().map(NodeId)
}

/// Accepts one node's key, or, where none is expected, any.
#[derive(Debug)]
pub(super) struct ExpectNode {
    pub(super) expected: Option<NodeId>,
}

/// Accepts every node's key; what a node may do is decided when it is known.
#[derive(Debug)]
pub(super) struct AnyNode;

fn shown(key: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<NodeId, Error> {
    let found = if more.is_empty() { decode(key) } else { None };
    found.ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
}

fn signed(
    message: &[u8],
    key: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let node = shown(key, &[])?;
    if signature.scheme != SignatureScheme::ED25519 || !node.verify(message, signature.signature()) {
        return Err(Error::InvalidCertificate(CertificateError::BadSignature));
    }
    Ok(HandshakeSignatureValid::assertion())
}

/// TLS 1.2 is never agreed on, so this is never reached.
fn old_version() -> Error {
    Error::General("TLS 1.2 was agreed on".to_owned())
}

impl ServerCertVerifier for ExpectNode {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = shown(key, more)?;
        match self.expected {
            Some(expected) if found != expected => {
                Err(OtherError(Arc::new(WrongNode { expected, found })).into())
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(old_version())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signed(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for AnyNode {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        shown(key, more).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(old_version())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signed(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_id_has_one_encoding() {
        let node = NodeId([7; 32]);
        let spki = encode(&node);
        assert_eq!(decode(&spki), Some(node));
        assert_eq!(decode(&spki[..43]), None);
        assert_eq!(decode(&[&spki[..], &[0]].concat()), None);
        for at in 0..SPKI_PREFIX.len() {
            let mut other = spki.clone();
            other[at] ^= 1;
            assert_eq!(decode(&other), None, "byte {at}");
        }
    }

    #[test]
    fn a_chain_of_keys_is_refused() {
        let key = CertificateDer::from(encode(&NodeId([7; 32])));
        assert!(AnyNode.verify_client_cert(&key, &[], UnixTime::now()).is_ok());
        assert!(AnyNode.verify_client_cert(&key, std::slice::from_ref(&key), UnixTime::now()).is_err());
    }
}
