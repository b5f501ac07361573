//! The get operation: a ticket in, a file or a tree out.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_api::{
    Announced, ApiError, ContentRequest, EntryKind, ErrorKind, Event, GetRequest, Seconds, Summary,
};
use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_content::pieces::Layout;
use towpath_files::{FileError, SingleFile, display_name};
use towpath_mirror::SimilarSource;
use towpath_store::{About, ObjectKind, Stamp, hash_open_file};
use towpath_targets::base_file::BaseFile;
use towpath_targets::file_target::{FileTarget, TargetFile};
use towpath_targets::get_file::GetFile;
use towpath_targets::resume::Record;
use towpath_transfer::progress::Progress;
use towpath_transfer::{FetchError, Fetched, Group, SourceId};

use crate::announcing::announcing;
use crate::content;
use crate::get_list;
use crate::get_tree;
use crate::get_update;
use crate::getting::{Failure, GetUnderWay, behind, report_progress, source_bytes, summarize};
use crate::near;
use crate::selecting::{is_part, preserve, selection};
use crate::state::Service;
use crate::transfers::PROGRESS_EVERY;
use crate::tree_place::{TreePlace, named, tree_place};
use crate::waiting::{self, report_wait};
use crate::web_places::WebPlaces;
use towpath_reuse::candidates::found_files::{MadeOfFound, Use, WHOLE};
use towpath_sync::search::{add_deltas, searched};
use towpath_words as words;

/// Number of times a get begins anew when the producer of a live object does.
const MAX_STARTS: usize = 20;
/// Longest time in which an older version of a published file is looked at.
const LONGEST_LOOK: Duration = Duration::from_secs(60);
/// A file of at most so many bytes is here as soon as another one was found: its first piece comes with its description.
const SOON_HERE: u64 = 64 << 10;

/// Fetches what `request` names; events come while it goes on.
pub async fn get(
    service: &Arc<Service>,
    request: GetRequest,
    events: mpsc::Sender<Event>,
) -> Result<Summary, ApiError> {
    if request.list {
        return get_list::list(service, &request, events).await;
    }
    let (start, web) = (Instant::now(), WebPlaces::of(&request).await?);
    let first = behind(service, &request, &web, None)?;
    let _leading =
        report_wait(first.own_turn(), "another get of the same object on this machine", &events).await;
    let _permit =
        report_wait(service.in_flight.permit(), "the end of other gets on this machine", &events).await?;
    let near = near::near(service, &first, &request, &events).await;
    drop(first);
    let mut summary = Summary::default();
    for _ in 0..MAX_STARTS {
        // Made after its turn came: what was brought meanwhile may be used. And made anew after each start,
        // since its plugins belong to one session.
        let get = Arc::new(behind(service, &request, &web, near.as_ref())?);
        let result = {
            let running = get.run(&request, &events, &mut summary);
            tokio::select! {
                result = running => result,
                why = withdrawn(service, &request) => Err(Failure::Error(why)),
                never = waiting::report(&get, &events) => match never {},
            }
        };
        get.account(&mut summary);
        match result {
            Err(Failure::StartedOver) => tokio::time::sleep(PROGRESS_EVERY).await,
            Err(Failure::Error(error)) => return Err(explained(&get, error)),
            Ok(()) => {
                summary.seconds = Seconds::from_duration(start.elapsed());
                summary.encrypted = get.plugins.root.state().is_encrypted;
                get.finish(summary.failed == 0 && !is_part(&request)).await;
                return Ok(summary);
            }
        }
    }
    Err(words::fetch(&FetchError::StartedOver))
}

/// An error in words that fit where there is no sender, only web servers.
fn explained(get: &GetUnderWay, error: ApiError) -> ApiError {
    let is_theirs = matches!(error.kind, ErrorKind::NotFound | ErrorKind::TimedOut | ErrorKind::Changed);
    match lock(&get.web_trouble).clone().filter(|_| is_theirs && get.context.node.is_none()) {
        Some(trouble) => ApiError::new(error.kind, trouble).hint(
            "see that the server has the very file that the .tow describes; 'tow publish' describes it anew",
        ),
        None => error,
    }
}

/// Completes when somebody tells that the ticket of `request` was taken back, with the reason. That it expires is for those to
/// say who are asked: what they still send is for this machine.
async fn withdrawn(service: &Arc<Service>, request: &GetRequest) -> ApiError {
    match request.ticket.trim().parse() {
        Ok(ticket) => {
            service.withdrawals.hold(&ticket).withdrawn().await;
            words::ticket_withdrawn()
        }
        Err(_) => std::future::pending().await,
    }
}

