//! The policy or algorithm of a job.

use std::fmt;
use std::str::FromStr;

use flashwise_core::options::{OptionError, nearest};
use flashwise_core::policy::{POLICIES, Spec};

use crate::endurance::Algorithm;

/// A replacement policy, or an algorithm with a layout of its own.
#[derive(Clone, Debug)]
pub enum Choice {
    /// A replacement policy, for any layout.
    Policy(Spec),
    /// An algorithm with a layout, for flash only.
    Algorithm(Algorithm),
}

impl FromStr for Choice {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Choice, OptionError> {
        match Spec::parse(text) {
            Err(OptionError::UnknownName { .. }) => {}
            parsed => return parsed.map(Choice::Policy),
        }
        match Algorithm::parse(text) {
            Err(OptionError::UnknownName { name, mut expected, .. }) => {
                expected.extend(
                    POLICIES.iter().map(|info| info.name).filter(|name| !expected.contains(name)).collect::<Vec<_>>(),
                );
                Err(OptionError::UnknownName { what: "policy", near: nearest(&name, &expected), name, expected })
            }
            parsed => parsed.map(Choice::Algorithm),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Policy(policy) => policy.fmt(f),
            Choice::Algorithm(algorithm) => algorithm.fmt(f),
        }
    }
}
