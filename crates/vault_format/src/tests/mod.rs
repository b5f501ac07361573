//! What is published of the formats.

mod vectors;
