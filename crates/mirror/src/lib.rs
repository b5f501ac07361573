//! Files on plain web servers as sources of transfers (`papers/dot.txt` §2.1, §4.3): what lies on a web server, a package mirror or
//! in a bucket is drawn on beside the sender, and checked like everything else.
//!
//! | module | story |
//! |---|---|
//! | [`web_url`] | URLs, and what references lead to: pure |
//! | [`place`] | where the bytes of an object lie: pure |
//! | [`answer`] | what an answer is worth: pure |
//! | [`web`] | connections, redirects, questions |
//! | `queue` | ranges that wait: pure |
//! | `pace` | how much a mirror likes to be asked for: pure |
//! | [`mirror`] | [`Mirror`]: the source |
//! | [`finder`] | [`MirrorFinder`]: mirrors that people and tickets name |
//! | [`published`] | [`Published`]: the description of a file, as it was fetched |
//! | [`values`] | what it tells, as a source that brings nothing |
//! | [`similar`] | what an older version on this machine has of it |
//! | [`publishing`] | the same as it is made |

pub mod answer;
pub mod finder;
pub mod mirror;
mod pace;
pub mod place;
pub mod published;
pub mod publishing;
mod queue;
pub mod similar;
pub mod values;
pub mod web;
pub mod web_url;

pub use finder::{KnownMirrors, MirrorFinder};
pub use mirror::Mirror;
pub use place::MirrorPlace;
pub use published::{Published, PublishedError};
pub use publishing::{PublishedFile, publish};
pub use similar::SimilarSource;
pub use values::ToldValues;
pub use web::{NamedBy, WebRules};
pub use web_url::{WebUrl, WrongUrl};
