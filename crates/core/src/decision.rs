//! The report of an adaptive rule's decision. It knows neither policies nor rules.

/// A decision at the end of a timeframe.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The time of the decision.
    pub time_us: u64,
    /// The number of decisions so far, this one included.
    pub number: u64,
    /// The chosen candidate.
    pub choice: Choice,
    /// The figures of each shadow in the timeframe that ended.
    pub shadows: Vec<Prediction>,
    /// `L` of the cache itself in the timeframe that ended.
    pub latency_us: f64,
    /// The new position on the scale; for `auto` the number of the policy.
    pub position: f64,
    /// The new threshold: a portion, blocks or references; for `auto` the number of the policy.
    pub threshold: f64,
    /// The new policy, if the rule chooses policies.
    pub policy: Option<String>,
}

/// The candidate that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its number.
    pub candidate: usize,
    /// True if it meets the target latency. If not, no candidate within the budget does.
    pub meets_latency: bool,
    /// True if it stays within the write budget. If not, none does.
    pub meets_budget: bool,
}

/// Predicted effect of a candidate on the array.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// `L[s]`: its average latency in the last timeframe, or in its [`Past`](crate::admission::controller::Past).
    pub latency_us: f64,
    /// `T[s]`: the expected remaining lifetime of the array.
    pub lifetime_years: f64,
    /// `L[s] / T[s]`.
    pub latency_over_lifetime: f64,
    /// Its hits per access in the last timeframe, or in its [`Past`](crate::admission::controller::Past).
    pub hit_ratio: f64,
    /// Full writes of the cache per day, smoothed.
    pub writes_per_day: f64,
}
