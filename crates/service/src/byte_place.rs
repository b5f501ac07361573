//! The place of the bytes that a daemon or a vault's server keeps itself, as the configuration or the command names it.

use std::sync::Arc;

use towpath_api::{ApiError, ErrorKind};
use towpath_byte_store::{BucketPlace, ByteStore, LocalFiles};
use towpath_config::{BytePlace, StoreSettings};
use towpath_store::ByteKeeping;

/// The byte store that `[store]` names, and what is spent on it; `None` if the data folder is the place.
pub(crate) fn byte_keeping(settings: &StoreSettings) -> Result<Option<ByteKeeping>, ApiError> {
    let Some(store) = byte_store(settings)? else { return Ok(None) };
    let (read_ahead, spool) = (settings.bytes_read_ahead.0, settings.bytes_spool.0);
    Ok(Some(ByteKeeping { store, read_ahead, spool }))
}

/// The byte store that these settings name; `None` if they name none.
pub fn byte_store(settings: &StoreSettings) -> Result<Option<Arc<dyn ByteStore>>, ApiError> {
    Ok(match &settings.bytes {
        None => None,
        Some(BytePlace::Directory(folder)) => Some(Arc::new(LocalFiles::new(folder))),
        Some(BytePlace::Bucket(place)) => Some(bucket(place, settings)?),
    })
}

#[cfg(feature = "s3")]
fn bucket(place: &BucketPlace, settings: &StoreSettings) -> Result<Arc<dyn ByteStore>, ApiError> {
    use towpath_object_storage::{Credentials, S3Bytes, S3Settings};

    let credentials = match &settings.bytes_credentials {
        Some(file) => Credentials::from_file(&file.0),
        None => Credentials::from_environment(),
    };
    let credentials = credentials.map_err(|error| {
        let message = format!("no keys for {place}: {error}");
        let advice = match &settings.bytes_credentials {
            Some(_) => "the file needs aws_access_key_id and aws_secret_access_key, and mode 0600",
            None => "set both in the environment of the daemon or server, or name a file: 'bytes_credentials' in [store], --packs-credentials",
        };
        ApiError::new(ErrorKind::Usage, message).hint(advice)
    })?;
    let region = settings.bytes_region.as_ref();
    let settings = S3Settings {
        place: place.clone(),
        endpoint: settings.bytes_endpoint.as_ref().map(|endpoint| endpoint.0.clone()),
        region: region.map_or_else(|| "us-east-1".into(), ToString::to_string),
        credentials,
    };
    let store = S3Bytes::new(settings).map_err(|error| towpath_words::bytes(&error))?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "s3"))]
fn bucket(place: &BucketPlace, _: &StoreSettings) -> Result<Arc<dyn ByteStore>, ApiError> {
    let message = format!("this build of tow has no object storage, and 'bytes' in [store] is {place}");
    Err(ApiError::new(ErrorKind::Usage, message).hint("build it with the feature 's3', or name a directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(bytes: BytePlace) -> StoreSettings {
        StoreSettings { bytes: Some(bytes), ..StoreSettings::default() }
    }

    #[test]
    fn without_a_word_the_data_folder_is_the_place() {
        assert!(byte_keeping(&StoreSettings::default()).unwrap().is_none());
        let keeping = byte_keeping(&settings(BytePlace::Directory("/mnt/disk/tow".into()))).unwrap().unwrap();
        assert_eq!(keeping.store.place(), "/mnt/disk/tow");
    }

    #[test]
    fn a_bucket_that_cannot_be_used_is_told_with_what_to_do() {
        let place = BucketPlace::parse("s3://bucket").unwrap();
        let settings = StoreSettings {
            bytes_credentials: Some(towpath_config::FilePath("/nowhere/keys".into())),
            ..settings(BytePlace::Bucket(place))
        };
        let error = byte_keeping(&settings).unwrap_err();
        assert!(error.message.contains("s3://bucket"), "{}", error.message);
        assert!(error.hint.is_some());
    }
}
