//! A server: its volumes, and the front ends that serve them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::config::{ServerConfig, TlsMode};
use crate::export::Exports;
use crate::manage::{Address, AddressError, Api, ApiError, Managed};
use crate::managed::Volumes;
use crate::nbd;
use crate::record::{RecordError, Recorder};
use crate::volume::{Opened, Volume, VolumeError};

/// Why a server does not start, or does not end in order.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ServerError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Uri(#[from] nbd::UriError),
    #[error(transparent)]
    Tls(#[from] nbd::TlsError),
    #[error(transparent)]
    Nbd(#[from] nbd::StartError),
    #[error(transparent)]
    ApiAddress(#[from] AddressError),
    #[error("token file {path}: {error}")]
    Token { path: String, error: io::Error },
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// A running server.
pub struct Server {
    nbd: nbd::Server,
    api: Option<Api>,
    recorder: Option<Arc<Recorder>>,
    volumes: Vec<(Arc<Volume>, Opened)>,
}

impl Server {
    /// Opens the volumes and serves them.
    pub fn start(config: &ServerConfig) -> Result<Server, ServerError> {
        let addresses = config
            .listen
            .iter()
            .map(|uri| Ok(uri.parse::<nbd::Uri>()?.address))
            .collect::<Result<Vec<nbd::Address>, nbd::UriError>>()?;
        let options = options(config)?;
        let api = api_address(config)?;
        let recorder = recorder(config)?;
        let volumes = config
            .volumes
            .iter()
            .map(|volume| Volume::open(volume.clone()))
            .collect::<Result<Vec<_>, VolumeError>>()?;
        for ((volume, _), number) in volumes.iter().zip(0..) {
            if let Some(recorder) = &recorder {
                volume.record(recorder.clone(), number);
            }
        }
        match Server::listen(&addresses, options, api, &volumes, recorder.as_ref()) {
            Ok((nbd, api)) => Ok(Server { nbd, api, recorder, volumes }),
            Err(error) => {
                for (volume, _) in &volumes {
                    volume.close()?;
                }
                Err(error)
            }
        }
    }

    fn listen(
        addresses: &[nbd::Address],
        options: nbd::Options,
        api: Option<(Address, Option<String>)>,
        volumes: &[(Arc<Volume>, Opened)],
        recorder: Option<&Arc<Recorder>>,
    ) -> Result<(nbd::Server, Option<Api>), ServerError> {
        let exports = Exports::default();
        for (volume, _) in volumes {
            assert!(exports.add(&volume.config().name, volume.clone()), "names of volumes were checked");
        }
        let nbd = nbd::Server::start(addresses, exports, options)?;
        let Some((address, token)) = api else { return Ok((nbd, None)) };
        let counters = nbd.counters().clone();
        let managed: Arc<dyn Managed> = Arc::new(Volumes::new(
            volumes.iter().map(|(volume, _)| volume.clone()).collect(),
            nbd.uris("").iter().map(ToString::to_string).collect(),
            Box::new(move || counters.connections.load(Ordering::Relaxed)),
            recorder.cloned(),
        ));
        let api = Api::start(&address, token, managed)?;
        Ok((nbd, Some(api)))
    }

    /// The volumes, and how each was opened.
    pub fn volumes(&self) -> &[(Arc<Volume>, Opened)] {
        &self.volumes
    }

    /// How clients reach a volume.
    pub fn uris(&self, volume: &str) -> Vec<String> {
        self.nbd.uris(volume).iter().map(ToString::to_string).collect()
    }

    /// Ends connections, which have `grace` to get their answers, then flushes and closes the volumes.
    pub fn stop(self, grace: Duration) -> Result<(), ServerError> {
        self.nbd.stop(grace);
        drop(self.api);
        // Every volume is closed, also where one before it fails.
        let results: Vec<_> = self.volumes.iter().map(|(volume, _)| volume.close()).collect();
        if let Some(recorder) = self.recorder {
            recorder.finish()?;
        }
        Ok(results.into_iter().collect::<Result<(), VolumeError>>()?)
    }
}

/// Where the API listens, and the token that it asks for.
fn api_address(config: &ServerConfig) -> Result<Option<(Address, Option<String>)>, ServerError> {
    let Some(address) = config.api.address() else { return Ok(None) };
    let token = config.api.token_file.as_ref().map(|path| {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ServerError::Token { path: path.display().to_string(), error })?;
        Ok::<_, ServerError>(text.trim().to_owned())
    });
    Ok(Some((address.parse()?, token.transpose()?)))
}

fn recorder(config: &ServerConfig) -> Result<Option<Arc<Recorder>>, ServerError> {
    let Some(path) = &config.record else { return Ok(None) };
    let names: Vec<String> = config.volumes.iter().map(|volume| volume.name.clone()).collect();
    Ok(Some(Arc::new(Recorder::start(&path.to_string_lossy(), &names)?)))
}

fn options(config: &ServerConfig) -> Result<nbd::Options, ServerError> {
    let tls = match (config.tls.mode, &config.tls.certificate, &config.tls.key) {
        (TlsMode::Off, _, _) => nbd::Tls::Off,
        (mode, Some(certificate), Some(key)) => {
            let client_authorities = config.tls.client_authorities.clone();
            let files = nbd::TlsFiles { certificate: certificate.clone(), key: key.clone(), client_authorities };
            let loaded = files.load()?;
            if mode == TlsMode::Required { nbd::Tls::Required(loaded) } else { nbd::Tls::Allowed(loaded) }
        }
        _ => unreachable!("a configuration with TLS has a certificate and a key"),
    };
    Ok(nbd::Options {
        tls,
        connections_max: config.limits.connections_max,
        handshake_time_max: Duration::from_micros(config.limits.handshake_time_max_us),
        requests_in_flight_max: config.limits.requests_in_flight_max,
        bytes_in_flight_max: config.limits.bytes_in_flight_max,
    })
}
