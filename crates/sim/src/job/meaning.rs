//! The meaning of a job: the placement of its blocks and the parts around the cache. Each follows from specific words
//! only.

use std::sync::Arc;

use flashwise_core::admission::Spec as Rule;
use flashwise_core::cache::settings::{Live, SETTINGS, Setting, SettingError, Settings};
use flashwise_core::filter::Filter;
use flashwise_core::format::Layout as OnFlash;
use flashwise_core::quantity::{ByteSize, Share};
use flashwise_device::flash::Profile;
use flashwise_device::{ArrayModel, CACHE_DEVICE, tier_model_of_option};
use flashwise_trace::request_file::RequestFile;
use flashwise_trace::sampling::Sampling;

use super::words::{Admission, LayoutName, SampleBy, Written};
use super::{Job, JobError, Key, Stage};
use crate::cache_settings::{RAM, Ram, simulated};
use crate::endurance;
use crate::experiment::{Cache, Case, Devices, Experiment, ExperimentError, Layout, Log, check};
use crate::results::WearLimits;
use crate::simulate::{Counting, Warmup};
use crate::wlfc::{BucketSettings, System};

/// Placement of a job's blocks.
#[derive(Clone, Debug, PartialEq)]
pub enum Placement {
    /// No flash: decisions of policies only, behind a read cache in RAM.
    None(Ram),
    /// Modelled flash, with a slot for each block or as the algorithm places it.
    Flash(endurance::Settings),
    /// The log of the whole cache that a server runs, on an SSD if one is given.
    Log(Settings, Option<endurance::Settings>),
    /// Buckets that are evicted whole.
    Buckets(System, Box<BucketSettings>),
}

/// The meaning of a job without its policy, rule and size. Jobs of one meaning run together.
#[derive(Clone, Debug, PartialEq)]
pub struct Meaning {
    /// Placement of blocks.
    pub place: Placement,
    /// Limits to compare wear with.
    pub limits: WearLimits,
    /// The array around the cache, if given.
    pub devices: Option<Devices>,
    /// Warm-up and epochs.
    pub counting: Counting,
    /// The sample to run instead of the whole trace, if any.
    pub sampling: Option<Sampling>,
}

/// The reason why replacement policies do not run in containers.
pub(super) const IN_CONTAINERS: &str = "--layout containers is for algorithms that evict whole erase units, such as \
    ripq+, pannier, bcache and c. For a policy that replaces blocks, use --layout in-place or --layout log";

impl Meaning {
    /// True if only decisions of policies are simulated.
    pub fn is_policy_alone(&self) -> bool {
        self.place == Placement::None(Ram::Bytes(0)) && self.devices.is_none()
    }

    /// True if it models flash, whose erase units do not shrink with a sample.
    pub fn is_on_flash(&self) -> bool {
        matches!(self.place, Placement::Flash(_))
    }

    /// True if original requests are run, which a sample would split.
    pub fn asks_requests(&self) -> bool {
        matches!(self.place, Placement::Log(..) | Placement::Buckets(..))
    }

    /// Returns the experiment, over the `requests` of the traces if the cache handles requests.
    pub fn experiment(&self, requests: &Arc<[RequestFile]>) -> Experiment {
        let layout = match &self.place {
            Placement::None(ram) => Layout::None { ram: *ram },
            Placement::Flash(settings) => Layout::Flash(settings.clone()),
            Placement::Log(settings, ssd) => {
                Layout::Log(Log { settings: settings.clone(), requests: requests.clone(), ssd: ssd.clone() })
            }
            Placement::Buckets(_, settings) => Layout::Buckets(settings.clone(), requests.clone()),
        };
        Experiment { layout, devices: self.devices.clone(), counting: self.counting }
    }
}

impl Job {
    /// The given words.
    fn given(&self) -> impl Iterator<Item = Key> {
        Key::all().filter(|key| key.shown(self).is_some())
    }

    /// The first given word that implies this layout.
    fn implying(&self, layout: LayoutName) -> Option<Key> {
        self.given().find(|key| key.implies() == Some(layout))
    }

    /// The given words of devices around the cache, except the rule.
    fn of_array(&self) -> impl Iterator<Item = Key> {
        self.given().filter(|key| key.stage() == Stage::Array)
    }

    /// Returns the job's meaning.
    pub fn meaning(&self) -> Result<Meaning, JobError> {
        let algorithm = self.policy.as_ref().filter(|algorithm| algorithm.policy().is_none());
        let algorithm = algorithm.map(|algorithm| format!("policy '{algorithm}'"));
        self.meaning_with(algorithm.as_deref())
    }

