//! The configuration that holds now. Whoever decides by it asks each time; a new one takes the place
//! of the old one as a whole.

use std::sync::{Arc, PoisonError, RwLock};

use super::Config;

/// A configuration that can be replaced.
#[derive(Debug, Clone, Default)]
pub struct Live(Arc<RwLock<Arc<Config>>>);

impl Live {
    /// Begins with `config`.
    pub fn new(config: Config) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(config))))
    }

    /// Configuration that holds now.
    pub fn get(&self) -> Arc<Config> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on `config` holds; returns what did.
    pub fn set(&self, config: Config) -> Arc<Config> {
        let mut now = self.0.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *now, Arc::new(config))
    }
}
