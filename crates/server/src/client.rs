//! The other end: a small HTTP client for the command line.
