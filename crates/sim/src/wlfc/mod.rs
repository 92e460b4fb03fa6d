//! Caches that evict whole buckets, over the requests of a trace: WLFC, WLFC_c and B_like.
//!
//! Source: Dong, Wang, Zhang: WLFC: Write Less in the Flash-based Cache, section V. WLFC is that of `flashwise-core`;
//! its steps are charged to modelled flash and a modelled backend but not performed. Each request comes when the
//! previous one is answered. If requests come at times of their own, the server's engine performs WLFC's steps instead.

mod b_like;
mod managed;
mod schedule;
mod simulation;

pub use b_like::{BLike, BLikeConfig};
pub use managed::Managed;
pub use simulation::{BucketError, BucketSettings, Buckets, Latencies, System, Times, run_buckets};
