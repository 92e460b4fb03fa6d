//! Objects of S3: what is named `s3://BUCKET/KEY` is read and written as a file is.
//!
//! Where a bucket is and who asks is in the environment, under the names that other tools of S3 use: `AWS_ACCESS_KEY_ID`,
//! `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_SKIP_SIGNATURE`; a machine or a pod of AWS needs none.

use std::fmt;
use std::path::{Path, PathBuf};

use super::SweepError;

#[cfg(feature = "s3")]
pub(super) use client::Objects;
#[cfg(not(feature = "s3"))]
pub(super) use without::Objects;

/// What names of objects begin with.
const SCHEME: &str = "s3://";

/// The name of an object, or what names of objects begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub bucket: String,
    /// Without a / at its end.
    pub key: String,
}

impl Address {
    /// The address that `path` is, if it is one.
    pub fn of(path: &Path) -> Result<Option<Address>, SweepError> {
        let Some(rest) = path.to_str().and_then(|text| text.strip_prefix(SCHEME)) else { return Ok(None) };
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            let problem = "found no bucket, expected s3://BUCKET/KEY".to_owned();
            return Err(SweepError::Object { path: path.display().to_string(), problem });
        }
        Ok(Some(Address { bucket: bucket.to_owned(), key: key.trim_end_matches('/').to_owned() }))
    }

    /// What is called `name` under this one.
    pub fn join(&self, name: &str) -> Address {
        let key = if self.key.is_empty() { name.to_owned() } else { format!("{}/{name}", self.key) };
        Address { bucket: self.bucket.clone(), key }
    }

    /// The name behind the last /.
    pub fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    /// This one, and the archives that it may lie in by their names: each with what follows.
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

/// Whether `path` names an object.
pub(super) fn is_object(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with(SCHEME))
}

/// What there is to know of an object before it is read.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub size_bytes: u64,
    /// What changes with its contents.
    pub tag: String,
}

/// The objects that the pattern `name` fits, in the order of their names.
///
/// # Errors
/// A pattern that is none or fits no object.
pub(super) fn fitting(name: &str) -> Result<Vec<PathBuf>, SweepError> {
    let address = Address::of(Path::new(name))?.expect("it names objects");
    let plain = address.key.find(['*', '?', '[']).unwrap_or(address.key.len());
    let folder = address.key[..plain].rfind('/').map_or("", |at| &address.key[..at]);
    let pattern = glob::Pattern::new(&address.key)
        .map_err(|error| address.refused(format!("found an invalid pattern ({error})")))?;
    let under = Address { key: folder.to_owned(), ..address.clone() };
    // As between folders.
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

    /// Bytes of a large object that are asked for at once, ...
    const PIECE_BYTES: u64 = 8 << 20;
    /// ... and how many such requests are under way.
    const PIECES: usize = 8;
    /// How often a request is made again.
    const RETRIES_MAX: usize = 6;

    /// The objects of a bucket.
    pub struct Objects {
        store: AmazonS3,
        runtime: Runtime,
    }

    impl Objects {
        /// The bucket of `address`, which is not asked for anything yet.
        pub fn open(address: &Address) -> Result<Objects, SweepError> {
            static PROVIDER: Once = Once::new();
            PROVIDER.call_once(|| {
                // Who has chosen one before keeps it.
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

        /// What is to know of the object, if it is there.
        pub fn about(&self, address: &Address) -> Result<Option<About>, SweepError> {
            match self.runtime.block_on(self.store.head(&key(address)?)) {
                Ok(found) => Ok(Some(About { size_bytes: found.size, tag: tag(&found) })),
                Err(Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(refused(address, &error)),
            }
        }

        /// What is in the object, if it is there.
        pub fn read(&self, address: &Address) -> Result<Option<Vec<u8>>, SweepError> {
            let key = key(address)?;
            let read = async { self.store.get(&key).await?.bytes().await };
            match self.runtime.block_on(read) {
                Ok(bytes) => Ok(Some(bytes.to_vec())),
                Err(Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(refused(address, &error)),
            }
        }

        /// Leaves an object, whole or not at all, in place of one that is there.
        pub fn write(&self, address: &Address, contents: Vec<u8>) -> Result<(), SweepError> {
            let written = self.runtime.block_on(self.store.put(&key(address)?, contents.into()));
            written.map(drop).map_err(|error| refused(address, &error))
        }

        /// When each object of the folder was written last, and its name there; not of those in folders inside it.
        pub fn list(&self, folder: &Address) -> Result<Vec<(SystemTime, String)>, SweepError> {
            let found = self.runtime.block_on(self.store.list_with_delimiter(Some(&key(folder)?)));
            let found = found.map_err(|error| refused(folder, &error))?.objects;
            let of = |object: ObjectMeta| Some((object.last_modified.into(), object.location.filename()?.to_owned()));
            Ok(found.into_iter().filter_map(of).collect())
        }

        /// The keys of all objects whose keys begin with that of the folder.
        pub fn under(&self, folder: &Address) -> Result<Vec<String>, SweepError> {
            let key = key(folder)?;
            let all = self.store.list(Some(&key)).map_ok(|object| object.location.as_ref().to_owned()).try_collect();
            self.runtime.block_on(all).map_err(|error| refused(folder, &error))
        }

        /// Writes what is in the object to `to`, several pieces of it asked for at a time. `progress` is told of its bytes.
        ///
        /// # Errors
        /// An object that is not any more what was said `about` it, too.
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

    /// What a server said in the XML of its answer, or all of `error` where it said nothing.
    fn said(error: &str) -> String {
        let between = |from: &str, to: &str| Some(error.split_once(from)?.1.split_once(to)?.0);
        match (between("<Code>", "</Code>"), between("<Message>", "</Message>")) {
            (Some(code), Some(message)) => format!("the server says {code}: {message}"),
            (Some(code), None) => format!("the server says {code}"),
            _ => error.trim_start_matches("Generic S3 error: ").trim().to_owned(),
        }
    }
}

/// What a build without S3 does.
#[cfg(not(feature = "s3"))]
mod without {
    use std::io::Write;
    use std::time::SystemTime;

    use flashwise_trace::progress::Progress;

    use super::{About, Address, SweepError};

    /// Nothing is one.
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
    fn what_is_missing_is_said() {
        let refused = fitting("s3://traces/*.csv").unwrap_err().to_string();
        assert_eq!(refused, "s3://traces/*.csv: this build reads no S3, expected one with the feature s3");
    }
}
