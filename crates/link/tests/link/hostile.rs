//! Peers that break the rules: no key, an old version, garbage, trickles and lies about length.

use std::sync::Arc;
use std::time::Duration;

use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use towpath_link::Connection;
use towpath_link::frame::{FrameError, ReadError};
use towpath_link::tcp::AcceptError;
use towpath_link::tls::HandshakeError;

use crate::pair::{LIMIT, identity, listen};

/// A service, and the raw socket of someone who wants to talk to it.
pub async fn visit(limit: Duration) -> (TcpStream, tokio::task::JoinHandle<Result<Connection, AcceptError>>) {
    let (listener, address) = listen(&identity()).await;
    let visitor = TcpStream::connect(address).await.unwrap();
    let pending = listener.accept().await.unwrap();
    (visitor, tokio::spawn(pending.handshake(limit)))
}

/// Takes any server, shows no key of its own unless given one.
#[derive(Debug)]
pub struct Careless;

impl rustls::client::danger::ServerCertVerifier for Careless {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Owns no key although it says it will show one.
#[derive(Debug)]
struct Keyless;

impl rustls::client::ResolvesClientCert for Keyless {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        true
    }
}

pub type Key = Arc<dyn rustls::client::ResolvesClientCert>;

/// Shows one public key and signs with the private half of another, or the same.
pub fn key(shown: &Ed25519, signs: &Ed25519) -> Key {
    let spki = [&b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00"[..], &shown.public].concat();
    let der = rustls::pki_types::PrivatePkcs8KeyDer::from(signs.pkcs8.clone()).into();
    let private = rustls::crypto::ring::sign::any_supported_type(&der).unwrap();
    let certified = rustls::sign::CertifiedKey::new(vec![spki.into()], private);
    Arc::new(rustls::client::AlwaysResolvesClientRawPublicKeys::new(Arc::new(certified)))
}

pub struct Ed25519 {
    pub pkcs8: Vec<u8>,
    pub public: Vec<u8>,
}

pub fn ed25519() -> Ed25519 {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap().as_ref().to_vec();
    let public = Ed25519KeyPair::from_pkcs8(&pkcs8).unwrap().public_key().as_ref().to_vec();
    Ed25519 { pkcs8, public }
}

pub fn careless(key: Key, alpn: &[&[u8]]) -> TlsConnector {
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Careless))
        .with_client_cert_resolver(key);
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

