//! Our records and those of another implementation: the TLS library's own, at the other end.

use std::io;
use std::sync::{Arc, LazyLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    AlertDescription, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    SupportedCipherSuite,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use towpath_content::NodeId;
use towpath_link::frame::{ReadError, encode_head};
use towpath_link::tcp::{DialConfig, dial};
use towpath_link::{Connection, FrameReader, FrameWriter};

use crate::hostile::{Careless, Ed25519, ed25519, key, shaken_hands, visit};
use crate::pair::{LIMIT, identity, listen};

/// Bodies of frames: of one byte, of about a record, of many records.
const LENS: [usize; 9] = [1, 16_378, 16_379, 16_380, 40_000, 0, 262_165, 3, 1 << 20];

static PATTERN: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..1 << 20).map(|n: usize| (n * 31 % 251) as u8).collect());

fn body(len: usize) -> &'static [u8] {
    &PATTERN[..len]
}

async fn send_frames(writer: &mut FrameWriter) {
    for len in LENS {
        writer.send(7, b"", body(len)).await.unwrap();
    }
    writer.flush().await.unwrap();
}

async fn receive_frames(reader: &mut FrameReader) {
    for len in LENS {
        assert!(reader.next().await.unwrap().unwrap().body == body(len), "{len} bytes");
    }
}

/// The same frames as the bytes of the stream.
fn stream() -> Vec<u8> {
    LENS.iter().flat_map(|&len| [&encode_head(7, len).unwrap()[..], body(len)].concat()).collect()
}

/// Frames both ways at once, then a goodbye both ways.
async fn talk(library: &mut TlsStream<TcpStream>, ours: Connection) {
    let (mut reader, mut writer) = ours.split();
    let receiving = tokio::spawn(async move {
        receive_frames(&mut reader).await;
        assert!(reader.next().await.unwrap().is_none(), "a goodbye");
        assert!(reader.next().await.unwrap().is_none(), "the end stays the end");
    });
    let sending = tokio::spawn(async move {
        send_frames(&mut writer).await;
        writer.finish().await.unwrap();
    });
    let (mut from, mut to) = tokio::io::split(&mut *library);
    let (mut heard, all) = (Vec::new(), stream());
    let hearing = from.read_to_end(&mut heard);
    let saying = async {
        to.write_all(&all).await?;
        to.flush().await
    };
    let (heard_all, said_all) = tokio::join!(hearing, saying);
    heard_all.unwrap();
    said_all.unwrap();
    assert!(heard == all, "what the library heard");
    library.shutdown().await.unwrap();
    timeout(LIMIT, receiving).await.unwrap().unwrap();
    timeout(LIMIT, sending).await.unwrap().unwrap();
}

fn only(suite: SupportedCipherSuite) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { cipher_suites: vec![suite], ..provider::default_provider() })
}

fn suites() -> Vec<SupportedCipherSuite> {
    let all = provider::ALL_CIPHER_SUITES.iter().copied();
    all.filter(|suite| suite.tls13().is_some()).collect()
}

