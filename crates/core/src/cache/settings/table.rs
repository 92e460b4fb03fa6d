//! The table: a row for each setting.

use super::setting::{Destination, Live, Setting, SettingError};
use super::value::{
    Value, clients, copy_forward, count, duration, mode, online_policy, order, part, refresh, rule, rules, share, size,
    unless,
};
use crate::cache::config::{Mode, WriteBackOrder};
use crate::format::{BLOCK_BYTES, Geometry, Layout};
use crate::options::{Kind, Parameter, did_you_mean};
use crate::wlfc::Refresh;

/// Range of the erase unit.
const ERASE_UNIT: Kind = Kind::PowerOfTwo(Geometry::UNIT_PAGES_MIN as u64 * BLOCK_BYTES as u64, 256 << 20);
/// Maximum of RAM: frames have 32-bit numbers, and each is a block.
const RAM: Kind = Kind::Size(0, 8 << 40);
const ANY_DURATION: Kind = Kind::Duration(0, i64::MAX as u64);

/// The largest volume: blocks have 32-bit numbers.
const VOLUME_BYTES_MAX: u64 = 1 << 44;
/// As many allocations as the write queue has buckets.
const AS_MANY_AS: &str = "write-queue";
/// As many bytes as a bucket holds.
const A_BUCKET: &str = "bucket";
const LOG: &[Layout] = &[Layout::Log];
const WLFC: &[Layout] = &[Layout::Wlfc];
const BOTH: &[Layout] = &[Layout::Log, Layout::Wlfc];