/// Fetches into a stream, in order, each byte once it is checked. An error after some bytes means
/// that those are good and the rest is missing.
pub async fn get_stream(
    service: &Arc<Service>,
    request: &ContentRequest,
    events: mpsc::Sender<Event>,
    mut output: impl std::io::Write + Send + 'static,
) -> Result<Summary, ApiError> {
    let start = Instant::now();
    let request = content::as_get(request);
    let get = content::under_way(service, &request).await?;
    let opening = content::open_whole(Arc::clone(&get), &request);
    let opened = tokio::select! { opened = opening => opened?, never = waiting::report(&get, &events) => match never {} };
    let (mut oid, size, arrival) = (opened.oid, opened.size.unwrap_or(u64::MAX), opened.arrival());
    let encrypted = opened.encrypted;
    let progress = arrival.as_ref().map(|arrival| arrival.progress());
    let mut parts = opened.in_order(0..size);
    let copying = tokio::task::spawn_blocking(move || {
        let mut bytes = 0;
        while let Some(part) = parts.blocking_recv() {
            let part = part?;
            bytes += part.len() as u64;
            output.write_all(&part)?;
            output.flush()?;
        }
        Ok::<_, std::io::Error>(bytes)
    });
    let reporting = async {
        match &progress {
            Some(progress) => report_progress(progress.clone(), events.clone()).await,
            None => std::future::pending().await,
        }
    };
    let copied = tokio::select! {
        copied = copying => copied,
        never = reporting => match never {},
        never = waiting::report(&get, &events) => match never {},
    };
    let copied = copied.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
    let bytes = copied.map_err(|error| match error.downcast::<ApiError>() {
        Ok(error) => error,
        Err(error) => ApiError::new(ErrorKind::Failed, format!("writing the output: {error}")),
    })?;
    if let Some(arrival) = arrival {
        oid = Some(arrival.ended().await?);
    }
    let mut summary = Summary { entries: 1, output: "-".into(), bytes, ..Summary::default() };
    match progress {
        Some(progress) => summarize(&progress.snapshot(), &mut summary),
        None => summary.sources.add(source_bytes(&SourceId::this_machine(), bytes)),
    }
    summary.oid = oid.map(|oid| oid.to_string()).unwrap_or_default();
    summary.encrypted = encrypted;
    summary.seconds = Seconds::from_duration(start.elapsed());
    Ok(summary)
}

impl GetUnderWay {
    async fn run(
        self: &Arc<Self>,
        request: &GetRequest,
        events: &mpsc::Sender<Event>,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        // Where an older version most likely spares the first piece it does not begin to come.
        let is_eager = !self.found_files.as_ref().is_some_and(|found_files| found_files.may_spare_pieces());
        let described = self.describe(is_eager).await;
        let (about, layout) = described.map_err(|error| what_changed(error, "what the ticket names"))?;
        if let Some(update) = &request.update {
            return get_update::run(self, (request, update), (about, layout), events, summary).await;
        }
        let (place, renamed) = match request.paths.is_empty() {
            true => (TreePlace::New(self.destination(request, &about)?), None),
            false => tree_place(self, request)?,
        };
        let selection = selection(request, &about, renamed.as_deref())?;
        let destination = place.shown(&selection);
        self.service.check_writable(&destination)?;
        if about.kind == ObjectKind::Tree {
            self.announce((&about, layout.as_ref()), &destination, events, summary).await;
            let wanted = (&about, layout, selection, preserve(request));
            return get_tree::run(self, &place, wanted, events, summary).await;
        }
        self.file(&destination, (about, layout), events, summary).await
    }

    /// Says what is about to be written and where, before anything is made there: the name may be the sender's choice.
    /// Once, though the get may begin anew.
    pub(crate) async fn announce(
        &self,
        (about, layout): (&About, Option<&Layout>),
        destination: &Path,
        events: &mpsc::Sender<Event>,
        summary: &mut Summary,
    ) {
        if summary.output == destination {
            return;
        }
        summary.output = destination.to_path_buf();
        let (kind, size) = match about.kind {
            ObjectKind::Tree => (EntryKind::Directory, None),
            // The end of a live object is not known yet.
            ObjectKind::Blob => (EntryKind::File, layout.filter(|_| !self.oid.is_live()).map(Layout::size)),
        };
        let (name, output) = (about.name.clone(), destination.to_path_buf());
        let _ = events.send(Event::Receiving(Announced { name, kind, size, output })).await;
    }

