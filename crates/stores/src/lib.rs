//! stores
