//! duly
