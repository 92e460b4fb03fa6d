//! A world of threads on a virtual clock.
//!
//! One thread runs until it waits, and a seed determines the next. The same seed gives the same run, and no time passes
//! while threads run.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::time::Duration;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use flashwise_storage::time::{self, World};

use crate::random::Random;

const STACK_BYTES: usize = 1 << 20;
/// Time limit for the other threads after the main one ends; longer than any wait.
pub const ENDS_IN: Duration = Duration::from_secs(600);

/// A thread. It yields when it waits, and resumes with true if it was woken.
type Thread = Coroutine<bool, (), ()>;

/// A thread that waits, and the result of the wait.
#[derive(Default)]
struct Waiter {
    name: String,
    what: Option<usize>,
    timer: Option<(Duration, u64)>,
    woken: bool,
}

#[derive(Default)]
struct Schedule {
    now: Duration,
    /// `None` while it runs.
    threads: BTreeMap<u64, Option<ManuallyDrop<Thread>>>,
    waiters: HashMap<u64, Waiter>,
    waiting_for: HashMap<usize, VecDeque<u64>>,
    timers: BTreeMap<(Duration, u64), u64>,
    ready: Vec<u64>,
    /// Number of threads and timers so far.
    given: u64,
    running: u64,
}

impl Schedule {
    fn number(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    /// Makes a waiting thread runnable.
    fn end_wait(&mut self, thread: u64, woken: bool) {
        let waiter = self.waiters.get_mut(&thread).expect("it waits");
        waiter.woken = woken;
        if let Some(timer) = waiter.timer.take() {
            self.timers.remove(&timer);
        }
        if let Some(what) = waiter.what.take()
            && let Some(waiting) = self.waiting_for.get_mut(&what)
        {
            waiting.retain(|other| *other != thread);
        }
        self.ready.push(thread);
    }

    /// Returns a thread to run next. If all wait, the clock advances.
    fn next(&mut self, random: &mut Random) -> Option<u64> {
        if self.ready.is_empty() {
            let (&(until, _), &thread) = self.timers.first_key_value()?;
            self.now = self.now.max(until);
            self.end_wait(thread, false);
        }
        let at = random.below(self.ready.len() as u64) as usize;
        Some(self.ready.swap_remove(at))
    }
}

thread_local! {
    static TURNS: Cell<u64> = const { Cell::new(0) };
}

/// Returns the number of turns of threads in all worlds of this thread of the machine.
pub fn turns() -> u64 {
    TURNS.get()
}

/// The clock and the threads of a world.
#[derive(Default)]
struct Threads {
    state: RefCell<Schedule>,
    /// The running thread's yielder, to end its turn.
    yielder: Cell<Option<*const Yielder<bool, ()>>>,
    /// Stacks of finished threads.
    stacks: RefCell<Vec<DefaultStack>>,
}

impl World for Threads {
    fn now(&self) -> Duration {
        self.state.borrow().now
    }

    fn wait(&self, what: Option<usize>, until: Option<Duration>) -> bool {
        {
            let state = &mut *self.state.borrow_mut();
            let (thread, number) = (state.running, state.number());
            let waiter = state.waiters.get_mut(&thread).expect("it runs");
            (waiter.what, waiter.timer) = (what, until.map(|until| (until, number)));
            if let Some(what) = what {
                state.waiting_for.entry(what).or_default().push_back(thread);
            }
            if let Some(timer) = waiter.timer {
                state.timers.insert(timer, thread);
            }
        }
        let yielder = self.yielder.get().expect("a thread of the world runs");
        // SAFETY: it is of the thread that runs, which is on its own stack here and keeps it until it ends.
        #[allow(unsafe_code)]
        let yielder = unsafe { &*yielder };
        let woken = yielder.suspend(());
        self.yielder.set(Some(yielder));
        woken
    }

    fn wake(&self, what: usize, all: bool) {
        let state = &mut *self.state.borrow_mut();
        while let Some(thread) = state.waiting_for.get_mut(&what).and_then(VecDeque::pop_front) {
            state.end_wait(thread, true);
            if !all {
                break;
            }
        }
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce()>) {
        let stack = self.stacks.borrow_mut().pop();
        let stack = stack.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("there is memory for a stack"));
        let this: *const Threads = self;
        let thread = Coroutine::with_stack(stack, move |yielder: &Yielder<bool, ()>, _| {
            // SAFETY: `run` holds the world while its threads run.
            #[allow(unsafe_code)]
            let this = unsafe { &*this };
            this.yielder.set(Some(yielder));
            body();
        });
        let state = &mut *self.state.borrow_mut();
        let number = state.number();
        state.threads.insert(number, Some(ManuallyDrop::new(thread)));
        state.waiters.insert(number, Waiter { name: name.to_owned(), ..Waiter::default() });
        state.ready.push(number);
    }
}

impl Threads {
    /// Runs the next thread until it waits. Returns false if all have ended, or wait forever.
    fn run_next(&self, random: &mut Random) -> bool {
        let (number, mut thread, woken) = {
            let state = &mut *self.state.borrow_mut();
            let Some(number) = state.next(random) else { return false };
            state.running = number;
            let thread = state.threads.get_mut(&number).and_then(Option::take).expect("it is not running");
            (number, thread, state.waiters[&number].woken)
        };
        TURNS.set(TURNS.get() + 1);
        let result = thread.resume(woken);
        let state = &mut *self.state.borrow_mut();
        match result {
            CoroutineResult::Yield(()) => drop(state.threads.insert(number, Some(thread))),
            CoroutineResult::Return(()) => {
                state.threads.remove(&number);
                state.waiters.remove(&number);
                self.stacks.borrow_mut().push(ManuallyDrop::into_inner(thread).into_stack());
            }
        }
        true
    }
}

/// Lets time pass in the running world.
pub fn pass(time: Duration) {
    time::sleep(time);
}

/// Runs `main`, and all threads that are started meanwhile, in a world of their own. Returns the result of `main`, and
/// the names of threads that do not end within [`ENDS_IN`] after it.
///
/// # Panics
/// A thread panics, or `main` waits forever.
pub fn run<T: 'static>(seed: u64, main: impl FnOnce() -> T + 'static) -> (T, Vec<String>) {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            time::enter(None);
        }
    }
    let threads = Rc::new(Threads::default());
    let result: Rc<RefCell<Option<T>>> = Rc::default();
    time::enter(Some(threads.clone()));
    let _leave = Leave;
    let returned = result.clone();
    threads.spawn("main", Box::new(move || *returned.borrow_mut() = Some(main())));
    let mut random = Random(seed);
    let names = || threads.state.borrow().waiters.values().map(|waiter| waiter.name.clone()).collect::<Vec<_>>();
    while result.borrow().is_none() {
        assert!(threads.run_next(&mut random), "these threads wait for ever: {:?}", names());
    }
    let until = threads.now() + ENDS_IN;
    while threads.now() < until && threads.run_next(&mut random) {}
    let left = names();
    (result.take().expect("it has ended"), left)
}
