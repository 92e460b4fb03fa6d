use super::{Access, Model, Outcome};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Status {
    Hot,
    Cold,
    ColdInTest,
    NonResident,
}
use Status::{Cold, ColdInTest, Hot, NonResident};

#[derive(Clone, Copy, Debug)]
struct Page {
    block: u32,
    status: Status,
    referenced: bool,
}

/// The list of all pages, tail first. A hand searches for its kind from the tail.
pub struct ClockPro {
    c: usize,
    cold_min: usize,
    ghosts_max: usize,
    cold_target: usize,
    list: Vec<Page>,
}

impl ClockPro {
    pub fn new(c: usize, cold: f64, ghosts: f64) -> Self {
        let cold_min = 1.max((cold * c as f64) as usize);
        ClockPro { c, cold_min, ghosts_max: (ghosts * c as f64) as usize, cold_target: cold_min, list: vec![] }
    }

    fn count(&self, kinds: &[Status]) -> usize {
        self.list.iter().filter(|page| kinds.contains(&page.status)).count()
    }

    /// Returns the position of the first page of these kinds.
    fn hand(&self, kinds: &[Status]) -> Option<usize> {
        self.list.iter().position(|page| kinds.contains(&page.status))
    }

    fn of(&self, block: u32) -> Option<usize> {
        self.list.iter().position(|page| page.block == block)
    }

    fn adjust(&mut self, by: isize) {
        let most = (self.c - self.cold_min).max(self.cold_min);
        self.cold_target = self.cold_target.saturating_add_signed(by).clamp(self.cold_min, most);
    }

    /// Ends the test of the page at `at`. Returns true if it is still on the list.
    fn end_test(&mut self, at: usize) -> bool {
        let page = &mut self.list[at];
        let by = if page.referenced { 1 } else { -1 };
        let stays = page.status == ColdInTest;
        page.status = Cold;
        if !stays {
            self.list.remove(at);
        }
        self.adjust(by);
        stays
    }

    fn end_tests_behind_hot(&mut self) {
        while let (Some(hot), Some(test)) = (self.hand(&[Hot]), self.hand(&[ColdInTest, NonResident]))
            && test < hot
        {
            self.end_test(test);
        }
    }

    fn come_to_head(&mut self, block: u32, status: Status) {
        if let Some(at) = self.of(block) {
            self.list.remove(at);
        }
        self.list.push(Page { block, status, referenced: false });
    }

    /// Moves HAND_hot, which starts at a hot page, page by page up to the trigger.
    fn demote(&mut self, trigger: u32) -> bool {
        let Some(mut at) = self.hand(&[Hot]) else { return false };
        let mut demoted = false;
        // If the only hot page is new, none arrived before the trigger.
        let came_before = self.of(trigger) > Some(at);
        while came_before && self.list[at].block != trigger && !demoted {
            let Page { block, status, referenced } = self.list[at];
            match (status, referenced) {
                (Hot, true) => self.come_to_head(block, Hot),
                (Hot, false) => {
                    self.come_to_head(block, Cold);
                    demoted = true;
                }
                (Cold, _) => at += 1,
                _ => at += usize::from(self.end_test(at)),
            }
        }
        self.end_tests_behind_hot();
        demoted
    }

    fn may_promote(&mut self, block: u32) -> bool {
        let in_test =
            |model: &ClockPro| model.of(block).filter(|&at| [ColdInTest, NonResident].contains(&model.list[at].status));
        let Some(at) = in_test(self) else { return false };
        self.adjust(1);
        self.list[at].referenced = false;
        while self.count(&[Hot]) >= self.c - self.cold_target {
            if in_test(self).is_none() || !self.demote(block) {
                return false;
            }
        }
        true
    }

    fn evict(&mut self) -> u32 {
        loop {
            let at = self.hand(&[Cold, ColdInTest]).expect("a full cache has a cold page");
            let Page { block, status, referenced } = self.list[at];
            if referenced {
                let promoted = status == ColdInTest && self.may_promote(block);
                self.come_to_head(block, if promoted { Hot } else { ColdInTest });
                continue;
            }
            if status == ColdInTest {
                self.list[at].status = NonResident;
            } else {
                self.list.remove(at);
            }
            while self.count(&[NonResident]) > self.ghosts_max {
                let test = self.hand(&[ColdInTest, NonResident]).expect("there are some");
                self.end_test(test);
            }
            return block;
        }
    }
}

impl Model for ClockPro {
    fn access(&mut self, access: Access<u32>) -> Outcome<u32> {
        let block = access.block;
        if let Some(at) = self.of(block)
            && self.list[at].status != NonResident
        {
            self.list[at].referenced = true;
            return Outcome::Hit;
        }
        let free = self.c - self.count(&[Hot, Cold, ColdInTest]);
        let evicted = (free == 0).then(|| self.evict());
        let is_hot = if free == 0 { self.may_promote(block) } else { free > self.cold_min };
        self.come_to_head(block, if is_hot { Hot } else { ColdInTest });
        self.end_tests_behind_hot();
        Outcome::Admit { evicted }
    }

    fn remove(&mut self, block: u32) -> bool {
        let Some(at) = self.of(block) else { return false };
        let page = self.list.remove(at);
        self.end_tests_behind_hot();
        page.status != NonResident
    }
}
