//! Each rule fails for a plugin that breaks it.
