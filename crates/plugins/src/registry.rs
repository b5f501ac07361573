//! Every plugin by the scheme of the hints it answers, and every processor. The one place that lists
//! them.

use std::sync::Arc;

use crate::direct::compress::Zstd;
use crate::processor::Processor;

/// What a hint's scheme stands for in this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// A plugin of this build, by its name.
    Plugin(&'static str),
    /// Nothing in this build; later versions may know it.
    Unknown,
}

/// The plugin that answers hints of `scheme`.
pub fn by_scheme(scheme: &str) -> Known {
    match scheme {
        crate::direct::SCHEME => Known::Plugin("direct"),
        _ => Known::Unknown,
    }
}

/// The processors of this build.
pub fn processors() -> Vec<Arc<dyn Processor>> {
    vec![Arc::new(Zstd)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_schemes_are_told_apart() {
        assert_eq!(by_scheme("tow"), Known::Plugin("direct"));
        assert_eq!(by_scheme("ftp"), Known::Unknown);
    }
}
