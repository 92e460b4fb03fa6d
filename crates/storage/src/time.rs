//! Time and waiting, with the machine's clock or the clock of a [`World`].
//!
//! All code in this crate that sleeps, waits for a thread or reads the time uses this module. So tests can run a volume
//! or pool in virtual time on one thread, and the same seed gives the same run.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvError, RecvTimeoutError, SendError, TryRecvError};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// A virtual clock with threads. One thread runs until it waits, then another.
pub trait World {
    /// Time since the start of the world.
    fn now(&self) -> Duration;

    /// Runs other threads until `what` is woken, or until the time `until`. True if it was woken.
    fn wait(&self, what: Option<usize>, until: Option<Duration>) -> bool;

    /// Wakes the thread that has waited longest for `what`, or `all` of them.
    fn wake(&self, what: usize, all: bool);

    /// Starts a thread.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce()>);
}

thread_local! {
    /// True if there is a world. Cheaper to check than `WORLD`.
    static IS_VIRTUAL: Cell<bool> = const { Cell::new(false) };
    static WORLD: RefCell<Option<Rc<dyn World>>> = const { RefCell::new(None) };
    /// A mark of the current thread, real or virtual.
    static MARK: Cell<bool> = const { Cell::new(false) };
}

/// The start of the clock of all worlds, and of the machine's clock in this process.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Interval at which a virtual thread retries to take a lock.
const LOOK_INTERVAL: Duration = Duration::from_micros(5);

/// Makes the current thread run in a world, or leave it.
pub fn enter(world: Option<Rc<dyn World>>) {
    IS_VIRTUAL.set(world.is_some());
    WORLD.set(world);
}

fn world() -> Option<Rc<dyn World>> {
    if IS_VIRTUAL.get() { WORLD.with_borrow(Clone::clone) } else { None }
}

/// Waits in the world, and restores the mark of the current thread.
fn wait(world: &dyn World, what: Option<usize>, until: Option<Duration>) -> bool {
    let mark = MARK.get();
    let woken = world.wait(what, until);
    MARK.set(mark);
    woken
}

/// The current time.
pub fn now() -> Instant {
    world().map_or_else(Instant::now, |world| *START + world.now())
}

/// The time since `earlier`.
pub fn elapsed(earlier: Instant) -> Duration {
    now().saturating_duration_since(earlier)
}

/// Microseconds of a clock that the whole process shares.
pub(crate) fn now_us() -> u64 {
    let start = *START;
    now().saturating_duration_since(start).as_micros() as u64
}

/// Seconds since 1970, or since the start of the world.
pub(crate) fn unix_seconds() -> f64 {
    let since = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    world().map_or_else(since, |world| world.now()).as_secs_f64()
}

/// The time in microseconds since 1970 when [`now_us`] was 0; in a world, 1.
pub(crate) fn start_unix_us() -> u64 {
    match IS_VIRTUAL.get() {
        true => 1,
        false => ((unix_seconds() * 1e6) as u64).saturating_sub(now_us()),
    }
}

/// Sleeps for a time.
pub fn sleep(time: Duration) {
    match world() {
        None => std::thread::sleep(time),
        Some(world) => drop(wait(&*world, None, Some(world.now() + time))),
    }
}

/// True if this thread runs in a world.
pub(crate) fn is_virtual() -> bool {
    IS_VIRTUAL.get()
}

/// Limits a number of worker threads to one in a world.
pub(crate) fn threads(threads: u32) -> u32 {
    if IS_VIRTUAL.get() { 1 } else { threads }
}

/// Sets the mark of the current thread, and returns the old one.
pub(crate) fn mark(mark: bool) -> bool {
    MARK.replace(mark)
}

/// True if the current thread is marked.
pub(crate) fn is_marked() -> bool {
    MARK.get()
}

/// Returns the address of a value, as the identity of a waiting point. The value must not move while threads wait.
fn place<T: ?Sized>(of: &T) -> usize {
    std::ptr::from_ref(of).cast::<u8>() as usize
}

/// Retries in a world until the attempt succeeds.
fn try_until<T>(world: &dyn World, mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(got) = attempt() {
            return got;
        }
        wait(world, None, Some(world.now() + LOOK_INTERVAL));
    }
}

/// Takes a lock: with `block` on the machine, or with `attempt` in a world.
pub(crate) fn take<T>(mut attempt: impl FnMut() -> Option<T>, block: impl FnOnce() -> T) -> T {
    match world() {
        None => block(),
        Some(world) => try_until(&*world, &mut attempt),
    }
}

/// A mutex.
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

/// A lock for many readers or one writer.
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

/// A condition variable.
#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Condvar(parking_lot::Condvar::new())
    }

    /// Waits until it is notified, or until the time `until`. Returns the `guard` of `mutex` again.
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

/// Waits in the world until [`wake_all`] wakes the threads at `what`, for at most `time`. True if it was woken.
///
/// # Panics
/// There is no world.
pub(crate) fn wait_at<T: ?Sized>(what: &T, time: Duration) -> bool {
    let world = world().expect("it is asked before whether there is a world");
    wait(&*world, Some(place(what)), Some(world.now() + time))
}

/// Wakes all threads that [wait](wait_at) at `what`, if there is a world.
pub(crate) fn wake_all<T: ?Sized>(what: &T) {
    if let Some(world) = world() {
        world.wake(place(what), true);
    }
}

/// Creates a channel from several threads to one.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel();
    let place = Arc::new(0);
    (Sender { sender, place: place.clone() }, Receiver { receiver, place })
}

/// The sending side of a channel.
pub struct Sender<T> {
    sender: mpsc::Sender<T>,
    place: Arc<u8>,
}

impl<T> Sender<T> {
    /// Sends a message. Fails if the receiver was dropped.
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
        // The receiver runs once this thread waits. Then this sender is gone.
        wake_all(&*self.place);
    }
}

/// The receiving side of a channel.
pub struct Receiver<T> {
    receiver: mpsc::Receiver<T>,
    place: Arc<u8>,
}

impl<T> Receiver<T> {
    /// Waits for a message. Fails if all senders were dropped.
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

/// A thread that can be joined.
#[derive(Debug)]
pub(crate) enum JoinHandle {
    Machine(std::thread::JoinHandle<()>),
    Virtual(Arc<AtomicBool>),
}

impl JoinHandle {
    /// Waits for the thread to end.
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

/// Starts a thread in the world, if there is one, and otherwise with `spawn`.
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

/// Starts a detached thread.
///
/// # Panics
/// There is no world, and the thread cannot be started.
pub fn start(name: &str, body: impl FnOnce() + Send + 'static) {
    let machine = |body| std::thread::Builder::new().name(name.to_owned()).spawn(body);
    drop(spawn(name, body, machine).expect("there is a thread"));
}