    /// Returns the job's meaning if `algorithm` has a layout of its own and implies it.
    pub fn meaning_with(&self, algorithm: Option<&str>) -> Result<Meaning, JobError> {
        let place = self.place(algorithm)?;
        let devices = self.devices(&place);
        let (warmup, epoch) = (self.warmup.unwrap_or(Warmup::Accesses(0)), self.epoch);
        let (counting, sampling) = (Counting { warmup, epoch }, self.sampling()?);
        let meaning = Meaning { place, limits: self.limits(), devices, counting, sampling };
        if meaning.sampling.is_some() && !meaning.is_policy_alone() {
            meaning.experiment(&Arc::from([])).check_sample()?;
        }
        Ok(meaning)
    }

    /// Returns the sample, if any. By default it is drawn by groups if a rule depends on the length of requests.
    fn sampling(&self) -> Result<Option<Sampling>, JobError> {
        let Some(share) = self.sample else {
            let Some(word) = self.given().find(|key| key.stage() == Stage::Sample) else { return Ok(None) };
            return Err(JobError::Conflict(format!("--{} is of a sample; expected --sample with it", word.name())));
        };
        let sampling = Sampling::new(share.of_one(), self.sample_seed.unwrap_or(0));
        let sampling = sampling.ok_or_else(|| {
            JobError::Conflict(format!("--sample: found {share}, expected a share above 0% and up to 100%"))
        })?;
        Ok(Some(match self.drawn() {
            SampleBy::Blocks => sampling,
            SampleBy::Groups => sampling.by_groups(),
        }))
    }

    /// Returns the unit by which a sample is drawn.
    fn drawn(&self) -> SampleBy {
        let judged = self.admission.as_ref().is_some_and(|admission| admission.rule().is_some());
        self.sample_by.unwrap_or(if judged { SampleBy::Groups } else { SampleBy::Blocks })
    }

    /// Adds the word for the unit of sampling, if there is a sample and the word is missing.
    pub(super) fn name_drawn(&mut self) {
        if self.sample.is_some() {
            self.sample_by = Some(self.drawn());
        }
    }

    /// Returns the place of blocks. If no layout is stated, a word or algorithm of one implies it. Each given word must
    /// be one of the layout.
    fn place(&self, algorithm: Option<&str>) -> Result<Placement, JobError> {
        let refuse = |what: String| Err(JobError::Conflict(what));
        let of_log = self.implying(LayoutName::Log).map(Key::name);
        let layout = match (self.layout, of_log, self.implying(LayoutName::InPlace)) {
            (Some(layout), ..) => layout,
            (None, Some(_), _) => LayoutName::Log,
            (None, None, None) if algorithm.is_none() => LayoutName::None,
            (None, None, _) => LayoutName::InPlace,
        };
        match (layout, algorithm, of_log) {
            (LayoutName::Buckets(system), ..) => {
                let given: Vec<String> = self.given().map(|key| format!("--{}", key.name())).collect();
                check(Cache::Buckets(system), given.iter().map(String::as_str)).map_err(ExperimentError::from)?;
            }
            (LayoutName::None, Some(algorithm), _) => {
                return refuse(format!(
                    "found --layout none with {algorithm}, which has a layout; expected one of them"
                ));
            }
            (_, Some(algorithm), Some(word)) => {
                return refuse(format!(
                    "--{word} is of --layout log, the cache that flashwise serve runs, and {algorithm} of another \
                     layout; expected one of them"
                ));
            }
            (LayoutName::Log, Some(algorithm), None) => {
                return refuse(format!("{algorithm} is of another layout, found --layout log; expected one of them"));
            }
            (LayoutName::Containers, None, _) => return refuse(IN_CONTAINERS.to_owned()),
            _ => {}
        }
        if let Some(key) = self.given().find(|key| !key.layouts().contains(&layout)) {
            let layouts: Vec<String> = key.layouts().iter().map(ToString::to_string).collect();
            let of = format!("--{} is of --layout {}", key.name(), layouts.join(", "));
            return refuse(match (self.layout, of_log) {
                (Some(layout), _) => format!("{of}, found --layout {layout}; expected one of them"),
                (None, Some(word)) => format!("{of}, and --{word} of --layout log; expected one of them"),
                (None, None) => format!("{of}; expected one of them with it"),
            });
        }
        Ok(match layout {
            LayoutName::None => Placement::None(self.ram.unwrap_or(RAM)),
            LayoutName::InPlace | LayoutName::Containers => Placement::Flash(self.flash()),
            LayoutName::Log => {
                let settings = self.log_settings()?;
                let ssd = self.implying(LayoutName::InPlace).map(|_| self.log_ssd(&settings));
                Placement::Log(settings, ssd)
            }
            LayoutName::Buckets(system) => self.buckets(system),
        })
    }

    fn profile(&self) -> Option<&Profile> {
        self.device.as_ref().map(|device| &device.value)
    }

