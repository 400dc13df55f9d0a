//! Why an attempt of a request failed.

/// Why an attempt failed.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) why: String,
    pub(super) is_late: bool,
    /// Whether another attempt would fail in the same way.
    pub(super) is_lasting: bool,
}

impl Trouble {
    /// Returns trouble that may pass.
    pub(super) fn passing(why: &str) -> Self {
        Self { why: why.into(), is_late: false, is_lasting: false }
    }

    /// Returns trouble that may pass: an answer that took too long.
    pub(super) fn late(why: &str) -> Self {
        Self { is_late: true, ..Self::passing(why) }
    }

    /// Returns trouble that another attempt would meet again.
    pub(super) fn lasting(why: &str) -> Self {
        Self { is_lasting: true, ..Self::passing(why) }
    }

    pub(super) fn cut() -> Self {
        Self::passing("the answer was cut")
    }
}
