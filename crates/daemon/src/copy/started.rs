//! The side that was started over ssh: does what the first messages say, and ends with the pipe.

use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_api::ApiError;
use towpath_plugins::direct::{ControlReceiver, ControlSender, Peer, PeerConfig, Service as PeerService};

use super::channel;
use super::events::CopySummary;
use super::merge::Destined;
use super::message::{Fatal, Message, Ready, Start, VERSION, violation};
use super::offers::Offers;
use super::options::{CopyOptions, Mode};
use super::patterns;
use super::race::SshConnection;
use super::receiving::refuse;
use super::run::GRACE;
use super::sender::hung_up;
use super::sending::send;
use super::side::{Side, blocking, peer_config, peer_service, race, set_silence};
use super::source::Sources;
use super::taking::receive;
use super::talk::{Events, events};
use crate::service::Service;

/// Bytes of all options: a list of files may be long.
const MAX_OPTIONS: usize = 32 << 20;

/// The other side of a copy, over this process's standard input and output. Ends with them.
pub async fn serve_stdio(service: &Arc<Service>) -> Result<(), ApiError> {
    let (offers, peers) = peer_service(service);
    let config = PeerConfig { control: true, ..service.bare_peer_config() };
    let peer = channel::serve_stdio(service.identity.node_id(), Arc::clone(&peers), config).await?;
    channel::exit_after(&peer, GRACE);
    let Some((control, mut inbox)) = peer.control() else {
        return Err(violation("a connection without a control stream"));
    };
    let (events, told) = events();
    let forwarding = tokio::spawn(told.send_to(control.clone()));
    let serving = serve(service, &peer, &control, &mut inbox, offers, peers, events);
    let message = match serving.await {
        Ok(Some(summary)) => Some(Message::Finished(serde_json::to_vec(&summary).unwrap_or_default().into())),
        Ok(None) => None,
        Err(error) => {
            Some(Message::Fatal(Fatal { error: serde_json::to_vec(&error).unwrap_or_default().into() }))
        }
    };
    // All events come before the summary.
    let _ = tokio::time::timeout(GRACE, forwarding).await;
    if let Some(message) = message {
        let _ = control.send(message.into_bytes()).await;
    }
    // The person's side closes when it has heard the end.
    drop(control);
    let _ = tokio::time::timeout(GRACE, peer.until_closed()).await;
    Ok(())
}

/// The first message, and the options that came in parts before it.
async fn told_to_start(inbox: &mut ControlReceiver) -> Result<(Start, Vec<u8>), ApiError> {
    let mut options = Vec::new();
    loop {
        match Message::from_bytes(inbox.next().await.ok_or_else(hung_up)?)? {
            Message::More(part) if options.len() + part.len() <= MAX_OPTIONS => {
                options.extend_from_slice(&part);
            }
            Message::Start(start) if options.len() + start.options.len() <= MAX_OPTIONS => {
                options.extend_from_slice(&start.options);
                return Ok((start, options));
            }
            Message::More(_) | Message::Start(_) => {
                return Err(refuse(
                    "more than 32 MiB of options",
                    "split the list of files, and copy one after the other",
                ));
            }
            _ => return Err(violation("something before it was told what to do")),
        }
    }
}

/// Does what the first message says; a receiver returns its summary.
async fn serve(
    service: &Arc<Service>,
    peer: &Arc<Peer>,
    control: &ControlSender,
    inbox: &mut ControlReceiver,
    offers: Arc<Offers>,
    peers: Arc<PeerService>,
    events: Events,
) -> Result<Option<CopySummary>, ApiError> {
    let (start, options) = told_to_start(inbox).await?;
    if start.version != VERSION {
        let what = format!("version {} of the copy protocol, where this side knows {VERSION}", start.version);
        return Err(violation(&what));
    }
    let options: CopyOptions =
        serde_json::from_slice(&options).map_err(|_| violation("options that can't be read"))?;
    let mode = if start.is_cp { Mode::Cp } else { Mode::Sync };
    let paths =
        start.sources.iter().map(|path| patterns::expand(path)).collect::<Result<Vec<_>, _>>()?.concat();
    let count = paths.len();
    if start.is_contents && count > 1 {
        return Err(refuse("several directories' contents can't become one", "copy one after the other"));
    }
    let sources = match start.is_sender {
        true => {
            let (contents, options) = (start.is_contents, options.clone());
            Some(blocking(move || Sources::open(&paths, contents, &options)).await?)
        }
        false => None,
    };
    let (config, ssh) = (peer_config(service, &options), SshConnection::from_env());
    let (mut race, addresses) = race(service, options.via, peers, peer.node(), config, ssh).await?;
    let ready = Ready { addresses, sources: count as u32, takes_bases: true };
    control.send(Message::Ready(ready).into_bytes()).await.map_err(|_| hung_up())?;
    set_silence(peer, &options);
    let theirs: Vec<_> = start.addresses.iter().filter_map(|address| address.parse().ok()).collect();
    let side = Side {
        service: Arc::clone(service),
        peer: Arc::clone(peer),
        control: control.clone(),
        offers,
        events,
        options,
        is_started: true,
        takes_bases: start.takes_bases,
        other: "the sender".into(),
    };
    match sources {
        Some(sources) => {
            let (stood_in, stood) = mpsc::unbounded_channel();
            if let Some(race) = &mut race {
                race.run(&theirs, None, stood_in);
            }
            send(&side, sources, inbox, stood).await.map(|_| None)
        }
        None => {
            let destined = Destined {
                path: patterns::here(&start.destination),
                mode,
                sources: start.source_count as usize,
                contents: start.is_contents,
                names: None,
            };
            receive(&side, destined, inbox, race, &theirs).await.map(Some)
        }
    }
}
