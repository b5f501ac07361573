//! Peers that get a connection, and how the others learn that they don't.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use towpath_link::pipe::{self, PipeError, Role};
use towpath_link::tcp::{
    self, AcceptError, BindError, DialConfig, DialError, Listener, SharedPort, Timeouts,
};
use towpath_link::tls::HandshakeError;
use towpath_link::{Connection, PeerProof, Protocol};

use crate::pair::{LIMIT, identity, listen, over_pipe};

const SHORT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn another_node_than_the_one_wanted_is_refused_by_name() {
    let (far, wanted) = (identity(), identity());
    let (listener, address) = listen(&far).await;
    let how = DialConfig::default();
    let (near, wanted_id) = (identity(), wanted.node_id());
    let dialling = tcp::dial(address, &near, wanted_id, &how);
    let accepting = async { listener.accept().await.unwrap().handshake(LIMIT).await };
    let (dialled, accepted) = tokio::join!(dialling, accepting);
    match dialled.unwrap_err() {
        DialError::WrongNode { expected, found, .. } => {
            assert_eq!((expected, found), (wanted.node_id(), far.node_id()));
        }
        error => panic!("{error:?}"),
    }
    assert!(matches!(accepted.unwrap_err(), AcceptError::Handshake { .. }));
}

#[tokio::test]
async fn a_port_without_a_service_refuses() {
    let (listener, address) = listen(&identity()).await;
    drop(listener);
    let error =
        tcp::dial(address, &identity(), identity().node_id(), &DialConfig::default()).await.unwrap_err();
    assert!(matches!(error, DialError::Refused { address: at } if at == address), "{error:?}");
}

#[tokio::test]
async fn a_second_connection_from_one_port_to_one_address_goes_by_another_port() {
    let (far, near) = (identity(), identity());
    let (listener, address) = listen(&far).await;
    let how = DialConfig { port: Some(SharedPort::new().unwrap()), ..DialConfig::default() };
    let mut held = Vec::new();
    for _ in 0..2 {
        let accepting = async { listener.accept().await.unwrap().handshake(LIMIT).await };
        let (dialled, accepted) = tokio::join!(tcp::dial(address, &near, far.node_id(), &how), accepting);
        held.push((dialled.unwrap(), accepted.unwrap()));
    }
}

#[tokio::test]
async fn an_address_in_use_is_an_error() {
    let (_listener, address) = listen(&identity()).await;
    assert!(matches!(Listener::bind(address, &identity()).await, Err(BindError::Io { .. })));
}

#[tokio::test]
async fn a_service_that_says_nothing_is_given_up() {
    let (_listener, address) = listen(&identity()).await;
    let how = DialConfig::from(Timeouts { handshake: SHORT, ..Timeouts::default() });
    let error = tcp::dial(address, &identity(), identity().node_id(), &how).await.unwrap_err();
    assert!(matches!(error, DialError::HandshakeTimeout { .. }), "{error:?}");
}

#[tokio::test]
async fn a_service_of_another_kind_is_no_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let web_server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    let error =
        tcp::dial(address, &identity(), identity().node_id(), &DialConfig::default()).await.unwrap_err();
    let tls = matches!(error, DialError::Handshake { source: HandshakeError::Tls { .. }, .. });
    assert!(tls, "{error:?}");
    web_server.await.unwrap();
}

async fn dial_all(addresses: &[SocketAddr], how: &DialConfig) -> Result<Connection, DialError> {
    let far = identity();
    let (listener, address) = listen(&far).await;
    let addresses: Vec<_> = addresses.iter().copied().chain([address]).collect();
    let near = identity();
    let dialling = tcp::dial_any(&addresses, &near, far.node_id(), how);
    let accepting = async { listener.accept().await.unwrap().handshake(LIMIT).await };
    let (dialled, _) = tokio::join!(dialling, accepting);
    dialled
}

#[tokio::test]
async fn of_several_addresses_the_one_that_answers_counts() {
    let (closed, refusing) = listen(&identity()).await;
    drop(closed);
    let (_silent_listener, silent) = listen(&identity()).await;
    let how = DialConfig::default();
    dial_all(&[refusing, silent], &how).await.unwrap();
}

