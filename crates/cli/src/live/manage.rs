//! `flashwise flush`, `flashwise set` and `flashwise page`: commands to a running server.

use anyhow::Context;
use clap::Args;
use flashwise_core::cache::settings::Setting;
use flashwise_core::options::Given;
use serde_json::{Map, Value};

use crate::failure::Misuse;
use crate::live::api::{ApiOptions, volume_path};
use crate::settings::settable_help;

/// Make every completed write of a running server durable
#[derive(Debug, Args)]
pub struct Flush {
    #[command(flatten)]
    api: ApiOptions,
}

impl Flush {
    pub fn run(&self) -> anyhow::Result<()> {
        self.api.client()?.post("/v1/flush")?;
        println!("Flushed.");
        Ok(())
    }
}

/// Print an address of a running server's page for a browser
///
/// The address works once, within five minutes. It is on loopback: from another machine, forward its port with ssh -L.
#[derive(Debug, Args)]
pub struct Page {
    #[command(flatten)]
    api: ApiOptions,
}

impl Page {
    pub fn run(&self) -> anyhow::Result<()> {
        let answer = self.api.client()?.post("/v1/page")?;
        let url = answer.get("url").and_then(Value::as_str);
        println!("{}", url.context("the answer has no url; check that --api is flashwise's API")?);
        Ok(())
    }
}

/// Change settings of a served volume until the server restarts
#[derive(Debug, Args)]
#[command(after_long_help = settable_help())]
pub struct Set {
    /// Volume
    #[arg(value_name = "VOLUME")]
    volume: String,
    /// Settings to change, listed by --help: dirty-high=60%, policy=larc, admission=size:max=64KiB
    #[arg(required = true, value_name = "KEY=VALUE")]
    settings: Vec<String>,
    #[command(flatten)]
    api: ApiOptions,
}

impl Set {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut change = Map::new();
        for setting in &self.settings {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(Misuse(format!("found '{setting}', expected KEY=VALUE such as dirty-high=60%")).into());
            };
            Setting::find_settable(key)?.read(&Given::from(value))?;
            if change.insert(key.to_owned(), Value::from(value)).is_some() {
                return Err(Misuse(format!("{key} is given twice")).into());
            }
        }
        self.api.client()?.patch(&volume_path(&self.volume, ""), &Value::Object(change.clone()))?;
        println!("Set {} of volume {} until the server restarts.", self.settings.join(", "), self.volume);
        let keys: Vec<&str> = change.keys().map(String::as_str).collect();
        println!("To keep it, set {} in the configuration too.", keys.join(", "));
        Ok(())
    }
}
