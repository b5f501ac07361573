//! A bucket as a byte store.
//!
//! Calls block while requests run on a small runtime of this store's own, so they may come from any thread.
//! Small bytes are put by one request that creates and never replaces; large ones in parts.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig};
use towpath_byte_store::error::OUTSIDE;
use towpath_byte_store::files::{check_range, expect_end};
use towpath_byte_store::{
    BucketPlace, ByteName, ByteStore, ByteStoreError, Listed, MAX_PAGE, PlaceOwner, PutResult,
};

use crate::credentials::Credentials;
use crate::http::OverHyper;
use crate::requests::Requests;
use crate::upload::{self, PART};

/// Attempts after the first one.
const MAX_RETRIES: usize = 5;
/// Time after which nothing is tried again.
const RETRY_LIMIT: Duration = Duration::from_secs(60);
/// Bytes of a note of the owner, at most.
const MAX_NOTE: u64 = 100;

/// Settings of a bucket.
#[derive(Debug, Clone)]
pub struct S3Settings {
    /// Bucket and prefix.
    pub place: BucketPlace,
    /// URL of a server that is not Amazon's.
    pub endpoint: Option<String>,
    /// Region of the bucket.
    pub region: String,
    /// Keys of the account.
    pub credentials: Credentials,
}

/// A bucket that keeps bytes.
#[derive(Debug)]
pub struct S3Bytes {
    requests: Requests,
    place: BucketPlace,
}

