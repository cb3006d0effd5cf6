//! The scheduler: a pure value that decides when to claim, deliver, retry or give up.