fn connector(own: &Ed25519, suite: SupportedCipherSuite) -> TlsConnector {
    let mut config = ClientConfig::builder_with_provider(only(suite))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Careless))
        .with_client_cert_resolver(key(own, own));
    config.alpn_protocols = vec![b"tow/1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// The library as initiator, with one cipher suite, and a service.
async fn library_dials(suite: SupportedCipherSuite) -> (TlsStream<TcpStream>, Connection) {
    let (visitor, service) = visit(LIMIT).await;
    let name = ServerName::try_from("localhost").unwrap();
    let stream = connector(&ed25519(), suite).connect(name, visitor).await.unwrap();
    (stream.into(), service.await.unwrap().unwrap())
}

impl ClientCertVerifier for Careless {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn acceptor(own: &Ed25519, suite: SupportedCipherSuite) -> TlsAcceptor {
    let spki = [&b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00"[..], &own.public].concat();
    let der = PrivatePkcs8KeyDer::from(own.pkcs8.clone()).into();
    let private = provider::sign::any_supported_type(&der).unwrap();
    let certified = Arc::new(CertifiedKey::new(vec![spki.into()], private));
    let mut config = ServerConfig::builder_with_provider(only(suite))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(Arc::new(Careless))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
    config.alpn_protocols = vec![b"tow/1".to_vec()];
    config.send_tls13_tickets = 0;
    TlsAcceptor::from(Arc::new(config))
}

/// We as initiator, and the library as responder, with one cipher suite.
async fn library_accepts(suite: SupportedCipherSuite) -> (TlsStream<TcpStream>, Connection) {
    let own = ed25519();
    let (listener, how) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), DialConfig::default());
    let node = NodeId(own.public[..].try_into().unwrap());
    let (near, address) = (identity(), listener.local_addr().unwrap());
    let accepting = async { acceptor(&own, suite).accept(listener.accept().await.unwrap().0).await.unwrap() };
    let (dialled, accepted) = tokio::join!(dial(address, &near, node, &how), accepting);
    (accepted.into(), dialled.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_go_both_ways_in_every_suite() {
    for suite in suites() {
        let (mut library, ours) = library_dials(suite).await;
        talk(&mut library, ours).await;
        let (mut library, ours) = library_accepts(suite).await;
        talk(&mut library, ours).await;
    }
}

#[tokio::test]
async fn the_channel_binding_is_the_librarys() {
    for (library, ours) in [library_dials(suites()[0]).await, library_accepts(suites()[0]).await] {
        let (label, binding) = (b"EXPORTER-Channel-Binding", [0; 32]);
        let exported = match &library {
            TlsStream::Client(stream) => stream.get_ref().1.export_keying_material(binding, label, Some(b"")),
            TlsStream::Server(stream) => stream.get_ref().1.export_keying_material(binding, label, Some(b"")),
        };
        assert_eq!(exported.unwrap(), ours.binding);
    }
}

fn refresh(library: &mut TlsStream<TcpStream>) {
    match library {
        TlsStream::Client(stream) => stream.get_mut().1.refresh_traffic_keys().unwrap(),
        TlsStream::Server(stream) => stream.get_mut().1.refresh_traffic_keys().unwrap(),
    }
}

/// The library's key update asks for one of ours, which it has before our next frame.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_renewed_in_both_directions() {
    for suite in suites() {
        for (mut library, mut ours) in [library_dials(suite).await, library_accepts(suite).await] {
            for round in 0..4u8 {
                refresh(&mut library);
                library.write_all(&[&encode_head(round, 1).unwrap()[..], &[round]].concat()).await.unwrap();
                library.flush().await.unwrap();
                let frame = timeout(LIMIT, ours.reader.next()).await.unwrap().unwrap().unwrap();
                assert_eq!((frame.kind, &frame.body[..]), (round, &[round][..]));
                ours.writer.send(round, b"", b"answer").await.unwrap();
                ours.writer.flush().await.unwrap();
                let mut answer = [0; 11];
                timeout(LIMIT, library.read_exact(&mut answer)).await.unwrap().unwrap();
                assert_eq!((answer[4], &answer[5..]), (round, &b"answer"[..]));
            }
            talk(&mut library, ours).await;
        }
    }
}

/// However the bytes between two ends of ours are cut, the frames are the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crumbs_make_up_the_same_frames() {
    let (near, far) = (identity(), identity());
    let (listener, address) = listen(&far).await;
    let between = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let entrance = between.local_addr().unwrap();
    tokio::spawn(async move {
        let (near, _) = between.accept().await.unwrap();
        let far = TcpStream::connect(address).await.unwrap();
        far.set_nodelay(true).unwrap();
        let ((mut from, mut back), (mut answers, mut to)) = (near.into_split(), far.into_split());
        let backwards = tokio::spawn(async move { tokio::io::copy(&mut answers, &mut back).await });
        let mut space = [0; 1 << 12];
        for turn in 0.. {
            let most = [1, 4, 5, 6, 21, 22, 100, 4096][turn % 8];
            match from.read(&mut space[..most]).await {
                Ok(0) | Err(_) => break,
                Ok(count) => to.write_all(&space[..count]).await.unwrap(),
            }
        }
        to.shutdown().await.unwrap();
        let _ = backwards.await;
    });
    let how = DialConfig::default();
    let accepting = async { listener.accept().await.unwrap().handshake(LIMIT).await };
    let (near, far) = tokio::join!(dial(entrance, &near, far.node_id(), &how), accepting);
    let (mut near, mut far) = (near.unwrap(), far.unwrap());
    let sending = tokio::spawn(async move {
        send_frames(&mut near.writer).await;
        near.writer.finish().await.unwrap();
    });
    timeout(LIMIT, receive_frames(&mut far.reader)).await.unwrap();
    assert!(far.reader.next().await.unwrap().is_none());
    sending.await.unwrap();
}

/// A stranger's change on the way ends the connection, and the sender gets an alert.
#[tokio::test]
async fn a_changed_record_ends_the_connection_with_an_alert() {
    let (library, mut ours) = library_dials(suites()[0]).await;
    let TlsStream::Client(mut stream) = library else { unreachable!() };
    stream.get_mut().0.write_all(&[&[0x17, 3, 3, 0, 40][..], &[0x55; 40]].concat()).await.unwrap();
    for _ in 0..2 {
        let error = ours.reader.next().await.unwrap_err();
        assert!(matches!(error, ReadError::Tls { source: rustls::Error::DecryptError }), "{error:?}");
    }
    assert!(ours.writer.send(1, b"", &[0; 100_000]).await.is_err(), "nothing goes on after that");
    let error = stream.read(&mut [0; 10]).await.unwrap_err();
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    assert_eq!(tls, Some(&rustls::Error::AlertReceived(AlertDescription::BadRecordMac)));
}

#[tokio::test]
async fn a_record_that_is_cut_short_is_a_cut() {
    let (stream, mut ours) = shaken_hands().await;
    let (mut raw, _) = stream.into_inner();
    raw.write_all(&[0x17, 3, 3, 0, 40, 1, 2, 3]).await.unwrap();
    raw.shutdown().await.unwrap();
    let error = ours.reader.next().await.unwrap_err();
    assert!(matches!(error, ReadError::CutOff { missing: 0 }), "{error:?}");
}

/// Frames behind the handshake in the same segments are not lost.
#[tokio::test]
async fn frames_may_follow_the_handshake_at_once() {
    let (near, far) = (identity(), identity());
    let (listener, address) = listen(&far).await;
    let between = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let entrance = between.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut near, _) = between.accept().await.unwrap();
        let mut far = TcpStream::connect(address).await.unwrap();
        let mut hello = vec![0; 4096];
        let count = near.read(&mut hello).await.unwrap();
        far.write_all(&hello[..count]).await.unwrap();
        let count = far.read(&mut hello).await.unwrap();
        near.write_all(&hello[..count]).await.unwrap();
        // Until what follows has come, the frame with it, nothing of it goes on.
        let mut rest = Vec::new();
        while rest.len() < 3000 {
            assert_ne!(near.read_buf(&mut rest).await.unwrap(), 0);
        }
        far.write_all(&rest).await.unwrap();
        let _: io::Result<_> = copy_bidirectional(&mut near, &mut far).await;
    });
    let how = DialConfig::default();
    let accepting = async { listener.accept().await.unwrap().handshake(LIMIT).await.unwrap() };
    let dialling = async {
        let mut near = dial(entrance, &near, far.node_id(), &how).await.unwrap();
        near.writer.send(1, b"", body(3000)).await.unwrap();
        near.writer.flush().await.unwrap();
        near
    };
    let (mut far, _near) = tokio::join!(accepting, dialling);
    let frame = timeout(LIMIT, far.reader.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(frame.body, body(3000));
}
