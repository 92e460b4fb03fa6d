//! Time and waiting: on the machine's clock, or on the clock of a [`World`].
//!
//! Whatever in this crate sleeps, waits for another thread, or asks what time it is does so by this module. A test can so run a whole
//! volume or pool in virtual time, on one thread of the machine, and the same seed gives the same run.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvError, RecvTimeoutError, SendError, TryRecvError};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// A clock, and threads of which one runs at a time: each until it waits.
pub trait World {
    /// The time since the world began.
    fn now(&self) -> Duration;

    /// Lets others run until `what` is woken, or until it is `until`. Returns whether it was woken.
    fn wait(&self, what: Option<usize>, until: Option<Duration>) -> bool;

    /// Wakes the one that has waited longest for `what`, or `all`.
    fn wake(&self, what: usize, all: bool);

    /// Starts a thread.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce()>);
}

thread_local! {
    /// True if there is a world: asked often, so it is cheaper than to look for one.
    static IS_VIRTUAL: Cell<bool> = const { Cell::new(false) };
    static WORLD: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
    /// A mark of the thread that runs, of the machine's or the world's.
    static MARK: Cell<bool> = const { Cell::new(false) };
}

/// When the clock of all worlds, and that of the machine in this process, began.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// How long a thread of a world waits before it looks again at what another holds.
const LOOK_INTERVAL: Duration = Duration::from_micros(5);

/// Has this thread of the machine run in a world, or in none again.
pub fn enter(world: Option<Rc<dyn World>>) {
    IS_VIRTUAL.set(world.is_some());
    WORLD.set(world);
}

fn world() -> Option<Rc<dyn World>> {
    if IS_VIRTUAL.get() { WORLD.with_borrow(Clone::clone) } else { None }
}

/// Waits in the world, and keeps the mark of the thread that waits.
fn wait(world: &dyn World, what: Option<usize>, until: Option<Duration>) -> bool {
    let mark = MARK.get();
    let woken = world.wait(what, until);
    MARK.set(mark);
    woken
}

/// The time.
pub fn now() -> Instant {
    world().map_or_else(Instant::now, |world| *START + world.now())
}

/// The time since `earlier`.
pub fn elapsed(earlier: Instant) -> Duration {
    now().saturating_duration_since(earlier)
}

/// Microseconds on a clock that all share.
pub(crate) fn now_us() -> u64 {
    let start = *START;
    now().saturating_duration_since(start).as_micros() as u64
}

/// Seconds since the beginning of 1970, or of the world.
pub(crate) fn unix_seconds() -> f64 {
    let since = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    world().map_or_else(since, |world| world.now()).as_secs_f64()
}

/// Waits for a while.
pub fn sleep(time: Duration) {
    match world() {
        None => std::thread::sleep(time),
        Some(world) => drop(wait(&*world, None, Some(world.now() + time))),
    }
}

/// True if this thread of the machine runs in a world.
pub(crate) fn is_virtual() -> bool {
    IS_VIRTUAL.get()
}

/// How many threads share work, where there could be `threads`: in a world one does it all.
pub(crate) fn threads(threads: u32) -> u32 {
    if IS_VIRTUAL.get() { 1 } else { threads }
}

/// Sets the mark of the thread that runs; returns what it was.
pub(crate) fn mark(mark: bool) -> bool {
    MARK.replace(mark)
}

/// True if the thread that runs has a mark.
pub(crate) fn is_marked() -> bool {
    MARK.get()
}

/// What is waited for: the place of something that stays where it is while that is waited for.
fn place<T: ?Sized>(of: &T) -> usize {
    std::ptr::from_ref(of).cast::<u8>() as usize
}

/// Tries in a world until it succeeds.
fn try_until<T>(world: &dyn World, mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(got) = attempt() {
            return got;
        }
        wait(world, None, Some(world.now() + LOOK_INTERVAL));
    }
}

/// Takes what others may hold: `block` waits as the machine's threads do, `attempt` takes it if it is free.
pub(crate) fn take<T>(mut attempt: impl FnMut() -> Option<T>, block: impl FnOnce() -> T) -> T {
    match world() {
        None => block(),
        Some(world) => try_until(&*world, &mut attempt),
    }
}

/// A lock.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex(parking_lot::Mutex::new(value))
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        take(|| self.0.try_lock(), || self.0.lock())
    }
}

/// A lock that many share to read.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        RwLock(parking_lot::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        take(|| self.0.try_read(), || self.0.read())
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        take(|| self.0.try_write(), || self.0.write())
    }
}

