//! Whether a lane may claim and deliver.

/// Why a lane does not claim or deliver: a pause, a stop, or a suspect of another lane.
#[derive(Debug)]
pub(super) struct Gate {
    /// An operator paused the lane.
    is_paused: bool,
    /// The lane stops once it holds no claims. It never starts again.
    is_stopping: bool,
    /// A suspect of this lane waits for one of another lane.
    is_blocked: bool,
}

impl Gate {
    pub(super) fn new(is_paused: bool) -> Self {
        Self { is_paused, is_stopping: false, is_blocked: false }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    pub(super) fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Stops claims until [`unblock`](Self::unblock): a suspect waits.
    pub(super) fn block(&mut self) {
        self.is_blocked = true;
    }

    pub(super) fn unblock(&mut self) {
        self.is_blocked = false;
    }

    /// Whether claims that wait for a call are released.
    pub(super) fn releases(&self) -> bool {
        self.is_paused || self.is_stopping
    }

    pub(super) fn may_claim(&self) -> bool {
        !self.releases() && !self.is_blocked
    }
}
