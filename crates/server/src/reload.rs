//! What a running server takes over of a configuration: TLS files and the API's token.

use crate::config::ServerConfig;
use crate::server::{Server, ServerError, tls_files, token};

impl Server {
    /// Reads TLS files and token again, from where `config` says they are. What fails stays as it was. Returns a line for each of them,
    /// and one for each key that needs a restart.
    pub fn reload(&self, config: &ServerConfig) -> Vec<String> {
        let started = self.config();
        let tls = tls_files(started).and(tls_files(config)).map(|files| {
            let loaded = files.load().map_err(ServerError::from);
            ("TLS files", loaded.map(|loaded| self.front().set_tls(loaded)))
        });
        let token = token(config).transpose().filter(|_| started.api.token_file.is_some());
        let token = token.map(|token| {
            let set = |token| self.api_server().map_or(Ok(()), |api| api.set_token(token)).map_err(ServerError::from);
            ("token of the management API", token.and_then(set))
        });
        let told = [tls, token].into_iter().flatten().map(|(what, result)| match result {
            Ok(()) => format!("reloaded the {what}"),
            Err(error) => format!("cannot reload the {what}: {error}; what was loaded before stays in use"),
        });
        let kept = started.needs_restart(config).into_iter();
        // A token or TLS where there was none, or none where there was one.
        let switched = (started.api.token_file.is_some() != config.api.token_file.is_some())
            .then(|| "[api] token-file".to_owned());
        told.chain(kept.chain(switched).map(|key| format!("{key} has changed: restart to apply it"))).collect()
    }
}