impl S3Bytes {
    /// Prepares requests; none is sent yet.
    pub fn new(settings: S3Settings) -> Result<Self, ByteStoreError> {
        let S3Settings { place, endpoint, region, credentials } = settings;
        let shown = place.to_string();
        let failed = |source| ByteStoreError::Failed { what: format!("preparing {shown}"), source };
        let backoff = BackoffConfig { max_backoff: Duration::from_secs(5), ..BackoffConfig::default() };
        let retry = RetryConfig { backoff, max_retries: MAX_RETRIES, retry_timeout: RETRY_LIMIT };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&place.bucket)
            .with_region(region)
            .with_access_key_id(&credentials.access_key)
            .with_secret_access_key(&credentials.secret_key)
            .with_retry(retry)
            .with_http_connector(OverHyper);
        if let Some(token) = credentials.token {
            builder = builder.with_token(token);
        }
        if let Some(endpoint) = endpoint {
            builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
        }
        let client = Arc::new(builder.build().map_err(|error| failed(error.into()))?);
        let requests = Requests::new(client, &shown).map_err(|error| failed(error.into()))?;
        Ok(Self { requests, place })
    }

    fn path(&self, name: &ByteName) -> Path {
        Path::from(self.place.key(&format!("objects/{name}")))
    }

    /// Puts what is small by one request.
    fn put_whole(
        &self,
        name: &ByteName,
        bytes: &mut dyn Read,
        size: u64,
    ) -> Result<PutResult, ByteStoreError> {
        let payload = PutPayload::from(upload::read_part(bytes, size)?);
        expect_end(bytes)?;
        match self.send(self.path(name), payload.clone(), PutMode::Create) {
            Ok(()) => return Ok(PutResult::New),
            Err(Sent::WasThere) => {}
            Err(Sent::Fault(error)) => return Err(error),
        }
        match self.size(name) {
            Ok(found) if found == size => return Ok(PutResult::WasHere),
            Ok(_) | Err(ByteStoreError::NotHere) => {}
            Err(error) => return Err(error),
        }
        match self.send(self.path(name), payload, PutMode::Overwrite) {
            Ok(()) => Ok(PutResult::New),
            Err(Sent::Fault(error)) => Err(error),
            Err(Sent::WasThere) => Err(ByteStoreError::Unreachable {
                place: self.requests.shown.clone(),
                why: "the server neither keeps nor replaces what is there".into(),
            }),
        }
    }

    fn send(&self, path: Path, payload: PutPayload, mode: PutMode) -> Result<(), Sent> {
        let client = Arc::clone(&self.requests.client);
        let sent = self.requests.wait("writing to", async move {
            match client.put_opts(&path, payload, mode.into()).await {
                Ok(_) => Ok(true),
                Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        });
        match sent {
            Ok(true) => Ok(()),
            Ok(false) => Err(Sent::WasThere),
            Err(error) => Err(Sent::Fault(error)),
        }
    }

    fn note(&self) -> Path {
        Path::from(self.place.key("owner"))
    }

    /// Owner that the place is noted to have; `None` in `Ok` if there is no note.
    fn noted(&self) -> Result<Option<String>, ByteStoreError> {
        let (client, path) = (Arc::clone(&self.requests.client), self.note());
        let note = self.requests.wait("reading in", async move {
            let found = client.get(&path).await?;
            match found.meta.size {
                ..=MAX_NOTE => found.bytes().await.map(|bytes| bytes.to_vec()),
                _ => Ok(Vec::new()),
            }
        });
        match note {
            Ok(note) => Ok(Some(String::from_utf8_lossy(&note).into_owned())),
            Err(ByteStoreError::NotHere) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Reasons why a put by one request did not write.
enum Sent {
    WasThere,
    Fault(ByteStoreError),
}

impl ByteStore for S3Bytes {
    fn place(&self) -> &str {
        &self.requests.shown
    }

    fn claim(&self, owner: &PlaceOwner, may_begin: bool) -> Result<(), ByteStoreError> {
        let place = || self.requests.shown.clone();
        // The second time another process of the same store may have been first.
        for _ in 0..2 {
            match self.noted()? {
                Some(note) if PlaceOwner::parse(note.trim_end()) == Some(*owner) => return Ok(()),
                Some(_) => return Err(ByteStoreError::Taken { place: place() }),
                None if !may_begin => {
                    let why = format!("the bucket has no '{}'", self.place.key("owner"));
                    return Err(ByteStoreError::Missing { place: place(), why });
                }
                None => {}
            }
            match self.send(self.note(), PutPayload::from(format!("{owner}\n")), PutMode::Create) {
                Ok(()) => return Ok(()),
                Err(Sent::WasThere) => {}
                Err(Sent::Fault(error)) => return Err(error),
            }
        }
        Err(ByteStoreError::Taken { place: place() })
    }

    fn put(&self, name: &ByteName, bytes: &mut dyn Read, size: u64) -> Result<PutResult, ByteStoreError> {
        if size <= PART {
            return self.put_whole(name, bytes, size);
        }
        match self.size(name) {
            Ok(found) if found == size => return Ok(PutResult::WasHere),
            Ok(_) | Err(ByteStoreError::NotHere) => {}
            Err(error) => return Err(error),
        }
        upload::put(&self.requests, &self.path(name), bytes, size).map(|()| PutResult::New)
    }

    fn size(&self, name: &ByteName) -> Result<u64, ByteStoreError> {
        let (client, path) = (Arc::clone(&self.requests.client), self.path(name));
        self.requests.wait("reading in", async move { client.head(&path).await.map(|found| found.size) })
    }

    fn get_range(&self, name: &ByteName, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), ByteStoreError> {
        check_range(&range)?;
        if range.is_empty() {
            return if range.end > self.size(name)? { Err(OUTSIDE) } else { Ok(()) };
        }
        let (client, path, wanted) = (Arc::clone(&self.requests.client), self.path(name), range.clone());
        let bytes = self.requests.wait("reading in", async move { client.get_range(&path, wanted).await })?;
        if bytes.len() as u64 != range.end - range.start {
            return Err(OUTSIDE);
        }
        buf.extend_from_slice(&bytes);
        Ok(())
    }

    fn list(&self, after: Option<&ByteName>, most: usize) -> Result<Vec<Listed>, ByteStoreError> {
        let (client, folder) = (Arc::clone(&self.requests.client), Path::from(self.place.key("objects")));
        let after = after.map(|after| self.path(after));
        self.requests.wait("listing", async move {
            let found = match &after {
                Some(after) => client.list_with_offset(Some(&folder), after),
                None => client.list(Some(&folder)),
            };
            let named = found.try_filter_map(|found| async move {
                let name = found.location.filename().and_then(ByteName::parse);
                Ok(name.map(|name| Listed { name, size: found.size }))
            });
            named.take(most.min(MAX_PAGE)).try_collect().await
        })
    }

    fn delete(&self, name: &ByteName) -> Result<(), ByteStoreError> {
        let (client, path) = (Arc::clone(&self.requests.client), self.path(name));
        match self.requests.wait("deleting in", async move { client.delete(&path).await }) {
            Err(ByteStoreError::NotHere) => Ok(()),
            result => result,
        }
    }
}
