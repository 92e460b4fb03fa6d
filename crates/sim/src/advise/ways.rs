//! The examined combinations of settings.

use flashwise_core::cache::settings::Setting;
use flashwise_core::options::{Given, OptionError, word};
use flashwise_core::policy::Spec;
use flashwise_core::quantity::Share;

use super::cache::MODES;
use crate::job::Admission;

/// Default policies: the server's own, the same taking in every write, and two that take in all.
const POLICIES: [&str; 4] = ["larc", "larc:writes=admit", "lru", "s3-fifo"];
/// Default over-provisioning beside the server's own.
const MORE_SPACE: &str = "25%";
/// Default rules.
const ADMISSIONS: [&str; 2] = ["none", "probability:p=0.3,writes=admit"];

/// The examined values of each setting; all combinations are examined.
#[derive(Clone, Debug, Default)]
pub struct Ways {
    /// Replacement policies.
    pub policies: Vec<Spec>,
    /// Admission rules.
    pub admissions: Vec<Admission>,
    /// Write modes, of [`MODES`].
    pub modes: Vec<&'static str>,
    /// Over-provisionings.
    pub over_provisions: Vec<Share>,
}

impl Ways {
    /// Fills empty lists with the defaults.
    ///
    /// # Errors
    /// A default cannot be read, which a test excludes.
    pub fn or_defaults(mut self) -> Result<Ways, String> {
        let text = |error: OptionError| error.to_string();
        if self.policies.is_empty() {
            self.policies = POLICIES.iter().map(|policy| policy_of(policy)).collect::<Result<_, _>>().map_err(text)?;
        }
        if self.admissions.is_empty() {
            self.admissions = ADMISSIONS.iter().map(|rule| rule.parse()).collect::<Result<_, _>>()?;
        }
        if self.modes.is_empty() {
            self.modes = MODES[..2].to_vec();
        }
        if self.over_provisions.is_empty() {
            let own = Setting::named("over-provision").parameter.default;
            self.over_provisions = [own, MORE_SPACE].into_iter().map(over_provision_of).collect::<Result<_, _>>()?;
        }
        Ok(self)
    }
}

/// Parses a policy that can run.
///
/// # Errors
/// It is unknown, or knows the future.
pub fn policy_of(text: &str) -> Result<Spec, OptionError> {
    let policy = Spec::parse(text)?;
    if policy.info().offline {
        let expected = "a policy that can run: this one knows the future";
        return Err(OptionError::bad_value("advise", "policy", text, expected));
    }
    Ok(policy)
}

/// Parses a write mode.
///
/// # Errors
/// It is none of [`MODES`].
pub fn mode_of(text: &str) -> Result<&'static str, String> {
    word(text, &MODES.map(|mode| (mode, mode)))
}

/// Parses the share of the flash that is kept free.
///
/// # Errors
/// An invalid share, or more than 90 %.
pub fn over_provision_of(text: &str) -> Result<Share, String> {
    let kind = Setting::named("over-provision").parameter.kind;
    Given::from(text).number(kind).map(|share| Share::new(share).unwrap_or_default())
}
