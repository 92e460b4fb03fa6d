//! The volumes and pools of a server, which may change while it runs.

use std::sync::{Arc, OnceLock};

use flashwise_storage::pool::Pool;
use flashwise_storage::status::{Comparison, Unserved};
use flashwise_storage::volume::Volume;
use parking_lot::RwLock;

/// The volumes and pools that a server could not open.
#[derive(Clone, Debug, Default)]
pub struct Unopened {
    /// The volumes.
    pub volumes: Vec<Unserved>,
    /// The pools.
    pub pools: Vec<Unserved>,
}

/// The volumes and pools of a server.
#[derive(Default)]
pub struct Served {
    volumes: RwLock<Vec<Arc<Volume>>>,
    pools: RwLock<Vec<Arc<Pool>>>,
    unserved: RwLock<Unopened>,
    comparison: OnceLock<Comparison>,
}

impl Served {
    /// Creates the list of these volumes and pools, and those that could not be opened.
    pub fn new(volumes: Vec<Arc<Volume>>, pools: Vec<Arc<Pool>>, unserved: Unopened) -> Served {
        Served {
            volumes: RwLock::new(volumes),
            pools: RwLock::new(pools),
            unserved: RwLock::new(unserved),
            comparison: OnceLock::new(),
        }
    }

    /// Compares two volumes in the status and on the page. Only the first call has an effect.
    pub fn compare(&self, comparison: Comparison) {
        // Fails if a comparison is set already.
        let _ = self.comparison.set(comparison);
    }

    /// The volumes that are compared, if any.
    pub fn comparison(&self) -> Option<Comparison> {
        self.comparison.get().cloned()
    }

    /// Returns the volumes, followed by the caches of pools.
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        let of_pools = self.pools().into_iter().map(|pool| pool.volume().clone()).collect::<Vec<_>>();
        self.own_volumes().into_iter().chain(of_pools).collect()
    }

    /// The volumes that are no caches of pools.
    pub fn own_volumes(&self) -> Vec<Arc<Volume>> {
        self.volumes.read().clone()
    }

    /// Returns the volume of this name, if there is one that is no cache of a pool.
    pub fn own_volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.own_volumes().into_iter().find(|volume| volume.config().name == name)
    }

    /// Adds a new volume.
    pub fn add_volume(&self, volume: Arc<Volume>) {
        self.volumes.write().push(volume);
    }

    /// Removes a volume from the list.
    pub fn remove_volume(&self, name: &str) {
        self.volumes.write().retain(|volume| volume.config().name != name);
    }

    /// Forgets a volume that could not be opened.
    pub fn forget_volume(&self, name: &str) {
        self.unserved.write().volumes.retain(|volume| volume.name != name);
    }

    /// Returns the pools.
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        self.pools.read().clone()
    }

    /// Returns the pool of this name.
    pub fn pool(&self, name: &str) -> Option<Arc<Pool>> {
        self.pools().into_iter().find(|pool| pool.name() == name)
    }

    /// Returns the volumes that could not be opened.
    pub fn unserved_volumes(&self) -> Vec<Unserved> {
        self.unserved.read().volumes.clone()
    }

    /// Returns the pools that could not be opened.
    pub fn unserved_pools(&self) -> Vec<Unserved> {
        self.unserved.read().pools.clone()
    }

    /// Removes a pool that could not be opened.
    pub fn forget(&self, name: &str) {
        self.unserved.write().pools.retain(|pool| pool.name != name);
    }

    /// Removes a pool.
    pub fn remove(&self, name: &str) {
        self.pools.write().retain(|pool| pool.name() != name);
    }

    /// Adds a pool.
    pub fn add(&self, pool: Arc<Pool>) {
        self.pools.write().push(pool);
    }
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served").finish_non_exhaustive()
    }
}
