//! The permitted contents of a backend that lost its flash, if data is written back in order. They are a state that the
//! volume could have had after a power failure, on a disk with a volatile cache.

/// A version of a block.
#[derive(Clone, Debug)]
struct Version<Content> {
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

/// Everything that was written and promised, in the order in which it happened. Times are numbers of events.
#[derive(Clone, Debug)]
pub struct History<Content> {
    clock: u64,
    /// By block: its versions, oldest first.
    versions: Vec<Vec<Version<Content>>>,
    promises: Vec<Promise>,
}

impl<Content: Copy + PartialEq> History<Content> {
    /// Returns the history of blocks that begin with these contents.
    pub fn new(contents: impl IntoIterator<Item = Content>) -> Self {
        let first = |content| vec![Version { submitted: 0, content, until: u64::MAX }];
        let versions: Vec<_> = contents.into_iter().map(first).collect();
        let promises = vec![Promise { given: 0, oldest: vec![0; versions.len()] }];
        History { clock: 0, versions, promises }
    }

    /// A write was submitted. Returns its time.
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
    /// older one comes back. Returns the time of the version that was found.
    pub fn settled(&mut self, block: usize, content: &Content, for_good: bool) -> u64 {
        let (now, versions) = (self.clock + 1, &mut self.versions[block]);
        let is_found = |version: &Version<Content>| version.until == u64::MAX && version.content == *content;
        let found = versions.iter().rposition(is_found).unwrap_or(0);
        versions[found + 1..].iter_mut().for_each(|version| version.until = version.until.min(now));
        let submitted = versions[found].submitted;
        if for_good {
            self.promised([(block, submitted)]);
        }
        submitted
    }

    /// True if a block that was read after a crash of only the server can have this content: nothing durable is lost.
    pub fn is_kept(&self, block: usize, content: &Content) -> bool {
        let oldest = self.promises.last().map_or(0, |promise| promise.oldest[block]);
        let is_it = |version: &Version<Content>| version.until == u64::MAX && version.content == *content;
        self.versions[block].iter().any(|version| version.submitted >= oldest && is_it(version))
    }

    /// Searches for a moment so that everything promised before it is there, and nothing submitted after it. Returns
    /// the number of promises before that moment, of all.
    pub fn check(&self, contents: &[Content]) -> Result<(usize, usize), String> {
        self.check_except(contents, |_| false)
    }

    /// True if a block had this content at some time.
    pub fn has(&self, block: usize, content: &Content) -> bool {
        self.versions[block].iter().any(|version| version.content == *content)
    }

    /// As [`check`](Self::check), without the blocks for which `is_left_out` is true.
    pub fn check_except(
        &self,
        contents: &[Content],
        is_left_out: impl Fn(usize) -> bool,
    ) -> Result<(usize, usize), String> {
        let left_out: Vec<bool> = (0..contents.len()).map(is_left_out).collect();
        let mut why = String::new();
        for (number, promise) in self.promises.iter().enumerate().rev() {
            let next = self.promises.get(number + 1).map_or(u64::MAX, |next| next.given);
            let is_wrong = |block: &usize| {
                let (content, interval) = (contents[*block], promise.oldest[*block]..next);
                let is_it = |version: &&Version<Content>| version.until > promise.given && version.content == content;
                let mut versions = self.versions[*block].iter().filter(is_it);
                !left_out[*block] && !versions.any(|version| interval.contains(&version.submitted))
            };
            let wrong = (0..contents.len()).find(is_wrong);
            match wrong {
                None => return Ok((number, self.promises.len() - 1)),
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
        Err(format!("the bare backend was never a state of the volume:{why:.3000}"))
    }
}