    async fn file(
        self: &Arc<Self>,
        destination: &Path,
        (about, layout): (About, Option<Layout>),
        events: &mpsc::Sender<Event>,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        if let Some((oid, size)) = self.is_there(destination).await? {
            self.clean_up(destination);
            summary.output = destination.to_path_buf();
            (summary.oid, summary.bytes, summary.kept, summary.entries) = (oid.to_string(), size, size, 1);
            return Ok(());
        }
        self.announce((&about, layout.as_ref()), destination, events, summary).await;
        self.note_destination(destination);
        let record = Record::open(&self.service.home.resume(), destination, &self.oid);
        let record = record.map_err(|error| words::io("note", &self.service.home.resume(), &error))?;
        let _lent = self.lending.as_ref().and_then(|lending| lending.begin(&self.service));
        let target = GetFile::new(destination, record, Arc::clone(&self.service.store));
        let target = Arc::new(target.announced(announcing(self)));
        target.set_about(&about);
        let mut group = group(destination, &about, layout.as_ref());
        let fetched = match self.look_around(&group).await {
            Some((oid, Use::Whole(bytes))) => self.take(&target, oid, bytes, &about).await,
            Some((_, found)) => {
                draw_on(self.similar.as_deref(), &target, &mut group, found).await;
                self.fetch(&target, (layout, group), events, summary).await
            }
            None => self.fetch(&target, (layout, group), events, summary).await,
        };
        let failure = target.failure();
        if let Some(FileError::Exists { .. }) = failure
            && let Ok(Some((oid, size))) = self.is_there(destination).await
        {
            // Another get of the same object was faster.
            target.discard();
            (summary.oid, summary.bytes, summary.entries) = (oid.to_string(), size, 1);
            return Ok(());
        }
        let fetched = fetched.map_err(|error| match failure {
            Some(file) => Failure::Error(words::file(&file)),
            None => match Failure::from(error) {
                Failure::Error(error) => Failure::Error(what_changed(error, &display_name(&about.name))),
                started_over => started_over,
            },
        })?;
        self.note_sent(&fetched.oid);
        (summary.oid, summary.bytes, summary.entries) = (fetched.oid.to_string(), fetched.size, 1);
        Ok(())
    }

    async fn fetch(
        self: &Arc<Self>,
        target: &Arc<GetFile>,
        (layout, group): (Option<Layout>, Group),
        events: &mpsc::Sender<Event>,
        summary: &mut Summary,
    ) -> Result<Fetched, FetchError> {
        let session = self.session();
        let reporting = report_progress(session.progress(), events.clone());
        let fetching = session.fetch(self.request(FileTarget::of(target), layout, group));
        let fetched = tokio::select! {
            fetched = fetching => fetched,
            never = reporting => match never {},
            never = self.serve_meanwhile(session.progress()) => match never {},
        };
        self.peers.take_back(&self.oid);
        summarize(&session.progress().snapshot(), summary);
        let drawn = target.partial().drawn();
        if let Some(found_files) = &self.found_files
            && (drawn > 0 || found_files.came_as_delta(&self.oid))
        {
            found_files.proved(&self.oid, false, drawn);
        }
        fetched
    }

    /// Serves others what comes, if this get may.
    pub(crate) async fn serve_meanwhile(&self, progress: Progress) -> Infallible {
        match &self.lending {
            Some(lending) => {
                let tell = |has, listening: &[_]| {
                    self.meeting.iter().for_each(|meeting| meeting.serves(has, listening));
                };
                lending.run(&self.service, &self.peers, &progress, tell).await
            }
            None => std::future::pending().await,
        }
    }

    /// Looks for a file that is the same, or an older version; with the name of what is wanted.
    async fn look_around(&self, group: &Group) -> Option<(Oid, Use)> {
        let (found_files, group) = (self.found_files.clone()?, group.clone());
        let oid = match group.size.filter(|size| *size > SOON_HERE)? {
            ..=WHOLE => self.content().await?,
            // Its pieces are compared by their values.
            _ => self.oid,
        };
        let looking = tokio::task::spawn_blocking(move || found_files.find(&[(&group, oid)]).pop().flatten());
        Some((oid, looking.await.ok().flatten()?))
    }

    /// Takes all of a file that is the very same.
    async fn take(
        &self,
        target: &Arc<GetFile>,
        oid: Oid,
        bytes: Vec<u8>,
        about: &About,
    ) -> Result<Fetched, FetchError> {
        let (target, about, size) = (FileTarget::of(target), about.clone(), bytes.len() as u64);
        let described = about.clone();
        let taking = tokio::task::spawn_blocking(move || target.take(&oid, &bytes, &described));
        let taken = taking.await.unwrap_or_else(|error| Err(error.into()));
        taken.map_err(FetchError::Write)?;
        self.found_files.iter().for_each(|found_files| found_files.took(size));
        Ok(Fetched { oid, size, about })
    }

    /// Tells what was searched, and what was made of files that are here.
    fn account(&self, summary: &mut Summary) {
        let Some(adaptive) = &self.plugins.adaptive else { return };
        let mut search = searched(&adaptive.account());
        let (made, deltas) = match &self.found_files {
            Some(found_files) => (found_files.account(), found_files.deltas()),
            None => (MadeOfFound::default(), adaptive.made_deltas()),
        };
        add_deltas(&mut search, deltas);
        search.changed = (search.changed + made.files).saturating_sub(made.by_deltas);
        search.by_change += made.bytes;
        summary.search = Some(search);
        summary.kept += made.whole;
    }