    /// Returns the limits to compare wear with.
    fn limits(&self) -> WearLimits {
        WearLimits {
            wfue_alpha: self.wfue_alpha.map_or(0.5, Share::of_one),
            device: self.profile().cloned(),
            drive_writes_per_day: self.drive_writes_per_day,
        }
    }

    /// Returns the array around the cache, if a word implies one. A whole cache always has devices, so the absence of a
    /// rule implies none.
    fn devices(&self, place: &Placement) -> Option<Devices> {
        let is_named = match (place, &self.admission) {
            // Without these words, requests come one after another.
            (Placement::Buckets(..), _) => {
                self.cache_device.is_some() || self.storage_size.is_some() || self.arrivals.is_some()
            }
            (_, Some(Admission::Rule(_))) => true,
            (place, Some(Admission::None)) if !matches!(place, Placement::Log(..)) => true,
            _ => self.of_array().next().is_some(),
        };
        let tier = |named: &Option<Written<_>>, default| named.as_ref().map_or(default, |named| named.value);
        is_named.then(|| {
            let paper = ArrayModel::paper();
            Devices {
                model: ArrayModel {
                    cache: tier(&self.cache_device, paper.cache),
                    storage: match place {
                        Placement::Buckets(_, settings) => settings.backend,
                        _ => tier(&self.storage_device, paper.storage),
                    },
                },
                storage_bytes: self.storage_size.map(ByteSize::bytes),
                arrivals: self.arrivals.unwrap_or_default(),
            }
        })
    }

    /// Returns a conventional SSD, without its size and erase units.
    fn ssd(&self) -> endurance::Settings {
        let default = endurance::Settings::default();
        let of_device = self.profile().and_then(|device| device.spare);
        endurance::Settings {
            spare: self.spare.map(Share::of_one).or(of_device).unwrap_or(default.spare),
            write_buffers: self.write_buffers,
            victim: self.gc_victim.unwrap_or(default.victim),
            gc_placement: self.gc_placement.unwrap_or(default.gc_placement),
            reserve_units: self.gc_reserve.unwrap_or(default.reserve_units),
            wear_levelling: self.wear_levelling,
            online_trim: self.trim.is_some_and(|trim| trim.0),
            ..default
        }
    }

    fn flash(&self) -> endurance::Settings {
        let ssd = self.ssd();
        let erase_unit_bytes = self.erase_unit.map(ByteSize::bytes).or(self.profile().map(Profile::block_bytes));
        endurance::Settings {
            ram: self.ram.unwrap_or(ssd.ram),
            erase_unit_bytes: erase_unit_bytes.unwrap_or(ssd.erase_unit_bytes),
            ..ssd
        }
    }

    /// Returns all settings of the whole cache, with defaults.
    fn log_settings(&self) -> Result<Settings, JobError> {
        let refuse = |error: SettingError| JobError::Setting(error);
        let mut given = self.settings.clone();
        let erase_unit = self.erase_unit.map(|size| size.to_string());
        erase_unit.map_or(Ok(()), |text| given.read("erase-unit", &text)).map_err(refuse)?;
        match self.ram {
            Some(ram @ Ram::Share(_)) => given.set(Setting::named("ram"), ram.into()),
            Some(Ram::Bytes(bytes)) => given.read("ram", &ByteSize::new(bytes).to_string()).map_err(refuse)?,
            None => {}
        }
        let given = simulated(&given);
        given.check().map_err(refuse)?;
        let mut all = Settings::default();
        for setting in SETTINGS.iter().filter(|setting| setting.is_of(OnFlash::Log)) {
            all.set(setting, given.value(setting.name()));
        }
        Ok(all)
    }

    /// Returns the SSD below the log of `settings`. Its erase units are those of the device, or of the log if no device
    /// is given; its spare space is its own.
    fn log_ssd(&self, settings: &Settings) -> endurance::Settings {
        let erase_unit_bytes = self.profile().map_or(settings.erase_unit_bytes(), Profile::block_bytes);
        endurance::Settings { erase_unit_bytes, ..self.ssd() }
    }

    fn buckets(&self, system: System) -> Placement {
        let default = BucketSettings::paper();
        Placement::Buckets(
            system,
            Box::new(BucketSettings {
                device: self.profile().cloned().unwrap_or(default.device),
                backend: self.storage_device.as_ref().map_or(default.backend, |named| named.value),
                bucket_bytes: self.bucket.map(ByteSize::bytes),
                ram: self.ram,
                options: self.settings.buckets(),
                spare: self.spare.map_or(default.spare, Share::of_one),
                journal_logs: self.journal_logs.unwrap_or(default.journal_logs),
            }),
        )
    }

