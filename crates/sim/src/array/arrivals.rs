//! Arrivals of requests at an array: at the trace's times, or when others are answered.
//!
//! Source: Schroeder, Wierman, Harchol-Balter: Open versus closed: a cautionary tale. NSDI 2006, section 2: open and
//! closed systems.

use std::fmt;
use std::str::FromStr;

use flashwise_core::options::{Kind, OptionError, Options, Parameter, named};
use flashwise_device::ArrayError;

use flashwise_trace::Trace;
use flashwise_trace::normalised::trace::Accesses;

/// Arrivals of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Arrivals {
    /// No waiting: a block access takes its device's latency.
    #[default]
    None,
    /// Open loop: at the times of the trace.
    Trace {
        /// Speed, as a multiple of the trace's.
        speed: f64,
    },
    /// Closed loop: a request comes when another is answered.
    Closed {
        /// Requests in flight.
        depth: u32,
    },
}

const SPEED: Parameter = Parameter::of("speed", Kind::Number(0.001, 1000.0), "1")
    .means("how many times as fast as in the trace requests come");
const DEPTH: Parameter = Parameter::of("depth", Kind::Count(1, 65_536), "1").means("concurrent requests");

/// Names and options.
const ARRIVALS: [(&str, &[Parameter]); 3] = [("none", &[]), ("trace", &[SPEED]), ("closed", &[DEPTH])];

impl FromStr for Arrivals {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Arrivals, OptionError> {
        let ((name, parameters), options) = named("arrivals", text, ARRIVALS.into_iter(), |(name, _)| name)?;
        let options = Options::parse(name, parameters, options)?;
        Ok(match name {
            "trace" => Arrivals::Trace { speed: options.number("speed") },
            "closed" => Arrivals::Closed { depth: options.count("depth") as u32 },
            _ => Arrivals::None,
        })
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arrivals::None => write!(f, "none"),
            Arrivals::Trace { speed: 1.0 } => write!(f, "trace"),
            Arrivals::Trace { speed } => write!(f, "trace:speed={speed}"),
            Arrivals::Closed { depth } => write!(f, "closed:depth={depth}"),
        }
    }
}

impl Arrivals {
    /// Refuses a trace that lacks the times for these arrivals.
    pub fn check(self, trace: &Trace) -> Result<(), ArrayError> {
        let first_us = trace.first_us();
        let is_over = |columns: Accesses| columns.time_us.iter().all(|&time_us| time_us <= first_us);
        match self {
            Arrivals::Trace { .. } if trace.batches().all(is_over) => {
                Err(ArrayError::NoTimes { trace: trace.name().to_owned() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_read_as_they_are_shown() {
        for text in ["none", "trace", "trace:speed=2.5", "closed:depth=16"] {
            assert_eq!(text.parse::<Arrivals>().unwrap().to_string(), text);
        }
        assert_eq!("closed".parse(), Ok(Arrivals::Closed { depth: 1 }));
        let refused = |text: &str| text.parse::<Arrivals>().unwrap_err().to_string();
        assert_eq!(
            refused("close"),
            "unknown arrivals 'close' (did you mean 'closed'?); expected one of: none, trace, closed"
        );
        assert_eq!(refused("closed:depth=0"), "closed: depth: found '0', expected a whole number from 1 to 65536");
        assert_eq!(refused("trace:speed=0"), "trace: speed: found '0', expected a number from 0.001 to 1000");
        assert_eq!(refused("none:depth=1"), "none has no option 'depth'; it has none");
    }
}
