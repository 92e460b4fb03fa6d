//! Caveats about the figures of a row.

use flashwise_core::human;

/// Rates per day measured over less time are extrapolated. The traces of Cheng et al., USENIX ATC 2016, take a day or
/// more (section 5).
const MEASURED_SECONDS_MIN: f64 = 86_400.0;
/// Shortest duration of a stretch, even if no time passes.
const NO_TIME_SECONDS: f64 = 1e-6;

/// Returns the caveat for rates per day, drive writes per day and lifetimes measured over this many seconds; `None` for
/// a day or more.
pub fn of_rates(seconds: f64) -> Option<String> {
    if seconds >= MEASURED_SECONDS_MIN {
        return None;
    }
    if seconds <= NO_TIME_SECONDS {
        return Some("no time passes in the trace: rates and lifetimes have no meaning".to_owned());
    }
    let time = human::seconds(seconds);
    Some(format!("rates per day and lifetimes are extrapolated from {time}"))
}

/// Returns the caveat for rates of a run that took this many seconds by the trace's times, or whose times were
/// `refused` for this reason.
pub fn of_run(refused: Option<String>, seconds: Option<f64>) -> Option<String> {
    match refused {
        Some(wrong) => Some(format!("the times of the trace say no rates and lifetimes: {wrong}")),
        None => seconds.and_then(of_rates),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_from_less_than_a_day_have_a_caveat() {
        assert_eq!(of_rates(86_400.0), None);
        let minutes = "rates per day and lifetimes are extrapolated from 2.5 min";
        assert_eq!(of_rates(150.0).as_deref(), Some(minutes));
        assert!(of_rates(86_399.0).is_some_and(|text| text.ends_with("from 1 d")));
        assert!(of_rates(1e-6).is_some_and(|text| text.starts_with("no time passes")));
    }
}