/// Where threads wait for a change of what a lock guards.
#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Condvar(parking_lot::Condvar::new())
    }

    /// Waits until it is notified, or until `until`. Returns `guard` of `mutex` again.
    pub(crate) fn wait<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        mut guard: MutexGuard<'a, T>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, T> {
        let Some(world) = world() else {
            match until {
                None => self.0.wait(&mut guard),
                Some(until) => drop(self.0.wait_until(&mut guard, until)),
            }
            return guard;
        };
        drop(guard);
        wait(&*world, Some(place(self)), until.map(|until| until.saturating_duration_since(*START)));
        mutex.lock()
    }

    pub(crate) fn notify_one(&self) {
        self.notify(false);
    }

    pub(crate) fn notify_all(&self) {
        self.notify(true);
    }

    fn notify(&self, all: bool) {
        match (world(), all) {
            (Some(world), all) => world.wake(place(self), all),
            (None, true) => drop(self.0.notify_all()),
            (None, false) => drop(self.0.notify_one()),
        }
    }
}

/// Waits in the world until [`wake_all`] wakes those who wait at `what`, for at most `time`. Returns whether it was woken.
///
/// # Panics
/// There is no world.
pub(crate) fn wait_at<T: ?Sized>(what: &T, time: Duration) -> bool {
    let world = world().expect("it is asked before whether there is a world");
    wait(&*world, Some(place(what)), Some(world.now() + time))
}

/// Wakes all that [wait](wait_at) there, if there is a world.
pub(crate) fn wake_all<T: ?Sized>(what: &T) {
    if let Some(world) = world() {
        world.wake(place(what), true);
    }
}

/// A channel from threads to one.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel();
    let place = Arc::new(0);
    (Sender { sender, place: place.clone() }, Receiver { receiver, place })
}

/// Where messages are given.
pub struct Sender<T> {
    sender: mpsc::Sender<T>,
    place: Arc<u8>,
}

impl<T> Sender<T> {
    /// Gives a message; an error if nobody takes it any more.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        self.sender.send(message)?;
        wake_all(&*self.place);
        Ok(())
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.sender.fmt(formatter)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender { sender: self.sender.clone(), place: self.place.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // The receiver looks once this thread waits: then there is one sender less.
        wake_all(&*self.place);
    }
}

/// Where messages are taken.
pub struct Receiver<T> {
    receiver: mpsc::Receiver<T>,
    place: Arc<u8>,
}

impl<T> Receiver<T> {
    /// Waits for a message; an error if nobody can give one any more.
    pub fn recv(&self) -> Result<T, RecvError> {
        match world() {
            None => self.receiver.recv(),
            Some(world) => self.recv_until(&*world, None).map_err(|_| RecvError),
        }
    }

    pub(crate) fn recv_timeout(&self, time: Duration) -> Result<T, RecvTimeoutError> {
        match world() {
            None => self.receiver.recv_timeout(time),
            Some(world) => self.recv_until(&*world, Some(world.now() + time)),
        }
    }

    fn recv_until(&self, world: &dyn World, until: Option<Duration>) -> Result<T, RecvTimeoutError> {
        loop {
            match self.receiver.try_recv() {
                Ok(message) => return Ok(message),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) if until.is_some_and(|until| until <= world.now()) => {
                    return Err(RecvTimeoutError::Timeout);
                }
                Err(TryRecvError::Empty) => drop(wait(world, Some(place(&*self.place)), until)),
            }
        }
    }

    pub(crate) fn try_iter(&self) -> mpsc::TryIter<'_, T> {
        self.receiver.try_iter()
    }
}

/// A thread that can be waited for.
#[derive(Debug)]
pub(crate) enum JoinHandle {
    Machine(std::thread::JoinHandle<()>),
    Virtual(Arc<AtomicBool>),
}

impl JoinHandle {
    /// Waits for its end.
    pub(crate) fn join(self) -> std::thread::Result<()> {
        match self {
            JoinHandle::Machine(thread) => thread.join(),
            JoinHandle::Virtual(ended) => {
                if let Some(world) = world() {
                    while !ended.load(Ordering::SeqCst) {
                        wait(&*world, Some(place(&*ended)), None);
                    }
                }
                Ok(())
            }
        }
    }
}

/// Starts a thread in the world, if there is one, or else as `spawn` does.
pub(crate) fn spawn<F: FnOnce() + Send + 'static>(
    name: &str,
    body: F,
    spawn: impl FnOnce(F) -> std::io::Result<std::thread::JoinHandle<()>>,
) -> std::io::Result<JoinHandle> {
    let Some(world) = world() else { return Ok(JoinHandle::Machine(spawn(body)?)) };
    let ended = Arc::new(AtomicBool::new(false));
    let ends = ended.clone();
    world.spawn(
        name,
        Box::new(move || {
            MARK.set(false);
            body();
            ends.store(true, Ordering::SeqCst);
            wake_all(&*ends);
        }),
    );
    Ok(JoinHandle::Virtual(ended))
}

/// Starts a thread that nobody waits for.
///
/// # Panics
/// There is no world, and no thread to be had.
pub fn start(name: &str, body: impl FnOnce() + Send + 'static) {
    let machine = |body| std::thread::Builder::new().name(name.to_owned()).spawn(body);
    drop(spawn(name, body, machine).expect("there is a thread"));
}
