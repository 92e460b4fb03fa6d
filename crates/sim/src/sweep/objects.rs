//! Objects of S3: names of the form `s3://BUCKET/KEY`, read and written like files.
//!
//! Location and credentials come from the environment variables of other S3 tools: `AWS_ACCESS_KEY_ID`,
//! `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_SKIP_SIGNATURE`. A machine or
//! pod of AWS needs none.

use std::fmt;
use std::path::{Path, PathBuf};

use super::SweepError;

#[cfg(feature = "s3")]
pub(super) use client::Objects;
#[cfg(not(feature = "s3"))]
pub(super) use without::Objects;

/// Prefix of an object's name.
const SCHEME: &str = "s3://";

/// The address of an object, or a prefix of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub bucket: String,
    /// Without a trailing /.
    pub key: String,
}

impl Address {
    /// Parses `path`, if it is the address of an object.
    pub fn of(path: &Path) -> Result<Option<Address>, SweepError> {
        let Some(rest) = path.to_str().and_then(|text| text.strip_prefix(SCHEME)) else { return Ok(None) };
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            let problem = "found no bucket, expected s3://BUCKET/KEY".to_owned();
            return Err(SweepError::Object { path: path.display().to_string(), problem });
        }
        Ok(Some(Address { bucket: bucket.to_owned(), key: key.trim_end_matches('/').to_owned() }))
    }

    /// Returns the address of `name` below this one.
    pub fn join(&self, name: &str) -> Address {
        let key = if self.key.is_empty() { name.to_owned() } else { format!("{}/{name}", self.key) };
        Address { bucket: self.bucket.clone(), key }
    }

    /// Returns the name after the last /.
    pub fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    /// Returns this address, and those of archives that may contain the object, each with the path inside.
    pub fn places(&self) -> impl Iterator<Item = (Address, Option<&str>)> {
        let whole = std::iter::once((self.key.as_str(), None));
        let above = self.key.rmatch_indices('/').map(|(at, _)| (&self.key[..at], Some(&self.key[at + 1..])));
        let is_archive =
            |key: &str| [".tar", ".tgz", ".zip"].iter().any(|end| key.rsplit('/').next().unwrap_or("").contains(end));
        let archives = above.filter(move |(key, _)| is_archive(key));
        whole.chain(archives).map(|(key, rest)| (Address { key: key.to_owned(), ..self.clone() }, rest))
    }

    fn refused(&self, problem: impl Into<String>) -> SweepError {
        SweepError::Object { path: self.to_string(), problem: problem.into() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.bucket, self.key)
    }
}

/// True if `path` names an object.
pub(super) fn is_object(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with(SCHEME))
}

/// Metadata of an object.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub size_bytes: u64,
    /// A tag that changes with the contents.
    pub tag: String,
}

/// Returns the objects that match the pattern `name`, sorted by name.
///
/// # Errors
/// The pattern is invalid or matches no object.
pub(super) fn fitting(name: &str) -> Result<Vec<PathBuf>, SweepError> {
    let address = Address::of(Path::new(name))?.expect("it names objects");
    let plain = address.key.find(['*', '?', '[']).unwrap_or(address.key.len());
    let folder = address.key[..plain].rfind('/').map_or("", |at| &address.key[..at]);
    let pattern = glob::Pattern::new(&address.key)
        .map_err(|error| address.refused(format!("found an invalid pattern ({error})")))?;
    let under = Address { key: folder.to_owned(), ..address.clone() };
    // A * does not match a /, as for files.
    let options = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    let mut found = Objects::open(&address)?.under(&under)?;
    found.retain(|key| pattern.matches_with(key, options));
    found.sort();
    if found.is_empty() {
        return Err(address.refused("found none, expected objects that fit the pattern"));
    }
    let named = |key: String| PathBuf::from(Address { key, ..address.clone() }.to_string());
    Ok(found.into_iter().map(named).collect())
}

#[cfg(feature = "s3")]
mod client {
    use std::io::Write;
    use std::sync::Once;
    use std::time::{Duration, SystemTime};

