//! Work for each event.
