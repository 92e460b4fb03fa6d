//! The part of flashwise that serves: front ends, configuration, and management of volumes.
//!
//! A front end ([`front`]) turns a client's bytes into [`Request`](flashwise_engine::export::Request)s to an
//! [`Export`](flashwise_engine::export::Export), which a [`Volume`](flashwise_engine::volume::Volume) is.

pub mod config;
pub mod front;
pub mod manage;
pub mod managed;
mod reload;
pub mod server;
