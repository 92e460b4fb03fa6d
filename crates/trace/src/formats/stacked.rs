//! Finds the lower devices of stacked ones: a request of a device-mapper or md device is traced there, and again on
//! each disk below.
//!
//! The kernel traces a remap (A in blkparse) when a request for one device becomes a request for another. The second
//! device is below the first, if the trace has requests of the first. A disk is not below its partitions: their
//! requests are traced as requests of the disk.

use std::collections::{BTreeMap, BTreeSet};

use flashwise_core::options::{Kind, Parameter};

use super::Reading;

/// The option that keeps the lower devices.
pub const STACKED: Parameter = Parameter::of("stacked", Kind::Choice(&["top", "all"]), "top").means(
    "top leaves out lower devices of stacked ones, such as disks below LVM; all counts their requests \
         once for each device",
);

/// An event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting<D> {
    /// A request that counts.
    Request(D),
    /// A request for `from` that became one for `to`.
    Remap { to: D, from: D },
}

/// Returns the devices that are below others, in order.
pub fn below<D: Copy + Ord>(events: impl Iterator<Item = Sighting<D>>) -> Vec<D> {
    let (mut counted, mut sources) = (BTreeSet::new(), BTreeMap::<D, BTreeSet<D>>::new());
    for event in events {
        match event {
            Sighting::Request(device) => {
                counted.insert(device);
            }
            Sighting::Remap { to, from } => {
                sources.entry(to).or_default().insert(from);
            }
        }
    }
    let is_below = |device: &D| {
        let (mut seen, mut next) = (BTreeSet::from([*device]), vec![*device]);
        while let Some(device) = next.pop() {
            for &from in sources.get(&device).into_iter().flatten() {
                if seen.insert(from) {
                    next.push(from);
                }
            }
        }
        seen.iter().any(|other| other != device && counted.contains(other))
    };
    counted.iter().copied().filter(is_below).collect()
}

/// Describes a trace in which `action` counts, without the devices `below` others.
pub fn reading(action: char, below: &[impl AsRef<[u8]>], doubts: Vec<String>) -> Option<Reading> {
    let names: Vec<_> = below.iter().map(|device| String::from_utf8_lossy(device.as_ref())).collect();
    let columns = match below {
        [] => String::new(),
        _ => format!(
            "events {action}, without those of {}, to which requests of other devices are mapped (stacked=all in \
             --format keeps them)",
            names.join(" and ")
        ),
    };
    (!columns.is_empty() || !doubts.is_empty()).then_some(Reading { columns, doubts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_below_those_with_requests_that_are_mapped_to_it() {
        use Sighting::{Remap, Request};
        let below = |events: &[Sighting<u8>]| below(events.iter().copied());
        // A partition.
        assert!(below(&[Remap { to: 8, from: 9 }, Request(8)]).is_empty());
        // A disk, directly and by a partition of it.
        assert_eq!(below(&[Request(1), Remap { to: 8, from: 1 }, Request(8)]), [8]);
        assert_eq!(below(&[Request(1), Remap { to: 9, from: 1 }, Remap { to: 8, from: 9 }, Request(8)]), [8]);
        // Two disks below an array below a logical volume.
        let array = [Remap { to: 2, from: 1 }, Remap { to: 8, from: 2 }, Remap { to: 9, from: 2 }];
        assert_eq!(below(&[&array[..], &[Request(1), Request(2), Request(8), Request(9)]].concat()), [2, 8, 9]);
        // A device whose requests are only issued to the disk below.
        assert!(below(&[Remap { to: 8, from: 1 }, Request(8), Request(7)]).is_empty());
        assert!(below(&[Remap { to: 8, from: 8 }, Request(8)]).is_empty());
    }
}
