//! Why an attempt of a request failed.

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) why: String,
    pub(crate) is_late: bool,
    /// Whether another attempt would fail in the same way.
    pub(crate) is_lasting: bool,
}

impl Trouble {
    /// Returns trouble that may pass.
    pub(crate) fn passing(why: &str) -> Self {
        Self { why: why.into(), is_late: false, is_lasting: false }
    }

    /// Returns trouble that may pass: an answer that took too long.
    pub(crate) fn late(why: &str) -> Self {
        Self { is_late: true, ..Self::passing(why) }
    }

    /// Returns trouble that another attempt would meet again.
    pub(crate) fn lasting(why: &str) -> Self {
        Self { is_lasting: true, ..Self::passing(why) }
    }
}
