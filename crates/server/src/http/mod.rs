//! HTTP: one file per group of routes, one table of errors.