    /// The file at `destination`, if it is this very object; an error if it is anything else.
    async fn is_there(&self, destination: &Path) -> Result<Option<(Oid, u64)>, ApiError> {
        let Ok(metadata) = std::fs::symlink_metadata(destination) else { return Ok(None) };
        if metadata.is_file()
            && let Some(wanted) = self.content().await
            && self.holds(destination, wanted).await
        {
            return Ok(Some((wanted, metadata.len())));
        }
        let message = format!(
            "{} is already there, and it is not this object",
            display_name(destination.as_os_str().as_encoded_bytes())
        );
        Err(ApiError::new(ErrorKind::Exists, message)
            .hint("choose another name with -o, or remove what is there"))
    }

    /// The object is there: what an interrupted transfer of it left is of no more use.
    fn clean_up(&self, destination: &Path) {
        let folder = self.service.home.resume();
        if !Record::is_open(&folder, destination, &self.oid) {
            return;
        }
        let Ok(record) = Record::open(&folder, destination, &self.oid) else { return };
        let left = record.temp().and_then(|temp| SingleFile::reopen(destination, temp).ok());
        if let Some(Err(error)) = left.map(SingleFile::discard) {
            tracing::warn!(%error, "a temporary could not be removed");
        }
        record.remove();
    }

    /// True if the file is that object: the index knows, else it is read.
    async fn holds(&self, file: &Path, wanted: Oid) -> bool {
        let (store, file) = (Arc::clone(&self.service.store), file.to_path_buf());
        let looking = tokio::task::spawn_blocking(move || {
            let (parent, name) = (file.parent()?.canonicalize().ok()?, file.file_name()?);
            let known = store.known(&parent, &[(name, Stamp::of_path(&file).ok()?)]).ok()?;
            match known.into_iter().next().flatten() {
                Some(known) => Some(known),
                None => Some(hash_open_file(&std::fs::File::open(&file).ok()?, &file).ok()?.oid),
            }
        });
        looking.await.ok().flatten() == Some(wanted)
    }

    /// Path that the object goes to: the name asked for, or its own in the directory asked for. As with
    /// `cp` an existing directory takes it under its own name, unless a transfer of this very
    /// object into it was interrupted.
    fn destination(&self, request: &GetRequest, about: &About) -> Result<PathBuf, ApiError> {
        let resume = self.service.home.resume();
        match &request.output {
            None => named(&request.directory, about),
            Some(output) if output.is_dir() && !Record::is_open(&resume, output, &self.oid) => {
                named(output, about)
            }
            Some(output) => Ok(output.clone()),
        }
    }
}

/// Makes use of a file that is likely an older version, for what comes to `target`.
async fn draw_on(similar: Option<&SimilarSource>, target: &GetFile, group: &mut Group, found: Use) {
    let (is_in_pieces, found) = match found {
        Use::Whole(_) => return,
        Use::Pieces(found) => (true, found),
        Use::Older(found) => (false, found),
    };
    if let (Some(similar), Ok(file)) = (similar, found.file.try_clone()) {
        let filling = similar.fill(file, found.size, found.path());
        let filling = tokio::time::timeout(LONGEST_LOOK, filling);
        // Of a published file blocks are found at any place, and cost fewer bytes than what follows.
        if filling.await.unwrap_or(0) > 0 {
            return;
        }
    }
    found.show_to_search(group);
    if is_in_pieces {
        target.partial().set_base(BaseFile::new(found.file, found.size, group.size.unwrap_or(0)));
    }
}

/// Group of a single file, which a search goes by.
fn group(destination: &Path, about: &About, layout: Option<&Layout>) -> Group {
    // The name it has at its sender's is that of an older version, wherever it is put here.
    let parent = destination.parent().and_then(|parent| parent.canonicalize().ok());
    let name = match towpath_files::names::check_name(&about.name) {
        Ok(_) => Some(OsStr::from_bytes(&about.name)),
        Err(_) => destination.file_name(),
    };
    Group {
        path: about.name.clone(),
        size: layout.map(Layout::size),
        modified: about.modified,
        destination: parent.zip(name).map(|(parent, name)| parent.join(name)),
        // The root itself, also where that is live and is asked for by the name of what it became.
        in_root: Some(0),
        ..Group::default()
    }
}

/// Of a file that changed at its source, which one that is.
fn what_changed(error: ApiError, name: &str) -> ApiError {
    match error.message.strip_prefix("it was changed") {
        Some(rest) if !name.is_empty() => ApiError { message: format!("{name} was changed{rest}"), ..error },
        _ => error,
    }
}