    use flashwise_trace::progress::Progress;
    use futures_util::{StreamExt, TryStreamExt};
    use object_store::aws::{AmazonS3, AmazonS3Builder};
    use object_store::path::Path as Key;
    use object_store::{
        BackoffConfig, ClientOptions, Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig,
    };
    use tokio::runtime::{Builder, Runtime};

    use super::{About, Address, SweepError};

    /// Bytes per request for a large object.
    const PIECE_BYTES: u64 = 8 << 20;
    /// Number of such requests in flight.
    const PIECES: usize = 8;
    /// Largest number of retries of a request.
    const RETRIES_MAX: usize = 6;

    /// The objects of a bucket.
    pub struct Objects {
        store: AmazonS3,
        runtime: Runtime,
    }

    impl Objects {
        /// Opens the bucket of `address`, without a request to it.
        pub fn open(address: &Address) -> Result<Objects, SweepError> {
            static PROVIDER: Once = Once::new();
            PROVIDER.call_once(|| {
                // A provider that is already installed stays.
                let _ = rustls::crypto::ring::default_provider().install_default();
            });
            let endpoints = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
            let is_plain = |name: &&str| std::env::var(name).is_ok_and(|url| url.starts_with("http://"));
            let mut client = ClientOptions::new().with_connect_timeout(Duration::from_secs(10));
            if endpoints.iter().any(is_plain) {
                client = client.with_allow_http(true);
            }
            let backoff = BackoffConfig { max_backoff: Duration::from_secs(4), ..BackoffConfig::default() };
            let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout: Duration::from_secs(60), backoff };
            let refused = |problem: String| address.refused(problem);
            let store = AmazonS3Builder::from_env()
                .with_client_options(client)
                .with_retry(retry)
                .with_bucket_name(&address.bucket)
                .build()
                .map_err(|error| refused(error.to_string()))?;
            let runtime = Builder::new_current_thread().enable_all().build();
            Ok(Objects { store, runtime: runtime.map_err(|error| refused(error.to_string()))? })
        }