/// All settings, in the order in which they are documented.
pub static SETTINGS: &[Setting] = &[
    Setting {
        parameter: Parameter {
            name: "erase-unit",
            kind: ERASE_UNIT,
            default: "2MiB",
            meaning: "Size of an erase unit: a power of two from 64KiB to 256MiB",
        },
        values: "SIZE",
        live: Live::Never,
        layouts: BOTH,
        read: size,
        place: Destination::Geometry,
    },
    Setting {
        parameter: Parameter {
            name: "ram",
            kind: RAM,
            default: "128MiB",
            meaning: "Memory for the read and the write buffer together",
        },
        values: "SIZE",
        live: Live::Never,
        layouts: BOTH,
        read: size,
        place: Destination::Devices(|config, value, devices| {
            let bytes = match value {
                Value::Share(share) => (devices.flash_bytes as f64 * share) as u64,
                value => value.bytes(),
            };
            config.read_buffer_blocks = blocks(bytes);
            config.write_buffer_blocks = 0;
        }),
    },
    Setting {
        parameter: Parameter {
            name: "write-buffer-share",
            kind: Kind::Share(1.0),
            default: "50%",
            meaning: "Share of the write buffer in that memory; the rest is the read buffer",
        },
        values: "SHARE",
        live: Live::Never,
        layouts: LOG,
        read: share,
        place: Destination::Config(|config, value| {
            let blocks = config.read_buffer_blocks + config.write_buffer_blocks;
            config.write_buffer_blocks = (f64::from(blocks) * value.share()) as u32;
            config.read_buffer_blocks = blocks - config.write_buffer_blocks;
        }),
    },
    Setting {
        parameter: Parameter {
            name: "write-buffer-half-life",
            kind: Kind::Count(0, 1_000_000),
            default: "16",
            meaning: "The least frequently written block leaves the write buffer first. All counts are halved each \
                time that \
                      this many times the buffer's blocks were written; 0 for never, as in the NCache paper",
        },
        values: "TIMES",
        live: Live::Never,
        layouts: LOG,
        read: count,
        place: Destination::Config(|config, value| config.write_buffer_half_life = value.count() as u32),
    },
    Setting {
        parameter: Parameter {
            name: "policy",
            kind: Kind::Text,
            default: "larc",
            meaning: "The policy that decides which blocks stay on flash, with its options: see `flashwise policies`",
        },
        values: "POLICY",
        live: Live::Policy,
        layouts: LOG,
        read: online_policy,
        place: Destination::Config(|config, value| config.policy = value.policy()),
    },
    Setting {
        parameter: Parameter {
            name: "admission",
            kind: Kind::Text,
            default: "none",
            meaning: "Admission rule with its options, such as size:max=64KiB or probability:p=0.3, or none: see \
                      `flashwise policies`. Rejected blocks go to the backend",
        },
        values: "RULE",
        live: Live::Policy,
        layouts: LOG,
        read: rule,
        place: Destination::Devices(|config, value, devices| {
            config.admission = value.rule().map(|rule| devices.admission(rule, &config.geometry));
        }),
    },
    Setting {
        parameter: Parameter {
            name: "write-mode",
            kind: Kind::Choice(&Mode::WORDS),
            default: "write-back",
            meaning: "When written data reaches the backend. write-back: later. write-through: before the answer; \
                admitted \
                      blocks also go to flash. write-around: before the answer, and not to flash",
        },
        values: "MODE",
        live: Live::Simply,
        layouts: BOTH,
        read: mode,
        place: Destination::Config(|config, value| config.mode = value.mode()),
    },
    Setting {
        parameter: Parameter {
            name: "write-back-order",
            kind: Kind::Choice(&WriteBackOrder::WORDS),
            default: "none",
            meaning: "Order in which dirty blocks are written back. barriers: that of the clients' flushes, so the \
                      backend without its flash is always a consistent older state. journal: the same, with blocks \
                      written twice. none: any order",
        },
        values: "ORDER",
        live: Live::Never,
        layouts: LOG,
        read: order,
        place: Destination::Config(|config, value| config.order = value.order()),
    },
    Setting {
        parameter: Parameter {
            name: "over-provision",
            kind: Kind::Share(0.9),
            default: "10%",
            meaning: "The share of the flash, up to 90%, that is kept free of wanted blocks",
        },
        values: "SHARE",
        live: Live::Never,
        layouts: LOG,
        read: share,
        place: Destination::Config(|config, value| config.over_provision = value.share()),
    },
    Setting {
        parameter: Parameter {
            name: "copy-forward",
            kind: Kind::Text,
            default: "used",
            meaning: "Blocks kept of an erase unit that is reset, besides dirty ones. used: blocks hit since they were \
                      written (if many were: hit twice). young:50%: blocks in the most recently used part of the \
                      policy's \
                      queues. all: blocks that the policy wants. none: no others",
        },
        values: "WHICH",
        live: Live::CopyForward,
        layouts: LOG,
        read: copy_forward,
        place: Destination::Config(|config, value| config.copy_forward = value.copy_forward()),
    },
    Setting {
        parameter: Parameter {
            name: "dirty-high",
            kind: Kind::Share(1.0),
            default: "50%",
            meaning: "The cleaner starts to write dirty blocks back when they fill more than this share of the flash",
        },
        values: "SHARE",
        live: Live::Simply,
        layouts: LOG,
        read: share,
        place: Destination::Config(|config, value| config.dirty_high = value.share()),
    },
    Setting {
        parameter: Parameter {
            name: "dirty-low",
            kind: Kind::Share(1.0),
            default: "40%",
            meaning: "The cleaner stops at this share, which is at most dirty-high",
        },
        values: "SHARE",
        live: Live::Simply,
        layouts: LOG,
        read: share,
        place: Destination::Config(|config, value| config.dirty_low = value.share()),
    },
    Setting {
        parameter: Parameter {
            name: "dirty-age",
            kind: ANY_DURATION,
            default: "15min",
            meaning: "Blocks that have been dirty for longer than this are written back",
        },
        values: "DURATION",
        live: Live::Simply,
        layouts: LOG,
        read: duration,
        place: Destination::Config(|config, value| config.dirty_age_us = value.us()),
    },
    Setting {
        parameter: Parameter {
            name: "commit-age",
            kind: ANY_DURATION,
            default: "5s",
            meaning: "Written data stays in memory no longer than this, with or without a flush",
        },
        values: "DURATION",
        live: Live::Never,
        layouts: LOG,
        read: duration,
        place: Destination::Config(|config, value| config.commit_age_us = value.us()),
    },
    Setting {
        parameter: Parameter {
            name: "sequential-bypass",
            kind: Kind::Size(0, 1 << 40),
            default: "4MiB",
            meaning: "Sequential streams longer than this bypass the flash; 0 for never",
        },
        values: "SIZE",
        live: Live::Streams,
        layouts: LOG,
        read: size,
        place: Destination::Config(|config, value| config.sequential_blocks = blocks(value.bytes())),
    },
    Setting {
        parameter: Parameter {
            name: "cache-clients",
            kind: Kind::Choice(&["all", "none"]),
            default: "all",
            meaning: "Default for clients that no rule names: all (cached) or none",
        },
        values: "CLIENTS",
        live: Live::Clients,
        layouts: LOG,
        read: clients,
        place: Destination::Filter(|filter, value| filter.clients = value.clients()),
    },
    Setting {
        parameter: Parameter {
            name: "allow-clients",
            kind: Kind::List,
            default: "none",
            meaning: "Cached clients, separated by commas: pid:N, tls:NAME, uid:N, gid:N, program:NAME, \
                address:NETWORK or \
                      export:NAME; or none",
        },
        values: "RULES",
        live: Live::Clients,
        layouts: LOG,
        read: rules,
        place: Destination::Filter(|filter, value| filter.allow = value.rules()),
    },
    Setting {
        parameter: Parameter {
            name: "deny-clients",
            kind: Kind::List,
            default: "none",
            meaning: "Clients that are not cached, in the same form",
        },
        values: "RULES",
        live: Live::Clients,
        layouts: LOG,
        read: rules,
        place: Destination::Filter(|filter, value| filter.deny = value.rules()),
    },
    Setting {
        parameter: Parameter {
            name: "write-queue",
            kind: Kind::Share(1.0),
            default: "50%",
            meaning: "Share of wlfc's buckets for writes",
        },
        values: "SHARE",
        live: Live::Never,
        layouts: WLFC,
        read: part,
        place: Destination::Buckets(|options, value| options.write_share = value.share()),
    },
    Setting {
        parameter: Parameter {
            name: "halving",
            kind: Kind::Count(1, u32::MAX as u64),
            default: AS_MANY_AS,
            meaning: "Write buckets that wlfc allocates between two halvings of all priorities; write-queue: its \
                length",
        },
        values: "N",
        live: Live::Never,
        layouts: WLFC,
        read: |given, kind| unless(AS_MANY_AS, given, kind, count),
        place: Destination::Buckets(|options, value| options.halving = value.given().map(|value| value.count() as u32)),
    },
    Setting {
        parameter: Parameter {
            name: "large-write",
            kind: Kind::Size(BLOCK_BYTES as u64, VOLUME_BYTES_MAX),
            default: A_BUCKET,
            meaning: "Send larger writes to the backend, past wlfc; bucket: a bucket's capacity",
        },
        values: "SIZE",
        live: Live::Never,
        layouts: WLFC,
        read: |given, kind| unless(A_BUCKET, given, kind, size),
        place: Destination::Buckets(|options, value| options.large_write_bytes = value.given().map(Value::bytes)),
    },
    Setting {
        parameter: Parameter {
            name: "refresh",
            kind: Kind::Choice(&Refresh::WORDS),
            default: "read",
            meaning: "When wlfc updates read copies: read (at each read) or evict (when logs are evicted)",
        },
        values: "WHEN",
        live: Live::Never,
        layouts: WLFC,
        read: refresh,
        place: Destination::Buckets(|options, value| options.refresh = value.refresh()),
    },
    #[cfg(feature = "planted")]
    Setting {
        parameter: Parameter {
            name: "planted-age",
            kind: ANY_DURATION,
            default: "1d",
            meaning: "Planted by a test: an age at which blocks are written back, besides dirty-age",
        },
        values: "DURATION",
        live: Live::Simply,
        layouts: LOG,
        read: duration,
        place: Destination::Config(|config, value| config.dirty_age_us = config.dirty_age_us.min(value.us())),
    },
];

fn blocks(bytes: u64) -> u32 {
    u32::try_from(bytes / BLOCK_BYTES as u64).unwrap_or(u32::MAX)
}

impl Setting {
    /// Returns the setting with this name. Panics if there is none.
    pub fn named(name: &str) -> &'static Setting {
        Setting::known(name).unwrap_or_else(|| panic!("'{name}' is a setting"))
    }

    fn known(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name() == name)
    }

    /// Returns the setting with this name if it can change at run time.
    pub fn find_settable(name: &str) -> Result<&'static Setting, SettingError> {
        Setting::known(name).filter(|setting| setting.is_settable()).ok_or_else(|| {
            let expected: Vec<_> = Setting::settable().map(Setting::name).collect();
            let near = did_you_mean(name, &expected);
            // For an unknown name, enough to identify it.
            let key = name.chars().take(80).collect();
            SettingError { key, problem: format!("unknown setting{near}; expected one of: {}", expected.join(", ")) }
        })
    }

    /// Returns the settings that can change at run time.
    pub fn settable() -> impl Iterator<Item = &'static Setting> {
        SETTINGS.iter().filter(|setting| setting.is_settable())
    }
}
