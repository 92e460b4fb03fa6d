//! Which of some options are given.

/// The options that are given, as they are written; each comes with whether it is.
pub fn given(options: impl IntoIterator<Item = (&'static str, bool)>) -> impl Iterator<Item = &'static str> {
    options.into_iter().filter(|(_, given)| *given).map(|(name, _)| name)
}