    /// Returns what the job reads of a trace besides its accesses: original requests, and their processes.
    pub fn reads(&self) -> Result<Reads, JobError> {
        let meaning = self.meaning()?;
        let (requests, sampling) = (meaning.asks_requests(), meaning.sampling);
        let filter = self.settings.changes(Live::Clients).then(|| self.settings.filter());
        Ok(Reads { requests, filter, sampling })
    }

    /// Refuses a job that cannot run over any trace.
    pub fn check(&self) -> Result<(), JobError> {
        let meaning = self.meaning()?;
        let missing = |key, expected| Err(JobError::Missing { key, expected });
        if self.size.is_none() {
            return missing("size", "one such as 10%");
        }
        if let Placement::Buckets(..) = meaning.place {
            return Ok(());
        }
        let experiment = meaning.experiment(&Arc::from([]));
        let algorithm = match &self.policy {
            None => return missing("policy", "one of `flashwise policies`"),
            Some(algorithm) if algorithm.is_bound() && !meaning.is_policy_alone() => {
                let place = match &meaning.place {
                    Placement::Flash(_) => Some("--layout in-place"),
                    Placement::Log(..) => Some("--layout log"),
                    Placement::None(ram) if *ram != Ram::Bytes(0) => Some("--ram"),
                    Placement::None(_) | Placement::Buckets(..) => None,
                };
                let of_array: Vec<String> = self.of_array().map(|key| format!("--{}", key.name())).collect();
                let given = place.into_iter().chain(self.admission.iter().map(|_| "--admission"));
                let given = given.chain(of_array.iter().map(String::as_str));
                return Ok(check(Cache::Bound(algorithm), given).map_err(ExperimentError::from)?);
            }
            Some(algorithm) if algorithm.is_bound() => return Ok(()),
            Some(algorithm) => algorithm.clone(),
        };
        let admission = self.rule_of(|rule| rule.spec().clone());
        let case = Case { trace: 0, algorithm, admission, size: String::new(), capacity_blocks: 0 };
        Ok(experiment.check(&case)?)
    }

    /// Returns the rule before the policy, made by `of`, if any.
    pub(super) fn rule_of(&self, of: impl Fn(&crate::array::TraceRule) -> Rule) -> Option<Rule> {
        self.admission.as_ref().and_then(Admission::rule).map(of)
    }

    /// Returns the job without words that do not change its meaning. Jobs of one meaning become equal.
    ///
    /// # Errors
    /// The job cannot be run: see [`Job::check`].
    pub fn plain(mut self) -> Result<Job, JobError> {
        self.check()?;
        let meaning = self.meaning()?;
        let has_layout = self.policy.as_ref().is_some_and(|algorithm| algorithm.policy().is_none());
        self.layout = match &meaning.place {
            Placement::Flash(_) if !has_layout => Some(LayoutName::InPlace),
            Placement::Log(..) => Some(LayoutName::Log),
            Placement::Buckets(system, _) => Some(LayoutName::Buckets(*system)),
            Placement::None(_) | Placement::Flash(_) => None,
        };
        // If necessary, a stage is implied by the word that has no other effect.
        match (&meaning.place, &meaning.devices) {
            (Placement::Log(..) | Placement::Buckets(..), Some(_)) => self.name_devices(),
            (_, Some(_)) => {
                self.admission.get_or_insert(Admission::None);
            }
            _ => {}
        }
        if matches!(meaning.place, Placement::Log(_, Some(_))) {
            self.gc_victim.get_or_insert(endurance::Settings::default().victim);
        }
        // The policy, and the layout that it implies, always stay.
        let kept = |job: &Job, key: &Key| match key.name() {
            "policy" | "size" | "layout" => true,
            "admission" => job.admission.as_ref().is_some_and(|admission| admission.rule().is_some()),
            _ => false,
        };
        // Default spare flash goes before the word that implies its SSD as well.
        for key in Key::find("spare").into_iter().chain(Key::all().rev()) {
            if key.shown(&self).is_some() && !kept(&self, &key) {
                let mut without = self.clone();
                key.clear(&mut without);
                if without.meaning().is_ok_and(|other| other == meaning) {
                    self = without;
                }
            }
        }
        Ok(self)
    }

    /// Adds a word for the devices around the cache, if no word implies them yet.
    pub(super) fn name_devices(&mut self) {
        self.cache_device.get_or_insert_with(|| {
            let read = |text: &str| tier_model_of_option("cache-device", text);
            Written::read(CACHE_DEVICE, read).expect("the profile comes with flashwise")
        });
    }
}

/// Parts of a trace that a job reads besides its accesses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reads {
    /// True if it reads original requests.
    pub requests: bool,
    /// The filter of processes.
    pub filter: Option<Filter>,
    /// The sample that it reads instead of all accesses.
    pub sampling: Option<Sampling>,
}
