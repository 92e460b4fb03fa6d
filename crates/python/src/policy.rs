//! Replacement policies that are written in Python.
//!
//! A class is instantiated for each cache with its size in blocks. A hit calls `hit(block)`. A miss calls `miss(block)`, after which the
//! block is in the cache. If the cache is full, `evict()` is called first and returns the block that leaves. A method `admits(block)`, if
//! there is one, is called before, and a refused block changes nothing. If `hit` is `None`, hits are not reported.
//!
//! The contents of the cache are tracked here. So no policy can exceed its size, forget a block or invent one.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};

use flashwise_core::access::Access;
use flashwise_core::blocks::Queues;
use flashwise_core::policy::{Outcome, Policy};
use flashwise_sim::job::{Job, Key, Many, SIZES};
use flashwise_sim::results::ResultRow;
use flashwise_sim::simulate::{Counting, Warmup, run_own};
use flashwise_sim::size::Size;
use flashwise_trace::Trace;
use flashwise_trace::progress::Progress;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::errors::exception;
use crate::hook::call;
use crate::jobs::keyword;

/// Returns warm-up and epochs.
///
/// # Errors
/// Policies in Python run without rules, devices and flash: other options are refused.
pub fn counting(many: &Many) -> PyResult<Counting> {
    let meaning = many.base.meaning().map_err(exception)?;
    let is_alone = meaning.is_policy_alone() && many.admissions.is_empty() && many.spares.is_empty();
    if !is_alone || meaning.sampling.is_some() {
        // A word that implies more than a policy.
        let is_of_more = |(name, text): &(&'static str, String)| {
            let mut job = Job::default();
            let read = Key::find(name).and_then(|key| key.read(&mut job, text)).and_then(|()| job.meaning());
            !read.is_ok_and(|meaning| meaning.is_policy_alone() && meaning.sampling.is_none())
        };
        let rest = if many.admissions.is_empty() { "spare" } else { "admission" };
        let word = many.base.words().find(is_of_more);
        let found = word.map_or_else(|| rest.to_owned(), |(name, _)| keyword(name));
        return Err(PyTypeError::new_err(format!(
            "a policy written in Python goes with warmup and epoch only; remove {found}"
        )));
    }
    Ok(meaning.counting)
}