#[tokio::test]
async fn if_no_address_answers_the_most_telling_error_is_kept() {
    let (closed, refusing) = listen(&identity()).await;
    drop(closed);
    let (_silent_listener, silent) = listen(&identity()).await;
    let how = DialConfig::from(Timeouts { handshake: SHORT, ..Timeouts::default() });
    let (near, wanted) = (identity(), identity().node_id());
    let error = tcp::dial_any(&[silent, refusing], &near, wanted, &how).await.unwrap_err();
    assert!(matches!(error, DialError::HandshakeTimeout { .. }), "{error:?}");
    let error = tcp::dial_any(&[], &near, wanted, &how).await.unwrap_err();
    assert!(matches!(error, DialError::NoAddress));
}

#[tokio::test]
async fn the_ids_on_a_pipe_are_told_not_proved() {
    let (near, far) = over_pipe().await;
    assert_eq!((near.proof, far.proof), (PeerProof::Claim, PeerProof::Claim));
    assert_ne!(near.peer, far.peer);
    assert_eq!(near.info.read(), None);
}

/// Opens an end whose peer says `said` and then stays, or hangs up.
async fn hear(said: &[u8], hang_up: bool) -> PipeError {
    let (near, mut far) = duplex(4096);
    far.write_all(said).await.unwrap();
    let far = if hang_up {
        drop(far);
        None
    } else {
        Some(far)
    };
    let (read, write) = split(near);
    let error = pipe::open(read, write, identity().node_id(), Role::Initiator, SHORT).await.unwrap_err();
    drop(far);
    error
}

#[tokio::test]
async fn a_pipe_to_something_else_says_what_came() {
    let banner = hear(b"Welcome to example.org!\n", false).await;
    assert!(matches!(banner, PipeError::NotTowpath { begin } if &begin == b"Welcome "), "{banner:?}");
    assert!(banner.to_string().contains("Welcome "));
    let newer = hear(b"towpipe\x02 and more", false).await;
    assert!(matches!(newer, PipeError::Version { found: 2 }), "{newer:?}");
    let role = hear(&[&b"towpipe\x01\x07"[..], &[0; 64]].concat(), false).await;
    assert!(matches!(role, PipeError::NotTowpath { .. }), "{role:?}");
}

#[tokio::test]
async fn a_pipe_that_is_silent_or_cut_is_given_up() {
    assert!(matches!(hear(b"towp", false).await, PipeError::HandshakeTimeout { .. }));
    assert!(matches!(hear(b"", false).await, PipeError::HandshakeTimeout { .. }));
    assert!(matches!(hear(b"towpipe\x01\x01", true).await, PipeError::Closed));
}

#[tokio::test]
async fn a_pipe_that_leads_back_or_has_two_initiators_is_refused() {
    let (near, far) = duplex(4096);
    let echo = tokio::spawn(async move {
        let (mut read, mut write) = split(far);
        let _ = tokio::io::copy(&mut read, &mut write).await;
    });
    let (read, write) = split(near);
    let opened = pipe::open(read, write, identity().node_id(), Role::Initiator, LIMIT).await;
    assert!(matches!(opened, Err(PipeError::SameRole)), "{opened:?}");
    echo.abort();

    let twin = [&b"towpipe\x01\x00"[..], &[7; 64]].concat();
    assert!(matches!(hear(&twin, false).await, PipeError::SameRole));
}

#[tokio::test]
async fn several_protocols_share_a_port_and_a_connection_says_which_it_speaks() {
    const OTHER: Protocol = Protocol(b"tow-other/1");
    const UNKNOWN: Protocol = Protocol(b"tow-unknown/1");
    let far = identity();
    let here = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind_for(here, &far, &[Protocol::PEER, OTHER]).await.unwrap();
    let (address, near) = (listener.address().unwrap(), identity());
    for protocol in [OTHER, Protocol::PEER] {
        let how = DialConfig { protocol, ..DialConfig::default() };
        let dialling = tcp::dial(address, &near, far.node_id(), &how);
        let accepting = async { listener.accept().await.unwrap().handshake(LIMIT).await };
        let (dialled, accepted) = tokio::join!(dialling, accepting);
        assert_eq!((dialled.unwrap().protocol, accepted.unwrap().protocol), (protocol, protocol));
    }
    let how = DialConfig { protocol: UNKNOWN, ..DialConfig::default() };
    let dialling = tcp::dial(address, &near, far.node_id(), &how);
    let accepting = async { listener.accept().await.unwrap().handshake(LIMIT).await };
    let (dialled, accepted) = tokio::join!(dialling, accepting);
    let refused = DialError::Handshake { address, source: HandshakeError::NoProtocol };
    assert_eq!(dialled.unwrap_err().to_string(), refused.to_string());
    assert!(accepted.is_err());
}
