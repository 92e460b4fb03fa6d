//! Many jobs at once: every combination of policies, sizes, rules and spare flash, and jobs to compare them with
//! in a report.

use std::collections::HashSet;

use flashwise_core::policy::{POLICIES, larc};
use flashwise_core::quantity::Share;

use super::meaning::IN_CONTAINERS;
use super::{Admission, Job, JobError, LayoutName, Meaning, Placement};
use crate::endurance::Algorithm;
use crate::size::Size;

/// Default algorithms if wear is simulated: those of Figure 5 of the paper on offline algorithms.
const ALGORITHMS: [&str; 6] = ["lru", "ripq+", "pannier", "m", "m+", "c"];
/// The bound for comparison in a report.
const BEST: &str = "min";
/// Compared in a report with a LARC that fills an empty cache on every miss.
const LARC_ALGORITHM_1: &str = "larc:fill=ghost";
/// Default sizes.
pub const SIZES: &str = "1%,2%,5%,10%,20%,50%";

/// The common part of jobs, and lists for the rest; an empty list has a default.
#[derive(Clone, Debug, Default)]
pub struct Many {
    /// Options of all jobs.
    pub base: Job,
    /// Policies and algorithms; by default all online ones, or a selection if wear is simulated.
    pub policies: Vec<Algorithm>,
    /// Sizes; by default [`SIZES`].
    pub sizes: Vec<Size>,
    /// Rules; by default the option is absent.
    pub admissions: Vec<Admission>,
    /// Shares of spare flash.
    pub spares: Vec<Share>,
}

/// Returns the values of a list, or `None` once if it is empty.
fn each<T: Clone>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() { vec![None] } else { list.iter().cloned().map(Some).collect() }
}

impl Many {
    /// Returns the jobs for each policy, size, rule and share of spare flash; the last changes fastest. Each job
    /// appears once.
    ///
    /// # Errors
    /// A job cannot be run. Default policies that cannot run are left out. An algorithm that takes no rule runs without
    /// one, if the list of rules has none.
    pub fn jobs(&self) -> Result<Vec<Job>, JobError> {
        let (mut base, meaning) = self.common()?;
        let policies = match &meaning.place {
            Placement::Buckets(..) => vec![None],
            _ if self.policies.is_empty() => policies(&meaning)?.into_iter().map(Some).collect(),
            _ => each(&self.policies),
        };
        let layout = match &meaning.place {
            Placement::None(_) => LayoutName::None,
            Placement::Flash(_) => LayoutName::InPlace,
            Placement::Log(..) => LayoutName::Log,
            Placement::Buckets(system, _) => LayoutName::Buckets(*system),
        };
        // A rule before one policy gives all of them the same devices and the same sample.
        if meaning.devices.is_some() {
            base.name_devices();
        }
        if let Some(rule) = self.admissions.iter().find(|admission| admission.rule().is_some()) {
            let mut judged = Job { admission: Some(rule.clone()), ..base.clone() };
            judged.name_drawn();
            base.sample_by = judged.sample_by;
        }
        let sizes = if self.sizes.is_empty() { Size::parse_list(SIZES)? } else { self.sizes.clone() };
        let (mut jobs, mut said) = (Vec::new(), HashSet::new());
        for policy in policies {
            let has_own = policy.as_ref().is_some_and(|algorithm| algorithm.policy().is_none());
            if self.base.layout == Some(LayoutName::Containers) && policy.is_some() && !has_own {
                return Err(JobError::Conflict(IN_CONTAINERS.to_owned()));
            }
            let layout = if has_own { None } else { Some(layout) };
            for size in &sizes {
                for admission in each(&self.admissions) {
                    for spare in each(&self.spares) {
                        let (policy, size) = (policy.clone().or(base.policy.clone()), Some(size.clone()));
                        let admission = admission.clone().or(base.admission.clone());
                        let job = Job { policy, size, layout, admission, spare, ..base.clone() };
                        match job.clone().plain() {
                            Ok(job) => {
                                if said.insert(job.to_string()) {
                                    jobs.push(job);
                                }
                            }
                            Err(_) if self.policies.is_empty() && base.policy.is_none() => {}
                            Err(_) if self.runs_without(&job) => {}
                            Err(error) => return Err(error),
                        }
                    }
                }
            }
        }
        Ok(jobs)
    }

    /// True if a job that cannot be run is, without its rule, another of these jobs. That holds for algorithms without
    /// a rule, to which rules are compared.
    fn runs_without(&self, job: &Job) -> bool {
        let admission = Some(Admission::None);
        let is_listed = self.admissions.iter().any(|admission| admission.rule().is_none());
        is_listed && Job { admission, ..job.clone() }.plain().is_ok()
    }