/// Runs each of `classes` at each size over `trace`, on this thread. `progress` is called with the number of block accesses done.
pub fn run(
    trace: &Trace,
    classes: &[Bound<'_, PyAny>],
    sizes: &[Size],
    counting: Counting,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Vec<ResultRow>> {
    let default = Size::parse_list(SIZES).map_err(exception)?;
    let sizes = if sizes.is_empty() { &default } else { sizes };
    let accesses = trace.len() as u64;
    if counting.warmup.accesses(trace.len()) >= accesses {
        let Warmup::Accesses(warmup) = counting.warmup else { unreachable!("a share leaves something") };
        let name = trace.name();
        let expected = format!("a warm-up of {warmup} accesses leaves none to count, expected fewer than {accesses}");
        return Err(PyValueError::new_err(format!("{name}: {expected}")));
    }
    let told = Told { callback: progress.map(|callback| callback.clone().unbind()), done: AtomicU64::new(0) };
    let mut rows = Vec::new();
    for class in classes {
        for size in sizes {
            let capacity = size.capacity_blocks(trace.unique_blocks(), trace.block_size_bytes()).map_err(exception)?;
            let policy = Own::new(class, capacity, trace.unique_blocks())?;
            let name = policy.name.clone();
            let work = AssertUnwindSafe(|| run_own(trace, policy, counting, &told));
            let (counters, epochs) =
                panic::catch_unwind(work).map_err(|payload| match payload.downcast::<PyErr>() {
                    Ok(raised) => *raised,
                    Err(panic) => panic::resume_unwind(panic),
                })?;
            rows.push(ResultRow::of_policy(trace, &name, (&size.to_string(), capacity), &counters, &epochs));
        }
    }
    Ok(rows)
}

/// Ends the run with an exception. It is not a panic, so nothing is printed.
fn raise(error: PyErr) -> ! {
    panic::resume_unwind(Box::new(error))
}

/// Reports progress to a callback, and checks for Ctrl-C.
struct Told {
    callback: Option<Py<PyAny>>,
    done: AtomicU64,
}

impl Progress for Told {
    fn advance(&self, amount: u64) {
        let done = self.done.fetch_add(amount, Ordering::Relaxed) + amount;
        let told = Python::attach(|py| {
            py.check_signals()?;
            self.callback.as_ref().map_or(Ok(()), |callback| callback.call1(py, (done,)).map(drop))
        });
        told.unwrap_or_else(|error| raise(error));
    }
}

/// A policy written in Python.
struct Own {
    name: String,
    /// `None` if it does not want hits.
    hit: Option<Py<PyAny>>,
    miss: Py<PyAny>,
    evict: Py<PyAny>,
    admits: Option<Py<PyAny>>,
    capacity: usize,
    len: usize,
    /// The Python number of each block in the cache. It is always the same object, so a dictionary finds it without comparing numbers.
    numbers: Vec<Option<Py<PyAny>>>,
}

impl Own {
    /// Returns the policy of `class` for a cache of `capacity` blocks of a trace with this many unique blocks.
    fn new(class: &Bound<'_, PyAny>, capacity: usize, unique_blocks: usize) -> PyResult<Own> {
        let made = class.call1((capacity,))?;
        let name = class.getattr("__name__").and_then(|name| name.extract()).unwrap_or_else(|_| "python".to_owned());
        let method = |method: &str| -> PyResult<Py<PyAny>> {
            let found = made.getattr(method).map_err(|_| {
                PyTypeError::new_err(format!("{name}: found no method {method}, expected hit, miss and evict"))
            })?;
            Ok(found.unbind())
        };
        Ok(Own {
            hit: Some(method("hit")?).filter(|hit| !hit.is_none(class.py())),
            miss: method("miss")?,
            evict: method("evict")?,
            admits: made.getattr_opt("admits")?.map(Bound::unbind),
            capacity,
            len: 0,
            numbers: std::iter::repeat_with(|| None).take(unique_blocks).collect(),
            name,
        })
    }

    /// Returns the block that leaves, which must be in the cache.
    fn evicted(&mut self, py: Python<'_>) -> PyResult<u32> {
        let answer = self.evict.bind(py).call0()?;
        let block = answer.extract::<u32>().ok().filter(|&block| self.contains(block));
        let block = block.ok_or_else(|| {
            let (name, found) = (&self.name, answer.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string()));
            PyValueError::new_err(format!("{name}.evict: found {found}, expected a block that is in the cache"))
        })?;
        self.remove(block);
        Ok(block)
    }

    fn decide(&mut self, py: Python<'_>, block: u32) -> PyResult<Outcome<u32>> {
        if let Some(number) = &self.numbers[block as usize] {
            if let Some(hit) = &self.hit {
                call(py, hit, number)?;
            }
            return Ok(Outcome::Hit);
        }
        let number = block.into_pyobject(py)?.into_any().unbind();
        if let Some(admits) = &self.admits
            && !call(py, admits, &number)?.is_truthy()?
        {
            return Ok(Outcome::Bypass);
        }
        let evicted = if self.len == self.capacity { Some(self.evicted(py)?) } else { None };
        call(py, &self.miss, &number)?;
        self.numbers[block as usize] = Some(number);
        self.len += 1;
        Ok(Outcome::Admit { evicted })
    }
}

impl Policy for Own {
    type Key = u32;

    fn blocks(&self) -> Option<&dyn Queues<u32>> {
        None
    }

    fn blocks_mut(&mut self) -> Option<&mut dyn Queues<u32>> {
        None
    }

    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        Python::attach(|py| self.decide(py, access.block)).unwrap_or_else(|error| raise(error))
    }

    fn remove(&mut self, block: u32) -> bool {
        let was_cached = self.numbers[block as usize].take().is_some();
        self.len -= usize::from(was_cached);
        was_cached
    }

    fn contains(&self, block: u32) -> bool {
        self.numbers.get(block as usize).is_some_and(Option::is_some)
    }

    fn len(&self) -> usize {
        self.len
    }

    fn check(&self) {
        assert!(self.len <= self.capacity);
        assert_eq!(self.len, self.numbers.iter().flatten().count());
    }
}
