//! Why an attempt of a request failed.

/// Why an attempt failed.
#[derive(Debug)]
pub(in crate::store::remote) struct Trouble {
    pub(in crate::store::remote) why: String,
    pub(in crate::store::remote) is_late: bool,
    /// Whether another attempt would fail in the same way.
    pub(in crate::store::remote) is_lasting: bool,
}

impl Trouble {
    /// Returns trouble that may pass.
    pub(in crate::store::remote) fn passing(why: &str) -> Self {
        Self { why: why.into(), is_late: false, is_lasting: false }
    }

    /// Returns trouble that may pass: an answer that took too long.
    pub(in crate::store::remote) fn late(why: &str) -> Self {
        Self { is_late: true, ..Self::passing(why) }
    }

    /// Returns trouble that another attempt would meet again.
    pub(in crate::store::remote) fn lasting(why: &str) -> Self {
        Self { is_lasting: true, ..Self::passing(why) }
    }

    pub(in crate::store::remote) fn cut() -> Self {
        Self::passing("the answer was cut")
    }
}
