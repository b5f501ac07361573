//! Tables of single decisions.
