//! Reloading the configuration of a running server: TLS files and the API's tokens.

use crate::config::ServerConfig;
use crate::server::{Server, ServerError, tls_files, tokens};

impl Server {
    /// Reads TLS files and tokens again, from the paths in `config`. If a file is invalid, its old contents stay in
    /// use. Returns a message for each file, and for each key that needs a restart.
    pub fn reload(&self, config: &ServerConfig) -> Vec<String> {
        let started = self.config();
        let tls = tls_files(started).and(tls_files(config)).map(|files| {
            let loaded = files.load().map_err(ServerError::from);
            ("TLS files", loaded.map(|loaded| self.front().set_tls(loaded)))
        });
        let asked_for = started.api.token_file.is_some() && config.api.token_file.is_some();
        let tokens = asked_for.then(|| {
            let set =
                |tokens| self.api_server().map_or(Ok(()), |api| api.set_tokens(tokens)).map_err(ServerError::from);
            let both = started.api.read_token_file.is_some();
            let what = if both { "tokens of the management API" } else { "token of the management API" };
            (what, tokens(config).and_then(set))
        });
        let told = [tls, tokens].into_iter().flatten().map(|(what, result)| match result {
            Ok(()) => format!("reloaded the {what}"),
            Err(error) => format!("cannot reload the {what}: {error}; what was loaded before stays in use"),
        });
        let kept = started.needs_restart(config).into_iter();
        // Tokens or TLS are enabled or disabled only by a restart.
        let (old, new) = (&started.api, &config.api);
        let switched = [
            (old.token_file.is_some() != new.token_file.is_some(), "[api] token-file"),
            (old.read_token_file.is_some() != new.read_token_file.is_some(), "[api] read-token-file"),
        ];
        let switched = switched.into_iter().filter(|(is, _)| *is).map(|(_, key)| key.to_owned());
        told.chain(kept.chain(switched).map(|key| format!("{key} has changed: restart to apply it"))).collect()
    }
}
