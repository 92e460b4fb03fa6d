//! What a rule that adapts has decided: the report of it, which knows neither policies nor rules.

/// What was decided at the end of a timeframe.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// When.
    pub time_us: u64,
    /// How many were decided so far, this one included.
    pub number: u64,
    /// The shadow that was chosen.
    pub choice: Choice,
    /// What each shadow did in the timeframe that ended.
    pub shadows: Vec<Figures>,
    /// `L` of the cache itself in the timeframe that ended.
    pub latency_us: f64,
    /// The position on the scale that holds from now on; of `auto` the number of the policy.
    pub position: f64,
    /// The threshold that holds from now on: a portion, blocks or references; of `auto` the number of the policy.
    pub threshold: f64,
    /// The policy that holds from now on, if that is what is decided.
    pub policy: Option<String>,
}

/// The candidate that was chosen for what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its number.
    pub candidate: usize,
    /// Whether it keeps the target latency; if not, none does that keeps the budget.
    pub meets_latency: bool,
    /// Whether it keeps the budget of writes; if not, none does.
    pub meets_budget: bool,
}

/// What a candidate would do to the array.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// `L[s]`: its average latency in the last timeframe, or in its [`Past`](crate::admission::controller::Past).
    pub latency_us: f64,
    /// `T[s]`: how long the array would last from here on.
    pub lifetime_years: f64,
    /// `L[s] / T[s]`.
    pub latency_over_lifetime: f64,
    /// Its hits per access in the last timeframe, or in its [`Past`](crate::admission::controller::Past).
    pub hit_ratio: f64,
    /// How often a day the cache would be written in full, smoothed.
    pub writes_per_day: f64,
}