async fn refused(connector: TlsConnector) -> HandshakeError {
    let (visitor, service) = visit(LIMIT).await;
    let name = ServerName::try_from("localhost").unwrap();
    let shaken = connector.connect(name, visitor).await;
    let error = service.await.unwrap().unwrap_err();
    drop(shaken);
    match error {
        AcceptError::Handshake { source, .. } => source,
        error => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn a_visitor_without_a_key_is_refused() {
    let error = refused(careless(Arc::new(Keyless), &[b"tow/1"])).await;
    let keyless = matches!(error, HandshakeError::Tls { source: rustls::Error::NoCertificatesPresented });
    assert!(keyless, "{error:?}");
}

#[tokio::test]
async fn a_visitor_with_someone_elses_public_key_is_refused() {
    let error = refused(careless(key(&ed25519(), &ed25519()), &[b"tow/1"])).await;
    let forged = matches!(error, HandshakeError::Tls { source: rustls::Error::InvalidCertificate(_) });
    assert!(forged, "{error:?}");
}

#[tokio::test]
async fn a_visitor_with_another_protocol_or_none_is_refused() {
    for alpn in [&[&b"h2"[..]][..], &[]] {
        let own = ed25519();
        let error = refused(careless(key(&own, &own), alpn)).await;
        assert!(matches!(error, HandshakeError::NoProtocol), "{alpn:?}: {error:?}");
    }
}

/// A ClientHello as a TLS 1.2 program sends it: no `supported_versions`.
fn old_client_hello() -> Vec<u8> {
    let extensions: &[u8] = &[
        0, 10, 0, 4, 0, 2, 0, 0x1d, // supported_groups: x25519
        0, 11, 0, 2, 1, 0, // ec_point_formats
        0, 13, 0, 6, 0, 4, 8, 7, 4, 3, // signature_algorithms: ed25519, ecdsa p256
        0, 16, 0, 8, 0, 6, 5, b't', b'o', b'w', b'/', b'1', // ALPN
    ];
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0); // no session
    body.extend([0, 4, 0xc0, 0x2b, 0xc0, 0x2f]); // ECDHE with AES-128-GCM
    body.extend([1, 0]); // no compression
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let mut hello = vec![0x16, 3, 1];
    hello.extend((body.len() as u16 + 4).to_be_bytes());
    hello.extend([1, 0]);
    hello.extend((body.len() as u16).to_be_bytes());
    hello.extend(body);
    hello
}

#[tokio::test]
async fn a_visitor_that_knows_only_tls_1_2_is_refused() {
    let (mut visitor, service) = visit(LIMIT).await;
    visitor.write_all(&old_client_hello()).await.unwrap();
    let error = service.await.unwrap().unwrap_err();
    let AcceptError::Handshake { source: HandshakeError::Tls { source }, .. } = error else {
        panic!("{error:?}");
    };
    assert!(matches!(source, rustls::Error::PeerIncompatible(_)), "{source:?}");
    let mut answer = Vec::new();
    visitor.read_to_end(&mut answer).await.unwrap();
    // A fatal alert: protocol_version.
    assert_eq!((answer[0], &answer[5..]), (0x15, &[2, 70][..]), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_visitor_that_trickles_is_cut_at_the_deadline() {
    let limit = Duration::from_millis(400);
    let begun = Instant::now();
    let (mut visitor, service) = visit(limit).await;
    // A well-formed beginning, byte by byte, that would take half a minute.
    let trickle = tokio::spawn(async move {
        for byte in old_client_hello() {
            if visitor.write_all(&[byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    });
    let error = service.await.unwrap().unwrap_err();
    assert!(matches!(error, AcceptError::HandshakeTimeout { .. }), "{error:?}");
    let took = begun.elapsed();
    assert!(took >= limit && took < limit + Duration::from_millis(10), "{took:?}");
    trickle.abort();
}

#[tokio::test(start_paused = true)]
async fn time_spent_waiting_for_a_handshake_to_begin_counts() {
    let (listener, address) = listen(&identity()).await;
    let _visitor = TcpStream::connect(address).await.unwrap();
    let pending = listener.accept().await.unwrap();
    tokio::time::advance(Duration::from_millis(300)).await;
    let begun = Instant::now();
    let error = pending.handshake(Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(error, AcceptError::HandshakeTimeout { .. }), "{error:?}");
    assert!(begun.elapsed() < Duration::from_millis(250), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn garbage_is_refused() {
    for garbage in
        [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0; 64], &[0xff; 64], b"SSH-2.0-OpenSSH_9.9\r\n"]
    {
        let (mut visitor, service) = visit(LIMIT).await;
        visitor.write_all(garbage).await.unwrap();
        let error = service.await.unwrap().unwrap_err();
        assert!(matches!(error, AcceptError::Handshake { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_visitor_that_leaves_is_closed() {
    let (visitor, service) = visit(LIMIT).await;
    drop(visitor);
    let error = service.await.unwrap().unwrap_err();
    assert!(matches!(error, AcceptError::Handshake { source: HandshakeError::Closed, .. }), "{error:?}");
}

/// A visitor with a good key who then writes what it likes in place of frames.
pub async fn shaken_hands() -> (tokio_rustls::client::TlsStream<TcpStream>, Connection) {
    let own = ed25519();
    let (visitor, service) = visit(LIMIT).await;
    let name = ServerName::try_from("localhost").unwrap();
    let stream = careless(key(&own, &own), &[b"tow/1"]).connect(name, visitor).await.unwrap();
    let connection = service.await.unwrap().unwrap();
    assert_eq!(connection.peer.0[..], own.public[..]);
    (stream, connection)
}

#[tokio::test]
async fn lengths_no_frame_has_end_the_connection() {
    for length in [0u32, 1_114_113, u32::MAX] {
        let (mut visitor, mut connection) = shaken_hands().await;
        visitor.write_all(&length.to_le_bytes()).await.unwrap();
        visitor.flush().await.unwrap();
        let error = connection.reader.next().await.unwrap_err();
        match (length, error) {
            (0, ReadError::Malformed { source: FrameError::Empty }) => {}
            (_, ReadError::Malformed { source: FrameError::Oversized { length: found, .. } }) => {
                assert_eq!(found, u64::from(length));
            }
            (_, error) => panic!("{error:?}"),
        }
    }
}

#[tokio::test]
async fn bytes_that_are_not_encrypted_end_the_connection() {
    let (visitor, mut connection) = shaken_hands().await;
    let (mut raw, _) = visitor.into_inner();
    raw.write_all(&[0x17, 3, 3, 0, 32]).await.unwrap();
    raw.write_all(&[0x55; 32]).await.unwrap();
    let error = connection.reader.next().await.unwrap_err();
    assert!(matches!(error, ReadError::Tls { source: rustls::Error::DecryptError }), "{error:?}");
}

#[tokio::test]
async fn a_goodbye_inside_a_frame_is_a_cut() {
    let (mut visitor, mut connection) = shaken_hands().await;
    visitor.write_all(&[10, 0, 0, 0, 1, 2, 3]).await.unwrap();
    visitor.shutdown().await.unwrap();
    let error = connection.reader.next().await.unwrap_err();
    assert!(matches!(error, ReadError::CutOff { missing: 7 }), "{error:?}");
}