        /// Returns the object's metadata, if it exists.
        pub fn about(&self, address: &Address) -> Result<Option<About>, SweepError> {
            match self.runtime.block_on(self.store.head(&key(address)?)) {
                Ok(found) => Ok(Some(About { size_bytes: found.size, tag: tag(&found) })),
                Err(Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(refused(address, &error)),
            }
        }

        /// Returns the object's contents, if it exists.
        pub fn read(&self, address: &Address) -> Result<Option<Vec<u8>>, SweepError> {
            let key = key(address)?;
            let read = async { self.store.get(&key).await?.bytes().await };
            match self.runtime.block_on(read) {
                Ok(bytes) => Ok(Some(bytes.to_vec())),
                Err(Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(refused(address, &error)),
            }
        }

        /// Writes or replaces an object atomically.
        pub fn write(&self, address: &Address, contents: Vec<u8>) -> Result<(), SweepError> {
            let written = self.runtime.block_on(self.store.put(&key(address)?, contents.into()));
            written.map(drop).map_err(|error| refused(address, &error))
        }

        /// Returns the time of the last write and the name of each object of the folder, except those in subfolders.
        pub fn list(&self, folder: &Address) -> Result<Vec<(SystemTime, String)>, SweepError> {
            let found = self.runtime.block_on(self.store.list_with_delimiter(Some(&key(folder)?)));
            let found = found.map_err(|error| refused(folder, &error))?.objects;
            let of = |object: ObjectMeta| Some((object.last_modified.into(), object.location.filename()?.to_owned()));
            Ok(found.into_iter().filter_map(of).collect())
        }

        /// Returns the keys of all objects below the folder.
        pub fn under(&self, folder: &Address) -> Result<Vec<String>, SweepError> {
            let key = key(folder)?;
            let all = self.store.list(Some(&key)).map_ok(|object| object.location.as_ref().to_owned()).try_collect();
            self.runtime.block_on(all).map_err(|error| refused(folder, &error))
        }

        /// Writes the object's contents to `to`, with several requests in flight. `progress` counts bytes.
        ///
        /// # Errors
        /// The object cannot be read, or has changed since `about`.
        pub fn fetch(
            &self,
            address: &Address,
            about: &About,
            to: &mut dyn Write,
            progress: &dyn Progress,
        ) -> Result<(), SweepError> {
            let key = key(address)?;
            let piece = |from: u64| {
                let range = Some(GetRange::Bounded(from..about.size_bytes.min(from + PIECE_BYTES)));
                let key = &key;
                async move {
                    let options = GetOptions { range, ..GetOptions::default() };
                    let found = self.store.get_opts(key, options).await?;
                    let same = found.meta.size == about.size_bytes && tag(&found.meta) == about.tag;
                    Ok(if same { Some(found.bytes().await?) } else { None })
                }
            };
            let starts = (0..about.size_bytes).step_by(PIECE_BYTES as usize);
            let mut pieces = futures_util::stream::iter(starts.map(piece)).buffered(PIECES);
            let mut written = 0;
            while let Some(found) = self.runtime.block_on(pieces.next()) {
                let found = found.map_err(|error| refused(address, &error))?;
                let bytes = found.ok_or_else(|| SweepError::Changed { path: address.to_string() })?;
                to.write_all(&bytes).map_err(|error| address.refused(format!("its copy: {error}")))?;
                written += bytes.len() as u64;
                progress.advance(bytes.len() as u64);
            }
            if written != about.size_bytes {
                let problem = format!("found {written} bytes, expected {}", about.size_bytes);
                return Err(address.refused(problem));
            }
            Ok(())
        }
    }

    fn key(address: &Address) -> Result<Key, SweepError> {
        Key::parse(&address.key).map_err(|error| address.refused(error.to_string()))
    }

    fn tag(found: &ObjectMeta) -> String {
        found.e_tag.clone().unwrap_or_else(|| found.last_modified.to_rfc3339())
    }

    fn refused(address: &Address, error: &Error) -> SweepError {
        match error {
            Error::NotFound { .. } => address.refused("found no such bucket"),
            Error::Precondition { .. } => SweepError::Changed { path: address.to_string() },
            error => address.refused(said(&error.to_string())),
        }
    }

    /// Returns the message in the XML of an answer, or all of `error` if there is none.
    fn said(error: &str) -> String {
        let between = |from: &str, to: &str| Some(error.split_once(from)?.1.split_once(to)?.0);
        match (between("<Code>", "</Code>"), between("<Message>", "</Message>")) {
            (Some(code), Some(message)) => format!("the server says {code}: {message}"),
            (Some(code), None) => format!("the server says {code}"),
            _ => error.trim_start_matches("Generic S3 error: ").trim().to_owned(),
        }
    }
}

/// The stand-in of a build without S3.
#[cfg(not(feature = "s3"))]
mod without {
    use std::io::Write;
    use std::time::SystemTime;

    use flashwise_trace::progress::Progress;

    use super::{About, Address, SweepError};

    /// A type without values.
    pub enum Objects {}

    impl Objects {
        pub fn open(address: &Address) -> Result<Objects, SweepError> {
            Err(address.refused("this build reads no S3, expected one with the feature s3"))
        }

        pub fn about(&self, _: &Address) -> Result<Option<About>, SweepError> {
            match *self {}
        }

        pub fn read(&self, _: &Address) -> Result<Option<Vec<u8>>, SweepError> {
            match *self {}
        }

        pub fn write(&self, _: &Address, _: Vec<u8>) -> Result<(), SweepError> {
            match *self {}
        }

        pub fn list(&self, _: &Address) -> Result<Vec<(SystemTime, String)>, SweepError> {
            match *self {}
        }

        pub fn under(&self, _: &Address) -> Result<Vec<String>, SweepError> {
            match *self {}
        }

        pub fn fetch(&self, _: &Address, _: &About, _: &mut dyn Write, _: &dyn Progress) -> Result<(), SweepError> {
            match *self {}
        }
    }
}

#[cfg(all(test, not(feature = "s3")))]
mod built_without {
    use super::*;

    #[test]
    fn missing_parts_are_reported() {
        let refused = fitting("s3://traces/*.csv").unwrap_err().to_string();
        assert_eq!(refused, "s3://traces/*.csv: this build reads no S3, expected one with the feature s3");
    }
}