    /// The first given option, if any.
    pub fn said(&self) -> Option<String> {
        let lists = [
            ("policy", self.policies.is_empty()),
            ("size", self.sizes.is_empty()),
            ("admission", self.admissions.is_empty()),
            ("spare", self.spares.is_empty()),
        ];
        let in_lists = lists.into_iter().filter(|(_, is_empty)| !is_empty).map(|(name, _)| name);
        self.base.words().map(|(name, _)| name).chain(in_lists).next().map(|name| format!("--{name}"))
    }

    /// Returns the options of all jobs, and their meaning together with the lists.
    fn common(&self) -> Result<(Job, Meaning), JobError> {
        let algorithm = self.policies.iter().find(|algorithm| algorithm.policy().is_none());
        let algorithm = algorithm.map(|algorithm| format!("policy '{algorithm}'"));
        let rule = self.admissions.iter().find(|admission| admission.rule().is_some());
        let said = Job {
            policy: self.policies.first().cloned(),
            admission: rule.or(self.admissions.first()).cloned(),
            spare: self.spares.first().copied(),
            ..self.base.clone()
        };
        Ok((self.base.clone(), said.meaning_with(algorithm.as_deref())?))
    }
}

/// Returns the default policies and algorithms.
fn policies(meaning: &Meaning) -> Result<Vec<Algorithm>, JobError> {
    let all: Vec<&str> = match &meaning.place {
        Placement::Flash(_) => ALGORITHMS.to_vec(),
        _ if meaning.is_policy_alone() => POLICIES.iter().map(|info| info.name).collect(),
        _ => POLICIES.iter().filter(|info| !info.offline).map(|info| info.name).collect(),
    };
    all.into_iter().map(|name| Ok(name.parse()?)).collect()
}

/// Jobs for comparison in a report.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Jobs before the others.
    pub before: Vec<Job>,
    /// Jobs after the others.
    pub after: Vec<Job>,
}

/// Returns the jobs for comparison in a report of `jobs`, which were made together. For policies without a rule: the
/// best possible, and LARC as printed. Otherwise: each policy without a rule, and each that a rule chooses among.
pub fn compared(jobs: &[Job]) -> Result<Comparison, JobError> {
    let Some(first) = jobs.first() else { return Ok(Comparison::default()) };
    let meaning = first.meaning()?;
    let name = |job: &Job| job.policy.as_ref().map(ToString::to_string);
    let is_asked = |policy: &str| jobs.iter().any(|job| name(job).as_deref() == Some(policy));
    // Jobs of one policy and rule have all sizes and spare flash.
    let rule = |job: &Job| job.admission.as_ref().map(ToString::to_string);
    let like = jobs.iter().filter(|job| name(job) == name(first) && rule(job) == rule(first));
    let of = |algorithm: &Algorithm| -> Result<Vec<Job>, JobError> {
        let layout = if algorithm.policy().is_none() { None } else { first.layout };
        let job = |job: &Job| {
            let mut job = Job { policy: Some(algorithm.clone()), layout, ..job.clone() };
            job.name_drawn();
            if meaning.devices.is_some() {
                job.name_devices();
                job.admission = Some(Admission::None);
            }
            job.plain()
        };
        like.clone().map(job).collect()
    };
    let all = |choices: &[Algorithm]| -> Result<Vec<Job>, JobError> {
        Ok(choices.iter().map(of).collect::<Result<Vec<_>, _>>()?.concat())
    };
    if meaning.is_policy_alone() {
        let fills = |job: &Job| job.policy.as_ref().and_then(Algorithm::policy).is_some_and(larc::fills_freely);
        let larc = jobs.iter().any(fills).then_some(LARC_ALGORITHM_1);
        let also = larc.into_iter().chain([BEST]).filter(|policy| !is_asked(policy));
        let also: Vec<Algorithm> = also.map(str::parse).collect::<Result<_, _>>()?;
        return Ok(Comparison { before: Vec::new(), after: all(&also)? });
    }
    let rules = || jobs.iter().filter_map(|job| job.admission.as_ref().and_then(Admission::rule));
    let mut alone: Vec<Algorithm> = Vec::new();
    if jobs.iter().all(|job| job.admission.as_ref().is_some_and(|admission| admission.rule().is_some())) {
        for choice in jobs.iter().filter_map(|job| job.policy.as_ref()) {
            if !alone.iter().any(|other| other.to_string() == choice.to_string()) {
                alone.push(choice.clone());
            }
        }
    }
    let mut candidates: Vec<Algorithm> = Vec::new();
    for candidate in rules().flat_map(|rule| rule.spec().candidates()) {
        if !is_asked(&candidate.to_string())
            && !candidates.iter().any(|other| other.to_string() == candidate.to_string())
        {
            candidates.push(Algorithm::from(candidate));
        }
    }
    Ok(Comparison { before: all(&alone)?, after: all(&candidates)? })
}
