//! The permitted contents of a backend that lost its flash, if data is written back in order. They are a state that the
//! volume could have had after a power failure, on a disk with a volatile cache.

use crate::crash::model::{Content, SECTORS};

/// A version of a block.
#[derive(Clone, Debug)]
struct Version {
    submitted: u64,
    content: Content,
    /// A crash at this time lost it.
    until: u64,
}

/// A promise that something is durable.
#[derive(Clone, Debug)]
struct Promise {
    /// When it was given.
    given: u64,
    /// By block, when the version was submitted that is the oldest allowed from then on.
    oldest: Vec<u64>,
}

/// Everything that was written and promised, in the order in which it happened.
#[derive(Clone, Debug)]
pub struct History {
    clock: u64,
    /// By block: its versions, oldest first.
    versions: Vec<Vec<Version>>,
    promises: Vec<Promise>,
}

impl History {
    pub fn new(blocks: usize) -> History {
        let promises = vec![Promise { given: 0, oldest: vec![0; blocks] }];
        let first = Version { submitted: 0, content: [0; SECTORS], until: u64::MAX };
        History { clock: 0, versions: vec![vec![first]; blocks], promises }
    }

    /// A write was submitted.
    pub fn written(&mut self, block: usize, content: Content) -> u64 {
        self.clock += 1;
        self.versions[block].push(Version { submitted: self.clock, content, until: u64::MAX });
        self.clock
    }

    /// These versions of blocks, or newer ones, are durable from now on.
    pub fn promised(&mut self, versions: impl IntoIterator<Item = (usize, u64)>) {
        self.clock += 1;
        let mut oldest = self.promises.last().unwrap().oldest.clone();
        for (block, submitted) in versions {
            oldest[block] = oldest[block].max(submitted);
        }
        self.promises.push(Promise { given: self.clock, oldest });
    }

    /// After a crash, a block was found to have a content. Newer versions of it are gone from now on. `for_good`: no
    /// older one comes back.
    pub fn settled(&mut self, block: usize, content: &Content, for_good: bool) -> u64 {
        let (now, versions) = (self.clock + 1, &mut self.versions[block]);
        let is_found = |version: &Version| version.until == u64::MAX && version.content == *content;
        let found = versions.iter().rposition(is_found).unwrap_or(0);
        versions[found + 1..].iter_mut().for_each(|version| version.until = version.until.min(now));
        let submitted = versions[found].submitted;
        self.promised(for_good.then_some((block, submitted)));
        submitted
    }

    /// Searches for a moment so that everything promised before it is there, and nothing submitted after it.
    pub fn check(&self, contents: &[Content]) -> Result<(), String> {
        let mut why = String::new();
        for (number, promise) in self.promises.iter().enumerate().rev() {
            let next = self.promises.get(number + 1).map_or(u64::MAX, |next| next.given);
            let wrong =
                contents.iter().zip(&self.versions).zip(&promise.oldest).position(|((content, all), &oldest)| {
                    let is_there = |version: &Version| version.until > promise.given && version.content == *content;
                    !all.iter().any(|version| (oldest..next).contains(&version.submitted) && is_there(version))
                });
            match wrong {
                None => return Ok(()),
                Some(block) => {
                    let held = self.versions[block].iter().filter(|version| version.content == contents[block]);
                    let line = format!(
                        "\n  block {block} holds what was submitted at {:?} and would have to be of {} or later",
                        held.map(|version| version.submitted).collect::<Vec<_>>(),
                        promise.oldest[block]
                    );
                    if !why.ends_with(&line) {
                        why += &format!("\n after {}, before {next}:{line}", promise.given);
                    }
                }
            }
        }
        Err(format!("the backend alone was never a state of the volume:{why:.3000}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_write_needs_what_was_flushed_before_it() {
        let mut history = History::new(2);
        let content = |number: u64| [number; SECTORS];
        let first = history.written(0, content(1));
        assert_eq!(history.check(&[content(0), content(0)]), Ok(()));
        history.promised([(0, first)]);
        assert_eq!(history.check(&[content(0), content(0)]), Ok(()), "an earlier moment");
        history.written(1, content(2));
        assert!(history.check(&[content(0), content(2)]).is_err());
        assert_eq!(history.check(&[content(1), content(2)]), Ok(()));
        history.written(0, content(3));
        assert_eq!(history.check(&[content(3), content(2)]), Ok(()));
        assert!(history.check(&[content(4), content(2)]).is_err(), "never written");
        // A crash loses the last version: the backend has it only at moments before.
        history.settled(0, &content(1), true);
        assert_eq!(history.check(&[content(3), content(2)]), Ok(()));
        history.written(1, content(5));
        assert!(history.check(&[content(3), content(5)]).is_err());
        assert_eq!(history.check(&[content(1), content(5)]), Ok(()));
    }
}
